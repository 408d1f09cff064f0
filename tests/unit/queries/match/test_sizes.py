"""Long texts and long lists: what is looked at together fits into an array of Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.unit.queries.pipeline import live_queries

from headrace.model.event import event_schema
from headrace.queries.match import rules as rules_module
from headrace.queries.match.partials import RowPlaces, added_to_windows
from headrace.queries.match.sizes import Heaviest, MeasuredRows


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
    rows = visits(4_200, page="x" * 8_600).combine_chunks()
    assert 8_600 * 60 * rows.num_rows > ARRAY_BYTES
    zeros = pa.array([0] * rows.num_rows).to_numpy()
    places = RowPlaces(zeros, zeros, zeros)
    queries = rules("number = 1", select=aggregate, window="1 hour SLIDE BY 1 minute")
    added = [
        each
        for matches in queries.matches(rows)
        for each in added_to_windows(rows, places, matches)
    ]
    assert sum(each.events for each in added) == 60 * 4_200
    assert len({each.begin_us for each in added}) == 60


def test_the_longest_rules_that_are_there_count(monkeypatch):
    monkeypatch.setattr(rules_module, "MAX_BYTES", 10_000)
    long_list = ", ".join(map(str, range(2, 900)))
    lists = {"short": "2, 3", "long": long_list}
    texts = {
        query: f"SELECT count(*) FROM visits WHERE number NOT IN ({values})"
        for query, values in lists.items()
    }
    live = live_queries(texts, SCHEMA, topic="visits")
    rows = visits(100)

    def parts():
        return [len(each.rows) for each in live.rules.matches(rows)]

    assert (len(parts()), sum(parts())) == (200, 200)
    live.apply(b"long", None)
    assert 1 < len(parts()) < 10
    assert sum(parts()) == 100


def test_the_size_of_a_row_is_that_of_its_longest_values():
    rows = MeasuredRows(pa.concat_tables([visits(1, page="xxx"), visits(2, name="y" * 50)]))
    assert rows.longest({"page"}) == 3
    assert rows.longest({"page", "owner"}) == 53
    assert 3 <= rows.longest({"tags"}) < 100
    assert rows.longest({"names"}) >= 2
    assert rows.longest({"number"}) > 0
    assert rows.longest(()) == 0


def test_numbers_come_and_go():
    heaviest = Heaviest()
    for number in (3, 900, 900, 0):
        heaviest.put(number)
    assert heaviest.number == 1_024
    heaviest.remove(900)
    assert heaviest.number == 1_024
    heaviest.remove(900)
    assert heaviest.number == 4
    for number in (3, 0):
        heaviest.remove(number)
    assert heaviest.number == 1
