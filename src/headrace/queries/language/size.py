"""Limits the values in the open windows of a query, and its early results per second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from headrace.queries.language.printer import print_duration
from headrace.queries.language.tree import Aggregate, ClosedBy, Query

MAX_OPEN_VALUES = 1_000_000
MAX_EARLY_RESULTS_PER_SECOND = 10_000
_SKETCHES = frozenset({"percentile", "uniqueCount"})
# A sketch takes up to 8 KB, and ten buckets of a histogram up to 400 bytes.
_VALUES_OF_SKETCH = 10
_BUCKETS_OF_VALUE = 10
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class QuerySize:
    """The size of a query if each window has the greatest possible number of groups.

    Attributes:
        query: a query whose clauses are within their own limits.
    """

    query: Query

    @property
    def groups(self) -> int:
        """The greatest number of groups in a window."""
        return self.query.max_groups if self.query.facets else 1

    @property
    def values(self) -> int:
        """The number of values in a group; large aggregates count as several."""
        return sum(_values(result.aggregate) for result in self.query.results)

    @property
    def waiting(self) -> tuple[str, timedelta]:
        """The clause that keeps windows open after their end, and its duration."""
        if self.query.closing.by is ClosedBy.EVENT_TIME:
            return "ALLOWED LATENESS", self.query.allowed_lateness
        return "CLOSE BY", self.query.closing.after

    @property
    def windows(self) -> int:
        """The number of windows that are open at once while event time advances steadily."""
        _, waiting = self.waiting
        return -(-(self.query.window + waiting) // self.query.slide)

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yields each excess as the clause and a reason that says what to change."""
        values = self.groups * self.windows * self.values
        if values > MAX_OPEN_VALUES:
            clause = self.waiting[0]
            if self.query.facets:
                clause = "LIMIT" if "LIMIT" in self.query.clauses else "FACET"
            yield clause, self._too_many_values(values)
        if self.query.early is not None:
            results = -(-self.groups * self.windows // (self.query.early // _SECOND))
            if results > MAX_EARLY_RESULTS_PER_SECOND:
                yield "EMIT", self._too_many_results(results, self.query.early)

    def _too_many_values(self, values: int) -> str:
        counted = ""
        if self.values > len(self.query.results):
            counted = (
                f", where {' and '.join(sorted(_SKETCHES))} count as {_VALUES_OF_SKETCH}, and "
                f"{_BUCKETS_OF_VALUE} buckets of histogram as 1"
            )
        max_groups = MAX_OPEN_VALUES // (self.windows * self.values)
        return (
            f"{self._open_windows()}, with {_number_of(self.values, 'value')} each{counted}: "
            f"{values:,} values, and {MAX_OPEN_VALUES:,} are possible; "
            f"{' or '.join(self._remedies(max_groups))}"
        )

    def _too_many_results(self, results: int, interval: timedelta) -> str:
        max_groups = MAX_EARLY_RESULTS_PER_SECOND * (interval // _SECOND) // self.windows
        remedies = list(self._remedies(max_groups))
        min_interval = -(-self.groups * self.windows // MAX_EARLY_RESULTS_PER_SECOND) * _SECOND
        if min_interval <= self.query.window:
            remedies.append(f"lengthen EMIT EARLY EVERY to {print_duration(min_interval)}")
        return (
            f"{self._open_windows()}, with EMIT EARLY EVERY {print_duration(interval)}: up to "
            f"{results:,} early results in a second, and {MAX_EARLY_RESULTS_PER_SECOND:,} are "
            f"possible; {' or '.join(remedies)}"
        )

    def _open_windows(self) -> str:
        query, (clause, waiting) = self.query, self.waiting
        clauses = [f"WINDOW {print_duration(query.window)}"]
        if query.slide < query.window:
            clauses.append(f"SLIDE BY {print_duration(query.slide)}")
        if waiting:
            way = "" if query.closing.by is ClosedBy.EVENT_TIME else f" {query.closing.by.value}"
            clauses.append(f"{clause}{way} {print_duration(waiting)}")
        groups = f"LIMIT {self.groups:,} groups" if query.facets else "1 group"
        windows = _number_of(self.windows, "open window")
        return f"{' '.join(clauses)} makes {windows}, each of {groups}"

    def _remedies(self, max_groups: int) -> Iterator[str]:
        clause, waiting = self.waiting
        if self.query.facets and max_groups:
            yield f"lower LIMIT to {max_groups:,}"
        if waiting:
            yield f"shorten {clause}"
        if self.query.slide < self.query.window:
            yield "lengthen SLIDE BY"


def _values(aggregate: Aggregate) -> int:
    if aggregate.function in _SKETCHES:
        return _VALUES_OF_SKETCH
    if aggregate.function == "histogram":
        _, _, buckets = aggregate.parameters
        return -(-int(buckets) // _BUCKETS_OF_VALUE)
    return 1


def _number_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
