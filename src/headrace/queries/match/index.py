"""Indexes of rules: the rules that compare an expression with constants, by constant.

Each rule is in one index. Which index is cheapest depends on the events: ``kind = 'view'`` is true
for most events, ``user = 'u-17'`` for few. The shares of frequent values are observed, and a rule
is looked up by the operand whose value is least frequent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.queries.compile.arrow import CompiledExpression
from headrace.queries.match.shape import Rule, indexed_values

NumberArray: TypeAlias = npt.NDArray[np.int64]
"""Numbers of rows, slots or operands: ``int64``."""

# Shares below this count as equal: values with fewer rows make few candidates.
FREQUENT_SHARE = 0.005
_MIN_FREQUENT_ROWS = 4
# At most this many values can have half of that share each.
_MAX_FREQUENT_VALUES = int(2 / FREQUENT_SHARE)
_NO_SLOTS: tuple[int, ...] = ()


def rows_with(rows: pa.Table, columns: Collection[str], numbers: NumberArray) -> pa.Table:
    """Returns the rows with these numbers, in these columns, or in any one if there are none."""
    names = sorted(columns) or rows.column_names[:1]  # a table without columns has no rows
    return rows.select(names).take(pa.array(numbers))


@dataclass(frozen=True)
class Candidates:
    """Pairs of a row and a rule that may match.

    Attributes:
        rows: number of the row, for each pair.
        slots: slot of the rule, for each pair.
        operands: number of the operand that is known to be true, for each pair; -1 if there is
            none.
    """

    rows: NumberArray
    slots: NumberArray
    operands: NumberArray

    def take(self, places: NumberArray) -> Candidates:
        """Returns the pairs at these places."""
        return Candidates(self.rows[places], self.slots[places], self.operands[places])


@dataclass
class ValueIndex:
    """The rules that are looked up by one expression.

    Attributes:
        expression: the expression that the rules compare with constants.
        slots: slots of the rules, by constant: a tuple of one slot, which takes less memory, or a
            set of several.
    """

    expression: CompiledExpression
    slots: dict[Any, tuple[int] | set[int]] = field(default_factory=dict)

    def add(self, slot: int, values: tuple[Any, ...]) -> None:
        """Adds a rule that compares the expression with these values."""
        for value in values:
            slots = self.slots.get(value)
            if slots is None:
                self.slots[value] = (slot,)
            elif isinstance(slots, tuple):
                self.slots[value] = {*slots, slot}
            else:
                slots.add(slot)

    def remove(self, slot: int, values: tuple[Any, ...]) -> None:
        """Removes a rule that was added with these values."""
        for value in values:
            slots = self.slots[value]
            if isinstance(slots, set):
                slots.discard(slot)
            if isinstance(slots, tuple) or not slots:
                del self.slots[value]

    def look_up(self, values: EncodedValues) -> tuple[NumberArray, NumberArray]:
        """Returns the pairs of a row and a rule with the row's value, as two arrays."""
        slots_of = list(map(self.slots.get, values.distinct))
        lengths = np.zeros(len(slots_of), np.int64)
        # Most values have no rule.
        for number, asking in enumerate(slots_of):
            if asking is not None:
                lengths[number] = len(asking)
        slots = np.fromiter(chain.from_iterable(filter(None, slots_of)), np.int64, lengths.sum())
        rows = np.flatnonzero(lengths[values.codes])
        codes = values.codes[rows]
        per_row = lengths[codes]
        first = (np.cumsum(lengths) - lengths)[codes]
        begins = np.cumsum(per_row) - per_row
        places = np.arange(int(per_row.sum())) + np.repeat(first - begins, per_row)
        return np.repeat(rows, per_row), slots[places]


@dataclass(frozen=True)
class EncodedValues:
    """The values of an expression for each row, dictionary-encoded.

    Attributes:
        distinct: the distinct values; the last is ``None``, for null.
        codes: index of the row's value in ``distinct``, for each row.
    """

    distinct: list[Any]
    codes: NumberArray

    @classmethod
    def of(cls, expression: CompiledExpression, rows: pa.Table) -> EncodedValues:
        """Returns the values of an expression for rows."""
        values = expression.evaluate(rows)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.int64())
        encoded = values.dictionary_encode()
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy().astype(np.int64)
        # No rule compares with null, so null has no slots.
        return cls([*encoded.dictionary.to_pylist(), None], codes)

    def frequent(self, before: Collection[Any]) -> dict[Any, float]:
        """Returns the shares of frequent values.

        Args:
            before: values that were frequent before. A value stays frequent until it has less than
                half of the share. If there are few rows, values that are not in them stay, too, as
                far as the number of values allows; the most recent ones are kept first.
        """
        counts = np.bincount(self.codes, minlength=len(self.distinct))
        shares = counts / max(1, len(self.codes))
        is_frequent = (shares >= FREQUENT_SHARE) & (counts >= _MIN_FREQUENT_ROWS)
        frequent = {self.distinct[n]: float(shares[n]) for n in np.flatnonzero(is_frequent)}
        if not before:
            return frequent
        share_of = dict(zip(self.distinct, shares.tolist(), strict=True))
        are_few = len(self.codes) < _MIN_FREQUENT_ROWS / FREQUENT_SHARE
        min_share = 0.0 if are_few else FREQUENT_SHARE / 2
        still = (
            (value, share)
            for value in before
            if value not in frequent and (share := share_of.get(value, 0.0)) >= min_share
        )
        return frequent | dict(islice(still, _MAX_FREQUENT_VALUES - len(frequent)))


