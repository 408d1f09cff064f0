"""Where the queries of now begin, as processes that send matched events come and go."""

from __future__ import annotations

from dataclasses import replace

import confluent_kafka
import pytest

from headrace.model import TopicPartition
from headrace.queries.emit.emitter_position import EmitterPosition
from headrace.queries.emit.positions import EmitterStart, with_queries
from headrace.queries.emit.rules import EmittingRules
from headrace.queries.emit.sent import SentOfEvent
from headrace.queries.match.held import RegistryPoint

FIRST, SECOND = (TopicPartition("clicks", number) for number in range(2))


BEGIN = {FIRST: (100, 7), SECOND: (200, 8)}


def start(places=BEGIN, before=None, sent=None):
    """The partitions go on at places: offset, and where to scan from.

    ``before``: with the queries of then.
    """
    positions = {
        source: EmitterPosition(
            *(offset, "id", scan_from, "host-1"),
            target_id="target",
            queries=before[source].queries if before else None,
        )
        for source, (offset, scan_from) in places.items()
    }
    return EmitterStart(positions, sent or {})


def matched(start, rules, schema="schema"):
    return with_queries(start, rules, schema)


def rules(*queries, offset=5):
    rows = tuple({"identity": (query, 1, 1, "SELECT")} for query in queries)
    return EmittingRules((), (), rows, RegistryPoint("registry", offset, 1_000), "hash")


def since(positions):
    queries = (at.queries for at in positions.values())
    return [(each.since, each.scan_from, each.registry.offset) for each in queries]


def test_the_first_start_begins_where_the_partitions_go_on():
    assert since(matched(start(), rules("a"))) == [(100, 7, 5), (200, 8, 5)]


def test_a_later_start_with_the_same_queries_keeps_the_beginning():
    before = matched(start(), rules("a"))
    kept = matched(start({FIRST: (900, 70)}, before), rules("a", offset=6))
    assert since(kept) == [(100, 7, 6)]
    assert (kept[FIRST].offset, kept[FIRST].scan_from) == (900, 70)


def test_a_later_start_with_other_queries_begins_behind_what_earlier_ones_have_sent():
    before = matched(start(), rules("a"))
    later = start({FIRST: (900, 71)}, before, {FIRST: SentOfEvent(900, {"a"}, 71)})
    assert since(matched(later, rules("a", "b"))) == [(901, 71, 5)]


def test_queries_that_come_begin_at_the_ends_and_ones_that_go_move_nothing():
    first = rules("a", "b")
    before = matched(start(), first)
    second = rules("a", "c").after(first, {0: 150, 1: 250})
    after = matched(start(before=before), second)
    assert since(after) == [(150, 7, 5), (250, 8, 5)]
    third = rules("c").after(second, {0: 170, 1: 270})
    ended = matched(start(before=after), third)
    assert since(ended) == [(150, 7, 5), (250, 8, 5)]
    assert ended[FIRST].queries.hash == third.identities_hash != second.identities_hash


def test_queries_that_come_have_no_events_that_others_have_sent_before_they_were_matched():
    first = rules("a")
    before = matched(start(), first)
    second = rules("a", "b").after(first, {0: 150, 1: 250})
    later = start({FIRST: (180, 60)}, before, {FIRST: SentOfEvent(180, {"a"}, 60)})
    assert since(matched(later, second)) == [(181, 60, 5)]


def test_events_that_are_read_in_another_way_are_compared_from_there_on():
    before = matched(start(), rules("a"))
    later = matched(start({FIRST: (900, 70)}, before), rules("a"), schema="other")
    assert since(later) == [(900, 70, 5)]
    assert later[FIRST].queries.schema == "other"


def committed(offset, metadata):
    return confluent_kafka.TopicPartition("clicks", 0, offset, metadata)


def test_what_is_committed_is_read_at_the_offset_of_now():
    position = matched(start(), rules("a"))[FIRST]
    assert EmitterPosition.of(committed(100, position.metadata)) == position
    assert EmitterPosition.of(committed(90, position.metadata)) == replace(position, offset=90)
    without = replace(position, queries=None)
    assert EmitterPosition.of(committed(100, without.metadata)) == without


@pytest.mark.parametrize("metadata", ["", "id 7 instance", "{}", '{"offset":1,"queries":{}}', "["])
def test_what_another_program_has_committed_is_an_offset_alone(metadata):
    assert EmitterPosition.of(committed(100, metadata)) == EmitterPosition(100)
