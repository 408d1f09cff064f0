"""The rules of queries whose matched events are sent on, as a table for a join with events."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.queries.compile.arrow.equality import equated
from headrace.queries.compile.spark import ConstantLayout
from headrace.queries.hashing import text_hash
from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import Expression
from headrace.queries.match.held import EmittingQuery, LiveQueries, QueryIdentity, RegistryPoint
from headrace.queries.match.shape import QueryShape, indexed_values

EVERY_EVENT = "*"
"""The lookup key of rules without an equality, which all events have."""
MAX_SHAPES = 500
"""The largest number of shapes, since Spark compiles a condition for each."""
_INTEGERS = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class Lookup:
    """An expression whose value rules are looked up by.

    Attributes:
        number: number of the expression; equal values of other expressions have other keys.
        expression: the expression.
        type: type of the values.
    """

    number: int
    expression: Expression
    type: ValueType

    def key(self, value: Any) -> str:
        """Returns the lookup key of a rule that compares the expression with a value."""
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
        shape: shape of the rules.
        conditions: conditions of the shape; an event matches if all are met.
        layout: places of the constants of all conditions, one condition after the other.
    """

    shape: QueryShape
    conditions: tuple[Expression, ...]
    layout: ConstantLayout


@dataclass(frozen=True)
class EmittingRules:
    """The rules of all queries whose matched events are sent on.

    Attributes:
        lookups: expressions whose values the rules are looked up by.
        shapes: shapes of the rules, by number.
        rows: a row for each lookup key of each query, with ``lookup``, ``query``, ``revision``,
            ``shape`` (its number), ``constants`` (in the layout of the shape) and ``identity``.
        registry: the point of the registry at which the queries were read.
        hash: hash of all live queries, also of queries whose matched events are not sent on.
        left_out: number of queries with shapes beyond :data:`MAX_SHAPES`, which match nothing.
        begins: the offsets at which queries begin, by identity and number of the partition, for
            queries that were registered while other queries were matched.
        has_new: whether some queries were not matched until now; true if it is not known.
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
        """Whether a query has no lookup, and is compared with every event."""
        return any(row["lookup"] == EVERY_EVENT for row in self.rows)

    @property
    def identities(self) -> frozenset[QueryIdentity]:
        """The identities of the queries."""
        return frozenset(row["identity"] for row in self.rows)

    @property
    def identities_hash(self) -> str:
        """Hash of the queries' identities."""
        return hash_of(self.identities)

    def after(self, others: EmittingRules, ends: Mapping[int, int]) -> EmittingRules:
        """Returns these rules, with queries that are not in the others beginning at the ends.

        Args:
            others: the rules that were matched until now.
            ends: ends of the topic's partitions, by number.
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
            queries: the live queries.
            newest: events by which the operand that each query is looked up by is chosen.
            registry: the point of the registry at which the queries were read.
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
    """Returns the hash of queries' identities, 16 hex digits; the same in all processes."""
    named = "\n".join(map(repr, sorted(identities)))
    return text_hash(named)


NO_QUERIES = hash_of(())
"""The hash of an empty set of queries."""


class _Table:
    """Makes the rows of queries, and numbers their shapes and lookups."""

    def __init__(self) -> None:
        self.lookups: dict[str, Lookup] = {}
        self.shapes: list[ShapeRules] = []
        self.left_out = 0
        self._numbers: dict[str, int] = {}

    def rows_of(self, query: EmittingQuery) -> Iterator[dict[str, Any]]:
        if query.rule.shape.key not in self._numbers and len(self.shapes) == MAX_SHAPES:
            self.left_out += 1
            return
        shape = query.rule.shape
        if shape.key not in self._numbers:
            self._numbers[shape.key] = len(self.shapes)
            types: list[pa.DataType] = []
            for operand in shape.operands:
                types += operand.constant_types
            self.shapes.append(ShapeRules(shape, query.conditions, ConstantLayout(types)))
        number = self._numbers[shape.key]
        constants = [constant for operand in query.rule.constants for constant in operand]
        row = {
            "query": query.rule.query_id,
            "revision": query.query.revision,
            "identity": query.query.identity(query.rule.query_id),
            "shape": number,
            "constants": self.shapes[number].layout.values(constants),
        }
        for key in self._keys(query):
            yield row | {"lookup": key}

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
