"""Evaluates a query on the newest events of a topic, operand by operand as the index does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.read.range_reader import read_records
from headrace.model import OffsetRange, Topic, TopicPartition
from headrace.pipelines.source.decode import decoder_for, record_values
from headrace.pipelines.source.decode.checks import EventTimeBounds, RowChecks
from headrace.queries.compile.arrow.kernels import Mask, is_true
from headrace.queries.language.clauses import print_expression
from headrace.queries.language.tree import Query
from headrace.queries.match.rules import RuleSet
from headrace.queries.match.shape import (
    QueryShape,
    Rule,
    compile_query,
    operands_of,
)
from headrace.settings import SchemaRegistrySettings


@dataclass(frozen=True)
class OperandFigures:
    """One operand of a query's condition.

    Attributes:
        text: text of the operand.
        reached: number of events that met all operands before it.
        met: number of these events that meet the operand.
        is_lookup: whether the index looks the query up by this operand.
    """

    text: str
    reached: int
    met: int
    is_lookup: bool


@dataclass(frozen=True)
class QuerySample:
    """Figures of a query on the newest events of its topic.

    Attributes:
        events: number of events that the query was evaluated on.
        rejected: number of records that were rejected.
        untimed: number of events without an event time, which are in no window.
        operands: operands of the condition, in the order of evaluation.
        lookup: the operand that the index looks the query up by; empty if there is none, and every
            event is a candidate.
        candidates: number of events that the query is compared with.
        matches: number of events that match.
        newest_match: the newest event time of the matches; ``None`` if there are no matches.
        groups: number of groups that the matches have; ``None`` if the query has no facets.
        max_groups: limit of groups in a window.
    """

    events: int
    rejected: int
    untimed: int
    operands: tuple[OperandFigures, ...]
    lookup: str
    candidates: int
    matches: int
    newest_match: datetime | None
    groups: int | None
    max_groups: int

    @property
    def candidate_share(self) -> float | None:
        """Returns the share of events that are candidates; ``None`` if no event has a time."""
        timed = self.events - self.untimed
        return self.candidates / timed if timed else None

    @property
    def candidates_per_match(self) -> float | None:
        """Returns the number of candidates per match; ``None`` if there are no matches."""
        return self.candidates / self.matches if self.matches else None


def sample_query(rows: pa.Table, query: Query, topic: Topic, rejected: int = 0) -> QuerySample:
    """Returns the figures of a query on events.

    Args:
        rows: the events, with the columns of the topic's event class.
        query: a query that fits the topic.
        topic: a topic with an event class and an event time.
        rejected: number of records that were rejected.
    """
    if topic.schema is None or topic.event_time is None:
        raise ValueError(f"topic {topic.name!r} has no event class, or no event time")
    shape, constants = compile_query(query, topic.schema)
    times = rows.column(topic.event_time)
    timed = rows.filter(times.is_valid())
    met = [is_true(operand.evaluate(timed)) for operand in shape.operands]
    rules = RuleSet()
    rules.put(Rule("", shape, constants))
    [(_, operand)] = rules.lookups(timed)
    lookup = operand if operand >= 0 else None
    texts = [print_expression(operand) for operand in operands_of(query.where)]
    order = sorted(range(len(met)), key=lambda number: _place(shape, number, lookup))
    figures, matching = _figures(texts, met, order, lookup, timed.num_rows)
    matches = timed.filter(pa.array(matching))
    newest = pc.max(matches.column(topic.event_time)).as_py()
    columns = {str(n): facet.evaluate(matches) for n, facet in enumerate(shape.facets)}
    groups = None
    if columns:
        groups = pa.table(columns).group_by(list(columns)).aggregate([]).num_rows
    return QuerySample(
        events=rows.num_rows,
        rejected=rejected,
        untimed=rows.num_rows - timed.num_rows,
        operands=tuple(figures),
        lookup="" if lookup is None else texts[lookup],
        candidates=timed.num_rows if lookup is None else int(met[lookup].sum()),
        matches=matches.num_rows,
        newest_match=newest,
        groups=groups,
        max_groups=query.max_groups,
    )


def newest_events(
    config: ClientConfig,
    topic: Topic,
    max_events: int,
    registry: SchemaRegistrySettings | None = None,
) -> tuple[pa.Table, int]:
    """Returns the newest events of a topic as columns, and the number of rejected records.

    Rejected records are no events, or their event time is outside of the topic's bounds. The newest
    records of each partition are read, about as many from each. Offsets have gaps, so there may be
    fewer than ``max_events``.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
        RecordsUnreadableError: if records are damaged.
    """
    decoder = decoder_for(topic.record_format, topic.schema, registry)
    live = describe(config, [topic.name]).get(topic.name)
    values: list[bytes | None] = []
    if live is not None:
        ranges = newest_ranges(watermarks(config, live.all_partitions), max_events)
        records = read_records(config, "headrace.explain", ranges)
        read = record_values(records, topic.record_format)
        without = topic.leaves_out_tombstones
        values = [value for value in read if not (without and value is None)]
    decoded = _row_checks(topic).applied(decoder.decode(values), len(values))
    return decoded.rows, len(decoded.rejected)


def newest_ranges(
    marks: dict[TopicPartition, tuple[int, int]], max_offsets: int
) -> list[OffsetRange]:
    """Returns the newest offsets of partitions, up to a total that they share evenly.

    Args:
        marks: the earliest and the latest offset of each partition.
        max_offsets: greatest number of offsets in all ranges.
    """
    ranges: list[OffsetRange] = []
    by_size = sorted(marks.items(), key=lambda item: item[1][1] - item[1][0])
    for number, (partition, (begin, end)) in enumerate(by_size):
        size = min(end - begin, -(-max_offsets // (len(by_size) - number)))
        max_offsets -= size
        if size:
            ranges.append(OffsetRange(partition, end - size, end))
    return ranges


def _row_checks(topic: Topic) -> RowChecks:
    if topic.event_time is None:
        return RowChecks(None, ())
    bounds = topic.event_time_bounds(datetime.now(UTC).timestamp())
    return RowChecks(EventTimeBounds(topic.event_time, *bounds), ())


def _place(shape: QueryShape, number: int, lookup: int | None) -> tuple[int, int]:
    """Returns the sort key of an operand: the lookup is first, or else those without constants."""
    is_first = number == lookup
    if lookup is None:
        is_first = not shape.operands[number].constant_types
    return (0 if is_first else 1), number


def _figures(
    texts: Sequence[str], met: Sequence[Mask], order: Iterable[int], lookup: int | None, rows: int
) -> tuple[list[OperandFigures], Mask]:
    """Returns the figures of operands in a given order, and the mask of rows that meet them all."""
    matching = np.ones(rows, np.bool_)
    figures = []
    for number in order:
        reached = int(matching.sum())
        matching &= met[number]
        is_lookup = number == lookup
        figures.append(OperandFigures(texts[number], reached, int(matching.sum()), is_lookup))
    return figures, matching
