"""The record of a registered query says its constants, so that few texts are parsed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.queries.compile.arrow.expressions import VISITS, with_other_constants
from tests.unit.queries.match.clicks import CLICKS, clicks, compiled
from tests.unit.queries.query_strategies import queries

from headrace.queries.language import parse_query, print_query
from headrace.queries.match import held
from headrace.queries.match.held import LiveQueries
from headrace.queries.match.shape import ShapeTemplate, compile_query
from headrace.queries.registry.record import RegisteredQuery, decode_query, encode_query

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ROWS = clicks({"user": 1, "kind": "a"}, {"user": 2, "kind": "b"}, {"user": 3, "kind": "it's"})


def registered(query_id, where, **changes):
    """Returns a query on clicks as it is registered."""
    shape, constants = compiled(f"SELECT count(*) FROM clicks WHERE {where}")
    text = print_query(parse_query(f"SELECT count(*) FROM clicks WHERE {where}"))
    query = RegisteredQuery(query_id, text, "clicks", 1, NOW, NOW, None, shape.key, constants)
    return replace(query, **changes)


class Reader:
    """Live queries, and the texts that were parsed for them."""

    def __init__(self, monkeypatch):
        self.parsed = []
        self.live = LiveQueries("clicks", CLICKS)

        def parse(text):
            self.parsed.append(text)
            return parse_query(text)

        monkeypatch.setattr(held, "parse_query", parse)

    def put(self, query):
        self.live.apply(*encode_query(query))

    def users(self):
        """Returns the users that each query matches."""
        rules = self.live.rules
        users = {}
        for matches in rules.matches(ROWS):
            for slot, row in zip(matches.slots.tolist(), matches.rows.tolist(), strict=True):
                users.setdefault(rules.rule(slot).query_id, set()).add(row + 1)
        return users


@pytest.fixture
def reader(monkeypatch):
    return Reader(monkeypatch)


def test_one_query_of_a_shape_is_parsed(reader):
    for user in (1, 2, 3):
        reader.put(registered(f"q{user}", f"user = {user} AND kind IN ('a', 'b', 'it''s')"))
    reader.put(registered("other", "kind = 'a' AND user < 9"))
    assert len(reader.parsed) == 2
    assert reader.users() == {"q1": {1}, "q2": {2}, "q3": {3}, "other": {1}}


def test_rules_of_one_shape_share_it(reader):
    for user in (1, 2):
        reader.put(registered(f"q{user}", f"user = {user}", shape=None, constants=None))
    first, second = (reader.live.rules.rule(slot).shape for slot in (0, 1))
    assert first is second


def test_a_query_without_constants_in_its_record_is_parsed(reader):
    reader.put(registered("a", "user = 1"))
    reader.put(registered("b", "user = 2", shape=None, constants=None))
    reader.put(registered("c", "user = 3", constants=None))
    assert len(reader.parsed) == 3
    assert reader.users() == {"a": {1}, "b": {2}, "c": {3}}


@pytest.mark.parametrize(
    ("where", "changes"),
    [
        ("user = 2", {"constants": ((2.0,),)}),
        ("user = 2", {"constants": ((True,),)}),
        ("user = 2", {"constants": (("2",),)}),
        ("user = 2", {"constants": ((2**63,),)}),
        ("user = 2", {"constants": (((2,),),)}),
        ("user = 2", {"constants": ((2, 2),)}),
        ("user = 2", {"constants": ((2,), ())}),
        ("user = 2", {"constants": ((),)}),
        ("user = 2", {"constants": ()}),
        ("user IN (2)", {"constants": ((2,),)}),
        ("user IN (2)", {"constants": (((2.0,),),)}),
        ("price = 2 OR user = 2", {"constants": ((2, 2),)}),
        ("is_new = TRUE OR user = 2", {"constants": ((1, 2),)}),
        ("user = 2 AND kind = 'b'", {"shape": compiled("user = 1")[0].key, "constants": ((2,),)}),
        ("user = 2", {"shape": "0" * 16}),
    ],
)
def test_a_text_counts_where_its_constants_are_not_those_of_the_shape(reader, where, changes):
    reader.put(registered("first", where.replace("2", "1").replace("'b'", "'a'")))
    reader.put(registered("known", "user = 1"))
    reader.put(registered("wrong", where, **changes))
    reader.put(registered("later", "user = 3"))
    assert reader.users() == {"first": {1}, "known": {1}, "wrong": {2}, "later": {3}}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM clicks WHERE user = 2",
        "SELECT count(*)\nFROM clicks\nWHERE user = 2\nFACET kind\nWINDOW 1 minute",
        "SELECT count(*)\nFROM clicks\nWHERE user = 2 AND TRUE\nWINDOW 1 minute",
        "SELECT count(*)\nFROM clicks\nWHERE user = 2\nWINDOW 2 minutes",
        "SELECT sum(price)\nFROM clicks\nWHERE user = 2\nWINDOW 1 minute",
    ],
)
def test_a_text_of_another_shape_than_its_record_says_is_parsed(reader, text):
    reader.put(registered("first", "user = 1"))
    reader.put(registered("wrong", "user = 3", text=text))
    assert reader.users() == {"first": {1}, "wrong": {2}}
    assert reader.parsed[1] == text


@pytest.mark.parametrize("text", ["", "SELECT count(*)\nFROM clicks\nWHERE user = \nWINDOW 1 day"])
def test_a_text_that_is_no_query_has_no_rule_whatever_its_record_says(reader, text):
    reader.put(registered("first", "user = 1"))
    reader.put(registered("wrong", "user = 2", text=text))
    assert reader.users() == {"first": {1}}


def test_a_first_query_with_the_shape_of_another_does_not_define_it(reader):
    reader.put(registered("wrong", "kind = 'b'", shape=compiled("user = 1")[0].key))
    for user in (1, 3):
        reader.put(registered(f"q{user}", f"user = {user}"))
    assert reader.users() == {"wrong": {2}, "q1": {1}, "q3": {3}}


def test_constants_that_are_not_those_of_the_text_change_no_other_query(reader):
    reader.put(registered("first", "user IN (1)"))
    reader.put(registered("wrong", "user IN (2)", constants=(((3, 3, -(2**63)),),)))
    reader.put(registered("later", "user IN (2, 3)"))
    assert reader.users() == {"first": {1}, "wrong": {3}, "later": {2, 3}}


@pytest.mark.parametrize(
    ("where", "literals"), [("kind IN ({})", ["b"] * 1_001), ("kind = {}", ["b" * 20_000])]
)
def test_a_text_beyond_the_limits_of_the_language_has_no_rule(reader, where, literals):
    reader.put(registered("first", where.format("'a'")))
    condition = where.format(", ".join(f"'{literal}'" for literal in literals))
    text = f"SELECT count(*)\nFROM clicks\nWHERE {condition}\nWINDOW 1 minute"
    reader.put(registered("wrong", where.format("'b'"), text=text))
    assert reader.users() == {"first": {1}}


def test_a_list_of_constants_beyond_the_limits_is_not_taken(reader):
    reader.put(registered("first", "user IN (1)"))
    reader.put(registered("wrong", "user IN (2)", constants=((tuple(range(1_001)),),)))
    assert reader.users() == {"first": {1}, "wrong": {2}}


def test_a_query_that_is_renewed_is_not_parsed(reader):
    query = registered("a", "user = 1", shape=None, constants=None)
    reader.put(replace(query, expires_at=NOW + timedelta(seconds=1)))
    later = replace(query, revision=2, expires_at=NOW + timedelta(seconds=5))
    reader.put(later)
    assert len(reader.parsed) == 1
    now_ms = int(NOW.timestamp() * 1000)
    assert reader.live.query("a") == held.LiveQuery(later.text, 2, now_ms, now_ms + 5_000)
    reader.live.expire(now_ms + 1_000)
    assert reader.users() == {"a": {1}}
    reader.live.expire(now_ms + 5_000)
    assert reader.users() == {}


def test_a_query_that_becomes_faulty_or_another_topics_has_no_rule(reader):
    for query_id in ("a", "b", "c"):
        reader.put(registered(query_id, "user = 1"))
    reader.put(registered("a", "user = 1", topic="views"))
    reader.live.apply(b"b", b"junk")
    reader.live.apply(b"c", None)
    assert (len(reader.live.rules), reader.users()) == (0, {})


def test_shapes_that_are_forgotten_are_compiled_again(reader):
    reader.live.max_templates = 2
    for number, where in enumerate(["user = 1", "user < 2", "user <= 1", "user = 1"]):
        reader.put(registered(f"q{number}", where))
    assert len(reader.parsed) == 4
    assert reader.users() == {f"q{number}": {1} for number in range(4)}


def same_types(constants):
    """Returns constants with their types: 1 equals 1.0 and True."""
    return json.dumps(constants), repr(constants)


def assert_fits(query, other):
    """Looks whether the record of another query of the shape can be read without its text."""
    template = ShapeTemplate(compile_query(query, VISITS)[0], query)
    shape, constants = compile_query(other, VISITS)
    record = RegisteredQuery("a", print_query(other), "visits", 1, NOW, NOW, None)
    record = replace(record, shape=shape.key, constants=constants)
    read = decode_query(*encode_query(record))
    assert same_types(read.constants) == same_types(constants)
    assert template.fits(read.text, read.constants)


@given(queries(), st.data())
def test_the_record_of_each_query_of_a_shape_fits_it(query, data):
    assume(query.where is not None)
    assert_fits(query, replace(query, where=data.draw(with_other_constants(query.where))))


@pytest.mark.parametrize(
    ("where", "other"),
    [
        ("'a' IN ('IN (1)')", "'''' IN ('b', ')', '''')"),
        ("views = -1 AND is_new = TRUE", "views = 12 AND is_new = FALSE"),
        ("price IN (1e22, -1e-07)", "price IN (1, -2.5)"),
        ("title LIKE 'IN (1, 2)' OR title = 'TRUE'", "title LIKE 'IN (1, 2)' OR title = ''"),
        ("title = 'a\nFACET b'", "title = '\nWHERE title = ''a'''"),
        ("at < '2026-05-01T00:00:00Z'", "at < '2026-05-01T02:00:00.5+02:00'"),
    ],
)
def test_a_literal_may_look_like_the_rest_of_a_text(where, other):
    first, second = (
        parse_query(f'SELECT count(*) AS "x\nWHERE y" FROM visits WHERE {each} FACET title')
        for each in (where, other)
    )
    assert_fits(first, second)


@given(queries(), queries())
def test_the_record_of_a_query_with_another_condition_or_result_does_not_fit(query, other):
    shape, constants = compile_query(other, VISITS)
    template = ShapeTemplate(compile_query(query, VISITS)[0], query)
    assume(shape.key != template.shape.key)
    assume(replace(query, where=None) != replace(other, where=None))
    assert not template.fits(print_query(other), constants)
