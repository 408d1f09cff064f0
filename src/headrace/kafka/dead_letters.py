"""Dead letters: written beside their topic, found again, looked at and replayed.

A record of a dead-letter topic has the key and value of the original, byte for byte (null stays
null), the original headers, and these, as UTF-8 text:

================== =========================================================================
headrace-reason    stable code, such as ``not-json``
headrace-detail    a sentence
headrace-topic     origin: topic, partition, offset and timestamp (milliseconds)
headrace-partition
headrace-offset
headrace-timestamp
headrace-topic-id  id of the origin topic, new when it is deleted and created again
headrace-pipeline  the pipeline that could not process it, and its version
headrace-version
headrace-replays   how often it was replayed, when it was; also on the replayed record
================== =========================================================================
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError, KafkaException

from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    SinkError,
    TopicMissingError,
)
from headrace.kafka.broker_errors import delivery_failure, forbidden, is_forbidden
from headrace.kafka.client import (
    ClientConfig,
    LiveTopic,
    consumer,
    describe,
    earliest_offsets,
    high_watermarks,
    offsets_since,
    producer,
    topic_ids,
    watermarks,
)
from headrace.kafka.headers import Headers, headers_of
from headrace.kafka.range_reader import Record, read_ranges
from headrace.kafka.replayed import REPLAYS, Place, was_replayed_to
from headrace.model import DEAD_LETTERS_SUFFIX, DeadLetter, OffsetRange, TopicPartition

Position = tuple[TopicPartition, int]

OFFLINE_FILES = "load-offline-files"
"""Stands as the pipeline of letters that are lines of offline files, not records of the topic."""
_PREFIX = "headrace-"
_MAX_TEXT_BYTES = 8 * 1024
_CUT = "…".encode()
_SILENCE_SECONDS = 60.0
_SETTLE_SECONDS = 120.0  # brokers abort a loader's transaction after a minute
_POLL_SECONDS = 1.0
_PROBE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class StoredLetter:
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
    def origin(self) -> str:
        """``topic/partition:offset`` of the original record: its name on the command line."""
        origin = self.letter.partition
        return f"{origin.topic}/{origin.partition}:{self.letter.offset}"


def dead_letters_topic(topic: str) -> str:
    """Name of the topic that takes the dead letters of ``topic``."""
    return topic + DEAD_LETTERS_SUFFIX


def write_dead_letters(
    config: ClientConfig, letters: Iterable[DeadLetter], pipeline: str, version: str
) -> None:
    """Write ``letters``; returns when each is on all in-sync replicas of its topic.

    A failure means that some may be written and some not: see :func:`find_written`.

    Raises:
        TopicMissingError: the dead-letter topic does not exist.
        BrokerUnreachableError: no answer within ``message.timeout.ms``.
        SinkError: the broker refuses a letter.
    """
    send(config, letter_records(config, letters, pipeline, version))


def letter_records(
    config: ClientConfig, letters: Iterable[DeadLetter], pipeline: str, version: str
) -> list[Outgoing]:
    """What :func:`write_dead_letters` writes, for those who write it in a transaction.

    Raises:
        TopicMissingError: the dead-letter topic does not exist.
        BrokerUnreachableError: no answer.
    """
    wanted = list(letters)
    origins = {one.partition.topic for one in wanted}
    ids = topic_ids(config, origins | {dead_letters_topic(one) for one in origins})
    for origin in origins:
        if dead_letters_topic(origin) not in ids:
            raise TopicMissingError(dead_letters_topic(origin))
    writer = _Writer(pipeline, version, ids)
    return [writer.record(letter) for letter in wanted]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to write. ``partition`` -1 lets the key decide."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = -1


def send(config: ClientConfig, records: Iterable[Outgoing]) -> None:
    """Write ``records`` and wait for all acknowledgements. Raises as :func:`write_dead_letters`."""
    failures = send_each(config, records).values()
    for error in sorted(failures, key=lambda one: not isinstance(one, AuthorizationError)):
        raise error


def send_each(config: ClientConfig, records: Iterable[Outgoing]) -> dict[int, Exception]:
    """Writes ``records`` and waits for all acknowledgements.

    Returns why a record was not written, by its index: what :func:`write_dead_letters` raises. A
    record that Kafka cannot take as it is (its size, its headers) fails alone, with a
    :class:`SinkError`.
    """
    failures: dict[int, Exception] = {}
    writer = _producer(os.getpid(), frozenset(config.items()))
    topics = set()
    for index, record in enumerate(records):
        topics.add(record.topic)
        report = functools.partial(_note_failure, config, failures, index, record.topic)
        try:
            _produce(writer, record, report)
        except (KafkaException, TypeError, ValueError, SystemError) as error:
            failures[index] = _failure_of(config, record.topic, error)
    try:
        writer.flush()
    except (KafkaException, SystemError) as error:
        _producer.cache_clear()
        said = _kafka_error(error) or _fatal_error(config)
        where = ", ".join(sorted(topics))
        raise _failure(config, where, said) if said else SinkError(where, str(error)) from error
    if failures:
        _producer.cache_clear()  # its session may be broken for good
    return failures


def _note_failure(
    config: ClientConfig,
    failures: dict[int, Exception],
    index: int,
    topic: str,
    error: KafkaError | None,
    message: confluent_kafka.Message,
) -> None:
    failure = delivery_failure(error, message)
    if failure is not None:
        failures[index] = _failure(config, topic, failure)


def check_header_names(headers: Headers) -> None:
    """Refuses names of headers that would crash the client library.

    Raises:
        UnicodeEncodeError: a name holds half of a surrogate pair, which UTF-8 has no bytes for.
    """
    for name, _ in headers:
        name.encode()


def header_text(text: object) -> bytes:
    """Returns ``text`` for a header: any characters, cut with "…" where it is longer than 8 KiB."""
    written = str(text).encode("utf-8", "backslashreplace")
    if len(written) <= _MAX_TEXT_BYTES:
        return written
    kept = written[: _MAX_TEXT_BYTES - len(_CUT)].decode("utf-8", "ignore")
    return kept.encode() + _CUT


def scan(config: ClientConfig, topic: str) -> Iterator[StoredLetter]:
    """Dead letters of ``topic`` (the origin's name), up to those there when it is called.

    Those behind the beginning of an open transaction are not there yet.

    Order: by partition of the dead-letter topic, as they arrive. Records that headrace did not
    write are left out. Nothing when there is no dead-letter topic.

    Raises:
        BrokerUnreachableError: no answer.
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
) -> Iterator[StoredLetter]:
    for partition, record in _records(config, marks, silence_limit_seconds):
        letter = _stored(partition, record)
        if letter is not None:
            yield letter


