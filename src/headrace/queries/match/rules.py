"""The rules of one topic, and which of them the rows of a batch match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.queries.match.index import Candidates, Indexes, NumberArray, rows_with
from headrace.queries.match.shape import Constants, QueryShape, constant_columns

# Of pairs of a row and a rule that are looked at together: some ten megabytes of each column.
_MAX_PAIRS = 1_000_000


@dataclass(frozen=True, slots=True)
class Rule:
    """A query that is matched.

    Attributes:
        query_id: of the query.
        shape: what it has in common with others.
        constants: what it does not.
    """

    query_id: str
    shape: QueryShape
    constants: Constants


@dataclass(frozen=True)
class Matches:
    """Rows that match rules of one shape: pairs of a row and a rule.

    Attributes:
        shape: of the rules.
        rows: number of the row, of each pair.
        slots: slot of the rule, of each pair.
    """

    shape: QueryShape
    rows: NumberArray
    slots: NumberArray


class RuleSet:
    """Rules, each in a slot, and what they are looked up by. Used on one thread."""

    def __init__(self) -> None:
        self._rules: dict[int, Rule] = {}
        self._slot_of: dict[str, int] = {}
        self._free: list[int] = []
        self._tables: dict[str, ShapeTable] = {}
        self._table_numbers = np.zeros(0, np.int64)
        self._numbered: list[ShapeTable] = []
        self._indexes = Indexes()
        self._is_dirty = False

    def __len__(self) -> int:
        return len(self._slot_of)

    def rule(self, slot: int) -> Rule:
        """Returns the rule in a slot that is in use."""
        return self._rules[slot]

    def put(self, rule: Rule) -> None:
        """Adds a rule, in place of the one with its query id."""
        self.remove(rule.query_id)
        slot = self._free.pop() if self._free else len(self._rules)
        self._rules[slot] = rule
        self._slot_of[rule.query_id] = slot
        self._table(rule.shape).put(slot, rule.constants)
        self._indexes.put(slot, rule.shape, rule.constants)
        self._is_dirty = True

    def remove(self, query_id: str) -> None:
        """Removes the rule of a query, if there is one."""
        slot = self._slot_of.pop(query_id, None)
        if slot is None:
            return
        rule = self._rules.pop(slot)
        self._free.append(slot)
        self._table(rule.shape).remove(slot)
        self._indexes.remove(slot)
        self._is_dirty = True

    def matches(self, rows: pa.Table) -> Iterator[Matches]:
        """Yields what rows match, by shape; a shape may come several times.

        Args:
            rows: with the columns of the topic's events.
        """
        if self._is_dirty:
            self._number_tables()
            self._is_dirty = False
        for candidates in self._indexes.candidates(rows):
            yield from self._verified(rows, candidates)
        for table in self._tables.values():
            slots = self._indexes.unindexed(table.shape.key)
            if slots:
                yield from _scanned(rows, table, np.array(sorted(slots), np.int64))

    def _table(self, shape: QueryShape) -> ShapeTable:
        return self._tables.setdefault(shape.key, ShapeTable(shape))

    def _number_tables(self) -> None:
        self._tables = {key: table for key, table in self._tables.items() if table.constants}
        self._numbered = list(self._tables.values())
        self._table_numbers = np.zeros(max(self._rules, default=-1) + 1, np.int64)
        for number, table in enumerate(self._numbered):
            self._table_numbers[list(table.constants)] = number

    def _verified(self, rows: pa.Table, candidates: Candidates) -> Iterator[Matches]:
        """Yields the candidates that meet the other operands of their rules, by shape."""
        numbers = self._table_numbers[candidates.slots]
        order = np.argsort(numbers, kind="stable")
        borders = np.flatnonzero(np.diff(numbers[order])) + 1
        for places in np.split(order, borders):
            if not len(places):
                continue
            table = self._numbered[numbers[places[0]]]
            for begin in range(0, len(places), _MAX_PAIRS):
                part = candidates.take(places[begin : begin + _MAX_PAIRS])
                yield from table.met(rows, part)


@dataclass
class ShapeTable:
    """The constants of the rules of one shape.

    Attributes:
        shape: of them all.
        constants: by slot.
    """

    shape: QueryShape
    constants: dict[int, Constants] = field(default_factory=dict)
    _columns: list[list[pa.Array]] | None = None
    _places: NumberArray = field(default_factory=lambda: np.zeros(0, np.int64))

    def put(self, slot: int, constants: Constants) -> None:
        """Adds a rule."""
        self.constants[slot] = constants
        self._columns = None

    def remove(self, slot: int) -> None:
        """Removes a rule."""
        del self.constants[slot]
        self._columns = None

    def met(self, rows: pa.Table, pairs: Candidates) -> Iterator[Matches]:
        """Yields the pairs that meet all operands but those that they were looked up by."""
        for number, operand in enumerate(self.shape.operands):
            is_open = pairs.operands != number
            if not is_open.any():
                continue
            taken = rows_with(rows, operand.columns, pairs.rows)
            is_met = operand.evaluate(taken, self._constants(number, pairs.slots))
            pairs = pairs.take(np.flatnonzero(_is_true(is_met) | ~is_open))
            if not len(pairs.rows):
                return
        yield Matches(self.shape, pairs.rows, pairs.slots)

    def _constants(self, operand: int, slots: NumberArray) -> list[pa.Array]:
        if self._columns is None:
            known = list(self.constants.values())
            self._columns = [
                constant_columns(each, [constants[number] for constants in known])
                for number, each in enumerate(self.shape.operands)
            ]
            self._places = np.zeros(max(self.constants) + 1, np.int64)
            self._places[list(self.constants)] = np.arange(len(known))
        places = pa.array(self._places[slots])
        return [column.take(places) for column in self._columns[operand]]


def _scanned(rows: pa.Table, table: ShapeTable, slots: NumberArray) -> Iterator[Matches]:
    """Yields what rows match of rules that no index has: each row is looked at for each rule."""
    matching = np.arange(rows.num_rows)
    for operand in table.shape.operands:
        if not operand.constant_types:
            is_met = operand.evaluate(rows_with(rows, operand.columns, matching))
            matching = matching[_is_true(is_met)]
    per_slot = max(1, len(matching))
    slots_at_once = max(1, _MAX_PAIRS // per_slot)
    for begin in range(0, len(slots), slots_at_once):
        some = slots[begin : begin + slots_at_once]
        pairs = Candidates(
            np.tile(matching, len(some)),
            np.repeat(some, len(matching)),
            np.full(len(matching) * len(some), -1, np.int64),
        )
        if len(pairs.rows):
            yield from table.met(rows, pairs)


def _is_true(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(values, False))
