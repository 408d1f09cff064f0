"""Results of whole queries, from rows to ended windows: DuckDB has them, too."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tests.unit.queries.compile.arrow.expressions import VISIT_COLUMNS, VISITS
from tests.unit.queries.compile.arrow.test_against_duckdb import DATABASE, DuckSql, without_zones
from tests.unit.queries.pipeline import (
    EventBatch,
    aggregate,
    is_final,
    live_queries,
    matched_records,
)
from tests.unit.queries.query_strategies import EVENTS, FIRST, SPAN_SECONDS, TOPIC, query_sets

from headrace.model.durations import microseconds
from headrace.queries.language import parse_query
from headrace.queries.match.partials import facet_hash
from headrace.queries.match.writer import MatchWriter
from headrace.queries.windows.aggregate.window import time_text

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST_US = (FIRST - EPOCH) // MICROSECOND
END_US = FIRST_US + 10**12


@dataclass(frozen=True)
class Batch:
    """Events of a batch, and how far their time is behind it; ``tasks`` has a number for each."""

    events: tuple[dict[str, object], ...]
    tasks: tuple[int, ...]
    event_us: int | None


@st.composite
def batches(draw):
    events = draw(st.lists(EVENTS, max_size=12))
    tasks = draw(st.lists(st.integers(0, 2), min_size=len(events), max_size=len(events)))
    seconds = draw(st.none() | st.integers(-10, SPAN_SECONDS + 60))
    event_us = None if seconds is None else FIRST_US + seconds * 1_000_000
    return Batch(tuple(events), tuple(tasks), event_us)


@pytest.mark.drill
def test_results_and_late_events_are_those_of_duckdb(drill_run, monkeypatch):
    monkeypatch.setattr(MatchWriter, "record_bytes", 40)  # many windows have several records
    examples = drill_run.size(short=200, long=2_000)
    counts = Counter()

    @seed(drill_run.random.randrange(2**32))
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(query_sets(), st.lists(batches(), min_size=1, max_size=4))
    def results_are_those_of_duckdb(texts, history):
        counts.update(_compared(texts, history))

    results_are_those_of_duckdb()
    drill_run.report(examples=examples, **counts)
    assert counts["results"] > examples
    assert counts["late"] > 0


def _compared(texts, history):
    """Compares results; returns how many there are, and how many late events."""
    parts = _event_batches(history)
    logs = matched_records(live_queries(texts, VISITS, topic=TOPIC), parts, topic=TOPIC)
    partitions = [aggregate(records, {TOPIC: VISITS}) for records in logs]
    results = [result for partition in partitions for result in partition.results]
    assert not any(partition.aggregator.faulty for partition in partitions)
    for partition in partitions:
        for counts in partition.aggregator.counts.values():
            assert (counts.unbalanced, counts.begun, counts.open) == (0, 0, 0)
    assert all(is_final(result) and result.emission == 1 for result in results)
    assert len({_key(result) for result in results}) == len(results)
    late = sum((partition.aggregator.late for partition in partitions), Counter())
    DATABASE.register("visits", _with_reached(parts))
    for query_id, text in texts.items():
        expected = WindowSql(parse_query(text))
        assert late[query_id] == expected.late(), text
        of_query = [result for result in results if result.query == query_id]
        _assert_equal(of_query, expected, text)
    return {"results": len(results), "late": late.total()}


def _key(result):
    return result.query, result.begin, tuple(result.facets.items()), result.is_other


def _assert_equal(results, expected, text):
    """Compares the groups of each window that are shown, and how many events others have."""
    limit = expected.query.max_groups
    by_window = defaultdict(list)
    for group in expected.groups():
        by_window[group.begin_us].append(group)
    actual, others = {}, {}
    for result in results:
        if result.is_other:
            others[result.begin] = result
        else:
            actual[result.begin, tuple(result.facets.values())] = result
    shown = {}
    for begin_us, groups in by_window.items():
        groups.sort(key=lambda group: facet_hash(group.facets))
        events = sum(group.events for group in groups)
        for group in groups[:limit]:
            shown[time_text(begin_us), expected.facet_texts(group)] = group, events
        other = others.pop(time_text(begin_us), None)
        assert (other is not None) == (len(groups) > limit), text
        _assert_counts(other, groups[limit:], expected.query, text)
    assert not others
    assert actual.keys() == shown.keys(), text
    for key, (group, events) in shown.items():
        result = actual[key]
        assert result.events == events, text
        for aggregate_of, value, reference in zip(
            expected.aggregates, result.values.values(), group.values, strict=True
        ):
            assert _is_close(aggregate_of, value, reference), (text, key, value, reference)


def _assert_counts(other, groups, query, text):
    if other is None:
        return
    for number, result in enumerate(query.results):
        if result.aggregate.function == "count" and result.aggregate.per is None:
            total = sum(group.values[number] for group in groups)
            assert other.values[f"c{number}"] == total, text


def _is_close(aggregate_of, value, reference):
    if aggregate_of.function == "uniqueCount":
        return 0 <= reference - value <= 1  # as documented of up to 350 values
    if isinstance(reference, datetime):
        return value == time_text((reference.replace(tzinfo=UTC) - EPOCH) // MICROSECOND)
    if isinstance(reference, float) and isinstance(value, float):
        return value == pytest.approx(reference, rel=1e-9, abs=1e-6)
    return value == reference


def _event_batches(history):
    """Cuts batches into tasks; the last tick ends all windows."""
    offsets = Counter()
    parts = []
    for batch in history:
        tasks = []
        for task in range(3):
            rows = [
                event for event, of in zip(batch.events, batch.tasks, strict=True) if of == task
            ]
            table = pa.Table.from_pylist(rows, VISIT_COLUMNS)
            places = range(offsets[task], offsets[task] + len(rows))
            offsets[task] += len(rows)
            table = table.append_column("_partition", pa.array([task] * len(rows), pa.int32()))
            tasks.append(table.append_column("_offset", pa.array(places, pa.int64())))
        parts.append(EventBatch(tuple(tasks), batch.event_us))
    return [*parts, EventBatch((), END_US)]


def _with_reached(parts):
    """Events with their time, and how far time was before their batch: ``reached_us``."""
    tables, reached = [], None
    for batch in parts:
        for rows in batch.tasks:
            times = rows["at"].cast(pa.int64())
            reached_us = pa.array([reached] * len(rows), pa.int64())
            tables.append(
                without_zones(rows)
                .append_column("at_us", times)
                .append_column("reached_us", reached_us)
            )
        if batch.event_us is not None:
            reached = batch.event_us if reached is None else max(reached, batch.event_us)
    return pa.concat_tables(tables)


@dataclass(frozen=True)
class ExpectedGroup:
    """A group of a window; ``facets`` with times in microseconds since 1970."""

    begin_us: int
    events: int
    facets: tuple[object, ...]
    values: tuple[object, ...]


class WindowSql:
    """A query as DuckDB's SQL, of the table ``visits``."""

    def __init__(self, query):
        self.query = query
        self.aggregates = [result.aggregate for result in query.results]

    def late(self):
        """Returns how many events were late, once for each window."""
        rows, parameters = self._rows()
        text = f"SELECT count(*) FROM ({rows}) WHERE coalesce({self._is_late()}, false)"
        [(count,)] = DATABASE.execute(text, parameters).fetchall()
        return count

    def groups(self):
        """Returns the groups of all windows."""
        rows, parameters = self._rows()
        facets = [f"f{number}" for number in range(len(self.query.facets))]
        values = [self._value(number) for number in range(len(self.aggregates))]
        text = (
            f"SELECT {', '.join(['begin_us', 'count(*)', *facets, *values])} FROM ({rows}) "
            f"WHERE NOT coalesce({self._is_late()}, false) "
            f"GROUP BY {', '.join(['begin_us', *facets])}"
        )
        groups = []
        for begin_us, events, *rest in DATABASE.execute(text, parameters).fetchall():
            keys = tuple(map(_plain, rest[: len(facets)]))
            groups.append(ExpectedGroup(begin_us, events, keys, tuple(rest[len(facets) :])))
        return groups

    def facet_texts(self, group):
        """Returns the facets of a group as results have them."""
        kinds = zip(group.facets, self._time_facets(), strict=True)
        return tuple(
            time_text(value) if is_time and value is not None else value for value, is_time in kinds
        )

    def _time_facets(self):
        return [
            str(facet.expression) in {"at", "seen", "owner.since"} for facet in self.query.facets
        ]

    def _rows(self):
        """Returns matching events, once for each window, with columns of facets and arguments."""
        sql = DuckSql()
        window, slide = microseconds(self.query.window), microseconds(self.query.slide)
        columns = [f"at_us - at_us % {slide} - k * {slide} AS begin_us", "reached_us", "at_us"]
        columns += ['"_partition" AS p', '"_offset" AS o']
        for number, facet in enumerate(self.query.facets):
            columns.append(f"{sql.of(facet.expression)} AS f{number}")
        for number, aggregate_of in enumerate(self.aggregates):
            argument = aggregate_of.argument
            columns.append(f"{'true' if argument is None else sql.of(argument)} AS a{number}")
            where = "true" if aggregate_of.where is None else sql.of(aggregate_of.where)
            columns.append(f"{where} AS w{number}")
        where = "true" if self.query.where is None else sql.of(self.query.where)
        text = (
            f"SELECT {', '.join(columns)} FROM visits, range({window // slide}) AS slides(k) "
            f"WHERE {where}"
        )
        return text, sql.parameters

    def _is_late(self):
        waits = microseconds(self.query.window) + microseconds(self.query.allowed_lateness)
        return f"begin_us + {waits} <= reached_us"

    def _value(self, number):
        aggregate_of, name = self.aggregates[number], f"a{number}"
        counted = f"FILTER (WHERE {name} IS NOT NULL AND w{number})"
        match aggregate_of.function, aggregate_of.parameters:
            case "percentile", (percentage,):
                sorted_values = f"list_sort(list(CAST({name} AS DOUBLE)) {counted})"
                place = f"greatest(1, ceil({percentage} / 100e0 * count(*) {counted}))"
                text = f"{sorted_values}[CAST({place} AS BIGINT)]"
            case "histogram", (start, width, buckets):
                bounds = [start + width * bucket for bucket in range(int(buckets))]
                inside = [f"{name} >= {low} AND {name} < {low + width}" for low in bounds]
                counts = [f"count(*) FILTER (WHERE w{number} AND {each})" for each in inside]
                text = f"[{', '.join(counts)}]"
            case "latest", _:
                text = f"arg_max({name}, (at_us, p, o)) {counted}"
            case "uniqueCount", _:
                text = f"count(DISTINCT {name}) {counted}"
            case function, _:
                text = f"{_FUNCTIONS.get(function, function)}({name}) {counted}"
        if aggregate_of.per is not None:
            text = f"CAST({text} AS DOUBLE) * {aggregate_of.per / self.query.window}"
        return text


_FUNCTIONS = {"average": "avg", "stddev": "stddev_pop"}


def _plain(value):
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
    return value + 0.0 if isinstance(value, float) else value  # DuckDB's groups have -0.0, too