def find_written(
    config: ClientConfig, topic: str, pipeline: str, since_ms: int = -1
) -> Iterator[StoredLetter]:
    """Dead letters of ``topic`` that ``pipeline`` wrote, in the order of :func:`scan`.

    Those written before ``since_ms``, milliseconds since 1970, are left out; -1: none.

    For what may be a repetition of something that was cut short, so it waits for transactions that
    are open: until they end, letters that lie behind their beginning can't be read. Letters of a
    topic of that name that was deleted since do not count: its offsets meant other records. There
    may be many: keep only what can come again.

    Raises:
        BrokerUnreachableError: no answer, or an open transaction did not end within two minutes.
    """
    topic_id = topic_ids(config, [topic]).get(topic, "")
    for one in _read(config, _marks_since(config, topic, since_ms), _SETTLE_SECONDS):
        if one.pipeline == pipeline and one.topic_id == topic_id:
            yield one


@functools.lru_cache(maxsize=2)
def _producer(
    pid: int,  # noqa: ARG001 - librdkafka does not survive a fork
    config: frozenset[tuple[str, str]],
) -> confluent_kafka.Producer:
    return producer(dict(config))


def _kafka_error(error: BaseException) -> KafkaError | None:
    """What librdkafka said, if that is known.

    A fatal error is pending as an exception while reports are called, and may be lost there.
    """
    cause = error if isinstance(error, KafkaException) else error.__cause__
    return cause.args[0] if isinstance(cause, KafkaException) else None


def _fatal_error(config: ClientConfig) -> KafkaError | None:
    """What a producer's session ends with that has nothing to report."""
    said: list[KafkaError] = []
    probe = producer(dict(config) | {"error_cb": said.append})
    deadline = time.monotonic() + _PROBE_SECONDS
    while time.monotonic() < deadline:
        try:
            probe.poll(_POLL_SECONDS / 10)
        except KafkaException as error:
            said.append(error.args[0])
        if fatal := [error for error in said if error.fatal()]:
            return fatal[0]
    return None


