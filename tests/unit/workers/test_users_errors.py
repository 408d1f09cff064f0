"""Whatever a task raises is a failed attempt: its policy decides, and the next record follows."""

from datetime import timedelta

import pytest
from tests.unit.workers.users_errors import ERRORS, FALSE_ERRORS, GOOD, RAISING, SENDING, failing
from tests.waiting import LIMIT_SECONDS

from headrace.errors import InvalidRecordError, ProcessingFailedError
from headrace.model import Topic
from headrace.testing import Outcome, WorkerBench
from headrace.workers import DeadLetters, Retry, RetryTopics, Skip, Stop, Worker

SECOND = timedelta(seconds=1)
MAX_DETAIL_CHARACTERS = 8 * 1024


def bench_of(task, policy):
    worker = Worker("orders", Topic("orders"), task, on_failure=policy)
    bench = WorkerBench(worker, patience=timedelta(seconds=LIMIT_SECONDS))
    for number in numbers(task):
        bench.failing_topics[failing(number)] = ERRORS[number]()
    return bench


def numbers(task):
    """Returns the errors of a task: a client library sends no other ones than exceptions."""
    return range(len(FALSE_ERRORS if task in SENDING else ERRORS))


@pytest.mark.parametrize(
    ("policy", "attempts", "outcome"),
    [
        (DeadLetters(), 1, Outcome.DEAD_LETTER),
        (Skip(), 1, Outcome.SKIPPED),
        (Retry(attempts=2, first_delay=SECOND), 2, Outcome.DEAD_LETTER),
        (RetryTopics((SECOND,), then=Skip()), 2, Outcome.SKIPPED),
    ],
    ids=["dead letters", "skip", "retry", "retry topics"],
)
@pytest.mark.parametrize("task", RAISING + SENDING)
def test_an_error_of_any_kind_is_a_failed_attempt(task, policy, attempts, outcome):
    values = [value for number in numbers(task) for value in (b"%d" % number, GOOD)]
    with bench_of(task, policy) as bench:
        fed = bench.feed(*values)
        bench.advance(SECOND * 2 * len(values))
        for record in fed:
            is_good = record.record.value == GOOD
            assert record.outcome is (Outcome.PROCESSED if is_good else outcome)
            is_final = any(issubclass(type(error), InvalidRecordError) for error in record.errors)
            assert len(record.errors) == (0 if is_good else 1 if is_final else attempts)
        assert bench.committable() == len(values)
        assert all(len(letter.detail) <= MAX_DETAIL_CHARACTERS for letter in bench.dead_letters)


@pytest.mark.parametrize("task", RAISING + SENDING)
def test_an_error_of_any_kind_stops_a_worker_that_stops_at_failures(task):
    for number in numbers(task):
        with bench_of(task, Stop()) as bench:
            with pytest.raises(ProcessingFailedError, match=r"orders\[0\]@0 failed: ") as stopped:
                bench.feed(b"%d" % number, GOOD)
            assert bench.committable() == 0
        assert len(str(stopped.value)) < 2 * MAX_DETAIL_CHARACTERS
