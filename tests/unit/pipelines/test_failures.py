import traceback

import pytest

from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    CheckpointLostError,
    DeadLetterLimitError,
    HeadraceError,
    RegistryUnreachableError,
    TopicMissingError,
)
from headrace.pipelines.failures import RestartBudget, cause, headline, used_twice
from headrace.pipelines.remote_errors import RemoteError, original_error, raising_remote_errors
from headrace.settings.model import RestartSettings


def test_restarts_wait_twice_as_long_each_time_and_end_with_the_budget():
    budget = RestartBudget(RestartSettings(budget=3, first_delay_seconds=1.0))
    assert [budget.next_delay(now) for now in (0, 1, 2, 3)] == [1.0, 2.0, 4.0, None]


def test_the_budget_is_for_an_hour():
    budget = RestartBudget(RestartSettings(budget=1))
    assert budget.next_delay(0) is not None
    assert budget.next_delay(10) is None
    assert budget.next_delay(3700) is not None


@pytest.mark.parametrize(
    "error",
    [
        TopicMissingError("clicks"),
        AuthorizationError("READ", "topic clicks", "User:ads"),
        BrokerUnreachableError("b:9092", 'it said "no"\nand left'),
        RegistryUnreachableError("http://registry", "timed out"),
        CheckpointLostError("p", "/lake", "évidence", in_table=False),
        DeadLetterLimitError("p", "11 of 20 bad"),
    ],
)
def test_an_error_of_another_process_keeps_its_class_and_its_facts(error):
    with pytest.raises(RemoteError) as raised, raising_remote_errors():
        raise error
    printed = "".join(traceback.format_exception(raised.value))
    crossed = cause(None, RuntimeError(f"job aborted\n{printed}\tat org.apache.spark.Task"))
    assert type(crossed) is type(error)
    assert vars(crossed) == vars(error)
    assert str(crossed) == str(error)


def test_an_error_that_is_no_value_keeps_its_message():
    with pytest.raises(RemoteError) as raised, raising_remote_errors():
        raise HeadraceError("as it says")
    crossed = original_error(str(raised.value))
    assert (type(crossed), str(crossed)) == (HeadraceError, "as it says")


def test_a_foreign_error_passes_as_it_is():
    with pytest.raises(ValueError, match="boom"), raising_remote_errors():
        raise ValueError("boom")
    assert original_error("java.lang.OutOfMemoryError: heap") is None


def test_the_reason_of_a_failure_is_one_sentence_and_the_error_behind_it():
    text = "Query terminated with exception: job aborted\n=== Streaming Query ===\nValueError: boom"
    found = headline(RuntimeError(text))
    assert found == "Query terminated with exception: job aborted (ValueError: boom)"


def test_a_silent_error_is_named_by_its_type():
    assert headline(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_sparks_refusal_of_a_second_driver_is_recognised():
    text = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs"
    assert used_twice(text)
    assert not used_twice("[UNSUPPORTED] something else")
