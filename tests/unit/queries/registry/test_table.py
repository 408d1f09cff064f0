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
from headrace.queries.registry.table import FirstRecord, QueryTable

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
    assert len(table.live(NOW)) == 5
    assert parser.texts == []
    assert all(table.check(query) for query in table.live(NOW))
    assert parser.texts == [TEXT]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (replace(QUERY, text="SELECT FROM clicks"), "line 1"),
        (replace(QUERY, topic="views"), "topic is 'views', and the text is about 'clicks'"),
    ],
)
def test_a_text_that_does_not_fit_is_a_fault_of_its_query_alone(table, parser, query, reason):
    apply(table, query, replace(QUERY, id="b"))
    assert [table.check(each) for each in table.live(NOW)] == [False, True]
    assert list(table.faulty) == ["a"]
    assert reason in table.faulty["a"].reason
    table.check(query)
    assert len(parser.texts) == len(set(parser.texts))
    apply(table, replace(QUERY, revision=2))
    assert table.faulty == {}


def test_a_text_that_is_checked_too_late_is_no_fault_of_the_new_text(table):
    former = replace(QUERY, text="SELECT")
    apply(table, former, QUERY)
    assert not table.check(former)
    assert table.faulty == {}


def test_texts_that_no_query_has_any_more_are_forgotten(table, parser, monkeypatch):
    monkeypatch.setattr(table_module, "MIN_REMEMBERED_TEXTS", 3)
    for number in range(20):
        query = replace(QUERY, text=f"SELECT count(*) FROM clicks LIMIT {number + 1}")
        apply(table, query)
        assert table.check(query)
    assert len(table._checked) <= 5
    assert table.check(query)
    assert len(parser.texts) == 20


def test_records_that_kafka_has_deleted_are_forgotten(table):
    apply(table, QUERY, (b"gone", None), (b"junk", b"{"), replace(QUERY, id="b"), (b"kept", None))
    table.forget_before(3)
    assert list(table.registered) == ["b"]
    assert table.faulty == {}
    assert (table.is_cancelled("gone"), table.is_cancelled("kept")) == (False, True)
    table.forget_before(0)
    apply(table, QUERY)
    assert (sorted(table.registered), table.next_offset) == (["a", "b"], 6)


def test_a_renewal_leaves_the_first_record_of_a_text(table):
    apply(table, QUERY, replace(QUERY, updated_at=LATER, expires_at=None))
    assert table.first_record(table.query("a")) == FirstRecord(0, is_certain=True)
    apply(table, replace(QUERY, revision=2, text=f"{TEXT}\nLIMIT 7", updated_at=LATER))
    assert table.first_record(table.query("a")) == FirstRecord(2, is_certain=True)
    apply(table, (b"a", None), replace(QUERY, registered_at=LATER, updated_at=LATER))
    assert table.first_record(table.query("a")) == FirstRecord(4, is_certain=True)


@pytest.mark.parametrize("revision", [1, 2])
def test_before_a_renewal_there_was_a_record_that_kafka_has_deleted(table, revision):
    apply(table, replace(QUERY, revision=revision, updated_at=LATER))
    assert table.first_record(table.query("a")) == FirstRecord(0, is_certain=False)


def test_a_cancelled_id_is_known_until_it_is_registered_again(table, monkeypatch):
    monkeypatch.setattr(table_module, "MAX_CANCELLED_IDS", 2)
    assert not table.is_cancelled("a")
    apply(table, QUERY, (b"a", None), (b"b", None), (b"c", None))
    assert [table.is_cancelled(each) for each in "abc"] == [False, True, True]
    apply(table, replace(QUERY, id="b"), (b"c", b"junk"))
    assert [table.is_cancelled(each) for each in "bc"] == [False, False]


def test_no_query_has_an_id_that_is_no_text(table):
    apply(table, QUERY)
    assert (table.query("\ud800"), table.is_cancelled("\ud800")) == (None, False)


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
        table.check(query)
    last = dict(records)
    alone = {}
    for key, value in last.items():
        # Each record by itself says what is to be of its key: none has a say in another one's.
        single = QueryTable(parse_query)
        single.apply(key, value, 0)
        for query in single.live(at):
            single.check(query)
        alone[key] = (single.live(at), {fault.reason for fault in single.faulty.values()})
    assert set(table.live(at)) == {query for live, _ in alone.values() for query in live}
    reasons = {reason for _, faults in alone.values() for reason in faults}
    assert {fault.reason for fault in table.faulty.values()} <= reasons
    faulty = {key for key, (_, faults) in alone.items() if faults}
    assert len(table._faulty) == len(faulty)
    compacted = QueryTable(parse_query)
    apply(compacted, *last.items())
    assert set(compacted.live(at)) == set(table.live(at))


def test_an_error_of_the_parser_itself_is_not_hidden():
    def broken(text):
        raise ZeroDivisionError

    table = QueryTable(broken)
    apply(table, QUERY)
    with pytest.raises(ZeroDivisionError):
        table.check(QUERY)
