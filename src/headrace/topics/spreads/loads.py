"""What the newest records of a topic say of its load, by partition, account and window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import msgspec

from headrace.errors import TopicMissingError
from headrace.events.times import parse_time
from headrace.events.wire_format import framed
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig, consumer
from headrace.kafka.client.offsets import offsets_since, watermarks
from headrace.kafka.read.range_reader import Record, read_ranges
from headrace.model import ByAccount, FieldType, OffsetRange, Topic, TopicPartition, value_at

ACCOUNT_HEADER = "account"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_decoded: Callable[[bytes], Any] = msgspec.json.Decoder().decode

Headers = Sequence[tuple[str, bytes | None]]
TextOf = Callable[[bytes | None], object]
"""Returns the JSON text of a value; anything else if it can't be read."""


@dataclass
class SampledLoads:
    """The load of the newest records.

    Attributes:
        since: of their timestamps.
        fraction: of the records since then that were read; the newest of each partition, and of
            each the same part.
        partitions: bytes by partition, as the records lie in Kafka; keys and values.
        partition_records: records by partition.
        sizes: bytes by account and number of the window.
        records: by account and number of the window.
        unknown: bytes by partition of records without an account, or that can't be read.
        unknown_records: of the same.
    """

    since: datetime
    fraction: Fraction
    partitions: Counter[int] = field(default_factory=Counter)
    partition_records: Counter[int] = field(default_factory=Counter)
    sizes: Counter[tuple[str, int]] = field(default_factory=Counter)
    records: Counter[tuple[str, int]] = field(default_factory=Counter)
    unknown: Counter[int] = field(default_factory=Counter)
    unknown_records: Counter[int] = field(default_factory=Counter)

    def take(self, partition: int, record: Record, reads: AccountReader) -> None:
        """Counts a record."""
        size = len(record.key() or b"") + len(record.value() or b"")
        self.partitions[partition] += size
        self.partition_records[partition] += 1
        place = reads.place(record)
        if place is None:
            self.unknown[partition] += size
            self.unknown_records[partition] += 1
        else:
            self.sizes[place] += size
            self.records[place] += 1


class DocumentReader:
    """Reads events from the bytes of records, and their event times.

    Args:
        topic: of the records; it declares an event class.
        text_of: of values of registered formats; None: values are JSON texts.
    """

    def __init__(self, topic: Topic, text_of: TextOf | None = None) -> None:
        self._text_of, self._time = text_of, topic.event_time
        schema = topic.schema
        self._is_millis = (
            schema is not None
            and self._time is not None
            and schema.field(self._time).type is FieldType.MILLIS
        )

    def document(self, value: bytes | None, headers: Headers) -> Any:
        """Returns the fields of an event. Raises ValueError if it can't be read."""
        text = value if self._text_of is None else self._text_of(framed(value, headers))
        document = _decoded(text if isinstance(text, bytes) else b"")
        if not isinstance(document, dict):
            raise ValueError("no object")  # noqa: TRY004 - as of a text that is no JSON
        return document

    def time(self, document: Mapping[str, Any]) -> datetime | None:
        """Returns the event time. Raises KeyError, TypeError or OverflowError if it has none."""
        value = document[self._time or ""]
        return _EPOCH + value * _MILLISECOND if self._is_millis else parse_time(value)


class AccountReader:
    """Finds the account and the window of a record, as the producers of the topic have.

    Args:
        topic: by account.
        text_of: of values of registered formats; None: values are JSON texts.
    """

    def __init__(self, topic: Topic, text_of: TextOf | None = None) -> None:
        strategy = topic.partitioning
        if not isinstance(strategy, ByAccount) or topic.event_time is None or topic.schema is None:
            raise ValueError(f"topic {topic.name!r} is not partitioned by account")
        self._window, self._field = strategy.window, strategy.account
        self._has_key, self._reads = topic.key is not None, DocumentReader(topic, text_of)

    def place(self, record: Record) -> tuple[str, int] | None:
        """Returns account and number of the window; None: it has none, or can't be read."""
        return self.place_of(record.value(), record.key(), record.headers() or ())

    def place_of(
        self, value: bytes | None, key: bytes | None, headers: Headers
    ) -> tuple[str, int] | None:
        """Returns the same of the parts of a record."""
        try:
            document = self._reads.document(value, headers)
            account = self._account(key, headers, document)
            time = self._reads.time(document)
        except (ValueError, TypeError, KeyError, OverflowError):
            return None
        if account is None or time is None:
            return None
        return account, (time - _EPOCH) // self._window

    def _account(
        self, key: bytes | None, headers: Headers, document: Mapping[str, Any]
    ) -> str | None:
        if self._field is not None:
            value = value_at(document, self._field)
            return "" if value is None else str(value)
        named = [value for name, value in headers if name == ACCOUNT_HEADER]
        # Of a topic without a key, the account is the key.
        account = named[-1] if named else None if self._has_key else key
        return None if account is None else account.decode()


def sampled_loads(
    config: ClientConfig, topic: Topic, reads: AccountReader, since: datetime, limit: int
) -> SampledLoads:
    """Reads the newest records of a topic, and counts them.

    Counts are exact for what is read. Where there are more records than ``limit``, the same part of
    each partition is read, so that shares of partitions stay as they are.

    Args:
        config: of librdkafka.
        topic: by account.
        reads: of its records.
        since: timestamps of records that are read.
        limit: about how many records are read at most: one more for each partition.

    Raises:
        TopicMissingError: if the topic is not in Kafka.
        BrokerUnreachableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """
    live = describe(config, [topic.name]).get(topic.name)
    if live is None:
        raise TopicMissingError(topic.name)
    marks = watermarks(config, live.all_partitions)
    ends = {partition: end for partition, (_, end) in marks.items()}
    starts = ends | offsets_since(config, ends, (since - _EPOCH) // _MILLISECOND)
    count = sum(ends[partition] - starts[partition] for partition in ends)
    fraction = min(Fraction(1), Fraction(limit, max(count, 1)))
    loads = SampledLoads(since.astimezone(UTC), fraction)
    for partition, record in _records(config, list(_newest(starts, ends, fraction))):
        loads.take(partition, record, reads)
    return loads


def _newest(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], fraction: Fraction
) -> Iterator[OffsetRange]:
    for partition, end in ends.items():
        start = end - -(-(end - starts[partition]) * fraction.numerator // fraction.denominator)
        if start < end:
            yield OffsetRange(partition, start, end)


def _records(config: ClientConfig, ranges: list[OffsetRange]) -> Iterator[tuple[int, Record]]:
    if not ranges:
        return
    reader = consumer(config)
    try:
        for chunk in read_ranges(reader, ranges, config):
            for record in chunk.records:
                yield chunk.partition.partition, record
    finally:
        reader.close()
