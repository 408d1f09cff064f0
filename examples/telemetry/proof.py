"""The results of standing queries beside those of DuckDB, which has all events at once.

============================= ======================================================================
aggregate                     is right if
============================= ======================================================================
counts, sums, averages, max   it is DuckDB's
``stddev``                    it is DuckDB's but for rounding, which DuckDB does at each event
``uniqueCount``               it is off by at most a tenth, or by 1 (standard error 1.6 %)
``percentile``                it is the value of a percentage that is off by at most 3 points, where
                              there are more than 200 values (below 1.33 points in 99 of 100 cases)
============================= ======================================================================
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import msgspec
from confluent_kafka import Consumer, TopicPartition
from dashboards import Column, DashboardQuery
from traffic import SHARES

from headrace import QueryResult

GroupKey: TypeAlias = tuple[str, datetime, tuple[str, ...]]
"""A query, when a window of it begins, and the values of its facets."""

Values: TypeAlias = tuple[Any, ...]
"""The columns of a group; of a percentile, DuckDB has the least and the greatest right value."""

EXACT_PERCENTILE_VALUES = 200
MAX_PERCENTAGE_POINTS = 3
MAX_UNIQUE_ERROR = 0.1
ROUNDING = 1e-9
PATIENCE_SECONDS = 120.0
FIGURES = ("queries", "windows", "groups", "missing", "extra", "wrong")
FUNCTIONS = {"average": "avg", "stddev": "stddev_pop", "uniqueCount": "count"}


@dataclass(frozen=True)
class Comparison:
    """What a shape of queries has as results, beside what DuckDB has.

    Attributes:
        name: of the shape.
        queries: of it.
        windows: with a result by DuckDB.
        groups: of these windows.
        missing: groups without a result.
        extra: results of groups that have no event, or have a result already.
        wrong: groups with another value.
    """

    name: str
    queries: int
    windows: int
    groups: int
    missing: int
    extra: int
    wrong: int

    @property
    def agrees(self) -> bool:
        """Whether there are results, and all of them are right."""
        return bool(self.groups) and not (self.missing or self.extra or self.wrong)


class Database:
    """The events of files as tables of DuckDB, in memory.

    Args:
        folder: with a file of JSON lines for each topic.
    """

    def __init__(self, folder: Path) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for topic in SHARES:
            lines = self._connection.read_json(str(folder / f"{topic}.ndjson"))
            # DuckDB drops the zone of a time that it has not been asked to keep.
            lines.project('* REPLACE ("at"::TIMESTAMPTZ AS "at")').create(topic)

    def groups(self, query: DashboardQuery, until: datetime) -> dict[GroupKey, Values]:
        """Returns the groups of the windows that end by a time."""
        window, slide = query.window_seconds, query.slide_seconds
        begin = f'(floor(epoch("at") / {slide}) - unnest(range({window // slide}))) * {slide}'
        by = ["begin_at", *(field for _, field in query.facets)]
        in_windows = self._connection.table(query.topic).project(f"*, {begin} AS begin_at")
        matching = in_windows.filter(query.condition or "true")
        ended = matching.filter(f"begin_at + {window} <= {until.timestamp()}")
        values = [*by, *map(_column_sql, query.columns)]
        groups = {}
        for begin_at, *row in ended.aggregate(", ".join(values), ", ".join(by)).fetchall():
            facets, columns = row[: len(query.facets)], row[len(query.facets) :]
            groups[query.id, datetime.fromtimestamp(begin_at, UTC), tuple(facets)] = tuple(columns)
        return groups


class Results:
    """The topic of results, read by a Kafka client as any service reads it.

    The queries have final results alone, so a group of a window has one. Of early ones, the newest
    would count.

    Args:
        bootstrap_servers: of the brokers.
        topic: of results.
        until: windows that end later are left out.

    Attributes:
        groups: results of each group of a window.
    """

    def __init__(self, bootstrap_servers: str, topic: str, until: datetime) -> None:
        self._until = until
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "telemetry-proof",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        partitions = self._consumer.list_topics(topic).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        self.groups: defaultdict[GroupKey, list[QueryResult]] = defaultdict(list)

    def read(self, keys: Iterable[GroupKey]) -> None:
        """Reads what is there, and waits for results of these groups, two minutes at most.

        Raises:
            RuntimeError: if a partition can't be read.
        """
        missing = set(keys)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            messages = self._consumer.consume(1_000, timeout=0.5)
            for message in messages:
                if message.error() is not None:
                    raise RuntimeError(f"Cannot read the results: {message.error().str()}")
                self._take(message.value())
            missing -= self.groups.keys()
            if not missing and not messages:
                return

    def close(self) -> None:
        """Leaves the brokers."""
        self._consumer.close()

    def _take(self, value: bytes) -> None:
        result = msgspec.json.decode(value, type=QueryResult)
        if datetime.fromisoformat(result.end) > self._until:
            return
        begin = datetime.fromisoformat(result.begin)
        self.groups[result.query, begin, tuple(result.facets.values())].append(result)


def compared(
    queries: Iterable[DashboardQuery],
    expected: Mapping[GroupKey, Values],
    actual: Mapping[GroupKey, Sequence[QueryResult]],
) -> Iterator[Comparison]:
    """Yields a comparison of each shape."""
    shapes: dict[str, list[DashboardQuery]] = {}
    for query in queries:
        shapes.setdefault(query.name, []).append(query)
    for name, of_shape in shapes.items():
        by_id = {query.id: query for query in of_shape}
        keys = {key for key in expected if key[0] in by_id}
        answered = {key for key in actual if key[0] in by_id}
        wrong = (
            key
            for key in keys & answered
            if not agrees(by_id[key[0]].columns, actual[key][-1].values, expected[key])
        )
        yield Comparison(
            name=name,
            queries=len(of_shape),
            windows=len({(query, begin) for query, begin, _ in keys}),
            groups=len(keys),
            missing=len(keys - answered),
            extra=sum(len(actual[key]) for key in answered) - len(keys & answered),
            wrong=sum(1 for _ in wrong),
        )


def sentence(compared: Sequence[Comparison]) -> str:
    """Returns what the comparisons of all shapes come to."""
    queries, windows, groups, *differences = (
        sum(getattr(shape, figure) for shape in compared) for figure in FIGURES
    )
    of = f"{groups:,} groups of {windows:,} windows of {queries:,} queries"
    if all(shape.agrees for shape in compared):
        return f"They agree: {of}."
    return f"They do not agree: {sum(differences):,} differences among {of}."


def agrees(columns: Iterable[Column], actual: Mapping[str, Any], expected: Values) -> bool:
    """Returns whether all columns of a group are right."""
    return all(
        is_right(column.function, actual[column.name], value)
        for column, value in zip(columns, expected, strict=True)
    )


def is_right(function: str, actual: Any, expected: Any) -> bool:
    """Returns whether the value of an aggregate is right: see the table of this module."""
    if actual is None:
        return expected is None
    match function:
        case "percentile":
            least, greatest = expected
            return bool(least <= actual <= greatest)
        case "uniqueCount":
            return bool(abs(actual - expected) <= max(1, MAX_UNIQUE_ERROR * expected))
        case "stddev":
            return math.isclose(actual, expected, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return bool(actual == expected)


def _column_sql(column: Column) -> str:
    argument = column.argument or "*"
    if column.percentage is not None:
        return _percentile_sql(argument, column.percentage)
    distinct = "DISTINCT " if column.function == "uniqueCount" else ""
    aggregate = f"{FUNCTIONS.get(column.function, column.function)}({distinct}{argument})"
    return f"{aggregate} FILTER (WHERE {column.where})" if column.where else aggregate


def _percentile_sql(argument: str, percentage: int) -> str:
    """Returns the list of the least and the greatest value that are right."""
    values, count = f"list_sort(list({argument}))", f"count({argument})"
    is_estimate = f"{count} > {EXACT_PERCENTILE_VALUES}"
    points = f"(CASE WHEN {is_estimate} THEN {MAX_PERCENTAGE_POINTS} ELSE 0 END)"
    # The number of values, rounded up, that the percentage of them comes to.
    least = f"greatest(1, (({percentage} - {points}) * {count} + 99) // 100)"
    greatest = f"least({count}, (({percentage} + {points}) * {count} + 99) // 100)"
    return f"[{values}[{least}], {values}[{greatest}]]"
