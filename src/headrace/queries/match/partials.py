"""Computes the partials that matching rows add to the windows of queries, by group."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.queries.compile.arrow import CompiledExpression
from headrace.queries.match.index import NumberArray, rows_with
from headrace.queries.match.rules import Matches
from headrace.queries.match.shape import QueryShape, ShapedResult
from headrace.queries.match.sizes import divided, value_bytes
from headrace.queries.windows.functions import Aggregation, Places

MAX_TEXT_LENGTH = 1_000
"""Characters of a text that results keep: in facets, ``latest``, ``min`` and ``max``."""


MAX_WINDOW_PAIRS = 250_000
"""Triples of row, rule and window that are added up at once."""

_MAX_PARTIALS = 500_000  # triples times columns of the results that are added up at once


@dataclass(frozen=True)
class RowPlaces:
    """The event times and Kafka positions of the rows of a table.

    Attributes:
        time_us: event time of each row, in microseconds since 1970.
        partition: number of the topic's partition, for each row.
        offset: offset in the partition, for each row.
    """

    time_us: NumberArray
    partition: NumberArray
    offset: NumberArray

    def take(self, rows: NumberArray) -> Places:
        """Returns the places of the rows with these numbers."""
        return Places(self.time_us[rows], self.partition[rows], self.offset[rows])


@dataclass(frozen=True)
class AddedToWindow:
    """The partials that rows add to one window of one rule.

    Attributes:
        slot: slot of the rule.
        begin_us: start of the window, in microseconds since 1970.
        events: number of matching rows.
        groups: values of the facets, and partials of the results, for each group.
        other: sums of the partials of all groups beyond the limit; ``None`` if there are no such
            groups.
    """

    slot: int
    begin_us: int
    events: int
    groups: list[tuple[tuple[Any, ...], tuple[Any, ...]]]
    other: list[Any] | None


def added_to_windows(
    rows: pa.Table, places: RowPlaces, matches: Matches
) -> Iterator[AddedToWindow]:
    """Yields the partials that matching rows add, by rule and window.

    Args:
        rows: events, with the columns of the topic.
        places: places of the rows.
        matches: matches of rules of one shape.
    """
    shape = matches.shape
    pairs = min(MAX_WINDOW_PAIRS, _MAX_PARTIALS // max(1, len(shape.results)))
    at_once = max(1, pairs // (shape.window_us // shape.slide_us))
    for begin in range(0, len(matches.rows), at_once):
        some = slice(begin, begin + at_once)
        part = replace(matches, rows=matches.rows[some], slots=matches.slots[some])
        yield from _added(rows, places, part)


def _added(rows: pa.Table, places: RowPlaces, matches: Matches) -> Iterator[AddedToWindow]:
    # Expressions are evaluated once for each row, though it may be in many rules and windows.
    distinct, numbers = np.unique(matches.rows, return_inverse=True)
    columns = rows_with(rows, matches.shape.columns, distinct)
    pairs = _WindowPairs.of(matches, numbers, places)
    grouping = _Grouping.of(pairs, matches.shape, columns)
    partials = [
        _partials(result, columns, grouping, places.take(distinct))
        for result in matches.shape.results
    ]
    facets = grouping.facet_values()
    sizes = np.bincount(grouping.groups, minlength=grouping.count)
    slots, begins = grouping.slots, grouping.begins
    changes = np.flatnonzero((np.diff(slots) != 0) | (np.diff(begins) != 0)) + 1
    borders = [0, *changes.tolist(), grouping.count]
    for first, last in itertools.pairwise(borders):
        if first == last:
            continue
        groups = [
            (facets[group], tuple(of_result[group] for of_result in partials))
            for group in range(first, last)
        ]
        aggregations = [result.aggregation for result in matches.shape.results]
        kept, other = limited(groups, matches.shape.max_groups, aggregations)
        events = int(sizes[first:last].sum())
        yield AddedToWindow(int(slots[first]), int(begins[first]), events, kept, other)


def limited(
    groups: Sequence[tuple[tuple[Any, ...], tuple[Any, ...]]],
    max_groups: int,
    aggregations: Sequence[Aggregation[Any]],
) -> tuple[list[tuple[tuple[Any, ...], tuple[Any, ...]]], list[Any] | None]:
    """Returns the groups that a window shows, and the sum of all other groups' partials.

    The groups with the smallest hashes of their facets are shown, so the choice does not depend on
    the order of events or on batches. A group that is beyond the limit in some of the groups is
    beyond it in all groups, too.
    """
    if len(groups) <= max_groups:
        return list(groups), None
    ordered = sorted(groups, key=lambda group: facet_hash(group[0]))
    others = []
    for number, aggregation in enumerate(aggregations):
        accumulator = aggregation.accumulator()
        for _, partials in ordered[max_groups:]:
            accumulator.add(partials[number])
        others.append(accumulator.partial())
    return ordered[:max_groups], others


def facet_hash(values: tuple[Any, ...]) -> bytes:
    """Returns the hash by which groups are ordered if there are more than the limit."""
    return hashlib.blake2b(msgspec.json.encode(values), digest_size=8).digest()


@dataclass(frozen=True)
class _WindowPairs:
    """Pairs of a row and a rule, once for each window that the row is in.

    Attributes:
        rows: number of the row among the matching rows, for each pair.
        slots: slot of the rule, for each pair.
        begins: start of the window, for each pair.
    """

    rows: NumberArray
    slots: NumberArray
    begins: NumberArray

    @classmethod
    def of(cls, matches: Matches, numbers: NumberArray, places: RowPlaces) -> _WindowPairs:
        slide, overlaps = matches.shape.slide_us, matches.shape.window_us // matches.shape.slide_us
        last = np.floor_divide(places.time_us[matches.rows], slide) * slide
        if overlaps == 1:
            return cls(numbers, matches.slots, last)
        earlier = np.tile(np.arange(overlaps, dtype=np.int64) * slide, len(last))
        return cls(
            np.repeat(numbers, overlaps),
            np.repeat(matches.slots, overlaps),
            np.repeat(last, overlaps) - earlier,
        )


@dataclass(frozen=True)
class _RowValues:
    """The values of an expression; an expression without columns is evaluated once for all rows.

    Attributes:
        values: values of the expression.
        numbers: index of the row's value in ``values``, for each row.
    """

    values: pa.Array
    numbers: NumberArray

    @classmethod
    def of(cls, expression: CompiledExpression, rows: pa.Table) -> _RowValues:
        """Returns the values of an expression for rows."""
        if expression.columns:
            return cls(expression.evaluate(rows), np.arange(rows.num_rows))
        return cls(expression.evaluate(rows.slice(0, 1)), np.zeros(rows.num_rows, np.int64))

    @property
    def are_texts(self) -> bool:
        return bool(pa.types.is_string(self.values.type))

    def cut(self) -> _RowValues:
        """Returns texts cut to their maximum length, and other values as they are.

        Cutting keeps the order of texts, so ``min`` and ``max`` may be taken of cut texts.
        """
        if not self.are_texts:
            return self
        return replace(self, values=pc.utf8_slice_codeunits(self.values, 0, MAX_TEXT_LENGTH))

    def plain(self) -> _RowValues:
        """Returns the values as in JSON, with times as microseconds since 1970."""
        is_time = pa.types.is_timestamp(self.values.type)
        return replace(self, values=self.values.cast(pa.int64())) if is_time else self

    def codes(self) -> NumberArray:
        """Returns a code for each row; rows with equal values have equal codes."""
        encoded = self.values.dictionary_encode()
        codes: NumberArray = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
        return codes.astype(np.int64)[self.numbers]

    def sizes(self) -> NumberArray:
        """Returns the size of each row's value in bytes."""
        return value_bytes(self.values)[self.numbers]

    def take(self, rows: NumberArray) -> pa.Array:
        """Returns the values of the rows with these numbers."""
        return self.values.take(pa.array(self.numbers[rows]))


