"""Failed attempts in the log and in the instance's reason."""

import asyncio
import logging
from datetime import timedelta
from types import SimpleNamespace

import pytest
from tests.unit.workers.users_errors import ERRORS, raised

from headrace.errors import InvalidRecordError, ProcessingFailedError
from headrace.model import Topic
from headrace.workers import Stop, Worker, WorkerRecord, WorkerTask
from headrace.workers.failures.failure_log import FailureLog, raised_at
from headrace.workers.failures.failures import Failures
from headrace.workers.lanes.attempt import CURRENT, Call, RecordAttempt
from headrace.workers.tasks.policy import Retry, RetryTopics, retry_delay
from headrace.workers.tasks.record import ConsumedRecord

RECORD = WorkerRecord("clicks", 2, 7, b"k", b"v", attempt=3)


def look_up(campaign):
    raise LookupError(f"no campaign {campaign}")  # the line that is named


def failure(call, *arguments):
    with pytest.raises(Exception) as found:
        call(*arguments)
    return found.value


def test_a_failed_attempt_is_logged_with_record_attempt_and_traceback(caplog):
    with caplog.at_level(logging.WARNING, "headrace.workers"):
        FailureLog("enrich").failed(RECORD, failure(look_up, 7))
    [logged] = caplog.records
    assert logged.getMessage() == "enrich: attempt 3 at clicks[2]@7 failed"
    # Spark's loggers, where they were used before, have changed the format of caplog's text.
    traceback = logging.Formatter().formatException(logged.exc_info)
    assert "the line that is named" in traceback
    assert "LookupError: no campaign 7" in traceback


@pytest.mark.parametrize("make", ERRORS)
def test_a_failed_attempt_is_logged_with_its_traceback_whatever_was_raised(caplog, make):
    FailureLog("enrich").failed(RECORD, raised(make))
    [logged] = caplog.records
    assert "users_errors.py" in logging.Formatter().formatException(logged.exc_info)


def test_so_many_are_logged_in_a_span_and_the_others_counted(caplog):
    now = 0.0
    log = FailureLog("enrich", lambda: now)
    for _ in range(15):
        log.failed(RECORD, OSError("away"))
    assert len(caplog.records) == 10
    now = 10.0
    log.failed(RECORD, OSError("away"))
    assert [one.getMessage() for one in caplog.records[10:]] == [
        "enrich: 5 more attempts failed, not logged",
        "enrich: attempt 3 at clicks[2]@7 failed",
    ]


def test_an_instance_that_stops_names_the_users_line_also_when_a_library_raised():
    async def run(error):
        failures = Failures(Worker("w", Topic("clicks"), WorkerTask, on_failure=Stop()), None, None)
        await failures.end(SimpleNamespace(record=RECORD, first_failed_ms=1), error)

    with pytest.raises(ProcessingFailedError) as found:
        asyncio.run(run(failure(asyncio.run, None)))
    assert "test_failures.py:" in str(found.value)
    assert "in failure)" in str(found.value)
    with pytest.raises(ProcessingFailedError, match=r"test_failures.py:\d+, in look_up\)"):
        asyncio.run(run(failure(look_up, 7)))


def test_a_retry_is_sent_for_its_own_record():
    sent_for = []

    async def send(*_, **__):
        """Its confirmation."""

    def sending(*arguments, **options):
        sent_for.append(CURRENT.get())
        return send(*arguments, **options)

    async def run():
        worker = Worker("w", Topic("clicks"), WorkerTask, on_failure=RetryTopics())
        record = WorkerRecord("clicks", 0, 1, None, b"v")
        late = RecordAttempt(ConsumedRecord(record, record.topic_partition, 1), 1, lambda *_: None)
        begun_meanwhile = Call()
        CURRENT.set(begun_meanwhile)
        assert await Failures(worker, None, sending).end(late, OSError("not written")) == "retried"
        assert sent_for == [late.outcome]
        assert CURRENT.get() is begun_meanwhile

    asyncio.run(run())


def test_an_error_that_nothing_raised_has_no_line():
    assert raised_at(InvalidRecordError("bad")) == ""


@pytest.mark.parametrize(
    ("first", "most", "attempt", "delay"),
    [
        (timedelta(seconds=1), timedelta(minutes=1), 3, timedelta(seconds=4)),
        (timedelta(0), timedelta(minutes=1), 31, timedelta(0)),
        (timedelta(days=1), timedelta(days=7), 31, timedelta(days=7)),
        (timedelta(days=999_999), timedelta.max, 99_999, timedelta.max),
        (timedelta(microseconds=1), timedelta(days=1), 63, timedelta(days=1)),
    ],
)
def test_a_delay_doubles_up_to_its_maximum_however_many_attempts_there_were(
    first, most, attempt, delay
):
    policy = Retry(attempts=100_000, first_delay=first, max_delay=most)
    assert retry_delay(policy, ValueError(), attempt) == delay
