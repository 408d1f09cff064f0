"""Expressions mean what they mean in SQL: DuckDB is the reference."""

from __future__ import annotations

from functools import partial

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.unit.queries.compile.arrow.expressions import EXPRESSIONS, ROWS, VISIT_COLUMNS, VISITS

from headrace.events import microseconds
from headrace.queries.compile.arrow import compile_expression
from headrace.queries.language.checks import ExpressionTypes
from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import (
    And,
    Arithmetic,
    Between,
    Comparison,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Or,
    Path,
)

TYPES = ExpressionTypes(VISITS)
FUNCTIONS = {"startsWith": "starts_with", "endsWith": "ends_with"}
SQL_TYPES = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}
DATABASE = duckdb.connect()
DATABASE.execute("SET TimeZone = 'UTC'; SET default_collation = 'binary'; SET threads = 1")
DATABASE.execute("CREATE MACRO finite(x) AS CASE WHEN isfinite(x) THEN x END")


class DuckSql:
    """Prints expressions in DuckDB's SQL, with parameters for constants."""

    def __init__(self):
        self.parameters = []

    def of(self, expression):
        match expression:
            case Path(names):
                text = ".".join(f'"{name}"' for name in names)
                return f"CAST(CAST({text} AS VARCHAR) AS DOUBLE)" if names == ("cost",) else text
            case Literal(value):
                self.parameters.append(value)
                return f"CAST(? AS {SQL_TYPES[type(value)]})"
            case Negative() | Arithmetic() | FunctionCall():
                return self.calculation(expression)
        return f"({self.condition(expression)})"

    def calculation(self, expression):
        match expression:
            case Negative(operand):
                text = f"- {self.double(operand)}"
            case Arithmetic("/", left, right):
                text = f"{self.double(left)} / nullif({self.double(right)}, 0)"
            case Arithmetic(operator, left, right):
                text = f"{self.double(left)} {operator} {self.double(right)}"
            case FunctionCall(name, arguments):
                of_argument = self.double if name in ("abs", "floor", "ceil") else self.of
                return f"{FUNCTIONS.get(name, name)}({', '.join(map(of_argument, arguments))})"
        return f"finite({text})"

    def condition(self, expression):
        match expression:
            case Comparison(operator, left, right):
                text = f"{self.beside(left, right)} {operator} {self.beside(right, left)}"
            case Between(operand, low, high):
                lower = self.condition(Comparison(">=", operand, low))
                text = f"{lower} AND {self.condition(Comparison('<=', operand, high))}"
            case In(operand, values):
                operand_text = self.of(operand)
                listed = ", ".join(self.beside(value, operand) for value in values)
                text = f"{operand_text} IN ({listed})"
            case Like(operand, pattern):
                text = f"{self.of(operand)} LIKE ? ESCAPE '\\'"
                self.parameters.append(pattern)
            case IsNull(operand):
                text = f"{self.of(operand)} IS NULL"
            case Not(operand):
                text = f"NOT {self.of(operand)}"
            case And(operands):
                text = " AND ".join(map(self.of, operands))
            case Or(operands):
                text = " OR ".join(map(self.of, operands))
        return text

    def double(self, expression):
        return f"CAST({self.of(expression)} AS DOUBLE)"

    def beside(self, expression, compared):
        """Prints an expression that is compared with another: beside a time, a text is one."""
        if isinstance(expression, Literal) and TYPES.of(compared) is ValueType.TIME:
            self.parameters.append(microseconds(expression.value))
            return "make_timestamp(CAST(? AS BIGINT))"
        return self.of(expression)


def of_duckdb(expression, rows):
    sql = DuckSql()
    text = sql.of(expression)
    table = pa.table({**dict(zip(rows.schema.names, rows.columns, strict=True))})
    numbered = table.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    DATABASE.register("visits", without_zones(numbered))
    query = f'SELECT {text} FROM visits ORDER BY "row"'
    return [value for (value,) in DATABASE.execute(query, sql.parameters).fetchall()]


def without_zone(kind):
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(without_zone(field.type)) for field in kind])
    return kind


def without_zones(table):
    """Times without a zone: DuckDB needs an extension for those with one."""
    fields = [field.with_type(without_zone(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, ROWS)
def test_values_are_those_of_duckdb(expression, rows):
    values = compile_expression(expression, VISITS).evaluate(rows)
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"))
    close = partial(pytest.approx, rel=1e-12, abs=0)
    expected = of_duckdb(expression, rows)
    for value, reference in zip(values.to_pylist(), expected, strict=True):
        assert value == (close(reference) if isinstance(reference, float) else reference)


def test_the_columns_of_rows_are_those_of_the_decoder():
    assert set(VISIT_COLUMNS.names) == set(VISITS.names)