@dataclass(frozen=True)
class _Grouping:
    """Pairs in groups; a group has one rule, one window, and the same values of the facets.

    Attributes:
        rows: number of the row among the matching rows, for each pair.
        groups: number of the group, for each pair; the groups of a rule and window have consecutive
            numbers.
        firsts: index of one pair of the group, for each group.
        pair_slots: slot of the rule, for each pair.
        pair_begins: start of the window, for each pair.
        facets: values of the matching rows, for each facet.
    """

    rows: NumberArray
    groups: NumberArray
    firsts: NumberArray
    pair_slots: NumberArray
    pair_begins: NumberArray
    facets: tuple[_RowValues, ...]

    @classmethod
    def of(cls, pairs: _WindowPairs, shape: QueryShape, columns: pa.Table) -> _Grouping:
        facets = tuple(_RowValues.of(facet, columns).cut().plain() for facet in shape.facets)
        codes = (facet.codes()[pairs.rows] for facet in reversed(facets))
        keys = [*codes, pairs.begins, pairs.slots]
        order = np.lexsort(keys)
        is_first = np.zeros(len(order), bool)
        is_first[:1] = True
        for key in keys:
            is_first[1:] |= np.diff(key[order]) != 0
        groups = np.empty(len(order), np.int64)
        groups[order] = np.cumsum(is_first) - 1
        return cls(pairs.rows, groups, order[is_first], pairs.slots, pairs.begins, facets)

    @property
    def count(self) -> int:
        return len(self.firsts)

    @cached_property
    def slots(self) -> NumberArray:
        return self.pair_slots[self.firsts]

    @cached_property
    def begins(self) -> NumberArray:
        return self.pair_begins[self.firsts]

    def facet_values(self) -> list[tuple[Any, ...]]:
        """Returns the values of the facets for each group."""
        firsts = self.rows[self.firsts]
        columns = [facet.take(firsts).to_pylist() for facet in self.facets]
        return list(zip(*columns, strict=True)) if columns else [()] * self.count


