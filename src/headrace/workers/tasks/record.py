"""A record as it was read, and as its task sees it: they differ for one from a retry topic."""

from __future__ import annotations

from collections.abc import Mapping

import confluent_kafka
import msgspec

from headrace.errors import InvalidRecordError
from headrace.kafka.client.headers import foreign_headers, headers_of
from headrace.kafka.dead_letters.replayed import parted
from headrace.kafka.read.log_cuts import epoch_of
from headrace.model import TopicPartition
from headrace.workers.tasks.retry_topics import RETRY_HEADER_PREFIX
from headrace.workers.tasks.task import Headers, WorkerRecord

BAD_HEADER, BAD_RETRY = "bad-header-name", "bad-retry-headers"
# More partitions than a topic has: it separates the artificial places of several retry topics.
_MAX_PARTITIONS = 1_000_000


class ConsumedRecord(msgspec.Struct, frozen=True):
    """A record that was read.

    Attributes:
        record: as its task sees it: where it was at first, without our headers.
        partition: where it was read.
        offset: there.
        due_ms: its turn does not come before, milliseconds since 1970.
        first_failed_ms: when an attempt failed first; -1: none has.
        error: why no task can be given it; ``None``: one can.
        replay: headers of its replay; none: it was not replayed. Dead letters and retry topics
            need them, and no task: copies of the record would carry them along.
        epoch: of the leader that wrote it where it was read; -1: not known.
    """

    record: WorkerRecord
    partition: TopicPartition
    offset: int
    due_ms: int = 0
    first_failed_ms: int = -1
    error: InvalidRecordError | None = None
    replay: Headers = ()
    epoch: int = -1

    @classmethod
    def of(cls, message: confluent_kafka.Message, retries: Mapping[str, str]) -> ConsumedRecord:
        """Returns the record of ``message``; one from a retry topic is read from its headers.

        In other topics our headers prove nothing: the record may be a copy, or made up. A record
        that can't be read keeps what can be, with the error that its policy decides about.

        Args:
            message: as it was consumed.
            retries: the retry topics, and the topic that each is for.
        """
        _, timestamp = message.timestamp()
        partition = TopicPartition.of(message)
        headers, epoch = headers_of(message), epoch_of(message)
        theirs, replay = parted(headers) if headers else ((), ())
        record = WorkerRecord(
            partition.topic,
            partition.partition,
            message.offset(),
            message.key(),
            message.value(),
            theirs,
            timestamp,
        )
        if partition.topic in retries:
            read = _retried(record, partition, retries)
            return msgspec.structs.replace(read, replay=replay, epoch=epoch)
        if headers is None:
            error = InvalidRecordError(BAD_HEADER, "the name of a header is not UTF-8")
            return cls(record, partition, record.offset, error=error, epoch=epoch)
        return cls(record, partition, record.offset, replay=replay, epoch=epoch)


def _retried(
    read: WorkerRecord, partition: TopicPartition, retries: Mapping[str, str]
) -> ConsumedRecord:
    try:
        return _first_read(read, partition)
    except (KeyError, ValueError) as unread:
        reason = f"{read} is no record that a worker put there: {unread!r}"
    # A letter is known by its position. This one has none in the topic, so it gets one below 0,
    # which no other record of the retry topics has.
    place = -1 - partition.partition - _MAX_PARTITIONS * list(retries).index(partition.topic)
    foreign = msgspec.structs.replace(read, topic=retries[partition.topic], partition=place)
    error = InvalidRecordError(BAD_RETRY, reason)
    return ConsumedRecord(foreign, partition, read.offset, error=error)


def _first_read(read: WorkerRecord, partition: TopicPartition) -> ConsumedRecord:
    """Returns a record of a retry topic as its task saw it at first."""
    values = {
        name.removeprefix(RETRY_HEADER_PREFIX): (value or b"").decode()
        for name, value in read.headers
        if name.startswith(RETRY_HEADER_PREFIX)
    }
    record = WorkerRecord(
        values["topic"],
        int(values["partition"]),
        int(values["offset"]),
        read.key,
        read.value,
        foreign_headers(read.headers),
        int(values["timestamp"]),
        int(values["attempts"]) + 1,
    )
    due_ms, first_failed_ms = int(values["due"]), int(values["first-failure"])
    return ConsumedRecord(record, partition, read.offset, due_ms, first_failed_ms)
