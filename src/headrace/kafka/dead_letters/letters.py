"""Dead letters: the format of their records, and reading them.

A record of a dead-letter topic has the key and value of the original, byte for byte (null stays
null), the original headers, and these, as UTF-8 text:

================== =========================================================================
headrace-reason    stable code, such as ``not-json``
headrace-detail    a sentence
headrace-topic     origin: topic, partition, offset and timestamp (milliseconds)
headrace-partition
headrace-offset
headrace-timestamp
headrace-event-index
                   place of the event in its envelope, from 0; only of events of envelopes, whose
                   letters have the event as their value, without the record's content-encoding
headrace-topic-id  id of the origin topic, new when it is deleted and created again
headrace-pipeline  the pipeline or worker that could not process it, and its version
headrace-version
headrace-replays   how often it was replayed, when it was; also on the replayed record
================== =========================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import IsolationLevel

from headrace.kafka.client.admin_requests import LiveTopic, describe, topic_ids
from headrace.kafka.client.clients import ClientConfig, consumer
from headrace.kafka.client.headers import OWN_PREFIX, foreign_headers, header_text, headers_of
from headrace.kafka.client.offsets import (
    earliest_offsets,
    high_watermarks,
    offsets_since,
    watermarks,
)
from headrace.kafka.dead_letters.replayed import REPLAYS, PartitionId, was_replayed_to
from headrace.kafka.read.range_reader import Record, read_ranges
from headrace.kafka.write.record import ProducerRecord
from headrace.model import DEAD_LETTERS_SUFFIX, DeadLetter, OffsetRange, TopicPartition

Position = tuple[TopicPartition, int]

OFFLINE_FILES = "load-offline-files"
"""Stands as the pipeline of letters that are lines of offline files, not records of the topic."""
_SILENCE_SECONDS = 60.0
_SETTLE_SECONDS = 120.0  # brokers abort a loader's transaction after a minute


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """A dead letter as it lies in its topic.

    Attributes:
        letter: what was written, origin included.
        pipeline: name of the pipeline that wrote it.
        version: that pipeline's version.
        topic_id: id of the origin topic at that time.
        replays: how often the record had been replayed before it came here.
        position: its own partition and offset in the dead-letter topic.
        written_ms: when it was written, milliseconds since 1970.
    """

    letter: DeadLetter
    pipeline: str
    version: str
    topic_id: str
    replays: int
    position: Position
    written_ms: int

    @property
    def is_of_record(self) -> bool:
        """Whether it is of a record: not of a row that a sink rejected, nor of an offline line."""
        return self.letter.offset >= 0 and self.pipeline != OFFLINE_FILES

    @property
    def origin(self) -> str:
        """The original record, as commands name it: ``topic/partition:offset``.

        An event of an envelope is named by its index, too: ``topic/partition:offset#index``. A
        letter of a row, which belongs to no record, is named by its own place.
        """
        partition, offset = self.letter.partition, self.letter.offset
        if offset < 0:
            partition, offset = self.position
        index = self.letter.event_index
        event = f"#{index}" if index >= 0 else ""
        return f"{partition.topic}/{partition.partition}:{offset}{event}"

    @property
    def names(self) -> frozenset[str]:
        """Returns how it can be named: by its :attr:`origin`, and by the whole envelope."""
        return frozenset({self.origin, self.origin.partition("#")[0]})


def dead_letters_topic(topic: str) -> str:
    """Returns the name of the dead-letter topic of ``topic``."""
    return topic + DEAD_LETTERS_SUFFIX


def scan(config: ClientConfig, topic: str) -> Iterator[StoredDeadLetter]:
    """Yields the dead letters of ``topic`` (the origin's name) that are there at the call.

    Those after the beginning of an open transaction are not there yet.

    Order: by partition of the dead-letter topic, as they arrive. Records that headrace did not
    write are left out. Nothing when there is no dead-letter topic.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    live = _live(config, topic)
    if live is not None:
        marks = watermarks(config, live.all_partitions)
        yield from _read(config, marks, _SILENCE_SECONDS)


def _live(config: ClientConfig, topic: str) -> LiveTopic | None:
    name = dead_letters_topic(topic)
    return describe(config, [name]).get(name)


def _read(
    config: ClientConfig,
    marks: Mapping[TopicPartition, tuple[int, int]],
    silence_limit_seconds: float,
) -> Iterator[StoredDeadLetter]:
    for partition, record in _records(config, marks, silence_limit_seconds):
        letter = _stored(partition, record)
        if letter is not None:
            yield letter


def find_written(
    config: ClientConfig, topic: str, pipeline: str, since_ms: int = -1
) -> Iterator[StoredDeadLetter]:
    """Yields the dead letters of ``topic`` that ``pipeline`` wrote, in the order of :func:`scan`.

    Those written before ``since_ms``, milliseconds since 1970, are left out; -1: none.

    For what may be a repetition of something that was cut short, so it waits for transactions that
    are open: until they end, letters that lie after their beginning can't be read. Letters of a
    topic of that name that was deleted since do not count: its offsets meant other records. There
    may be many: keep only what can come again.

    Raises:
        BrokerUnreachableError: if the brokers do not answer, or a transaction stays open.
    """
    topic_id = topic_ids(config, [topic]).get(topic, "")
    for stored in _read(config, _marks_since(config, topic, since_ms), _SETTLE_SECONDS):
        if stored.pipeline == pipeline and stored.topic_id == topic_id:
            yield stored


def dead_letter_record(
    letter: DeadLetter, writer: str, version: str, topic_id: str
) -> ProducerRecord:
    """Returns the record of ``letter`` for its dead-letter topic.

    Args:
        letter: with its reason and origin.
        writer: name of the pipeline or worker that could not process the record.
        version: of ``writer``.
        topic_id: id of the origin topic; empty: not known.
    """
    origin = letter.partition
    own_headers = {
        "reason": letter.reason,
        "detail": letter.detail,
        "topic": origin.topic,
        "topic-id": topic_id,
        "partition": str(origin.partition),
        "offset": str(letter.offset),
        "timestamp": str(letter.timestamp_ms),
        "pipeline": writer,
        "version": version,
    }
    if letter.event_index >= 0:
        own_headers["event-index"] = str(letter.event_index)
    if letter.first_failure_ms >= 0:
        own_headers["attempts"] = str(letter.attempts)
        own_headers["first-failure"] = str(letter.first_failure_ms)
    headers = tuple((OWN_PREFIX + name, header_text(value)) for name, value in own_headers.items())
    # Copied from another partition, the record starts over: its replays there do not count here.
    keep = REPLAYS if was_replayed_to(PartitionId(origin, topic_id), letter.headers) else ""
    original_headers = foreign_headers(letter.headers, keep=keep)
    return ProducerRecord(
        dead_letters_topic(origin.topic), letter.key, letter.value, headers + original_headers
    )


def _stored(partition: TopicPartition, record: Record) -> StoredDeadLetter | None:
    headers = headers_of(record) or ()  # where a name is not UTF-8, others wrote it
    values = {name: (value or b"").decode(errors="replace") for name, value in headers}
    try:
        origin = TopicPartition(values["headrace-topic"], int(values["headrace-partition"]))
        letter = DeadLetter(
            origin,
            int(values["headrace-offset"]),
            values["headrace-reason"],
            values["headrace-detail"],
            record.key(),
            record.value(),
            foreign_headers(headers),
            int(values["headrace-timestamp"]),
            int(values.get("headrace-attempts", "1")),
            int(values.get("headrace-first-failure", "-1")),
            int(values.get("headrace-event-index", "-1")),
        )
        replays = int(values.get(REPLAYS, "0"))
    except (KeyError, ValueError):
        return None
    _, written_ms = record.timestamp()
    return StoredDeadLetter(
        letter,
        values.get("headrace-pipeline", ""),
        values.get("headrace-version", ""),
        values.get("headrace-topic-id", ""),
        replays,
        (partition, record.offset()),
        written_ms,
    )


def _marks_since(
    config: ClientConfig, topic: str, since_ms: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns where dead letters of ``topic`` since then lie, also of open transactions."""
    live = _live(config, topic)
    if live is None:
        return {}
    ends = high_watermarks(config, live.all_partitions)
    if since_ms < 0:
        starts = earliest_offsets(config, live.all_partitions)
    else:
        level = IsolationLevel.READ_UNCOMMITTED
        starts = offsets_since(config, live.all_partitions, since_ms, level)
    return {partition: (starts.get(partition, end), end) for partition, end in ends.items()}


def _records(
    config: ClientConfig,
    marks: Mapping[TopicPartition, tuple[int, int]],
    silence_limit_seconds: float,
) -> Iterator[tuple[TopicPartition, Record]]:
    """Records of partitions between two offsets."""
    ranges = [
        OffsetRange(partition, start, end)
        for partition, (start, end) in marks.items()
        if start < end
    ]
    reader = consumer(config, "headrace.dead-letters", {"auto.offset.reset": "earliest"})
    try:
        for chunk in read_ranges(
            reader, ranges, config, silence_limit_seconds=silence_limit_seconds
        ):
            yield from ((chunk.partition, record) for record in chunk.records)
    finally:
        reader.close()
