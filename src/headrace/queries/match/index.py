"""What rules are looked up by: the value of an expression, and the rules that ask for it.

Each rule is in one index. Which one costs least depends on the events: ``kind = 'view'`` is true
for most of them, ``user = 'u-17'`` for few. Shares of frequent values are observed, and a rule is
looked up by the operand whose value is least frequent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.queries.evaluation import CompiledExpression
from headrace.queries.match.shape import Constants, QueryShape, indexed_values

NumberArray: TypeAlias = npt.NDArray[np.int64]
"""Numbers of rows, slots or operands: ``int64``."""

# A value in fewer rows is as good as any other: it makes few candidates.
_FREQUENT = 0.005
_ROUNDS_BETWEEN_LOOKS = 32
_NO_SLOTS: tuple[int, ...] = ()


def rows_with(rows: pa.Table, columns: Collection[str], numbers: NumberArray) -> pa.Table:
    """Returns some rows, by number, with some of their columns; with one at least."""
    names = sorted(columns) or rows.column_names[:1]  # a table without columns has no rows
    return rows.select(names).take(pa.array(numbers))


@dataclass(frozen=True)
class Candidates:
    """Pairs of a row and a rule that may match.

    Attributes:
        rows: number of the row, of each pair.
        slots: slot of the rule, of each pair.
        operands: number of the operand that is known to be true, of each pair; -1: of none.
    """

    rows: NumberArray
    slots: NumberArray
    operands: NumberArray

    def take(self, places: NumberArray) -> Candidates:
        """Returns some of the pairs."""
        return Candidates(self.rows[places], self.slots[places], self.operands[places])


@dataclass
class ValueIndex:
    """The rules that are looked up by one expression.

    Attributes:
        expression: whose values they ask for.
        slots: of the rules, by value.
    """

    expression: CompiledExpression
    slots: dict[Any, list[int]] = field(default_factory=dict)

    def add(self, slot: int, values: tuple[Any, ...]) -> None:
        """Adds a rule that asks for any of the values."""
        for value in values:
            self.slots.setdefault(value, []).append(slot)

    def remove(self, slot: int, values: tuple[Any, ...]) -> None:
        """Removes a rule that was added with these values."""
        for value in values:
            self.slots[value].remove(slot)
            if not self.slots[value]:
                del self.slots[value]

    def look_up(self, values: EncodedValues) -> tuple[NumberArray, NumberArray]:
        """Returns pairs of a row and a rule that asks for its value, as two arrays."""
        slots_of = [self.slots.get(value, _NO_SLOTS) for value in values.distinct]
        lengths = np.fromiter(map(len, slots_of), np.int64, len(slots_of))
        slots = np.fromiter(chain.from_iterable(slots_of), np.int64, int(lengths.sum()))
        rows = np.flatnonzero(lengths[values.codes])
        codes = values.codes[rows]
        per_row = lengths[codes]
        first = (np.cumsum(lengths) - lengths)[codes]
        begins = np.cumsum(per_row) - per_row
        places = np.arange(int(per_row.sum())) + np.repeat(first - begins, per_row)
        return np.repeat(rows, per_row), slots[places]


@dataclass(frozen=True)
class EncodedValues:
    """The values of an expression, of each row.

    Attributes:
        distinct: those that there are; None for null is the last.
        codes: of each row, the number of its value.
    """

    distinct: list[Any]
    codes: NumberArray

    @classmethod
    def of(cls, expression: CompiledExpression, rows: pa.Table) -> EncodedValues:
        """Returns the values of an expression."""
        values = expression.evaluate(rows)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        encoded = values.dictionary_encode()
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy().astype(np.int64)
        # No rule asks for null: it has no slots.
        return cls([*encoded.dictionary.to_pylist(), None], codes)

    def frequent(self) -> dict[Any, float]:
        """Returns the shares of frequent values."""
        counts = np.bincount(self.codes, minlength=len(self.distinct))
        shares = counts / max(1, len(self.codes))
        return {self.distinct[n]: float(shares[n]) for n in np.flatnonzero(shares >= _FREQUENT)}


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where a rule is looked up: in which index, by which operand; None: in none."""

    shape: QueryShape
    constants: Constants
    index: str | None = None
    operand: int = -1


