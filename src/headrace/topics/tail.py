"""Reads the records of a topic for people to look at."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.errors import TopicMissingError
from headrace.events.avro.values import AvroTexts
from headrace.events.json_schema.schemas import json_text
from headrace.events.protobuf.values import ShownMessages
from headrace.events.rejection import Rejection
from headrace.events.times import milliseconds_since_1970
from headrace.events.wire_format import framed
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig, consumer
from headrace.kafka.client.offsets import offsets_since, watermarks
from headrace.kafka.read.range_reader import read_ranges
from headrace.kafka.read.tail import TailedRecord, follow, tailed
from headrace.model import Avro, Format, OffsetRange, Protobuf, Raw, Registered, TopicPartition
from headrace.project.services import broker_config
from headrace.runtime.extras import require_extra
from headrace.settings import Settings
from headrace.topics.schemas import protobuf_lookup, schema_lookup

if TYPE_CHECKING:
    from headrace.events.avro.values import SchemaLookup
    from headrace.events.protobuf.values import ProtobufLookup

TailFrom: TypeAlias = Literal["earliest", "latest"] | datetime
"""The first records; only new records; the first records since a time."""
_TextOf: TypeAlias = Callable[[bytes | None], bytes | Rejection | None]


@dataclass(frozen=True)
class TailOptions:
    """Which records are shown.

    Attributes:
        start: where to begin.
        limit: number of records after which it ends; ``None``: no limit.
        until_end: end with the records that the topic holds now, instead of waiting for more.
        record_format: of the topic: values of registered formats are shown as JSON; what is none
            stays as it is.

    Raises:
        ValueError: if ``start`` is another text, or a time without a zone.
    """

    start: TailFrom = "latest"
    limit: int | None = None
    until_end: bool = False
    record_format: Format = field(default_factory=Raw)

    def __post_init__(self) -> None:
        if isinstance(self.start, str) and self.start not in {"earliest", "latest"}:
            raise ValueError(f"start is {self.start!r}: 'earliest', 'latest', or a time")
        if isinstance(self.start, datetime) and self.start.tzinfo is None:
            message = f"start is {self.start.isoformat()}, a time without a zone"
            raise ValueError(f"{message}: write datetime(..., tzinfo=UTC)")


def tail_topic(settings: Settings, topic: str, options: TailOptions) -> Iterator[TailedRecord]:
    """Reads any topic of the cluster: declared or not, raw, or of dead letters.

    No consumer group is joined, and no offset committed. Records of a partition come in order of
    offset, partitions as brokers respond; only committed records are read.

    Raises:
        ExtraMissingError: if the extra of the topic's format is not installed.
        RegistryUnreachableError: if the schema of a value is not known, and the schema registry
            does not answer.
        TopicMissingError: if the topic is not in Kafka.
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
        AuthorizationError: if an ACL is missing.
        RecordsUnreadableError: if records are damaged.
    """
    config = broker_config(settings)
    live = describe(config, [topic]).get(topic)
    if live is None:
        raise TopicMissingError(topic)
    marks = watermarks(config, live.all_partitions)
    starts = _starts(config, options.start, marks)
    if options.until_end:
        records = _until(config, starts, {place: end for place, (_, end) in marks.items()})
    else:
        records = follow(config, starts)
    to_text = json_text_of(settings, options.record_format)
    if to_text is not None:
        records = _as_json(records, to_text)
    # Lazy: errors of the first read, and the end of the reader, come when records are taken.
    return itertools.islice(records, options.limit)


def json_text_of(settings: Settings, record_format: Format) -> _TextOf | None:
    """Returns what makes the JSON text of a value; None: values are shown as they are."""
    return text_maker(record_format, schema_lookup(settings), protobuf_lookup(settings))


def text_maker(
    record_format: Format, schemas: SchemaLookup | None, protobuf: ProtobufLookup | None
) -> _TextOf | None:
    """Returns what makes the JSON text of a value, by lookups of schemas, as `json_text_of`."""
    if schemas is None or not isinstance(record_format, Registered):
        return None
    require_extra(record_format.extra)
    if isinstance(record_format, Protobuf):
        return None if protobuf is None else ShownMessages(protobuf)
    return AvroTexts(schemas) if isinstance(record_format, Avro) else json_text


def _as_json(records: Iterator[TailedRecord], text_of: _TextOf) -> Iterator[TailedRecord]:
    for record in records:
        headers = [(header.name, header.value) for header in record.headers or ()]
        text = text_of(framed(record.value, headers))
        yield replace(record, value=text) if isinstance(text, bytes) else record


def _starts(
    config: ClientConfig, start: TailFrom, marks: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    if start == "earliest":
        return {partition: earliest for partition, (earliest, _) in marks.items()}
    ends = {partition: latest for partition, (_, latest) in marks.items()}
    # A partition without a record since that time has no offset for it: it begins at its end.
    if not isinstance(start, datetime):
        return ends
    return ends | offsets_since(config, ends, milliseconds_since_1970(start))


def _until(
    config: ClientConfig,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Iterator[TailedRecord]:
    ranges = [
        OffsetRange(partition, start, ends[partition])
        for partition, start in starts.items()
        if start < ends[partition]
    ]
    reader = consumer(config)
    try:
        for chunk in read_ranges(reader, ranges, config):
            for record in chunk.records:
                yield tailed(chunk.partition, record)
    finally:
        reader.close()
