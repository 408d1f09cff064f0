"""Replayed records: whom each is for, and where they can be."""

from __future__ import annotations

import confluent_kafka
import pytest

from headrace.kafka.dead_letters import replayed
from headrace.kafka.dead_letters.replayed import (
    PartitionId,
    Window,
    addressees,
    is_for,
    parted,
    was_replayed_to,
    windows,
)
from headrace.model import TopicPartition

HERE = PartitionId(TopicPartition("clicks", 1), "id1")


def test_a_record_is_for_those_that_its_header_names():
    headers = [("trace", b"1"), addressees(["b", "a", "b"], HERE)]
    assert headers[1] == ("headrace-replay-for", b"clicks/id1/1:a,b")
    assert [is_for(name, HERE, headers) for name in ("a", "b", "a,b", "c", "")] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("headrace-replays", b"1")],
        [("headrace-replay-for", None)],
        [("headrace-replay-for", b"others")],
        [("headrace-replay-for", b"clicks/id1/1")],
    ],
)
def test_a_record_without_the_header_is_for_all(headers):
    assert is_for("a", HERE, headers)
    assert not was_replayed_to(HERE, headers)


@pytest.mark.parametrize(
    "place",
    [
        PartitionId(TopicPartition("enriched", 1), "id1"),
        PartitionId(TopicPartition("clicks", 11), "id1"),
        PartitionId(TopicPartition("clicks", 1), "id2"),
    ],
)
def test_a_copy_elsewhere_is_for_all(place):
    headers = [addressees(["others"], HERE)]
    assert was_replayed_to(HERE, headers)
    assert not was_replayed_to(place, headers)
    assert is_for("a", place, headers)
    assert not is_for("a", HERE, [addressees(["a"], place), *headers])


def test_the_headers_of_a_replay_are_parted_from_those_of_the_record():
    trace, count, readers = ("trace", b"1"), ("headrace-replays", b"1"), addressees(["a"], HERE)
    assert parted((count, trace, readers)) == ((trace,), (count, readers))
    assert parted((trace,)) == ((trace,), ())


@pytest.mark.parametrize(
    ("window", "overlapping"),
    [
        (Window(5, 8), [(0, 6), (5, 6), (7, 9), (0, 9)]),
        (Window(5, None), [(0, 6), (5, 6), (7, 9), (0, 9), (8, 9)]),
        (Window(5, 5), []),
    ],
)
def test_a_window_holds_its_first_and_not_its_end(window, overlapping):
    ranges = [(0, 5), (0, 6), (5, 5), (5, 6), (7, 9), (0, 9), (8, 9)]
    found = [one for one in ranges if window.overlaps(*one)]
    assert sorted(found) == sorted(overlapping)


@pytest.mark.parametrize(
    ("metadata", "window"),
    [
        ("3", Window(3, 8)),
        ("3+", Window(3, None)),
        ("", Window(0, None)),
        ("by hand", Window(0, None)),
    ],
)
def test_a_commit_of_another_tool_hides_no_replayed_record(monkeypatch, metadata, window):
    commit = confluent_kafka.TopicPartition("orders", 0, 8, metadata)
    monkeypatch.setattr(replayed, "committed", lambda *_: [commit])
    assert windows({}, "orders", [TopicPartition("orders", 0)]) == {0: window}
