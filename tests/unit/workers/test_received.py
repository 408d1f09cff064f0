"""A record on its way through retry topics."""

from __future__ import annotations

from headrace.testing.memory import MemoryRecord
from headrace.workers.received import received, retry_headers
from headrace.workers.task import WorkerRecord


class Message(MemoryRecord):
    """A record of a retry topic."""

    def topic(self) -> str:
        return "orders.enrich.retry-1"

    def partition(self) -> int:
        return 0


def test_a_retry_knows_how_often_its_record_was_replayed_and_no_more_for_whom():
    theirs = (("trace", b"1"), ("headrace-replays", b"2"), ("headrace-replay-for", b"enrich"))
    record = WorkerRecord("orders", 3, 7, b"k", b"v", theirs, 1_700_000_000_000)
    headers = retry_headers(record, 5, 4, "ValueError: no")
    retries = {"orders.enrich.retry-1": "orders"}
    read = received(Message(0, b"v", b"k", header=headers), retries)
    assert (read.record.topic, read.record.partition, read.record.offset) == ("orders", 3, 7)
    assert read.record.headers == (("trace", b"1"), ("headrace-replays", b"2"))
