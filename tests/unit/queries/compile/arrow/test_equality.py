"""Which conditions an index can look up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.queries.compile.arrow.expressions import (
    NUMBER_CONSTANTS,
    NUMBER_EXPRESSIONS,
    ROWS,
    TEXT_EXPRESSIONS,
    TEXTS,
    TIME_PATHS,
    TIME_TEXTS,
    VISITS,
    lists_of,
    literals,
)

from headrace.queries.compile.arrow import compile_expression, equality_of
from headrace.queries.language import parse_query
from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import Comparison, In


def equality(condition):
    return equality_of(parse_query(f"SELECT count(*) FROM visits WHERE {condition}").where, VISITS)


def equalities(expressions, constants):
    return (
        st.builds(Comparison, st.just("="), expressions, constants)
        | st.builds(Comparison, st.just("="), constants, expressions)
        | st.builds(In, expressions, lists_of(constants))
    )


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("country = 'PL'", ("PL",)),
        ("'PL' = country", ("PL",)),
        ("country IN ('PL', 'DE', 'PL')", ("PL", "DE")),
        ("is_new = TRUE", (True,)),
        ("views = 1.0", (1,)),
        ("views IN (1, 1.5, 2)", (1, 2)),
        ("views = 1.5", ()),
        ("views = 1e300", ()),
        ("price = 1", (1.0,)),
        ("price IN (-0.0, 0)", (0.0,)),
        ("price = 9007199254740993", ()),
        ("at = '1970-01-01T00:00:01.5Z'", (1_500_000,)),
        ("length(title) = 3", (3,)),
        ("views + 1 = 3", (3.0,)),
        ("upper(owner.name) = 'A'", ("A",)),
    ],
)
def test_an_equality_has_its_constants_in_the_type_of_its_expression(condition, values):
    equal = equality(condition)
    assert equal.values == values
    assert {type(value) for value in equal.values} == {type(value) for value in values}


@pytest.mark.parametrize(
    "condition",
    [
        "country != 'PL'",
        "country > 'PL'",
        "country NOT IN ('PL')",
        "country = title",
        "is_new",
        "1 = 1",
        "length('a') = 1",
        "country = 'PL' AND is_new",
        "country = 'PL' OR is_new",
        "views BETWEEN 1 AND 1",
    ],
)
def test_other_conditions_are_no_equalities(condition):
    assert equality(condition) is None


def test_constants_of_its_expression_are_part_of_the_shape():
    one, two = equality("views + 1 = 3").expression, equality("views + 2 = 3").expression
    assert one.constants == two.constants == ()
    assert one.shape != two.shape


@given(
    equalities(TEXT_EXPRESSIONS, literals(TEXTS))
    | equalities(NUMBER_EXPRESSIONS, NUMBER_CONSTANTS)
    | equalities(TIME_PATHS, literals(TIME_TEXTS)),
    ROWS,
)
def test_it_is_met_where_the_value_of_its_expression_is_one_of_its_constants(condition, rows):
    equal = equality_of(condition, VISITS)
    is_met = compile_expression(condition, VISITS).evaluate(rows).to_pylist()
    if equal is None:
        assert not compile_expression(condition, VISITS).columns
        return
    values = equal.expression.evaluate(rows)
    if equal.expression.type is ValueType.TIME:
        values = values.cast("int64")
    assert [bool(met) for met in is_met] == [value in equal.values for value in values.to_pylist()]
