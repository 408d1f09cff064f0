"""Standing queries in one process, without Kafka and Spark: rows in, results out."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from headrace.model.partitioning import partition_of_key
from headrace.queries.match.driver import events_by_partition
from headrace.queries.match.held import LiveQueries
from headrace.queries.match.writer import MatchPiece, MatchWriters
from headrace.queries.records.matched import Tick, decode_matched
from headrace.queries.records.result import ResultKind, decode_result
from headrace.queries.records.snapshots import Restored
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.windows.aggregate.partition import PartitionAggregator
from headrace.queries.windows.aggregate.plan import Plans

PARTITIONS = 3
REGISTERED = datetime(2026, 5, 1, tzinfo=UTC)
_PIECE = msgspec.json.Decoder(MatchPiece)


@dataclass(frozen=True)
class EventBatch:
    """A batch of events, and the tick behind it.

    Attributes:
        tasks: rows of each, with ``_partition`` and ``_offset``.
        event_us: how far the time of events is behind the batch.
    """

    tasks: tuple[pa.Table, ...]
    event_us: int | None = None


def live_queries(texts, schema, *, topic, revision=1):
    """Returns registered queries as a task has them, from their texts by id."""
    queries = LiveQueries(topic, schema)
    for query_id, text in texts.items():
        queries.apply(*registration(query_id, text, topic=topic, revision=revision))
    return queries


def registration(query_id, text, *, topic, revision=1):
    """Returns key and value of the record of a query that never expires."""
    times = {"registered_at": REGISTERED, "updated_at": REGISTERED, "expires_at": None}
    return encode_query(RegisteredQuery(query_id, text, topic, revision, **times))


def matched_records(queries, batches, *, topic, event_time="at", partitions=PARTITIONS):
    """Returns the records of each partition of the matched topic.

    Args:
        queries: that are live.
        batches: of events, each of which is followed by a tick.
        topic: of the events.
        event_time: column of the event time.
        partitions: of the matched topic.
    """
    logs = [[] for _ in range(partitions)]
    for batch in batches:
        pieces = [
            piece
            for rows in batch.tasks
            for piece in _pieces(queries, rows, topic, event_time, partitions)
        ]
        for piece in pieces:
            for key, value in piece.records:
                partition = partition_of_key(key.encode(), partitions)
                logs[partition].append(decode_matched(bytes(value)))
        events = events_by_partition(pieces)
        for partition, log in enumerate(logs):
            tick = tick_of(topic, batch.event_us, events=events[partition])
            log.append(decode_matched(msgspec.json.encode(tick)))
    return logs


def tick_of(topic, event_us, *, positions=None, planned_ms=0, topic_id="", events=0):
    return Tick(
        topic=topic,
        pipeline="match",
        event_us=event_us,
        planned_ms=planned_ms,
        positions=positions or {},
        registry_offset=0,
        topic_id=topic_id,
        events=events,
    )


def is_final(result):
    return result.kind is ResultKind.FINAL


@dataclass
class RunningPartition:
    """The windows of a partition of the matched topic.

    Attributes:
        schemas: of the events of topics, by name.
        now_ms: the clock, in milliseconds since 1970.
        results: that it has written.
        aggregator: of the windows.
    """

    schemas: dict[str, Any]
    now_ms: int = 0
    results: list[Any] = field(default_factory=list)

    def __post_init__(self):
        self.aggregator = PartitionAggregator(0, Plans(self.schemas), Restored())

    def take(self, *records):
        """Takes the next records."""
        for record in records:
            offset = self.aggregator.offset
            self._keep(self.aggregator.take(record, offset, self.now_ms))

    def advance(self, now_ms):
        """Sets the clock."""
        self.now_ms = now_ms
        self._keep(self.aggregator.end_by_clock(now_ms))

    def _keep(self, output):
        written = [msgspec.json.encode(result) for result in output.results]
        self.results += map(decode_result, written)


def aggregate(records, schemas, *, now_ms=0):
    """Returns the partition that has taken the records of a log, at a time of the clock."""
    partition = RunningPartition(schemas, now_ms)
    partition.take(*records)
    return partition


class _Reader:
    """Has the queries of all batches, in place of the topic of queries."""

    def __init__(self, queries, topic):
        self.queries, self.topic = queries, topic


class _Writers(MatchWriters):
    """Opens the writers of tasks that have no position in a topic of queries."""

    def live_queries(self):
        return self.reader.queries


def _pieces(queries, rows, topic, event_time, partitions):
    writer = _Writers(_Reader(queries, topic), event_time, partitions)("task")
    writer.write(rows)
    return map(_PIECE.decode, writer.close())
