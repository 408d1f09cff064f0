"""Shapes: what queries have in common that differ only in constants, compiled once per shape.

The record of a registered query may name its shape and its constants, so that a reader parses only
one query of each shape. The shape and constants in the record of another query are trusted if

- the key is that of a shape that was compiled in this process,
- the text differs from that of the shape only in the values of constants (:class:`ShapeTemplate`),
  and is within the length limit of texts,
- number and types of the constants are those of the shape, and lists are within their limit.

Otherwise the text is parsed. So a record whose constants are not those of its text spoils only the
results of its own query: results and groups still have the form that the text asks for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from headrace.model.durations import microseconds
from headrace.model.event import EventSchema
from headrace.queries.compile.arrow import (
    ARROW_TYPES,
    CompiledExpression,
    compile_expression,
    equality_of,
)
from headrace.queries.hashing import text_hash
from headrace.queries.language import print_query
from headrace.queries.language.clauses import print_expression
from headrace.queries.language.expressions import MAX_LIST_VALUES
from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import And, Expression, Query, Result
from headrace.queries.language.words import MAX_CHARACTERS
from headrace.queries.windows.functions import Aggregation, aggregation_of

if TYPE_CHECKING:
    import pyarrow as pa

Constants: TypeAlias = tuple[tuple[Any, ...], ...]
"""The constants of a rule that vary within its shape, for each operand of its condition."""

_TEXT = r"'(?:[^']|'')*+'"
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_BOOLEAN = r"(?:TRUE|FALSE)"
_LITERAL = rf"(?:{_TEXT}|{_NUMBER}|\b{_BOOLEAN}\b)"
_PART = re.compile(
    rf"\bIN \((?P<first>{_LITERAL})(?:, {_LITERAL})*\)|(?P<literal>{_LITERAL})"
    r"|\"(?:[^\"]|\"\")*\"|\w+|.",
    re.ASCII | re.DOTALL,
)
_INTEGERS = range(-(2**63), 2**63)
_SCALARS = {
    ARROW_TYPES[ValueType.TEXT]: str,
    ARROW_TYPES[ValueType.INTEGER]: int,
    ARROW_TYPES[ValueType.NUMBER]: float,
    ARROW_TYPES[ValueType.BOOLEAN]: bool,
    ARROW_TYPES[ValueType.TIME]: int,
}


@dataclass(frozen=True)
class ShapedResult:
    """A column of the results, compiled.

    Attributes:
        aggregation: aggregation of the column.
        argument: expression of the values that are aggregated; ``None`` if events are counted.
        where: condition of the events that count; ``None`` if all matching events count.
    """

    aggregation: Aggregation[Any]
    argument: CompiledExpression | None
    where: CompiledExpression | None


@dataclass(frozen=True)
class QueryShape:
    """A query without the constants of its condition.

    Attributes:
        key: key of the shape, the same in all processes.
        operands: operands of the condition; an event matches if all are true.
        indexed: the expression ``x`` of each operand ``x = constant`` or ``x IN (constants)``, by
            number of the operand.
        results: columns of the results.
        facets: expressions of the facets, by whose values groups are made.
        window_us: length of a window, in microseconds.
        slide_us: time from the start of a window to the start of the next, in microseconds.
        max_groups: the largest number of groups that a window shows.
        emits_events: whether each event is sent on as soon as it matches.
    """

    key: str
    operands: tuple[CompiledExpression, ...]
    indexed: Mapping[int, CompiledExpression]
    results: tuple[ShapedResult, ...]
    facets: tuple[CompiledExpression, ...]
    window_us: int
    slide_us: int
    max_groups: int
    emits_events: bool = False

    @cached_property
    def types(self) -> str:
        """Hash of the types of the values that facets and columns of the results are made of.

        The types depend on the event class: another class may give the same text other types.
        """
        values = [*self.facets, *(result.argument for result in self.results)]
        return text_hash(" ".join("" if value is None else value.type.name for value in values))

    @cached_property
    def columns(self) -> frozenset[str]:
        """Columns of events that the shape uses."""
        parts = [*self.operands, *self.facets]
        for result in self.results:
            parts += [part for part in (result.argument, result.where) if part is not None]
        return frozenset().union(*(part.columns for part in parts))


def compile_query(query: Query, schema: EventSchema) -> tuple[QueryShape, Constants]:
    """Returns the shape and the constants of a query, which must fit ``schema``."""
    conditions = operands_of(query.where)
    operands = tuple(compile_expression(condition, schema) for condition in conditions)
    # Registered queries and matched records have the key. A new clause that is printed at its
    # default changes all keys; records with keys of before then have each of their texts parsed.
    rest = print_query(replace(query, where=None))
    named = "\n".join([rest, *(operand.shape for operand in operands)])
    shape = QueryShape(
        key=text_hash(named),
        operands=operands,
        indexed=_indexed(conditions, operands, schema),
        results=tuple(_shaped(result, schema) for result in query.results),
        facets=tuple(compile_expression(facet.expression, schema) for facet in query.facets),
        window_us=microseconds(query.window),
        slide_us=microseconds(query.slide),
        max_groups=query.max_groups,
        emits_events=query.emits_events,
    )
    return shape, tuple(operand.constants for operand in operands)


class Rule(msgspec.Struct, frozen=True, gc=False):
    """A query that is matched.

    Attributes:
        query_id: the query id.
        shape: shape of the query.
        constants: constants of the query.
    """

    query_id: str
    shape: QueryShape
    constants: Constants


@dataclass(frozen=True)
class ShapeTemplate:
    """A parsed query, with which other queries of its shape are read without parsing.

    Attributes:
        shape: shape of the queries.
        query: the parsed query.
    """

    shape: QueryShape
    query: Query

    def fits(self, text: str, constants: Constants) -> bool:
        """Returns whether a text has this shape, and constants have the types of this shape.

        Constants in the text may have other values than in the template's query, and lists may have
        other lengths. A text that is not in the printer's form does not fit.
        """
        types = [tuple(map(type, values)) for values in constants]
        return (
            len(text) <= MAX_CHARACTERS
            and types == self._types
            and all(
                _are_scalars(constants[operand][place], scalar)
                for operand, place, scalar in self._limited
            )
            and self._pattern.fullmatch(text) is not None
        )

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        text = print_query(self.query)
        if self.query.where is None:
            return re.compile(re.escape(text))
        where = print_expression(self.query.where)
        before, after = text.split(f"\nWHERE {where}", 1)
        patterns = map(_pattern_of, _PART.finditer(where))
        return re.compile(rf"{re.escape(before)}\nWHERE {''.join(patterns)}{re.escape(after)}")

    @cached_property
    def _types(self) -> list[tuple[type, ...]]:
        """The types of the constants of each operand."""
        operands = self.shape.operands
        return [tuple(map(_python_type, operand.constant_types)) for operand in operands]

    @cached_property
    def _limited(self) -> list[tuple[int, int, type]]:
        """Operand, number and scalar type of constants that are integers, times or lists."""
        return [
            (number, place, scalar)
            for number, operand in enumerate(self.shape.operands)
            for place, kind in enumerate(operand.constant_types)
            for scalar in [_SCALARS[kind if kind in _SCALARS else kind.value_type]]
            if scalar is int or _python_type(kind) is tuple
        ]


def _python_type(kind: pa.DataType) -> type:
    return _SCALARS.get(kind, tuple)


def _are_scalars(constant: Any, scalar: type) -> bool:
    """Returns whether a constant, or each value of a list, has this type and is in range."""
    values = constant if isinstance(constant, tuple) else (constant,)
    if len(values) > MAX_LIST_VALUES or not {scalar}.issuperset(map(type, values)):
        return False
    return scalar is not int or all(value in _INTEGERS for value in values)


def _pattern_of(part: re.Match[str]) -> str:
    """Returns the pattern of texts that may replace a part of a condition within the shape."""
    if part["first"] is not None:
        literal = _literal_pattern(part["first"])
        return rf"IN \({literal}(?:, {literal}){{0,{MAX_LIST_VALUES - 1}}}\)"
    return re.escape(part[0]) if part["literal"] is None else _literal_pattern(part["literal"])


def _literal_pattern(literal: str) -> str:
    if literal.startswith("'"):
        return _TEXT
    return _BOOLEAN if literal in {"TRUE", "FALSE"} else _NUMBER


def indexed_values(constants: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the values that an indexed operand with these constants compares with."""
    [constant] = constants
    return tuple(dict.fromkeys(constant)) if isinstance(constant, tuple) else (constant,)


def constant_columns(
    operand: CompiledExpression, rows: Sequence[tuple[Any, ...]]
) -> list[pa.Array]:
    """Returns an array for each constant of an operand, with the values of several rules."""
    import pyarrow as pa

    columns = []
    for number, kind in enumerate(operand.constant_types):
        values = [row[number] for row in rows]
        columns.append(pa.array(values, kind))
    return columns


def operands_of(where: Expression | None) -> tuple[Expression, ...]:
    """Returns the conditions that AND combines in a WHERE; empty if there is no WHERE."""
    if where is None:
        return ()
    return where.operands if isinstance(where, And) else (where,)


def _indexed(
    conditions: Sequence[Expression], operands: Sequence[CompiledExpression], schema: EventSchema
) -> dict[int, CompiledExpression]:
    indexed = {}
    for number, (condition, operand) in enumerate(zip(conditions, operands, strict=True)):
        equality = equality_of(condition, schema)
        # With constants on both sides, the expression to look up would differ between rules.
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
