"""Queries whose matched events are sent on, as a table that Spark joins events with."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.queries.columns import ConstantLayout
from headrace.queries.evaluation.equality import equated
from headrace.queries.hashing import text_hash
from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import Expression
from headrace.queries.match.held import EmittingQuery, LiveQueries, QueryIdentity, RegistryPoint
from headrace.queries.match.shape import QueryShape, indexed_values

EVERY_EVENT = "*"
"""What rules without an equality are looked up by."""
MAX_SHAPES = 500
"""Of queries that differ in more than constants: Spark compiles a condition for each."""
_INTEGERS = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class Lookup:
    """An expression whose value rules are looked up by.

    Attributes:
        number: of the expression; values of others are other values.
        expression: the expression.
        type: of its values.
    """

    number: int
    expression: Expression
    type: ValueType

    def key(self, value: Any) -> str:
        """Returns what a rule is looked up by that asks for a value."""
        if self.type is ValueType.NUMBER:
            least, most = _INTEGERS
            value = min(max(math.floor(value), least), most)
        if isinstance(value, bool):
            value = str(value).lower()
        return f"{self.number}:{value}"


@dataclass(frozen=True)
class ShapeRules:
    """What the rules of one shape have in common.

    Attributes:
        shape: of the rules.
        conditions: all are met where an event matches.
        layout: where the constants of all conditions are, one after the other.
    """

    shape: QueryShape
    conditions: tuple[Expression, ...]
    layout: ConstantLayout


@dataclass(frozen=True)
class EmittingRules:
    """All queries whose matched events are sent on.

    Attributes:
        lookups: expressions whose values they are looked up by.
        shapes: by number.
        rows: ``lookup``, ``query``, ``revision``, ``shape`` (its number), ``constants`` (of the
            layout of the shape) and ``identity``; a row for each value that a query is looked up
            by.
        registry: where the queries are registered.
        hash: of all live queries, also of those whose events are not sent on.
        left_out: how many queries are of shapes beyond :data:`MAX_SHAPES`; they match nothing.
        begins: the offsets that queries begin at, by identity and number of the partition; of those
            that were registered while others were matched.
        has_new: whether some of them were not matched until now; True where it is not known what
            was.
    """

    lookups: tuple[Lookup, ...]
    shapes: tuple[ShapeRules, ...]
    rows: tuple[dict[str, Any], ...]
    registry: RegistryPoint
    hash: str
    left_out: int = 0
    begins: Mapping[QueryIdentity, Mapping[int, int]] = field(default_factory=dict)
    has_new: bool = True

    @property
    def looks_at_every_event(self) -> bool:
        """Whether there is a query that no value looks up."""
        return any(row["lookup"] == EVERY_EVENT for row in self.rows)

    @property
    def identities(self) -> frozenset[QueryIdentity]:
        """Returns what tells these queries from others."""
        return frozenset(row["identity"] for row in self.rows)

    @property
    def identities_hash(self) -> str:
        """Returns a hash of them."""
        return hash_of(self.identities)

    def after(self, others: EmittingRules, ends: Mapping[int, int]) -> EmittingRules:
        """Returns these rules, where those that are not among others begin at the ends.

        Args:
            others: that were matched until now.
            ends: of the partitions of the topic, by number.
        """
        known = others.identities
        begins = {
            identity: others.begins.get(identity, {}) if identity in known else ends
            for identity in self.identities
        }
        return replace(self, begins=begins, has_new=not self.identities <= known)

    @classmethod
    def of(cls, queries: LiveQueries, newest: pa.Table, registry: RegistryPoint) -> EmittingRules:
        """Returns the rules of live queries.

        Args:
            queries: that are live.
            newest: events by which it is chosen what a query is looked up by.
            registry: where the queries are registered.
        """
        table = _Table()
        rows = tuple(row for query in queries.emitting(newest) for row in table.rows_of(query))
        return cls(
            tuple(table.lookups.values()),
            tuple(table.shapes),
            rows,
            registry,
            queries.hash,
            table.left_out,
        )


def hash_of(identities: Collection[QueryIdentity]) -> str:
    """Returns a hash of queries, 16 hex digits; the same in all processes."""
    named = "\n".join(map(repr, sorted(identities)))
    return text_hash(named)


NO_QUERIES = hash_of(())
"""Hash of no queries."""


class _Table:
    """Numbers shapes and lookups while rows are made."""

    def __init__(self) -> None:
        self.lookups: dict[str, Lookup] = {}
        self.shapes: list[ShapeRules] = []
        self.left_out = 0
        self._numbers: dict[str, int] = {}

    def rows_of(self, query: EmittingQuery) -> Iterator[dict[str, Any]]:
        if query.rule.shape.key not in self._numbers and len(self.shapes) == MAX_SHAPES:
            self.left_out += 1
            return
        number = self._shape(query)
        constants = [each for operand in query.rule.constants for each in operand]
        row = {
            "query": query.rule.query_id,
            "revision": query.query.revision,
            "identity": query.query.identity(query.rule.query_id),
            "shape": number,
            "constants": self.shapes[number].layout.values(constants),
        }
        for key in self._keys(query):
            yield row | {"lookup": key}

    def _shape(self, query: EmittingQuery) -> int:
        shape = query.rule.shape
        if shape.key not in self._numbers:
            self._numbers[shape.key] = len(self.shapes)
            types: list[pa.DataType] = []
            for operand in shape.operands:
                types += operand.constant_types
            self.shapes.append(ShapeRules(shape, query.conditions, ConstantLayout(types)))
        return self._numbers[shape.key]

    def _keys(self, query: EmittingQuery) -> list[str]:
        compared = None if query.lookup < 0 else equated(query.conditions[query.lookup])
        if compared is None:
            return [EVERY_EVENT]
        indexed = query.rule.shape.indexed[query.lookup]
        lookup = self.lookups.setdefault(
            indexed.shape, Lookup(len(self.lookups), compared[0], indexed.type)
        )
        return list(
            dict.fromkeys(map(lookup.key, indexed_values(query.rule.constants[query.lookup])))
        )
