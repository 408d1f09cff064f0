"""Long texts and long lists: what is looked at together fits into an array of Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.queries.pipeline import live_queries

from headrace.model.event import event_schema
from headrace.queries.compile.arrow import CompiledExpression
from headrace.queries.match import rules as rules_module
from headrace.queries.match import sizes as sizes_module
from headrace.queries.match.partials import RowPlaces, added_to_windows
from headrace.queries.match.sizes import VALUE_BYTES, MeasuredRows, divided, value_bytes


class Owner:
    name: str


class Visit:
    page: str
    owner: Owner
    tags: list[str]
    names: dict[str, str]
    number: int


SCHEMA = event_schema(Visit)
ARRAY_BYTES = 2**31
POOLS = []
"""Of arrays that outlive a test."""


def visits(count, *, page="p", name="n"):
    rows = {"page": page, "owner": {"name": name}, "tags": ["a", "bb"], "names": {}, "number": 1}
    return pa.table({key: pa.array([value]) for key, value in rows.items()} | {
        "names": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
    }).take(pa.array([0] * count))  # fmt: skip


def rules(*conditions, select="count(*)", window="1 minute"):
    texts = {
        f"q{number}": f"SELECT {select} FROM visits WHERE {condition} WINDOW {window}"
        for number, condition in enumerate(conditions)
    }
    return live_queries(texts, SCHEMA, topic="visits").rules


def count(queries, rows):
    return sum(len(matches.rows) for matches in queries.matches(rows.combine_chunks()))


def test_long_constants_of_many_rows_are_compared_in_parts():
    constant = "\u4e2d" * 19_000
    rows = visits(40_000)
    assert len(constant.encode()) * rows.num_rows > ARRAY_BYTES
    assert count(rules(f"page != '{constant}'"), rows) == 40_000


def test_long_lists_of_many_rows_are_compared_in_parts():
    values = ", ".join(f"'{number}'" for number in range(1_000))
    rows = visits(50_000, page="x" * 45)
    assert 45 * 1_000 * rows.num_rows > ARRAY_BYTES
    assert count(rules(f"page NOT IN ({values})"), rows) == 50_000


def test_texts_within_objects_are_compared_in_parts():
    rows = visits(50_000, name="x" * 2_200)
    queries = rules(*[f"owner.name != '{number}'" for number in range(20)])
    assert 2_200 * 20 * rows.num_rows > ARRAY_BYTES
    assert count(queries, rows) == 20 * 50_000


@pytest.mark.parametrize("aggregate", ["uniqueCount(page)", "count(page)"])
def test_long_arguments_of_many_windows_are_added_up_in_parts(aggregate):
    rows = visits(4_160, page="x" * 8_700).combine_chunks()
    assert 8_700 * 60 * rows.num_rows > ARRAY_BYTES
    zeros = pa.array([0] * rows.num_rows).to_numpy()
    places = RowPlaces(zeros, zeros, zeros)
    queries = rules("number = 1", select=aggregate, window="1 hour SLIDE BY 1 minute")
    added = [
        each
        for matches in queries.matches(rows)
        for each in added_to_windows(rows, places, matches)
    ]
    assert sum(each.events for each in added) == 60 * 4_160
    assert len(added) == len({each.begin_us for each in added}) == 60


def peak_bytes(act):
    """Returns how many bytes Arrow holds at most for an act."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        act()
    finally:
        pa.set_memory_pool(before)
    return pool.max_memory()


@pytest.mark.parametrize(
    "condition",
    ["startsWith('{text}', page)", "upper('{text}') IN ('a', 'b')", "lower('{text}') = 'a'"],
)
def test_a_constant_argument_is_not_repeated_for_each_row_and_rule(condition):
    rows = visits(10_000).combine_chunks()
    text = "\u4e2d" * 1_000
    queries = rules(*[f"page = 'p' AND {condition.format(text=text)}"] * 3)
    assert 3 * len(text.encode()) * rows.num_rows > 80_000_000
    assert peak_bytes(lambda: list(queries.matches(rows))) < 8_000_000


