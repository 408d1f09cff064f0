"""A record on its way through retry topics."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from headrace.model import Topic
from headrace.testing.memory import MemoryRecord
from headrace.workers import RetryTopics, Worker, WorkerTask
from headrace.workers.failures import failures
from headrace.workers.failures.failures import Failures
from headrace.workers.lanes.attempt import RecordAttempt
from headrace.workers.tasks.record import ConsumedRecord
from headrace.workers.tasks.retry_topics import retry_headers
from headrace.workers.tasks.task import WorkerRecord


class Message(MemoryRecord):
    def leader_epoch(self):
        return 5

    """A record of a retry topic."""

    def topic(self) -> str:
        return "orders.enrich.retry-1"

    def partition(self) -> int:
        return 0


TRACE = ("trace", b"1")
RECORD = WorkerRecord("orders", 3, 7, b"k", b"v", (TRACE,), 1_700_000_000_000)
REPLAY = (("headrace-replays", b"2"), ("headrace-replay-for", b"orders/id/3:enrich"))


class Once:
    """Takes what is sent to a retry topic."""

    def __init__(self):
        self.headers = ()

    async def __call__(self, topic, value, *, key, headers):
        self.headers = headers


def test_a_task_does_not_see_the_headers_of_a_replay():
    read = ConsumedRecord.of(Message(0, b"v", b"k", header=(REPLAY[0], TRACE, REPLAY[1])), {})
    assert (read.record.headers, read.replay) == ((TRACE,), REPLAY)


def test_headers_of_a_replay_go_through_a_retry_topic_past_the_task():
    first = RecordAttempt(ConsumedRecord(RECORD, RECORD.topic_partition, 7, replay=REPLAY), 1, None)
    policy = RetryTopics(delays=(timedelta(seconds=1),))
    worker = Worker("enrich", Topic("orders"), WorkerTask, on_failure=policy)
    sent = Once()
    asyncio.run(Failures(worker, None, sent).end(first, ValueError("no")))
    read = ConsumedRecord.of(
        Message(0, b"v", b"k", header=sent.headers), {"orders.enrich.retry-1": "orders"}
    )
    assert (read.record.headers, read.record.attempt, read.replay) == ((TRACE,), 2, REPLAY)


def test_the_dead_letter_of_a_later_attempt_has_the_headers_of_the_replay():
    first = RecordAttempt(ConsumedRecord(RECORD, RECORD.topic_partition, 7, replay=REPLAY), 1, None)
    letter = failures._letter(first.next(), ValueError("no"))
    assert letter.headers == (TRACE, *REPLAY)


def test_a_retry_has_the_place_of_its_record():
    headers = retry_headers(RECORD, 5, 4, "ValueError: no")
    retries = {"orders.enrich.retry-1": "orders"}
    read = ConsumedRecord.of(Message(0, b"v", b"k", header=headers), retries)
    assert (read.record.topic, read.record.partition, read.record.offset) == ("orders", 3, 7)
    assert (read.record.headers, read.replay) == ((TRACE,), ())
