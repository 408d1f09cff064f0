import pytest

from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    DeadLetterLimitError,
    HeadraceError,
    RefusedError,
)
from headrace.pipelines.failures import RestartBudget, headline, named_error, used_twice
from headrace.settings.model import RestartSettings


def test_restarts_wait_twice_as_long_each_time_and_end_with_the_budget():
    budget = RestartBudget(RestartSettings(budget=3, first_delay_seconds=1.0))
    assert [budget.next_delay(now) for now in (0, 1, 2, 3)] == [1.0, 2.0, 4.0, None]


def test_the_budget_is_for_an_hour():
    budget = RestartBudget(RestartSettings(budget=1))
    assert budget.next_delay(0) is not None
    assert budget.next_delay(10) is None
    assert budget.next_delay(3700) is not None


def test_a_refusal_in_another_process_is_recognised_in_what_spark_passes_on():
    text = "Traceback ...\nheadrace.errors.TopicRecreatedError: The topic was deleted: topic 't'"
    error = named_error(text)
    assert isinstance(error, RefusedError)
    assert str(error) == "The topic was deleted: topic 't'"


@pytest.mark.parametrize("kind", [AuthorizationError, DeadLetterLimitError, BrokerUnreachableError])
def test_an_error_of_a_task_that_decides_on_a_restart_is_recognised(kind):
    error = named_error(f"Traceback ...\nheadrace.errors.{kind.__name__}: as it says")
    assert isinstance(error, kind)
    assert str(error) == "as it says"


def test_other_errors_of_ours_are_not_refusals():
    error = named_error("x\nheadrace.errors.SinkError: The sink can't take the batch")
    assert isinstance(error, HeadraceError)
    assert not isinstance(error, RefusedError)


def test_a_foreign_error_is_not_ours():
    assert named_error("java.lang.OutOfMemoryError: heap") is None


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