def _partials(
    result: ShapedResult, columns: pa.Table, grouping: _Grouping, places: Places
) -> Sequence[Any]:
    """Returns a partial for each group.

    Args:
        result: the column of the results.
        columns: columns of the matching rows.
        grouping: groups of the pairs.
        places: places of the matching rows.
    """
    groups, rows = grouping.groups, grouping.rows
    if result.where is not None:
        is_counted = np.asarray(pc.fill_null(result.where.evaluate(columns), False))
        groups, rows = groups[is_counted[rows]], rows[is_counted[rows]]
    values, parts = None, [slice(None)]
    if result.argument is not None:
        values = _RowValues.of(result.argument, columns)
        values = values.cut() if result.aggregation.keeps_values else values
        if values.are_texts:
            parts = list(divided(values.sizes()[rows])) or parts
    partials = []
    for part in parts:
        numbers = rows[part]
        taken = None if values is None else values.take(numbers)
        of_rows = Places(places.time_us[numbers], places.partition[numbers], places.offset[numbers])
        partials.append(result.aggregation.partials(taken, groups[part], grouping.count, of_rows))
    return _merged(result.aggregation, partials, grouping.count)


def _merged(
    aggregation: Aggregation[Any], parts: Sequence[Sequence[Any]], groups: int
) -> Sequence[Any]:
    """Returns a partial for each group, merged from the partials of several parts of its rows."""
    if len(parts) == 1:
        return parts[0]
    accumulators = [aggregation.accumulator() for _ in range(groups)]
    for part in parts:
        for accumulator, partial in zip(accumulators, part, strict=True):
            accumulator.add(partial)
    return [accumulator.partial() for accumulator in accumulators]
