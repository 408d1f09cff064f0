"""The end of a record that failed for good: it stops the instance, is skipped, or a dead letter."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Protocol

from headrace.errors import (
    InvalidRecordError,
    ProcessingFailedError,
    ProcessingTimeoutError,
    RegistryUnreachableError,
)
from headrace.kafka.dead_letters.limiter import DeadLetterRules
from headrace.model import DeadLetter, TopicPartition
from headrace.model.durations import milliseconds
from headrace.runtime.clock import Clock, now_in_ms
from headrace.runtime.error_text import bounded_text, error_message, error_text, is_error
from headrace.workers.declaration import Worker
from headrace.workers.failures.failure_log import FailureLog, raised_at
from headrace.workers.failures.limit import OriginBlocks, ReadWindows
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.attempt import CURRENT, OwnCall, RecordAttempt
from headrace.workers.tasks.policy import DeadLetters, RetryTopics, Skip, Stop, ending, retry_delay
from headrace.workers.tasks.retry_topics import retry_headers, retry_topic
from headrace.workers.tasks.task import Send, WorkerRecord

_LOG = logging.getLogger("headrace.workers")
FAILED, TIMED_OUT = "processing-failed", "processing-timeout"


class DeadLetterOutput(Protocol):
    """Takes the dead letters of one instance. Both methods are called on the event loop."""

    def on_rebalance(self, here: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Partitions came or went; ``here`` are those of this instance, now and later."""

    async def write(self, letter: DeadLetter) -> None:
        """Returns when ``letter`` is durable, or a letter for its position was before.

        Raises:
            HeadraceError: if it may be written or not; the instance ends.
        """


class Failures:
    """What one instance does with records for which no attempt is left.

    Attributes:
        log: of each attempt that failed.
    """

    def __init__(
        self, worker: Worker, letters: DeadLetterOutput, send: Send, clock: Clock = now_in_ms
    ) -> None:
        self._worker, self._letters, self._send, self._clock = worker, letters, send, clock
        self._end = ending(worker.on_failure)
        self._limit = _limit(worker)
        self.log = FailureLog(worker.name)

    def read(self, assigned: AssignedPartition, offset: int, *, is_new: bool) -> None:
        """Notes that a record of ``assigned`` was read, perhaps again."""
        if self._limit is not None:
            self._limit.read(assigned, offset, is_new=is_new)

    def succeeded(self, attempt: RecordAttempt) -> None:
        """Notes that a task did a record, at whatever attempt."""
        if self._limit is not None:
            self._limit.succeeded(attempt)

    def attempt_failed(self, record: WorkerRecord, error: BaseException) -> None:
        """Logs an attempt that failed; its policy is asked next."""
        self.log.failed(record, error)

    def on_rebalance(self, here: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Partitions came or went; ``here`` are those of this instance, now and later."""
        self._letters.on_rebalance(here)
        if self._limit is not None:
            self._limit.on_rebalance(here)

    async def end(self, attempt: RecordAttempt, error: BaseException) -> str:
        """Returns once the record is done despite its failure: the name of its outcome.

        Raises:
            ProcessingFailedError, ProcessingTimeoutError: if the worker stops at failures.
            RegistryUnreachableError: if the record's schema is not known, which is not its fault.
            DeadLetterLimitError: if there are too many.
            BrokerUnreachableError, SinkError, TopicMissingError: if the letter was not written.
        """
        # Whatever the policy: a dead letter for each record would empty the topic during an outage.
        if is_error(error, RegistryUnreachableError):
            raise error
        policy = self._worker.on_failure
        delay = retry_delay(policy, error, attempt.record.attempt)
        if isinstance(policy, RetryTopics) and delay is not None:
            await self._retry_later(attempt, error, delay)
            return "retried"
        if isinstance(self._end, Stop):
            raise _stopping(attempt, error) from error
        if isinstance(self._end, Skip):
            _LOG.warning("%s: skipped %s: %s", self._worker.name, attempt.record, _detail(error))
            return "skipped"
        record = attempt.record
        # First: the record that exceeds the limit gets no letter, and a restart reads it first.
        if self._limit is not None:
            self._limit.reject(attempt, f"{record}: {_detail(error)}")
        with _sending_for(attempt):
            await self._letters.write(_letter(attempt, error))
        return "dead_letters"

    async def _retry_later(
        self, attempt: RecordAttempt, error: BaseException, delay: timedelta
    ) -> None:
        record = attempt.record
        due_ms = self._clock() + milliseconds(delay)
        headers = retry_headers(record, due_ms, attempt.first_failed_ms, _detail(error))
        topic = retry_topic(self._worker.name, record.topic, record.attempt)
        headers += attempt.replay
        # A crash before the send is confirmed repeats the record; one after it may leave two.
        with _sending_for(attempt):
            sent = self._send(topic, record.value, key=record.key, headers=headers)
        await sent


def _limit(worker: Worker) -> ReadWindows | OriginBlocks | None:
    end = ending(worker.on_failure)
    if not isinstance(end, DeadLetters):
        return None
    rules = DeadLetterRules("worker", worker.name, end.limit)
    return OriginBlocks(rules) if isinstance(worker.on_failure, RetryTopics) else ReadWindows(rules)


@contextlib.contextmanager
def _sending_for(attempt: RecordAttempt) -> Iterator[None]:
    """Sends of the block are of the attempt's outcome: those of its task may be dropped.

    Else they might belong to a record that started meanwhile.
    """
    attempt.outcome = OwnCall("on_failure")
    current = CURRENT.set(attempt.outcome)
    try:
        yield
    finally:
        CURRENT.reset(current)


def _stopping(attempt: RecordAttempt, error: BaseException) -> Exception:
    if is_error(error, ProcessingTimeoutError):
        return ProcessingTimeoutError(error_message(error))
    attempts = f" after {attempt.record.attempt} attempts" if attempt.record.attempt > 1 else ""
    where = raised_at(error)
    at = f" (raised at {where})" if where else ""
    return ProcessingFailedError(f"{attempt.record} failed{attempts}: {_detail(error)}{at}")


def _letter(attempt: RecordAttempt, error: BaseException) -> DeadLetter:
    record = attempt.record
    reason = TIMED_OUT if is_error(error, ProcessingTimeoutError) else FAILED
    if is_error(error, InvalidRecordError):
        reason = bounded_text(error, lambda: error.reason)
    return DeadLetter(
        record.topic_partition,
        record.offset,
        reason,
        _detail(error),
        record.key,
        record.value,
        record.headers + attempt.replay,
        record.timestamp_ms,
        record.attempt,
        attempt.first_failed_ms,
    )


def _detail(error: BaseException) -> str:
    if is_error(error, InvalidRecordError):
        return bounded_text(error, lambda: error.detail)
    if is_error(error, ProcessingTimeoutError):
        return error_message(error)
    return error_text(error)
