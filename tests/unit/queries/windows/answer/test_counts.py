"""Matches in ended windows that are missing in the results, or there twice, are noticed."""

from __future__ import annotations

import logging

import pytest

from headrace.queries.records.counts import ResultCounts
from headrace.queries.records.ended import PartitionClocks, WindowResults
from headrace.queries.windows.answer.counts import PartitionResultCounts


def window(matches, *, partition=0, topic="views"):
    return WindowResults(partition, topic, topic, 0, [], matches=matches)


def clocks(*, partition=0, since_ms=1, **matches):
    return PartitionClocks(partition, {}, 0, since_ms, matches)


def counts_of(counts, topic="views", waiting=0):
    return counts.with_waiting({topic: waiting})[topic]


def test_windows_are_begun_until_their_partition_says_that_it_has_sent_them():
    counts = PartitionResultCounts({})
    counts.take(window(2))
    counts.take(window(3, partition=1))
    assert counts_of(counts, waiting=5) == ResultCounts(begun={0: 2, 1: 3}, waiting=5)
    counts.compare(clocks(views=2), clocks())
    assert counts_of(counts, waiting=5) == ResultCounts(2, 2, {1: 3}, waiting=5)
    counts.answer(window(2))
    assert counts_of(counts, waiting=3) == ResultCounts(2, 2, {1: 3}, answered=2, waiting=3)
    assert counts_of(counts, waiting=3).unbalanced == 0


def test_windows_that_are_lost_after_they_were_taken_are_missing_in_results():
    counts = PartitionResultCounts({})
    counts.take(window(4))
    assert counts_of(counts).missing_in_results == 4
    assert counts_of(counts, waiting=4).missing_in_results == 0
    assert counts.with_waiting(None)["views"].missing_in_results == 0


@pytest.mark.parametrize(("sent", "missing"), [(9, 2), (6, -1)])
def test_windows_that_do_not_come_or_come_twice_are_named(sent, missing, caplog):
    counts = PartitionResultCounts({})
    counts.take(window(4))
    counts.take(window(3))
    with caplog.at_level(logging.ERROR, "headrace.queries"):
        counts.compare(clocks(views=sent), clocks())
    assert counts_of(counts, waiting=7).missing_records == missing
    assert counts_of(counts, waiting=7).unbalanced == abs(missing)
    text = f"Partition 0 has sent {sent} matches of views in ended windows, and 7 have come"
    assert text in caplog.text


def test_transactions_that_are_lost_whole_are_missing():
    counts = PartitionResultCounts({})
    counts.compare(clocks(views=9), clocks(views=4))
    assert counts_of(counts).missing_records == 5


def test_what_a_partition_has_sent_before_its_first_clocks_is_not_known():
    counts = PartitionResultCounts({})
    counts.take(window(1))
    counts.compare(clocks(views=1_000), None)
    assert counts_of(counts, waiting=1) == ResultCounts(1, 1, waiting=1)


@pytest.mark.parametrize("before", [1, 1_000])
def test_a_partition_whose_snapshots_were_deleted_begins_anew(before):
    counts = PartitionResultCounts({})
    counts.take(window(2))
    counts.compare(clocks(since_ms=2, views=2), clocks(since_ms=1, views=before))
    assert counts_of(counts, waiting=2) == ResultCounts(2, 2, waiting=2)


def test_a_partition_that_has_lost_its_newest_snapshots_sends_windows_once_more():
    counts = PartitionResultCounts({})
    counts.take(window(2))
    counts.compare(clocks(views=998), clocks(views=1_000))
    assert counts_of(counts, waiting=2).missing_records == -4


def test_topics_are_counted_apart():
    counts = PartitionResultCounts({})
    counts.take(window(2))
    counts.take(window(3, topic="clicks"))
    counts.compare(clocks(views=2, clicks=3), clocks())
    assert counts_of(counts, "clicks", waiting=3) == ResultCounts(3, 3, waiting=3)
    assert counts_of(counts, waiting=2) == ResultCounts(2, 2, waiting=2)


def test_counts_are_gone_on_with():
    counts = PartitionResultCounts({"views": ResultCounts(5, 5, {1: 2}, 4, 3)})
    counts.compare(clocks(partition=1, views=2), clocks(partition=1))
    assert counts_of(counts, waiting=3) == ResultCounts(7, 7, {}, 4, 3)