class Indexes:
    """The indexes of all rules, and what was observed of their values."""

    def __init__(self) -> None:
        self._indexes: dict[str, ValueIndex] = {}
        self._placed: dict[int, _Placed] = {}
        self._unplaced: dict[int, tuple[QueryShape, Constants]] = {}
        self._unindexed: defaultdict[str, set[int]] = defaultdict(set)
        self._expressions: dict[str, CompiledExpression] = {}
        self._shares: dict[str, dict[Any, float]] = {}
        self._operands = np.zeros(0, np.int64)
        self._rounds = 0

    def put(self, slot: int, shape: QueryShape, constants: Constants) -> None:
        """Adds a rule to a slot that is free."""
        self._unplaced[slot] = shape, constants
        for expression in shape.indexed.values():
            self._expressions.setdefault(expression.shape, expression)

    def remove(self, slot: int) -> None:
        """Removes the rule in a slot."""
        if self._unplaced.pop(slot, None) is None:
            self._take_out(slot)

    def unindexed(self, shape: str) -> set[int]:
        """Returns the slots of rules of a shape that are in no index."""
        return self._unindexed.get(shape, set())

    def candidates(self, rows: pa.Table) -> Iterator[Candidates]:
        """Yields the pairs of a row and a rule whose value it has, by index.

        Args:
            rows: with the columns of the topic's events.
        """
        encoded: dict[str, EncodedValues] = {}
        if self._rounds % _ROUNDS_BETWEEN_LOOKS == 0 or self._unplaced:
            self._observe(rows, encoded)
        self._rounds += 1
        self._place(self._unplaced)
        for name, index in self._indexes.items():
            if not index.slots:
                continue
            if name not in encoded:
                encoded[name] = EncodedValues.of(index.expression, rows)
            numbers, slots = index.look_up(encoded[name])
            if len(numbers):
                yield Candidates(numbers, slots, self._operands[slots])

    def _observe(self, rows: pa.Table, encoded: dict[str, EncodedValues]) -> None:
        """Notes which values are frequent; rules are placed anew where others are."""
        for name, expression in self._expressions.items():
            encoded[name] = EncodedValues.of(expression, rows)
            known = self._shares.get(name, {})
            changed = _changed(known, encoded[name].frequent())
            self._shares[name] = {
                value: share for value, share in (known | changed).items() if share
            }
            for slot in self._asking(name, changed.keys()):
                placed = self._take_out(slot)
                self._unplaced[slot] = placed.shape, placed.constants

    def _asking(self, expression: str, values: Set[Any]) -> list[int]:
        """Returns the slots of rules that could be looked up by an expression with these values."""
        return [
            slot
            for slot, placed in self._placed.items()
            if any(
                indexed.shape == expression
                and not values.isdisjoint(indexed_values(placed.constants[number]))
                for number, indexed in placed.shape.indexed.items()
            )
        ]

    def _place(self, unplaced: dict[int, tuple[QueryShape, Constants]]) -> None:
        if not unplaced:
            return
        missing = max(unplaced) + 1 - len(self._operands)
        if missing > 0:
            self._operands = np.pad(self._operands, (0, missing))
        for slot, (shape, constants) in unplaced.items():
            operand = self._best(shape, constants)
            self._operands[slot] = operand
            if operand < 0:
                self._placed[slot] = _Placed(shape, constants)
                self._unindexed[shape.key].add(slot)
                continue
            expression = shape.indexed[operand]
            self._placed[slot] = _Placed(shape, constants, expression.shape, operand)
            index = self._indexes.setdefault(expression.shape, ValueIndex(expression))
            index.add(slot, indexed_values(constants[operand]))
        unplaced.clear()

    def _best(self, shape: QueryShape, constants: Constants) -> int:
        """Returns the number of the operand whose values fewest events have; -1: there is none."""

        def share(operand: int) -> float:
            known: Mapping[Any, float] = self._shares.get(shape.indexed[operand].shape, {})
            return sum(known.get(value, 0.0) for value in indexed_values(constants[operand]))

        return min(shape.indexed, key=share, default=-1)

    def _take_out(self, slot: int) -> _Placed:
        placed = self._placed.pop(slot)
        if placed.index is None:
            self._unindexed[placed.shape.key].discard(slot)
        else:
            values = indexed_values(placed.constants[placed.operand])
            self._indexes[placed.index].remove(slot, values)
        return placed


def _changed(before: Mapping[Any, float], after: Mapping[Any, float]) -> dict[Any, float]:
    """Returns the new shares of values that are twice as frequent as before, or half."""
    changed = {}
    for value in before.keys() | after.keys():
        old, new = (max(_FREQUENT, shares.get(value, 0.0)) for shares in (before, after))
        if new >= 2 * old or old >= 2 * new:
            changed[value] = after.get(value, 0.0)
    return changed
