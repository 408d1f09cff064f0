"""Where the queries of now begin, as processes that send matched events come and go."""

from __future__ import annotations

from dataclasses import replace

import confluent_kafka
import pytest

from headrace.model import TopicPartition
from headrace.queries.matched_events.positions import MatchStart
from headrace.queries.matched_events.rules import EmittingRules
from headrace.queries.matched_events.rules_start import RulesStart, rules_starts
from headrace.queries.matched_events.sent import SentOfEvent
from headrace.transfer.committed_position import CommittedPosition

FIRST, SECOND = (TopicPartition("clicks", number) for number in range(2))
START = MatchStart(
    {FIRST: CommittedPosition(100, "id", 7), SECOND: CommittedPosition(200, "id", 8)}, {}, {}, 0
)


def rules(*queries, offset=5):
    rows = tuple({"identity": (query, 1, "SELECT")} for query in queries)
    return EmittingRules((), (), rows, offset, "hash")


def begun(rules, start=START, before=None):
    return rules_starts(rules, "registry", start, before or {})


def offsets(starts):
    return [(at.offset, at.scan_from, at.registry_offset) for at in starts.values()]


def test_the_first_start_begins_where_the_partitions_go_on():
    assert offsets(begun(rules("a"))) == [(100, 7, 5), (200, 8, 5)]


def test_a_later_start_with_the_same_queries_keeps_the_beginning():
    later = MatchStart({FIRST: CommittedPosition(900, "id", 70)}, {}, {}, 0)
    kept = begun(rules("a", offset=6), later, begun(rules("a")))
    assert offsets(kept) == [(100, 7, 6)]


def test_a_later_start_with_other_queries_begins_behind_what_earlier_ones_have_sent():
    sent = {FIRST: SentOfEvent(900, {"a"}, 71)}
    later = MatchStart({FIRST: CommittedPosition(900, "id", 71)}, sent, {}, 0)
    assert offsets(begun(rules("a", "b"), later, begun(rules("a")))) == [(901, 71, 5)]


def test_queries_that_come_begin_at_the_ends_and_ones_that_go_move_nothing():
    first = rules("a", "b")
    before = begun(first)
    second = rules("a", "c").after(first, {0: 150, 1: 250})
    after = begun(second, before=before)
    assert offsets(after) == [(150, 7, 5), (250, 8, 5)]
    third = rules("c").after(second, {0: 170, 1: 270})
    assert offsets(begun(third, before=after)) == [(150, 7, 5), (250, 8, 5)]


def test_queries_that_come_have_no_events_that_others_have_sent_before_they_were_matched():
    first = rules("a")
    second = rules("a", "b").after(first, {0: 150, 1: 250})
    sent = {FIRST: SentOfEvent(180, {"a"}, 60)}
    later = MatchStart({FIRST: CommittedPosition(180, "id", 60)}, sent, {}, 0)
    assert offsets(begun(second, later, begun(first))) == [(181, 60, 5)]


def test_a_topic_that_was_made_again_begins_anew():
    before = {FIRST: replace(begun(rules("a"))[FIRST], topic_id="other", offset=5_000)}
    assert offsets(begun(rules("a"), before=before))[0] == (100, 7, 5)


def committed(offset, metadata):
    return confluent_kafka.TopicPartition("clicks", 0, offset, metadata)


def test_what_is_committed_is_read():
    start = begun(rules("a"))[FIRST]
    assert RulesStart.of(committed(100, start.metadata)) == start


@pytest.mark.parametrize("metadata", ["", "id 7 instance", "id x registry 5 hash"])
def test_what_another_program_has_committed_is_nothing(metadata):
    assert RulesStart.of(committed(100, metadata)) is None