class Indexes:
    """The indexes of all rules, and the observed shares of values.

    Args:
        rules: the rules, by slot; :class:`RuleSet` changes the list.

    Attributes:
        rounds_between_looks: frequent values are observed again after this many tables of rows.
    """

    rounds_between_looks = 32

    def __init__(self, rules: Sequence[Rule | None]) -> None:
        self._rules = rules
        self._indexes: dict[str, ValueIndex] = {}
        self._unplaced: set[int] = set()
        self._unindexed: defaultdict[str, set[int]] = defaultdict(set)
        self._expressions: dict[str, CompiledExpression] = {}
        self._askers: Counter[str] = Counter()
        self._shares: dict[str, dict[Any, float]] = {}
        self._operands = np.zeros(0, np.int64)
        self._rounds = 0

    def put(self, slot: int) -> None:
        """Adds the rule in a slot."""
        self._unplaced.add(slot)
        for expression in self._rule(slot).shape.indexed.values():
            self._askers[expression.shape] += 1
            if self._askers[expression.shape] == 1:
                self._expressions[expression.shape] = expression

    def remove(self, slot: int) -> None:
        """Removes the rule in a slot from its index; the slot must still have the rule."""
        self._take_out(slot)
        self._unplaced.remove(slot)
        for expression in self._rule(slot).shape.indexed.values():
            self._askers[expression.shape] -= 1
            if not self._askers[expression.shape]:
                for known in (self._askers, self._expressions, self._indexes, self._shares):
                    known.pop(expression.shape, None)

    def unindexed(self, shape: str) -> set[int]:
        """Returns the slots of a shape's rules that are in no index."""
        return self._unindexed.get(shape, set())

    def lookups(self, rows: pa.Table) -> NumberArray:
        """Returns the number of the operand that a rule is looked up by, by slot; -1 if none.

        Args:
            rows: sample of events, whose values are observed.
        """
        self._observe(rows, {})
        self._place()
        return self._operands

    def candidates(self, rows: pa.Table) -> Iterator[Candidates]:
        """Yields the pairs of a row and a rule with the row's value, index by index.

        Args:
            rows: events, with the columns of the topic.
        """
        encoded: dict[str, EncodedValues] = {}
        is_new = not self._expressions.keys() <= self._shares.keys()
        if is_new or self._rounds % self.rounds_between_looks == 0:
            self._observe(rows, encoded)
        self._rounds += 1
        self._place()
        for name, index in self._indexes.items():
            if not index.slots:
                continue
            if name not in encoded:
                encoded[name] = EncodedValues.of(index.expression, rows)
            numbers, slots = index.look_up(encoded[name])
            if len(numbers):
                yield Candidates(numbers, slots, self._operands[slots])

    def _observe(self, rows: pa.Table, encoded: dict[str, EncodedValues]) -> None:
        """Updates the frequent values, and takes out rules that may have a better index now."""
        has_rarer = False
        for name, expression in self._expressions.items():
            encoded[name] = EncodedValues.of(expression, rows)
            before = self._shares.get(name, {})
            after = encoded[name].frequent(before)
            grown = {value for value, share in after.items() if share > 2 * before.get(value, 0.0)}
            # Keeps the share by which rules were placed, so that slow growth adds up.
            self._shares[name] = {
                value: share if value in grown else min(share, before[value])
                for value, share in after.items()
            }
            self._take_out_by(name, grown)
            has_rarer |= bool(before.keys() - after.keys())
        if has_rarer:
            for name, shares in self._shares.items():
                self._take_out_by(name, shares)

    def _take_out_by(self, name: str, values: Iterable[Any]) -> None:
        """Takes out the rules that are looked up by these values and could be in another index."""
        index = self._indexes.get(name)
        if index is None:
            return
        slots = {slot for value in values for slot in index.slots.get(value, _NO_SLOTS)}
        for slot in slots:
            if len(self._rule(slot).shape.indexed) > 1:
                self._take_out(slot)

    def _place(self) -> None:
        if not self._unplaced:
            return
        self._operands = with_room(self._operands, len(self._rules))
        for slot in self._unplaced:
            rule = self._rule(slot)
            shape = rule.shape
            self._operands[slot] = operand = self._best(rule)
            if operand < 0:
                self._unindexed[shape.key].add(slot)
                continue
            expression = shape.indexed[operand]
            index = self._indexes.get(expression.shape)
            if index is None:
                index = self._indexes[expression.shape] = ValueIndex(expression)
            index.add(slot, indexed_values(rule.constants[operand]))
        self._unplaced.clear()

    def _best(self, rule: Rule) -> int:
        """Returns the number of the operand whose values are least frequent; -1 if none."""
        indexed = rule.shape.indexed

        def share(operand: int) -> float:
            known = self._shares[indexed[operand].shape]
            return sum(known.get(value, 0.0) for value in indexed_values(rule.constants[operand]))

        return min(indexed, key=share, default=-1) if len(indexed) != 1 else next(iter(indexed))

    def _take_out(self, slot: int) -> None:
        """Takes a rule out of its index, until :meth:`_place` chooses another."""
        if slot in self._unplaced:
            return
        rule, operand = self._rule(slot), int(self._operands[slot])
        if operand < 0:
            self._unindexed[rule.shape.key].discard(slot)
        else:
            index = self._indexes[rule.shape.indexed[operand].shape]
            index.remove(slot, indexed_values(rule.constants[operand]))
        self._unplaced.add(slot)

    def _rule(self, slot: int) -> Rule:
        rule = self._rules[slot]
        if rule is None:
            raise KeyError(slot)
        return rule


def with_room(numbers: NumberArray, length: int) -> NumberArray:
    """Returns an array that begins with the numbers and has at least this length.

    It grows by half at least, so that adding numbers one by one takes linear time.
    """
    missing = length - len(numbers)
    return np.pad(numbers, (0, max(missing, len(numbers) // 2))) if missing > 0 else numbers
