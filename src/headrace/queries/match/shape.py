"""What queries have in common that differ in constants alone, compiled once for all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.model.durations import microseconds
from headrace.model.event import EventSchema
from headrace.queries.aggregation import Aggregation, aggregation_of
from headrace.queries.evaluation import CompiledExpression, compile_expression, equality_of
from headrace.queries.language import print_query
from headrace.queries.language.tree import And, Expression, Query, Result

if TYPE_CHECKING:
    import pyarrow as pa

Constants: TypeAlias = tuple[tuple[Any, ...], ...]
"""The constants of a rule: for each operand of its condition those that vary."""

_KEY_BYTES = 8


@dataclass(frozen=True)
class ShapedResult:
    """A column of the results: what it is made of, and how.

    Attributes:
        aggregation: of its values.
        argument: the values; None: events are counted.
        where: which events count; None: all that match.
    """

    aggregation: Aggregation[Any]
    argument: CompiledExpression | None
    where: CompiledExpression | None


@dataclass(frozen=True)
class QueryShape:
    """A query without the constants of its condition.

    Attributes:
        key: the same for all queries of the shape, in all processes.
        operands: of the condition; an event matches where all are true.
        indexed: by number of an operand that is ``x = constant`` or ``x IN (constants)``, the
            ``x``.
        results: columns of the results.
        facets: what groups are made by.
        window_us: length of a window, in microseconds.
        slide_us: from the begin of a window to that of the next one, in microseconds.
        max_groups: of a window.
    """

    key: str
    operands: tuple[CompiledExpression, ...]
    indexed: Mapping[int, CompiledExpression]
    results: tuple[ShapedResult, ...]
    facets: tuple[CompiledExpression, ...]
    window_us: int
    slide_us: int
    max_groups: int

    @property
    def columns(self) -> frozenset[str]:
        """Columns of events that it is made of."""
        parts = [*self.operands, *self.facets]
        for result in self.results:
            parts += [part for part in (result.argument, result.where) if part is not None]
        return frozenset().union(*(part.columns for part in parts))


def compile_query(query: Query, schema: EventSchema) -> tuple[QueryShape, Constants]:
    """Returns the shape of a query that fits ``schema``, and its constants."""
    conditions = _operands(query.where)
    operands = tuple(compile_expression(each, schema) for each in conditions)
    rest = print_query(replace(query, where=None))
    named = "\n".join([rest, *(operand.shape for operand in operands)])
    shape = QueryShape(
        key=hashlib.blake2b(named.encode(), digest_size=_KEY_BYTES).hexdigest(),
        operands=operands,
        indexed=_indexed(conditions, operands, schema),
        results=tuple(_shaped(result, schema) for result in query.results),
        facets=tuple(compile_expression(facet.expression, schema) for facet in query.facets),
        window_us=microseconds(query.window),
        slide_us=microseconds(query.slide),
        max_groups=query.max_groups,
    )
    return shape, tuple(operand.constants for operand in operands)


def indexed_values(constants: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the values that an indexed operand with these constants asks for."""
    [constant] = constants
    return tuple(dict.fromkeys(constant)) if isinstance(constant, tuple) else (constant,)


def constant_columns(
    operand: CompiledExpression, rows: Sequence[tuple[Any, ...]]
) -> list[pa.Array]:
    """Returns the constants of several rules for an operand: an array for each constant."""
    import pyarrow as pa

    columns = []
    for number, kind in enumerate(operand.constant_types):
        values = [row[number] for row in rows]
        columns.append(pa.array(values, kind))
    return columns


def _operands(where: Expression | None) -> tuple[Expression, ...]:
    if where is None:
        return ()
    return where.operands if isinstance(where, And) else (where,)


def _indexed(
    conditions: Sequence[Expression], operands: Sequence[CompiledExpression], schema: EventSchema
) -> dict[int, CompiledExpression]:
    indexed = {}
    for number, (condition, operand) in enumerate(zip(conditions, operands, strict=True)):
        equality = equality_of(condition, schema)
        # With a constant on the other side, too, what is looked up would differ by the rule.
        if equality is not None and len(operand.constants) == 1:
            indexed[number] = equality.expression
    return indexed


def _shaped(result: Result, schema: EventSchema) -> ShapedResult:
    aggregate = result.aggregate
    argument, where = aggregate.argument, aggregate.where
    values = None if argument is None else compile_expression(argument, schema)
    return ShapedResult(
        aggregation_of(aggregate, None if values is None else values.type),
        values,
        None if where is None else compile_expression(where, schema),
    )