def _produce(
    writer: confluent_kafka.Producer, record: Outgoing, delivered: Callable[..., None]
) -> None:
    where = {} if record.partition < 0 else {"partition": record.partition}
    check_header_names(record.headers)
    while True:
        try:
            writer.produce(
                record.topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=delivered,
                **where,
            )
        except BufferError:
            writer.poll(_POLL_SECONDS)
        else:
            writer.poll(0)
            return


def _failure_of(config: ClientConfig, topic: str, error: Exception) -> Exception:
    """Without an error of Kafka's, the client could not write the record's headers."""
    said = _kafka_error(error)
    if said is None:
        return SinkError(topic, f"{type(error).__name__}: {error}")
    return _failure(config, topic, said)


def _failure(config: ClientConfig, topic: str, error: KafkaError) -> Exception:
    if is_forbidden(error):
        return forbidden(config, "WRITE", f"topic {topic}")
    if error.name() in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}:
        return TopicMissingError(topic)
    if error.name() in {"_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT"}:
        return BrokerUnreachableError(config["bootstrap.servers"], error.str())
    return SinkError(topic, error.str())


@dataclass(frozen=True, slots=True)
class _Writer:
    pipeline: str
    version: str
    topic_ids: Mapping[str, str]

    def record(self, letter: DeadLetter) -> Outgoing:
        origin = letter.partition
        ours = {
            "reason": letter.reason,
            "detail": letter.detail,
            "topic": origin.topic,
            "topic-id": self.topic_ids.get(origin.topic, ""),
            "partition": str(origin.partition),
            "offset": str(letter.offset),
            "timestamp": str(letter.timestamp_ms),
            "pipeline": self.pipeline,
            "version": self.version,
        }
        if letter.first_failure_ms >= 0:
            ours["attempts"] = str(letter.attempts)
            ours["first-failure"] = str(letter.first_failure_ms)
        headers = tuple((_PREFIX + name, header_text(value)) for name, value in ours.items())
        topic = dead_letters_topic(origin.topic)
        place = Place(origin, ours["topic-id"])
        keep = REPLAYS if was_replayed_to(place, letter.headers) else ""
        theirs = foreign_headers(letter.headers, keep=keep)
        return Outgoing(topic, letter.key, letter.value, headers + theirs)


def foreign_headers(headers: Headers, *, keep: str = "") -> Headers:
    """Headers that are not headrace's own, and the one called ``keep``."""
    return tuple(
        (name, value) for name, value in headers if name == keep or not name.startswith(_PREFIX)
    )


def _stored(partition: TopicPartition, record: Record) -> StoredLetter | None:
    headers = headers_of(record) or ()  # where a name is not UTF-8, others wrote it
    ours = {name: (value or b"").decode(errors="replace") for name, value in headers}
    try:
        origin = TopicPartition(ours["headrace-topic"], int(ours["headrace-partition"]))
        letter = DeadLetter(
            origin,
            int(ours["headrace-offset"]),
            ours["headrace-reason"],
            ours["headrace-detail"],
            record.key(),
            record.value(),
            foreign_headers(headers),
            int(ours["headrace-timestamp"]),
            int(ours.get("headrace-attempts", "1")),
            int(ours.get("headrace-first-failure", "-1")),
        )
        replays = int(ours.get(REPLAYS, "0"))
    except (KeyError, ValueError):
        return None
    _, written_ms = record.timestamp()
    return StoredLetter(
        letter,
        ours.get("headrace-pipeline", ""),
        ours.get("headrace-version", ""),
        ours.get("headrace-topic-id", ""),
        replays,
        (partition, record.offset()),
        written_ms,
    )


def _marks_since(
    config: ClientConfig, topic: str, since_ms: int
) -> dict[TopicPartition, tuple[int, int]]:
    """Where the letters of ``topic`` since then lie, those of open transactions too."""
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
    ranges = [OffsetRange(one, start, end) for one, (start, end) in marks.items() if start < end]
    reader = consumer(config, "headrace.dead-letters", {"auto.offset.reset": "earliest"})
    try:
        for chunk in read_ranges(
            reader, ranges, config, silence_limit_seconds=silence_limit_seconds
        ):
            yield from ((chunk.partition, record) for record in chunk.records)
    finally:
        reader.close()
