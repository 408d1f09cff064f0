"""The registry as a table: the last record of an id counts, and what is no query harms no other."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queries.language import parse_query
from headrace.queries.registry import table as table_module
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.registry.table import QueryTable

NOW = datetime(2026, 5, 1, 10, tzinfo=UTC)
LATER = NOW + timedelta(minutes=30)
TEXT = "SELECT count(*)\nFROM clicks"
QUERY = RegisteredQuery("a", TEXT, "clicks", 1, NOW, NOW, NOW + timedelta(hours=1))


class Parser:
    """Parses, and keeps the texts that it was asked for."""

    def __init__(self):
        self.texts = []

    def __call__(self, text):
        self.texts.append(text)
        return parse_query(text)


@pytest.fixture
def parser():
    return Parser()


@pytest.fixture
def table(parser):
    return QueryTable(parser)


def apply(table, *records):
    """Apply queries, or pairs of key and value, at the next offsets."""
    for record in records:
        pair = encode_query(record) if isinstance(record, RegisteredQuery) else record
        table.apply(*pair, table.next_offset)


def ids(queries):
    return [query.id for query in queries]


def test_the_last_record_of_an_id_counts(table):
    apply(table, QUERY, replace(QUERY, id="b"), replace(QUERY, revision=2))
    assert table.live(NOW) == (replace(QUERY, revision=2), replace(QUERY, id="b"))
    assert table.registered["a"].offset == 2


def test_a_record_without_a_value_deletes_a_query(table):
    apply(table, QUERY, (b"a", None), (b"never-there", None))
    assert table.live(NOW) == ()
    assert table.registered == table.faulty == {}


def test_a_record_that_was_taken_already_changes_nothing(table):
    apply(table, QUERY, replace(QUERY, revision=2))
    table.apply(*encode_query(QUERY), 0)
    assert (table.registered["a"].revision, table.next_offset) == (2, 2)


def test_live_queries_are_in_the_order_of_registration_and_expire_by_the_clock(table):
    second = replace(QUERY, id="0", registered_at=LATER, expires_at=None)
    apply(table, second, QUERY)
    assert ids(table.live(LATER)) == ["a", "0"]
    assert ids(table.live(NOW + timedelta(hours=1))) == ["0"]
    assert set(table.registered) == {"a", "0"}


def test_junk_replaces_the_query_of_its_key_and_says_why(table):
    apply(table, QUERY, replace(QUERY, id="b"), (b"a", b"junk"), (b"\xff", b"{}"), (None, b"1"))
    assert ids(table.live(NOW)) == ["b"]
    faults = {fault.id: fault.offset for fault in table.faulty.values()}
    assert faults == {"a": 2, "\\xff": 3, "": 4}
    assert "JSON" in table.faulty["a"].reason


def test_a_query_over_junk_is_a_query_again(table):
    apply(table, (b"a", b"junk"), QUERY)
    assert (ids(table.live(NOW)), table.faulty) == (["a"], {})


def test_each_distinct_text_is_parsed_once_and_when_it_is_asked_for(table, parser):
    queries = [replace(QUERY, id=f"q{number}") for number in range(5)]
    apply(table, *queries)
    table.live(NOW)
    table.digest(NOW)
    assert parser.texts == []
    assert {table.tree(query) for query in table.live(NOW)} == {parse_query(TEXT)}
    assert parser.texts == [TEXT]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (replace(QUERY, text="SELECT FROM clicks"), "line 1"),
        (replace(QUERY, topic="views"), "topic is 'views', and the text is about 'clicks'"),
    ],
)
def test_a_text_without_a_tree_is_a_fault_of_its_query_alone(table, parser, query, reason):
    apply(table, query, replace(QUERY, id="b"))
    assert [table.tree(each) for each in table.live(NOW)] == [None, parse_query(TEXT)]
    assert list(table.faulty) == ["a"]
    assert reason in table.faulty["a"].reason
    table.tree(query)
    assert len(parser.texts) == len(set(parser.texts))
    apply(table, replace(QUERY, revision=2))
    assert table.faulty == {}


def test_a_tree_that_is_asked_for_too_late_is_no_fault_of_the_new_text(table):
    former = replace(QUERY, text="SELECT")
    apply(table, former, QUERY)
    assert table.tree(former) is None
    assert table.faulty == {}


def test_texts_that_no_query_has_any_more_are_forgotten(table, parser, monkeypatch):
    monkeypatch.setattr(table_module, "MIN_REMEMBERED_TEXTS", 3)
    for number in range(20):
        query = replace(QUERY, text=f"SELECT count(*) FROM clicks LIMIT {number + 1}")
        apply(table, query)
        assert table.tree(query)
    assert len(table._trees) <= 5
    assert table.tree(query) is table.tree(query)
    assert len(parser.texts) == 20


def test_expired_queries_are_forgotten_on_request(table):
    apply(table, QUERY, replace(QUERY, id="b", expires_at=None))
    table.forget_expired(NOW + timedelta(hours=1))
    assert list(table.registered) == ["b"]


@pytest.mark.parametrize(
    "other",
    [replace(QUERY, revision=2), replace(QUERY, text=TEXT + " "), replace(QUERY, id="c")],
)
def test_a_digest_differs_where_live_queries_do(other):
    digests = []
    for query in (QUERY, other):
        table = QueryTable(parse_query)
        apply(table, query, replace(QUERY, id="b"))
        digests.append(table.digest(NOW))
    assert digests[0] != digests[1]


def test_a_digest_is_the_same_in_every_process_and_for_every_order():
    tables = [QueryTable(parse_query) for _ in range(2)]
    queries = [QUERY, replace(QUERY, id="b")]
    apply(tables[0], *queries)
    apply(tables[1], *reversed(queries), replace(QUERY, updated_at=LATER))
    assert [table.digest(NOW) for table in tables] == ["dda0635d165c8505"] * 2
    assert tables[0].digest(NOW + timedelta(hours=2)) == QueryTable(parse_query).digest(NOW)


_TEXTS = [TEXT, "SELECT sum(price)\nFROM clicks", "SELECT nonsense"]
_IDS = st.sampled_from(["a", "b", "c"])
_UPDATES = st.builds(
    lambda query_id, text, revision, minutes: encode_query(
        replace(
            QUERY,
            id=query_id,
            text=text,
            revision=revision,
            expires_at=None if minutes is None else NOW + timedelta(minutes=minutes),
        )
    ),
    _IDS,
    st.sampled_from(_TEXTS),
    st.integers(1, 9),
    st.none() | st.integers(0, 60),
)
_TOMBSTONES = st.tuples(_IDS.map(str.encode), st.none())
_JUNK = st.tuples(st.none() | st.binary(max_size=3) | _IDS.map(str.encode), st.binary())


@given(st.lists(_UPDATES | _TOMBSTONES | _JUNK), st.integers(0, 60))
def test_a_table_is_what_the_last_records_are(records, minutes):
    table, at = QueryTable(parse_query), NOW + timedelta(minutes=minutes)
    apply(table, *records)
    for query in table.live(at):
        table.tree(query)
    last = dict(records)
    alone = {}
    for key, value in last.items():
        # Each record by itself says what is to be of its key: none has a say in another one's.
        single = QueryTable(parse_query)
        single.apply(key, value, 0)
        for query in single.live(at):
            single.tree(query)
        alone[key] = (single.live(at), {fault.reason for fault in single.faulty.values()})
    assert set(table.live(at)) == {query for live, _ in alone.values() for query in live}
    reasons = {reason for _, faults in alone.values() for reason in faults}
    assert {fault.reason for fault in table.faulty.values()} <= reasons
    faulty = {key for key, (_, faults) in alone.items() if faults}
    assert len(table._faulty) == len(faulty)
    compacted = QueryTable(parse_query)
    apply(compacted, *last.items())
    assert compacted.digest(at) == table.digest(at)


def test_an_error_of_the_parser_itself_is_not_hidden():
    def broken(text):
        raise ZeroDivisionError

    table = QueryTable(broken)
    apply(table, QUERY)
    with pytest.raises(ZeroDivisionError):
        table.tree(QUERY)