@pytest.mark.parametrize("select", ["latest('{text}')", "count(*)"])
def test_a_constant_of_a_result_or_a_facet_is_repeated_in_parts_at_most(select, monkeypatch):
    monkeypatch.setattr(sizes_module, "MAX_BYTES", 4_000_000)
    rows = visits(20_000).combine_chunks()
    zeros = pa.array([0] * rows.num_rows).to_numpy()
    places = RowPlaces(zeros, zeros, zeros)
    text = "\u4e2d" * 1_000
    facets = f"FACET '{text}' AS x, lower('{text}') AS y"
    queries = rules("number = 1", select=select.format(text=text), window=f"1 minute {facets}")

    def add_up():
        for matches in queries.matches(rows):
            [added] = added_to_windows(rows, places, matches)
            assert [facets for facets, _ in added.groups] == [(text, text)]
            assert added.events == rows.num_rows

    assert len(text.encode()) * rows.num_rows == 60_000_000
    assert peak_bytes(add_up) < 20_000_000


def calls(monkeypatch):
    """The numbers of rows that expressions are evaluated for, as they come."""
    sizes, evaluate = [], CompiledExpression.evaluate

    def counted(expression, rows, constants=()):
        sizes.append(rows.num_rows)
        return evaluate(expression, rows, constants)

    monkeypatch.setattr(CompiledExpression, "evaluate", counted)
    return sizes


def test_a_long_list_that_a_rule_is_looked_up_by_divides_nothing(monkeypatch):
    """One long text among many short ones, neither."""
    values = ", ".join(f"'{number}'" for number in range(1_000))
    rows = pa.concat_tables([visits(20_000, page="7"), visits(1, page="8", name="x" * 100_000)])
    queries = rules(*[f"page IN ({values}) AND owner.name LIKE '%n%'"] * 4)
    sizes = calls(monkeypatch)
    matches = list(queries.matches(rows.combine_chunks()))
    assert sum(len(each.rows) for each in matches) == 4 * 20_000
    assert (len(matches), max(sizes)) == (1, 4 * 20_001)


def test_one_rule_with_a_long_list_divides_its_own_rows_alone(monkeypatch):
    monkeypatch.setattr(sizes_module, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(rules_module, "MAX_BYTES", 1_000_000)
    long_list = ", ".join(map(str, range(2, 900)))
    queries = rules(*["number NOT IN (2, 3)"] * 9, f"number NOT IN ({long_list})")
    sizes = calls(monkeypatch)
    assert count(queries, visits(100)) == 10 * 100
    assert 2 < len(sizes) < 20
    assert sum(sizes) == 10 * 100


def test_the_size_of_a_row_is_that_of_its_values():
    rows = MeasuredRows(pa.concat_tables([visits(1, page="xxx"), visits(2, name="y" * 50)]))
    pages = rows.sizes(frozenset({"page"}))
    assert (pages - pages[1]).tolist() == [2, 0, 0]
    both = rows.sizes(frozenset({"page", "owner"}))
    assert (both - both[0]).tolist() == [0, 47, 47]
    assert rows.sizes(frozenset({"tags", "names", "number"})).tolist() == [both_of(rows)] * 3
    assert rows.sizes(frozenset()).tolist() == [0, 0, 0]


def both_of(rows):
    """Two texts of three characters in a list, two of two in a map, and five values without."""
    assert rows.table.num_rows == 3
    return 3 + 2 + (2 + 1 + 2 + 1 + 1 + 1) * VALUE_BYTES


def test_sizes_of_slices_are_those_of_their_values():
    texts = pa.array(["a" * number for number in range(9)])
    lists = pa.array([["a" * number] * number for number in range(9)])
    for values in (texts, lists):
        whole = value_bytes(values)
        assert value_bytes(values[3:7]).tolist() == whole[3:7].tolist()


def test_values_are_divided_by_their_sizes(monkeypatch):
    monkeypatch.setattr(sizes_module, "MAX_BYTES", 10)
    sizes = np.array([1, 2, 20, 3, 7, 1, 9])
    parts = [sizes[part].tolist() for part in divided(sizes)]
    assert parts == [[1, 2], [20], [3, 7], [1, 9]]
    assert list(divided(sizes[:0])) == []
