"""How fast this cluster takes and gives records, by one producer and one consumer."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException

from headrace.errors import BrokerUnreachableError, TopicMissingError
from headrace.kafka.admin.record_limits import MAX_MESSAGE_BYTES
from headrace.kafka.admin.topics import apply_changes, delete_topic, plan_topics
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import MESSAGE_TIMEOUT_MS, ClientConfig, consumer, producer
from headrace.kafka.client.headers import Headers, headers_of
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.client.partitions import client_partition
from headrace.kafka.read.range_reader import read_ranges
from headrace.kafka.table.changelog import possible_replication
from headrace.model import OffsetRange, Topic, TopicPartition

TEMPORARY_PREFIX = "headrace-measure-"
_POLL_SECONDS = 0.2
_READ_WITHIN_SECONDS = 30.0
_MAX_LOOKS = 12
"""Each look at the newest records is twice as far back: at most 4,000 offsets for a record."""


@dataclass(frozen=True)
class Bounds:
    """The limits of a run, whichever is reached first; requests that were sent are waited for."""

    seconds: float
    most_bytes: int = 128 * 1024 * 1024


@dataclass(frozen=True)
class Run:
    """The events that were acknowledged, or read, and the seconds that it took."""

    events: int
    bytes: int
    seconds: float

    @property
    def events_per_second(self) -> int:
        """The rate, rounded down."""
        return int(self.events / self.seconds)

    @property
    def bytes_per_second(self) -> int:
        """Returns bytes of values, before compression; rounded down."""
        return int(self.bytes / self.seconds)


@contextmanager
def temporary_topic(config: ClientConfig) -> Iterator[Topic]:
    """A topic with one partition on as many as three brokers, deleted in the end.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicChangeError: if Kafka refuses the topic.
    """
    declared = Topic(
        temporary_name(TEMPORARY_PREFIX),
        replication=possible_replication(config),
        config={"max.message.bytes": str(MAX_MESSAGE_BYTES)},
    )
    with present_topic(config, declared) as topic:
        yield topic


def temporary_name(prefix: str) -> str:
    """Returns a new name for a topic or group that is deleted in the end."""
    return f"{prefix}{uuid.uuid4().hex[:8]}"


@contextmanager
def present_topic(config: ClientConfig, topic: Topic) -> Iterator[Topic]:
    """Creates ``topic`` as it is declared, and deletes it in the end.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicChangeError: if Kafka refuses the topic.
    """
    try:
        apply_changes(config, plan_topics([topic], {}))
        yield topic
    finally:
        delete_topic(config, topic.name)


def produce_values(
    config: ClientConfig,
    topic: str,
    values: Sequence[bytes],
    tuning: Mapping[str, str],
    bounds: Bounds,
) -> Run:
    """Sends ``values`` repeatedly until a bound; the time ends with the last acknowledgement.

    Raises:
        KafkaException: if Kafka refused a record.
        BrokerUnreachableError: if the brokers do not confirm.
    """
    failures: list[KafkaError] = []
    sender = producer(dict(config) | {"delivery.report.only.error": True}, tuning)
    try:
        _send(sender, topic, values[:1], Bounds(bounds.seconds, 1), failures)
        _confirm(config, sender)  # the connection is not what is measured
        begin = time.perf_counter()
        sent, size = _send(sender, topic, values, bounds, failures)
        _confirm(config, sender)
        seconds = time.perf_counter() - begin
    finally:
        sender.purge()
    if failures:
        raise KafkaException(failures[0])
    return Run(sent, size, seconds)


def consume_values(
    config: ClientConfig,
    topic: str,
    batch: int,
    process: Callable[[bytes], object],
    bounds: Bounds,
) -> Run:
    """Reads partition 0 from its start in batches, repeatedly, and processes each value.

    Raises:
        KafkaException: if Kafka refuses the read.
        BrokerUnreachableError: if nothing came.
    """
    reader = consumer(config, "headrace.measure")
    try:
        reader.assign([client_partition(TopicPartition(topic, 0), OFFSET_BEGINNING)])
        first = _first(config, reader)
        return _consume(config, reader, first, batch, process, bounds)
    finally:
        reader.close()


def newest_values(config: ClientConfig, topic: str, count: int) -> list[bytes]:
    """Returns the newest values of ``topic``, as :func:`newest_records` does.

    Raises:
        TopicMissingError: if there is no such topic.
        BrokerUnreachableError: if the brokers do not answer.
    """
    return [record.value for record in newest_records(config, topic, count)]


@dataclass(frozen=True, slots=True)
class SampledRecord:
    """A record as it lies in its topic."""

    value: bytes
    key: bytes | None = None
    headers: Headers = ()

    @property
    def size(self) -> int:
        """Returns the bytes of its key and value."""
        return len(self.value) + len(self.key or b"")


def newest_records(config: ClientConfig, topic: str, count: int) -> list[SampledRecord]:
    """Returns ``count`` of the newest records of ``topic``, about as many of each partition.

    All of them, if it has no more. Records without a value are left out.

    Raises:
        TopicMissingError: if there is no such topic.
        BrokerUnreachableError: if the brokers do not answer.
    """
    live = describe(config, [topic]).get(topic)
    if live is None:
        raise TopicMissingError(topic)
    ends = watermarks(config, live.all_partitions)
    starts = {partition: latest for partition, (_, latest) in ends.items()}
    newest: dict[TopicPartition, list[SampledRecord]] = {partition: [] for partition in ends}
    reader = consumer(config, "headrace.measure")
    try:
        # Offsets are more than records: transactions have markers, and compaction leaves gaps.
        for look in range(_MAX_LOOKS):
            missing = count - sum(map(len, newest.values()))
            unread = [
                partition for partition, start in starts.items() if start > ends[partition][0]
            ]
            if missing <= 0 or not unread:
                break
            span = -(-missing // len(unread)) << look
            ranges = [
                OffsetRange(partition, max(ends[partition][0], starts[partition] - span), start)
                for partition in unread
                for start in [starts[partition]]
            ]
            for partition, records in _read(reader, ranges, config).items():
                newest[partition][:0] = records
            starts |= {range_.partition: range_.start for range_ in ranges}
    finally:
        reader.close()
    return [record for records in _newest_of(newest.values(), count) for record in records]


def _read(
    reader: confluent_kafka.Consumer, ranges: Sequence[OffsetRange], config: ClientConfig
) -> dict[TopicPartition, list[SampledRecord]]:
    """Returns the records with a value of each range, the oldest first."""
    records: dict[TopicPartition, list[SampledRecord]] = {}
    for chunk in read_ranges(reader, ranges, config, silence_limit_seconds=_READ_WITHIN_SECONDS):
        records.setdefault(chunk.partition, []).extend(
            SampledRecord(value, record.key(), headers_of(record) or ())
            for record in chunk.records
            if (value := record.value()) is not None
        )
    return records


def _newest_of(
    records: Iterable[Sequence[SampledRecord]], count: int
) -> list[Sequence[SampledRecord]]:
    """Returns ``count`` records in all, and of no partition many more than of another."""
    newest: list[Sequence[SampledRecord]] = []
    smallest_first = sorted(records, key=len)
    for number, of_partition in enumerate(smallest_first):
        share = -(-count // (len(smallest_first) - number))
        newest.append(of_partition[max(0, len(of_partition) - share) :])
        count -= len(newest[-1])
    return newest


def _send(
    sender: confluent_kafka.Producer,
    topic: str,
    values: Sequence[bytes],
    bounds: Bounds,
    failures: list[KafkaError],
) -> tuple[int, int]:
    def report(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    deadline = time.perf_counter() + bounds.seconds
    sent = size = 0
    for value in itertools.cycle(values):
        if size >= bounds.most_bytes or failures or time.perf_counter() > deadline:
            break
        with suppress(BufferError):  # full: waits for room, but not beyond the run's time
            sender.produce(topic, value, on_delivery=report)
            sent, size = sent + 1, size + len(value)
            continue
        sender.poll(_POLL_SECONDS)
    return sent, size


def _confirm(config: ClientConfig, sender: confluent_kafka.Producer) -> None:
    """Sleeps in steps, so that Ctrl-C takes effect."""
    deadline = time.monotonic() + MESSAGE_TIMEOUT_MS / 1000
    while sender.flush(_POLL_SECONDS):
        if time.monotonic() > deadline:
            raise _silent(config, "it does not confirm what was sent")


def _first(config: ClientConfig, reader: confluent_kafka.Consumer) -> confluent_kafka.Message:
    """Waits for the first record: the connection is not what is measured."""
    deadline = time.monotonic() + _READ_WITHIN_SECONDS
    while time.monotonic() < deadline:
        message = reader.poll(_POLL_SECONDS)
        if message is not None and _is_record(message):
            return message
    raise _silent(config, "nothing can be read")


def _consume(
    config: ClientConfig,
    reader: confluent_kafka.Consumer,
    first: confluent_kafka.Message,
    batch: int,
    process: Callable[[bytes], object],
    bounds: Bounds,
) -> Run:
    begin = latest = time.perf_counter()
    events = size = 0
    while not events or (size < bounds.most_bytes and time.perf_counter() - begin < bounds.seconds):
        for message in reader.consume(batch, _POLL_SECONDS):
            if not _is_record(message):
                reader.seek(client_partition(TopicPartition.of(first), 0))
                continue
            value = message.value() or b""
            process(value)
            events, size, latest = events + 1, size + len(value), time.perf_counter()
        if time.perf_counter() - latest > _READ_WITHIN_SECONDS:
            raise _silent(config, "nothing can be read")
    return Run(events, size, time.perf_counter() - begin)


def _is_record(message: confluent_kafka.Message) -> bool:
    error = message.error()
    if error is None:
        return True
    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
        raise KafkaException(error)
    return False


def _silent(config: ClientConfig, reason: str) -> BrokerUnreachableError:
    return BrokerUnreachableError(config.get("bootstrap.servers", ""), reason)
