"""Matches that are missing, or counted twice, are noticed."""

from __future__ import annotations

import logging

import msgspec
import pytest
from tests.unit.queries.windows.aggregate.memory_partition import (
    QUERIES,
    MemoryPartition,
    added,
    memory_topics,
    tick,
)

from headrace.queries.records.counts import TopicCounts, added_up

TWO, THREE = {"a": 2}, {"b": 3}


@pytest.fixture(autouse=True)
def _topics():
    with memory_topics():
        yield


def taken(*records):
    """Returns a partition that has taken records and written its snapshot."""
    partition = MemoryPartition(list(records))
    partition.send(len(records))
    partition.snapshot()
    return partition


def counts(partition, topic="clicks"):
    return partition.owned.aggregator.counts[topic]


def test_events_are_in_open_windows_then_in_results_or_late():
    partition = taken(added("plain", 0, TWO), added("plain", 1, THREE), tick(0, events=5))
    assert counts(partition) == TopicCounts(sent=5, taken=5, open=5)
    partition.records += [tick(10), added("plain", 0, TWO), tick(10, events=2)]
    partition.send(3)
    assert counts(partition) == TopicCounts(sent=7, taken=7, ended=2, late=2, open=3)


def test_events_of_a_batch_whose_tick_has_not_come_are_not_missing():
    partition = taken(added("plain", 0, TWO))
    assert counts(partition) == TopicCounts(begun=2, open=2)
    assert counts(partition).unbalanced == 0


@pytest.mark.parametrize(("sent", "missing"), [(7, 2), (4, -1)])
def test_events_that_do_not_come_or_come_twice_are_told(sent, missing, caplog):
    with caplog.at_level(logging.ERROR, "headrace.queries"):
        partition = taken(added("plain", 0, TWO), added("plain", 1, THREE), tick(0, events=sent))
    assert counts(partition).missing_records == missing
    assert counts(partition).unbalanced == abs(missing)
    assert f"has sent {sent} matches of clicks in a batch, and 5 have come" in caplog.text


def test_topics_are_counted_apart():
    partition = taken(
        added("plain", 0, TWO),
        added("other-topic", 0, THREE),
        tick(0, events=2),
        tick(0, "views", events=3),
    )
    assert counts(partition) == TopicCounts(sent=2, taken=2, open=2)
    assert counts(partition, "views") == TopicCounts(sent=3, taken=3, open=3)


def test_events_that_can_not_be_added_up_are_faulty():
    partition = taken(added("plain", 0, TWO, text="SELECT"), tick(0, events=2))
    assert counts(partition) == TopicCounts(sent=2, taken=2, faulty=2)


def test_counts_go_on_after_a_kill_in_the_middle_of_a_batch():
    partition = taken(added("plain", 0, TWO))
    partition.kill()
    partition.records += [added("plain", 0, THREE), tick(20, events=5)]
    partition.send(2)
    assert counts(partition) == TopicCounts(sent=5, taken=5, ended=5)


def test_windows_that_ended_after_the_last_snapshot_are_counted_after_a_kill():
    partition = taken(added("plain", 0, TWO))
    partition.records += [tick(20, events=2)]
    partition.send(1)
    partition.write()  # the marker, and no snapshot
    partition.kill()
    assert counts(partition).open is None
    partition.take(1)
    assert counts(partition) == TopicCounts(sent=2, taken=2, ended=2)


def test_windows_that_an_instance_has_lost_are_missing():
    partition = taken(added("plain", 0, TWO), added("plain", 1, THREE), tick(0, events=5))
    snapshots = partition.topics[QUERIES.snapshots_topic]
    *_, position = snapshots
    lost = next(value for value in snapshots if b'"begin_us":10000000' in value)
    partition.topics[QUERIES.snapshots_topic] = [
        b'{"kind":"markers","markers":[]}' if value == lost else value for value in snapshots
    ]
    assert position != lost
    partition.kill()
    assert counts(partition).missing_in_windows == 3


def test_a_late_event_stays_late_though_its_window_begins_anew_before_the_next_position():
    partition = taken(added("quiet", 0, TWO), tick(1, events=2))
    partition.advance(6_000)
    partition.snapshot()
    partition.advance(3_600_000 - 5_000)
    partition.snapshot()
    partition.records += [added("quiet", 0, TWO), tick(2, events=2)]
    partition.send(2)
    partition.advance(10_000)
    partition.records += [added("quiet", 0, THREE), tick(3, events=3)]
    partition.send(2)
    partition.kill_within(2)
    partition.send(4)
    assert counts(partition).missing_in_windows == 0
    partition.finish()
    assert counts(partition).unbalanced == 0


def damaged():
    """Returns a record whose text is one, and whose values are not."""
    return msgspec.structs.replace(added("early", 0, TWO), groups=[(("a", "b", "c"), (1,))])


def test_a_damaged_record_is_faulty_after_a_kill_too():
    partition = taken(added("early", 0, THREE))
    partition.records += [damaged(), tick(20, events=5)]
    partition.send(1)
    partition.advance(2_000)
    partition.write()  # an early result that covers both, and no snapshot
    partition.kill()
    partition.send(1)
    assert counts(partition) == TopicCounts(sent=5, taken=5, ended=3, faulty=2)


def test_counts_of_partitions_are_added_up():
    one, other = TopicCounts(5, 4, 3, 2, 1, 1, 3), TopicCounts(1, 1, 1, 1, 1, 1, 1)
    assert added_up([one, other]) == TopicCounts(6, 5, 4, 3, 2, 2, 4)
    assert added_up([one, TopicCounts(open=None)]).open is None
