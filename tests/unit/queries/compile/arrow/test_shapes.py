"""Expressions of one shape are evaluated together."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.queries.compile.arrow.expressions import (
    EXPRESSIONS,
    ROWS,
    VISIT_COLUMNS,
    VISITS,
    with_other_constants,
)

from headrace.queries.compile.arrow import compile_expression
from headrace.queries.language import parse_query


@settings(deadline=None)
@given(EXPRESSIONS, ROWS, st.data())
def test_rows_with_constants_of_their_own_have_the_values_of_each_expression_alone(
    expression, rows, data
):
    others = data.draw(st.lists(with_other_constants(expression), max_size=3))
    queries = [compile_expression(each, VISITS) for each in (expression, *others)]
    any_query = st.sampled_from(queries)
    by_row = data.draw(st.lists(any_query, min_size=rows.num_rows, max_size=rows.num_rows))

    assert {query.shape for query in queries} == {queries[0].shape}
    kinds = queries[0].constant_types
    constants = [
        pa.array([query.constants[i] for query in by_row], kind) for i, kind in enumerate(kinds)
    ]
    together = queries[-1].evaluate(rows, constants)

    alone = [query.evaluate(rows.slice(i, 1))[0].as_py() for i, query in enumerate(by_row)]
    assert together.to_pylist() == alone


def compiled(text):
    query = parse_query(f"SELECT count(*) FROM visits FACET {text}")
    return compile_expression(query.facets[0].expression, VISITS)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("country = 'PL'", "country = 'DE'"),
        ("country IN ('PL')", "country IN ('DE', 'FR')"),
        ("price > 1", "price > 1.5"),
        ("price + 1", "price + 2.5"),
        ("views IN (1)", "views IN (2, 2.5)"),
        ("views = 1", "views = 2.0"),
        ("at > '2026-05-01T10:00:00Z'", "at > '2027-05-01T10:00:00+02:00'"),
        ("is_new = TRUE", "is_new = FALSE"),
        ("views BETWEEN 1 AND 2", "views BETWEEN 3 AND 4"),
    ],
)
def test_constants_that_vary_are_no_part_of_the_shape(left, right):
    assert compiled(left).shape == compiled(right).shape
    assert compiled(left).constant_types == compiled(right).constant_types
    assert compiled(left).constants != compiled(right).constants


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("country = 'PL'", "title = 'PL'"),
        ("country = 'PL'", "'PL' = country"),
        ("country = 'PL'", "country != 'PL'"),
        ("country = 'PL'", "country IN ('PL')"),
        ("views = 1", "views = 1.5"),
        ("price = 1", "price = 9007199254740993"),
        ("title LIKE 'a%'", "title LIKE 'b%'"),
        ("startsWith(title, 'a')", "startsWith(title, 'b')"),
        ("TRUE", "FALSE"),
        ("abs(1)", "abs(1.0)"),
        ("owner.name = 'a'", "'owner.name' = 'a'"),
        ("is_new AND is_new", "is_new AND is_new AND is_new"),
        ("is_new AND (is_new OR is_new)", "(is_new AND is_new) OR is_new"),
        ("startsWith(title, 'a, b')", "startsWith(title, 'a'', ''b')"),
        ("price + 1", "price - 1"),
        ("-price", "price"),
    ],
)
def test_all_else_is(left, right):
    assert compiled(left).shape != compiled(right).shape


def test_constants_stand_in_the_order_of_the_expression():
    expression = compiled(
        "country = 'PL' AND price * 2 > 1 AND views BETWEEN 3 AND 4.5 AND is_new = TRUE"
        " AND at IN ('1970-01-01T00:00:00Z', '1970-01-01T00:00:01+00:00') AND length('a') != 1"
    )
    time = pa.timestamp("us", "UTC")
    assert expression.constants == ("PL", 2.0, 1.0, 3, 4.5, True, (0, 1_000_000), 1)
    assert expression.constant_types == (
        *(pa.string(), pa.float64(), pa.float64(), pa.int64(), pa.float64(), pa.bool_()),
        *(pa.list_(time), pa.int64()),
    )


def test_a_shape_is_a_text_that_depends_on_no_process():
    assert compiled("owner.name = 'a' AND NOT (lower(title) LIKE 'b%')").shape == (
        "AND(=(field('owner', 'name'), ?string), NOT(LIKE 'b%' (lower(field('title',)))))"
    )


def test_constants_may_be_scalars_for_all_rows_beside_arrays():
    rows = pa.RecordBatch.from_pylist([{"views": 1}, {"views": 2}, {"views": 3}], VISIT_COLUMNS)
    lists = pa.array([[1, 9], [], [3]], pa.list_(pa.int64()))
    expression = compiled("views IN (7) AND views < 8")
    assert expression.evaluate(rows, [lists, pa.scalar(3)]).to_pylist() == [True, False, False]
