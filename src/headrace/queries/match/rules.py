"""The rules of one topic, and the search for rules that the rows of a batch match."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.queries.match.index import (
    Candidates,
    Indexes,
    NumberArray,
    with_room,
)
from headrace.queries.match.shape import Constants, QueryShape, Rule, constant_columns
from headrace.queries.match.sizes import MAX_BYTES, MeasuredRows, constant_bytes, divided

# Constants of more bytes are not kept as columns, but converted for each part of the pairs.
_MAX_COLUMN_BYTES = 2**30


@dataclass(frozen=True)
class Matches:
    """Matches of rows and rules of one shape, as pairs.

    Attributes:
        shape: shape of the rules.
        rows: number of the row, for each pair.
        slots: slot of the rule, for each pair.
    """

    shape: QueryShape
    rows: NumberArray
    slots: NumberArray


class RuleSet:
    """Rules, each in a slot, and their indexes. Used on one thread.

    Attributes:
        indexes: the indexes of the rules.
        max_pairs: the pairs of a row and a rule that are evaluated at once: some ten megabytes per
            column.
    """

    max_pairs = 1_000_000

    def __init__(self) -> None:
        self._rules: list[Rule | None] = []
        self._slot_of: dict[str, int] = {}
        self._free: list[int] = []
        self._tables: dict[str, ShapeTable] = {}
        self._numbered: dict[int, ShapeTable] = {}
        self._table_numbers = np.zeros(0, np.int64)
        self._next_table = itertools.count()
        self.indexes = Indexes(self._rules)

    def __len__(self) -> int:
        return len(self._slot_of)

    def __iter__(self) -> Iterator[Rule]:
        return map(self.rule, self._slot_of.values())

    @property
    def columns(self) -> frozenset[str]:
        """Columns of events that the rules use."""
        return frozenset().union(*(table.shape.columns for table in self._tables.values()))

    def rule(self, slot: int) -> Rule:
        """Returns the rule in a slot, which must be in use."""
        rule = self._rules[slot]
        if rule is None:
            raise KeyError(slot)
        return rule

    def put(self, rule: Rule) -> None:
        """Adds a rule, and replaces the rule with the same query id."""
        self.remove(rule.query_id)
        if not self._free:
            self._free.append(len(self._rules))
            self._rules.append(None)
        slot = self._free.pop()
        self._rules[slot] = rule
        self._slot_of[rule.query_id] = slot
        table = self._table(rule.shape)
        table.put(slot, rule.constants)
        self._table_numbers = with_room(self._table_numbers, len(self._rules))
        self._table_numbers[slot] = table.number
        self.indexes.put(slot)

    def remove(self, query_id: str) -> None:
        """Removes the rule of a query, if there is one."""
        slot = self._slot_of.pop(query_id, None)
        if slot is None:
            return
        self.indexes.remove(slot)
        table = self._table(self.rule(slot).shape)
        table.remove(slot)
        if not table.constants:
            del self._tables[table.shape.key], self._numbered[table.number]
        self._rules[slot] = None
        self._free.append(slot)

    def lookups(self, rows: pa.Table) -> Iterator[tuple[Rule, int]]:
        """Yields rules with the number of the operand that each is looked up by; -1 if none.

        Args:
            rows: sample of events, by which the operand is chosen.
        """
        operands = self.indexes.lookups(rows)
        for slot in self._slot_of.values():
            yield self.rule(slot), int(operands[slot])

    def matches(self, rows: pa.Table) -> Iterator[Matches]:
        """Yields the matches of rows, by shape; a shape may come several times.

        Args:
            rows: events, with the columns of the topic.
        """
        measured = MeasuredRows(rows)
        for candidates in self.indexes.candidates(rows):
            yield from self._verified(measured, candidates)
        for table in self._tables.values():
            slots = self.indexes.unindexed(table.shape.key)
            if slots:
                numbers = np.array(sorted(slots), np.int64)
                yield from _scanned(measured, table, numbers, self.max_pairs)

    def _table(self, shape: QueryShape) -> ShapeTable:
        table = self._tables.get(shape.key)
        if table is None:
            table = self._tables[shape.key] = ShapeTable(next(self._next_table), shape)
            self._numbered[table.number] = table
        return table

    def _verified(self, rows: MeasuredRows, candidates: Candidates) -> Iterator[Matches]:
        """Yields the candidates that meet all other operands of their rules, by shape."""
        numbers = self._table_numbers[candidates.slots]
        order = np.argsort(numbers, kind="stable")
        borders = np.flatnonzero(np.diff(numbers[order])) + 1
        for places in np.split(order, borders):
            if not len(places):
                continue
            table = self._numbered[int(numbers[places[0]])]
            for begin in range(0, len(places), self.max_pairs):
                part = candidates.take(places[begin : begin + self.max_pairs])
                yield from table.met(rows, part)


@dataclass
class ShapeTable:
    """The constants of the rules of one shape.

    Attributes:
        number: number of the table.
        shape: shape of the rules.
        constants: constants of each rule, by slot.
    """

    number: int
    shape: QueryShape
    constants: dict[int, Constants] = field(default_factory=dict)
    _columns: _Columns | None = None
    _pairs: int = 0
    _constant_bytes: int = 0
    _largest: dict[int, _ConstantSize] = field(default_factory=dict)

    def put(self, slot: int, constants: Constants) -> None:
        """Adds a rule."""
        self.constants[slot] = constants
        self._columns = None
        for number, of_operand in enumerate(constants):
            size = _ConstantSize.of(of_operand)
            self._constant_bytes += size.bytes
            largest = self._largest.get(number, size)
            self._largest[number] = _ConstantSize(*map(max, largest, size))

    def remove(self, slot: int) -> None:
        """Removes a rule."""
        for of_operand in self.constants.pop(slot):
            self._constant_bytes -= _ConstantSize.of(of_operand).bytes
        self._columns = None

    def met(self, rows: MeasuredRows, pairs: Candidates) -> Iterator[Matches]:
        """Yields the pairs that meet all operands; that of the lookup is not evaluated again."""
        for number in range(len(self.shape.operands)):
            is_open = pairs.operands != number
            if not is_open.any():
                continue
            # In parts that fit into memory: a candidate may have large texts and long lists.
            operand = self.shape.operands[number]
            parts = []
            for part in self._parts(rows.sizes(operand.columns), number, pairs):
                taken = rows.take(operand.columns, pairs.rows[part])
                constants = self._constants(number, pairs.slots[part])
                parts.append(_is_true(operand.evaluate(taken, constants)))
            is_met = np.concatenate(parts)
            pairs = pairs.take(np.flatnonzero(is_met | ~is_open))
            if not len(pairs.rows):
                return
        yield Matches(self.shape, pairs.rows, pairs.slots)

    def _parts(self, row_sizes: NumberArray, number: int, pairs: Candidates) -> Iterable[slice]:
        """Returns parts of pairs that fit into memory; a row is repeated for each list value."""
        largest = self._largest.get(number, _ConstantSize(1, 0))
        largest_pair = int(row_sizes.max(initial=0)) * largest.values + largest.bytes
        if largest_pair * len(pairs.rows) <= MAX_BYTES:
            return [slice(None)]
        slots, places = np.unique(pairs.slots, return_inverse=True)
        known = [_ConstantSize.of(self.constants[slot][number]) for slot in slots.tolist()]
        values = np.array([size.values for size in known])[places]
        constants = np.array([size.bytes for size in known])[places]
        return divided(row_sizes[pairs.rows] * values + constants)

    def _constants(self, operand: int, slots: NumberArray) -> list[pa.Array]:
        """Returns an array for each constant of an operand, with a value for each slot."""
        if self._columns is None and not self._pays_off(len(slots)):
            known = [self.constants[slot][operand] for slot in slots.tolist()]
            return constant_columns(self.shape.operands[operand], known)
        if self._columns is None:
            self._columns = _Columns.of(self.shape, self.constants)
        return self._columns.take(operand, slots)

    def _pays_off(self, pairs: int) -> bool:
        """Whether enough pairs were evaluated since a rule changed to make columns of all rules."""
        self._pairs += pairs
        if self._pairs < len(self.constants) or self._constant_bytes > _MAX_COLUMN_BYTES:
            return False
        self._pairs = 0
        return True


class _ConstantSize(NamedTuple):
    """The size of a rule's constants for one operand.

    Attributes:
        values: number of values in the longest list; 1 if there is no list.
        bytes: bytes of all constants.
    """

    values: int
    bytes: int

    @classmethod
    def of(cls, constants: Sequence[Any]) -> _ConstantSize:
        lists = (len(constant) for constant in constants if isinstance(constant, tuple))
        return cls(max(lists, default=1), sum(map(constant_bytes, constants)))


@dataclass(frozen=True)
class _Columns:
    """The constants of all rules of a shape, as columns.

    Attributes:
        slots: slots of the rules, in ascending order.
        constants: arrays of constants, one for each constant of each operand.
    """

    slots: NumberArray
    constants: list[list[pa.Array]]

    @classmethod
    def of(cls, shape: QueryShape, constants: Mapping[int, Constants]) -> _Columns:
        slots = sorted(constants)
        columns = [
            constant_columns(operand, [constants[slot][number] for slot in slots])
            for number, operand in enumerate(shape.operands)
        ]
        return cls(np.array(slots, np.int64), columns)

    def take(self, operand: int, slots: NumberArray) -> list[pa.Array]:
        places = pa.array(np.searchsorted(self.slots, slots))
        return [column.take(places) for column in self.constants[operand]]


def _scanned(
    rows: MeasuredRows, table: ShapeTable, slots: NumberArray, max_pairs: int
) -> Iterator[Matches]:
    """Yields the matches of rules that are in no index, by comparing each row with each rule."""
    matching = np.arange(rows.table.num_rows)
    for operand in table.shape.operands:
        if not operand.constant_types:
            is_met = operand.evaluate(rows.take(operand.columns, matching))
            matching = matching[_is_true(is_met)]
    for first in range(0, len(matching), max_pairs):
        numbers = matching[first : first + max_pairs]
        slots_at_once = max(1, max_pairs // len(numbers))
        for begin in range(0, len(slots), slots_at_once):
            some = slots[begin : begin + slots_at_once]
            pairs = Candidates(
                np.tile(numbers, len(some)),
                np.repeat(some, len(numbers)),
                np.full(len(numbers) * len(some), -1, np.int64),
            )
            yield from table.met(rows, pairs)


def _is_true(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(values, False))
