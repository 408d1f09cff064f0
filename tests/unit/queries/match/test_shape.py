"""Queries that differ in constants of their conditions alone have one shape."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.queries.compile.arrow.expressions import VISITS, with_other_constants
from tests.unit.queries.match.clicks import compiled
from tests.unit.queries.query_strategies import queries

from headrace.queries.match.shape import compile_query, constant_columns, indexed_values

BASE = "SELECT count(*) FROM clicks WHERE user = 1 AND kind IN ('a') WINDOW 10 seconds"


@given(queries(), st.data())
def test_queries_with_other_constants_have_one_shape(query, data):
    assume(query.where is not None)
    other = replace(query, where=data.draw(with_other_constants(query.where)))
    shape, constants = compile_query(query, VISITS)
    other_shape, other_constants = compile_query(other, VISITS)
    assert shape.key == other_shape.key
    assert shape.indexed.keys() == other_shape.indexed.keys()
    assert [len(each) for each in constants] == [len(each) for each in other_constants]


@given(queries(), queries())
def test_queries_that_differ_in_more_have_two_shapes(query, other):
    without = replace(query, where=None), replace(other, where=None)
    assume(without[0] != without[1])
    same_where = replace(other, where=query.where)
    assert compile_query(query, VISITS)[0].key != compile_query(same_where, VISITS)[0].key


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace("user = 1", "user = 2"),
        BASE.replace("'a'", "'b', 'c'"),
        BASE.replace("user = 1", "user = 1.0"),
    ],
)
def test_other_constants_leave_the_shape_as_it_is(text):
    assert compiled(text)[0].key == compiled(BASE)[0].key


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace("user = 1", "user != 1"),
        BASE.replace("user = 1", "user = 1.5"),
        BASE.replace("user", "price"),
        BASE.replace("kind IN", "kind NOT IN"),
        BASE.replace("user = 1 AND kind IN ('a')", "kind IN ('a') AND user = 1"),
        BASE.replace("count(*)", "count(*) AS n"),
        BASE.replace("count(*)", "filter(count(*), WHERE user = 1)"),
        f"{BASE} FACET kind",
        f"{BASE} LIMIT 7",
        f"{BASE} ALLOWED LATENESS 1 second",
        f"{BASE} SLIDE BY 5 seconds",
        f"{BASE} CLOSE BY CLOCK 1 second",
        BASE.replace("10 seconds", "20 seconds"),
        BASE.replace("FROM clicks", "FROM views"),
    ],
)
def test_another_query_has_another_shape(text):
    assert compiled(text)[0].key != compiled(BASE)[0].key


def test_constants_of_a_filter_are_part_of_the_shape():
    one, two = (f"SELECT filter(count(*), WHERE user = {n}) AS n FROM clicks" for n in (1, 2))
    assert compiled(one)[0].key != compiled(two)[0].key


@pytest.mark.parametrize(
    ("condition", "indexed"),
    [
        ("user = 1", [0]),
        ("1 = user", [0]),
        ("price > 1 AND kind IN ('a', 'b') AND user = 1", [1, 2]),
        ("is_new = TRUE AND lower(kind) = 'a'", [0, 1]),
        ("user + 1 = 2", []),
        ("user = 1 OR kind = 'a'", []),
        ("user != 1 AND kind NOT IN ('a')", []),
        ("user = price AND is_new", []),
        ("TRUE", []),
        ("'a' = 'a'", []),
    ],
)
def test_equalities_with_one_constant_are_indexed(condition, indexed):
    assert sorted(compiled(condition)[0].indexed) == indexed


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("user = 3", (3,)),
        ("kind IN ('b', 'a', 'b')", ("b", "a")),
        ("user IN (1.5, 2.0, 2)", (2,)),
        ("user IN (1.5)", ()),
        ("price = -0.0", (0.0,)),
        ("at = '1970-01-01T00:00:01Z'", (1_000_000,)),
    ],
)
def test_an_indexed_operand_asks_for_its_values(condition, values):
    _, constants = compiled(condition)
    assert indexed_values(constants[0]) == values


def test_a_shape_names_all_columns_that_it_reads():
    shape, _ = compiled(
        "SELECT filter(sum(price), WHERE is_new) FROM clicks WHERE user = 1 FACET country"
    )
    assert shape.columns == {"price", "is_new", "user", "country"}
    assert compiled("SELECT count(*) FROM clicks")[0].columns == frozenset()


def test_constants_of_rules_are_columns():
    shape, first = compiled("price BETWEEN 1 AND 2 AND kind IN ('a')")
    _, second = compiled("price BETWEEN 3 AND 4 AND kind IN ('b', 'c')")
    between, listed = (
        [column.to_pylist() for column in constant_columns(operand, [first[n], second[n]])]
        for n, operand in enumerate(shape.operands)
    )
    assert between == [[1.0, 3.0], [2.0, 4.0]]
    assert listed == [[["a"], ["b", "c"]]]


def test_lengths_of_windows_are_in_microseconds():
    shape, _ = compiled("SELECT count(*) FROM clicks WINDOW 1 minute SLIDE BY 20 seconds LIMIT 5")
    minute = timedelta(minutes=1) // timedelta(microseconds=1)
    assert (shape.window_us, shape.slide_us, shape.max_groups) == (minute, minute // 3, 5)


def test_a_condition_without_constants_has_none():
    assert compiled("is_new AND country IS NULL")[1] == ((), ())
