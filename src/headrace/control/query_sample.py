"""How the newest events of a topic fare with a query: operand by operand, as the index looks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events.times import microseconds_since_1970
from headrace.kafka.client import ClientConfig, describe, watermarks
from headrace.kafka.range_reader import read_records
from headrace.model import EventSchema, OffsetRange, Topic, TopicPartition
from headrace.pipelines.source.decode import decoder_for
from headrace.pipelines.source.decode.checks import EventTimeBounds, RowChecks
from headrace.queries.evaluation.kernels import Mask, is_true
from headrace.queries.language.printer import print_expression
from headrace.queries.language.tree import Query
from headrace.queries.match.rules import RuleSet
from headrace.queries.match.shape import (
    Constants,
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
        text: of the operand.
        reached: events that it is evaluated on: those that met all operands before it.
        met: events of those that meet it.
        is_lookup: whether the query is looked up by it.
    """

    text: str
    reached: int
    met: int
    is_lookup: bool


@dataclass(frozen=True)
class QuerySample:
    """What the newest events of a topic come to with a query.

    Attributes:
        events: that were looked at.
        rejected: records that are no events of the topic.
        untimed: events without an event time, which are in no window.
        operands: of the condition, in the order in which they are looked at.
        lookup: the operand that the query is looked up by; empty: by none, and every event is
            looked at.
        candidates: events that the query is compared with.
        matches: events that match.
        newest_match: the newest event time among the matches; None: there are none.
        groups: different values of the facets among the matches; None: the query has no facets.
        max_groups: limit of groups of a window.
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
        """Returns the share of events that the query is compared with; None: there are none."""
        timed = self.events - self.untimed
        return self.candidates / timed if timed else None

    @property
    def candidates_per_match(self) -> float | None:
        """Returns how many events it is compared with for each match; None: none matches."""
        return self.candidates / self.matches if self.matches else None


def sample_query(rows: pa.Table, query: Query, topic: Topic, rejected: int = 0) -> QuerySample:
    """Returns how events fare with a query.

    Args:
        rows: the events, with the columns of the topic's event class.
        query: that fits the topic.
        topic: with an event class and an event time.
        rejected: records that are no events.
    """
    schema = _schema(topic)
    shape, constants = compile_query(query, schema)
    times = rows.column(topic.event_time)
    timed = rows.filter(times.is_valid())
    met = [is_true(operand.evaluate(timed)) for operand in shape.operands]
    lookup = _lookup(shape, constants, timed)
    texts = [print_expression(operand) for operand in operands_of(query.where)]
    order = sorted(range(len(met)), key=lambda number: _place(shape, number, lookup))
    figures, matching = _figures(texts, met, order, lookup, timed.num_rows)
    matches = timed.filter(pa.array(matching))
    newest = pc.max(matches.column(topic.event_time)).as_py()
    return QuerySample(
        events=rows.num_rows,
        rejected=rejected,
        untimed=rows.num_rows - timed.num_rows,
        operands=tuple(figures),
        lookup="" if lookup is None else texts[lookup],
        candidates=timed.num_rows if lookup is None else int(met[lookup].sum()),
        matches=matches.num_rows,
        newest_match=newest,
        groups=_groups(shape, matches) if shape.facets else None,
        max_groups=query.max_groups,
    )


def newest_events(
    config: ClientConfig,
    topic: Topic,
    max_events: int,
    registry: SchemaRegistrySettings | None = None,
) -> tuple[pa.Table, int]:
    """Returns the newest events of a topic as columns, and how many records were rejected.

    Rejected are records that are no events, and those with a time outside of the topic's bounds.
    They are the last records of each partition, about as many of each. Offsets have gaps, so there
    may be fewer than ``max_events``.

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
        values = [record.value() for record in read_records(config, "headrace.explain", ranges)]
    decoded = _row_checks(topic).applied(decoder.decode(values), len(values))
    return decoded.rows, len(decoded.rejected)


def newest_ranges(
    marks: dict[TopicPartition, tuple[int, int]], max_offsets: int
) -> list[OffsetRange]:
    """Returns the ends of partitions, as many offsets of each as there are and room is for.

    Args:
        marks: the earliest and the latest offset of each partition.
        max_offsets: of all ranges.
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
    earliest_us = microseconds_since_1970(topic.earliest_event_time)
    latest_us = microseconds_since_1970(datetime.now(UTC) + topic.latest_ahead)
    return RowChecks(EventTimeBounds(topic.event_time, earliest_us, latest_us), ())


def _schema(topic: Topic) -> EventSchema:
    if topic.schema is None or topic.event_time is None:
        raise ValueError(f"topic {topic.name!r} has no event class, or no event time")
    return topic.schema


def _lookup(shape: QueryShape, constants: Constants, rows: pa.Table) -> int | None:
    """Returns the number of the operand that the index chooses by these rows; None: none."""
    rules = RuleSet()
    rules.put(Rule("", shape, constants))
    [(_, operand)] = rules.lookups(rows)
    return operand if operand >= 0 else None


def _place(shape: QueryShape, number: int, lookup: int | None) -> tuple[int, int]:
    """Returns what operands are ordered by: of a query in no index, those without constants."""
    is_first = number == lookup
    if lookup is None:
        is_first = not shape.operands[number].constant_types
    return (0 if is_first else 1), number


def _figures(
    texts: Sequence[str], met: Sequence[Mask], order: Iterable[int], lookup: int | None, rows: int
) -> tuple[list[OperandFigures], Mask]:
    """Returns the figures of operands in their order, and the rows that meet all of them."""
    matching = np.ones(rows, np.bool_)
    figures = []
    for number in order:
        reached = int(matching.sum())
        matching &= met[number]
        is_lookup = number == lookup
        figures.append(OperandFigures(texts[number], reached, int(matching.sum()), is_lookup))
    return figures, matching


def _groups(shape: QueryShape, matches: pa.Table) -> int:
    columns = {str(n): facet.evaluate(matches) for n, facet in enumerate(shape.facets)}
    return int(pa.table(columns).group_by(list(columns)).aggregate([]).num_rows)
