"""One open window of a query: its groups, and their values."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headrace.events.times import iso_text
from headrace.queries.match.partials import facet_hash
from headrace.queries.records.matched import Group, WindowId, WindowPartial
from headrace.queries.records.result import QueryResult, ResultKind
from headrace.queries.windows.aggregate.plan import AggregatePlan
from headrace.queries.windows.functions import Accumulator

# From the year 1 to a day before the year 10000: a window is at most a day long.
_FIRST_BEGIN_US, _LAST_BEGIN_US = -62_135_596_800_000_000, 253_402_214_400_000_000


class OpenWindow:
    """A window that is still open.

    Args:
        window_id: the id of the window.
        text: the text of the query.
        plan: the plan of the text.
        opened_ms: when its first events came, by the wall clock, in milliseconds since 1970.

    Attributes:
        changed_ms: when its last events came, in milliseconds since 1970.
        events: the number of events that match.
        emission: the emission of its last result; 0 if there is no result yet.
        emitted_ms: when it had its last early result, or was opened, in milliseconds since 1970.
        awaits_early: whether events have come since then, so that an early result will follow.
    """

    def __init__(self, window_id: WindowId, text: str, plan: AggregatePlan, opened_ms: int) -> None:
        self.id, self.text, self.plan = window_id, text, plan
        self.changed_ms = self.emitted_ms = opened_ms
        self.events = self.emission = 0
        self.awaits_early = False
        self._groups: dict[tuple[Any, ...], list[Accumulator[Any]]] = {}
        self._other: list[Accumulator[Any]] | None = None
        # A heap of the groups that are shown; the group with the greatest hash is first.
        self._hashes: list[tuple[int, tuple[Any, ...]]] = []

    @property
    def end_us(self) -> int:
        """The end of the window, in microseconds since 1970."""
        return self.id.begin_us + self.plan.window_us

    @property
    def due_us(self) -> int:
        """When the window is due to end, as of now, in microseconds since 1970."""
        return self.plan.closing.due_us(self.end_us, self.changed_ms * 1000)

    @property
    def early_due_ms(self) -> int:
        """When the next early result is due, if there will be one, in milliseconds since 1970."""
        return self.emitted_ms + self.plan.early_us // 1000

    def add(self, partial: WindowPartial, now_ms: int) -> None:
        """Adds the partials of a record.

        Raises:
            ValueError: if the record is damaged. Then nothing is added.
        """
        self.restore(partial.events, partial.groups, partial.other)
        self.changed_ms = now_ms

    def restore(self, events: int, groups: Iterable[Group], other: Sequence[Any] | None) -> None:
        """Adds the groups of a snapshot of the window.

        Raises:
            ValueError: if the snapshot is damaged. Then nothing is added.
        """
        if not _FIRST_BEGIN_US <= self.id.begin_us <= _LAST_BEGIN_US:
            raise ValueError(f"a window can't begin at {self.id.begin_us}")
        read = [(self._facets(facets), self._read(partials)) for facets, partials in groups]
        read_other = None if other is None else self._read(other)
        self.events += events
        for facets, states in read:
            _add(self._group(facets), states)
        if read_other is not None:
            _add(self._others(), read_other)

    def results(self, kind: ResultKind) -> Iterator[QueryResult]:
        """Yields a result of each group, with the next emission number."""
        self.emission += 1
        for facets, accumulators in self._groups.items():
            yield self._result(facets, accumulators, kind, is_other=False)
        if self._other is not None:
            yield self._result((), self._other, kind, is_other=True)

    def groups(self) -> list[Group]:
        """Returns the groups that are shown, as partials."""
        return [(facets, _partials(group)) for facets, group in self._groups.items()]

    def other(self) -> list[Any] | None:
        """Returns the partials of all other groups together, or ``None`` if there are none."""
        return None if self._other is None else list(_partials(self._other))

    def _group(self, facets: tuple[Any, ...]) -> list[Accumulator[Any]]:
        group = self._groups.get(facets)
        if group is not None:
            return group
        item = (-int.from_bytes(facet_hash(facets)), facets)
        if len(self._groups) < self.plan.max_groups:
            heapq.heappush(self._hashes, item)
        elif item[0] <= self._hashes[0][0]:
            return self._others()
        else:
            _, greatest = heapq.heapreplace(self._hashes, item)
            _add(self._others(), self._read(_partials(self._groups.pop(greatest))))
        group = self._groups[facets] = self._accumulators()
        return group

    def _others(self) -> list[Accumulator[Any]]:
        if self._other is None:
            self._other = self._accumulators()
        return self._other

    def _accumulators(self) -> list[Accumulator[Any]]:
        return [aggregation.accumulator() for aggregation in self.plan.aggregations]

    def _facets(self, values: Sequence[Any]) -> tuple[Any, ...]:
        are_scalars = all(isinstance(value, str | int | float | bool | None) for value in values)
        if len(values) != len(self.plan.facets) or not are_scalars:
            raise ValueError(f"{values!r:.100} are no values of the facets")
        return tuple(values)

    def _read(self, partials: Sequence[Any]) -> list[Any]:
        """Returns the states in the partials of a group, ``None`` for a partial that is empty."""
        pairs = zip(self.plan.aggregations, partials, strict=True)
        return [
            None if partial is None else aggregation.read(partial) for aggregation, partial in pairs
        ]

    def _result(
        self,
        facets: tuple[Any, ...],
        group: list[Accumulator[Any]],
        kind: ResultKind,
        *,
        is_other: bool,
    ) -> QueryResult:
        plan = self.plan
        values = (accumulator.value(plan.window) for accumulator in group)
        named = {} if is_other else dict(zip(plan.facets, facets, strict=True))
        return QueryResult(
            query=self.id.query,
            registered=time_text(self.id.registered_ms * 1000),
            revision=self.id.revision,
            begin=time_text(self.id.begin_us),
            end=time_text(self.end_us),
            emission=self.emission,
            kind=kind,
            facets={
                name: time_text(value) if is_time and value is not None else value
                for (name, is_time), value in named.items()
            },
            is_other=is_other,
            values=dict(zip(plan.columns, values, strict=True)),
            events=self.events,
        )


def _add(group: list[Accumulator[Any]], states: Sequence[Any]) -> None:
    for accumulator, state in zip(group, states, strict=True):
        if state is not None:
            accumulator.add_state(state)


def time_text(time_us: int) -> str:
    """Returns a time as ISO 8601 in UTC."""
    return iso_text(time_us).replace("+00:00", "Z")


def _partials(group: list[Accumulator[Any]]) -> tuple[Any, ...]:
    return tuple(accumulator.partial() for accumulator in group)
