"""The hash of the queries that a process has: whatever the way by which it came to have them."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from tests.unit.queries.match.clicks import CLICKS
from tests.unit.queries.pipeline import REGISTERED, live_queries, registration

from headrace.queries.match.driver import events_by_partition, rules_of
from headrace.queries.match.held import LiveQueries, milliseconds_since_1970
from headrace.queries.match.writer import MatchPiece
from headrace.queries.registry.record import RegisteredQuery, encode_query

COUNT, OTHER = "SELECT count(*) FROM clicks", "SELECT count(*) FROM clicks WHERE price > 1"


def hash_of(texts, **options):
    return live_queries(texts, CLICKS, topic="clicks", **options).hash


def test_the_order_in_which_queries_came_changes_nothing():
    assert hash_of({"a": COUNT, "b": OTHER}) == hash_of({"b": OTHER, "a": COUNT})
    assert len(hash_of({"a": COUNT})) == 16


def test_another_text_id_or_revision_is_another_hash():
    hashes = [
        hash_of({}),
        hash_of({"a": COUNT}),
        hash_of({"a": OTHER}),
        hash_of({"b": COUNT}),
        hash_of({"a": COUNT}, revision=2),
        hash_of({"a": COUNT, "b": COUNT}),
    ]
    assert len(set(hashes)) == len(hashes)


def test_queries_that_were_updated_renewed_cancelled_or_are_none_leave_no_trace():
    queries = live_queries({"a": COUNT, "b": OTHER, "c": OTHER}, CLICKS, topic="clicks")
    for key, value in (
        registration("a", OTHER, topic="clicks", revision=2),
        registration("a", OTHER, topic="clicks", revision=2),
        (b"b", None),
        (b"b", None),
        (b"c", b"{"),
        registration("d", "SELECT count(*) FROM clicks WHERE nothing", topic="clicks"),
        registration("e", "SELECT count(*) FROM views", topic="views"),
    ):
        queries.apply(key, value)
    assert queries.hash == hash_of({"a": OTHER}, revision=2)


def test_a_query_that_has_its_former_text_again_is_another_one_and_a_renewed_one_is_not():
    queries = live_queries({"a": f"{COUNT} MATCHED EVENTS EMIT"}, CLICKS, topic="clicks")
    before = queries.emitting_identities()
    queries.apply(*registration("a", f"{COUNT} MATCHED EVENTS EMIT", topic="clicks"))
    assert queries.emitting_identities() == before
    queries.apply(*registration("a", f"{COUNT} MATCHED EVENTS EMIT", topic="clicks", revision=3))
    assert queries.emitting_identities() != before


def test_an_expired_query_leaves_no_trace():
    queries = LiveQueries("clicks", CLICKS)
    ends = REGISTERED + timedelta(seconds=1)
    queries.apply(*encode_query(RegisteredQuery("a", COUNT, "clicks", 1, REGISTERED, ends, ends)))
    assert queries.hash != hash_of({})
    queries.expire(milliseconds_since_1970(ends))
    assert queries.hash == hash_of({})


def piece(rules, events):
    return MatchPiece(1, 0, [("a/0", msgspec.Raw(b"{}"))], events, rules)


def test_queries_that_differ_among_the_tasks_of_a_batch_are_told(caplog):
    assert rules_of([], "queries ads") == ""
    assert rules_of([piece("a1", {}), piece("a1", {})], "queries ads") == "a1"
    assert caplog.text == ""
    assert rules_of([piece("b2", {}), piece("a1", {}), piece("b2", {})], "queries ads") == "a1 b2"
    assert "queries ads: the tasks of a batch had different queries, of hashes a1 b2" in caplog.text


def test_events_of_the_tasks_of_a_batch_are_added_up():
    pieces = [piece("a1", {0: 2, 3: 1}), piece("a1", {0: 1})]
    assert events_by_partition(pieces) == {0: 3, 3: 1}
