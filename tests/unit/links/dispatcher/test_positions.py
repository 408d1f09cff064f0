"""Where a route goes on, by what its two clusters say."""

from __future__ import annotations

from dataclasses import replace

import confluent_kafka
import pytest

from headrace.errors import LinkLossError, LinkNoLeaderError, LinkNoPartitionError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.read import resume
from headrace.links.dispatcher import positions
from headrace.links.dispatcher.positions import (
    commit_positions,
    committed_positions,
    find_starts,
)
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.model import TopicPartition
from headrace.spark.claimed_query import CommittedPosition

ROUTE = DispatcherRoute(
    "d",
    "headrace.dispatcher.d.waw",
    "central",
    "waw",
    {"bootstrap.servers": "c:1"},
    {"bootstrap.servers": "w:1"},
    "clicks",
    "events",
)
ZERO, ONE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
EIGHT = CommittedPosition(8, "id", 20, "host-1", epoch=3, target_id="target-id")


class Sites:
    """What the clusters say: the source has offsets 0 to 9 of both partitions."""

    def __init__(self):
        self.topics = {
            "clicks": LiveTopic("clicks", "id", 2, 1),
            "events": LiveTopic("events", "target-id", 2, 1),
        }
        self.firsts, self.end, self.epoch, self.cuts = {}, 10, 4, {}
        self.committed, self.since = {}, {}

    def describe(self, _, names):
        return {name: self.topics[name] for name in names if name in self.topics}

    def earliest(self, _, partitions):
        return {partition: self.firsts.get(partition, 0) for partition in partitions}

    def latest(self, _, partitions):
        return dict.fromkeys(partitions, (self.end, self.epoch))

    def find_cuts(self, config, seen, ends):
        assert config == ROUTE.source
        return {
            place: self.cuts[place]
            for place, at in seen.items()
            if place in self.cuts and -1 != at.epoch != ends[place][1]
        }

    def offsets(self, config, group, copies):
        assert (config, group) == (ROUTE.target, ROUTE.group)
        return [
            confluent_kafka.TopicPartition(
                "events", copy.partition, at.offset, at.metadata, at.epoch
            )
            for copy in copies
            if (at := self.committed.get(copy.partition)) is not None
        ]

    def copied_since(self, copies, floors):
        assert floors.keys() == copies.sources.keys()
        return _by_copy(self.since, copies)


def _by_copy(values, copies):
    return {copy: values[copy.partition] for copy in copies.sources if copy.partition in values}


@pytest.fixture
def sites(monkeypatch):
    made = Sites()
    monkeypatch.setattr(positions, "describe", made.describe)
    monkeypatch.setattr(resume, "earliest_offsets", made.earliest)
    monkeypatch.setattr(resume, "latest_offsets", made.latest)
    monkeypatch.setattr(resume, "find_cuts_by_new_leaders", made.find_cuts)
    monkeypatch.setattr(positions, "committed", made.offsets)
    monkeypatch.setattr(positions, "copied_since", made.copied_since)
    return made


def test_a_position_is_read_as_it_was_committed(sites, monkeypatch):
    sent = []
    monkeypatch.setattr(positions, "commit", lambda *arguments: sent.append(arguments))
    commit_positions(ROUTE, {ONE: EIGHT})
    [(config, group, [offset])] = sent
    assert (config, group) == (ROUTE.target, ROUTE.group)
    assert (offset.topic, offset.partition, offset.offset) == ("events", 1, 8)
    sites.committed[1] = EIGHT
    assert committed_positions(ROUTE, [ZERO, ONE]) == {ONE: EIGHT}


def test_positions_of_earlier_instances_are_read():
    metadata = "tvT6rHmlQ0ed8gJyYhRAsA 20 host-1-4711"
    committed = confluent_kafka.TopicPartition("events", 0, 8, metadata, 3)
    position = CommittedPosition(8, "tvT6rHmlQ0ed8gJyYhRAsA", 20, "host-1-4711", 3)
    assert CommittedPosition.of(committed) == position
    assert position.metadata == metadata


@pytest.mark.parametrize("metadata", ["", "id", "id 20", "id x host-1"])
def test_an_offset_that_others_committed_is_an_offset_alone(sites, monkeypatch, metadata):
    offset = confluent_kafka.TopicPartition("events", 0, 8, metadata)
    monkeypatch.setattr(positions, "committed", lambda *_: [offset])
    assert committed_positions(ROUTE, [ZERO]) == {ZERO: CommittedPosition(8)}


def test_a_route_begins_with_the_first_record(sites):
    sites.firsts[ONE] = 4
    starts = find_starts(ROUTE)
    assert starts.positions == {
        ZERO: CommittedPosition(0, "id", epoch=sites.epoch, target_id="target-id"),
        ONE: CommittedPosition(4, "id", epoch=sites.epoch, target_id="target-id"),
    }
    assert starts.refused == {}


def test_the_position_of_a_target_that_was_recreated_is_not_used(sites):
    """Brokers keep it if the coordinator of the group was down when the topic was deleted."""
    sites.committed = {0: EIGHT, 1: replace(EIGHT, target_id="")}  # that of an earlier release is
    sites.topics["events"] = LiveTopic("events", "other-id", 2, 1)
    starts = find_starts(ROUTE)
    assert (starts.positions[ZERO].offset, starts.positions[ZERO].scan_from) == (0, 0)
    assert starts.positions[ONE] == replace(EIGHT, target_id="other-id")


def test_a_committed_position_is_where_it_goes_on(sites):
    sites.committed[0] = EIGHT
    assert find_starts(ROUTE).positions[ZERO] == EIGHT


@pytest.mark.parametrize(
    ("known", "first", "end", "accepted", "reason"),
    [
        (CommittedPosition(8, "old-id", 0, "h"), 2, 10, 2, "recreated"),
        (CommittedPosition(3, "id", 0, "h"), 7, 10, 7, "4 offsets are lost, 3 to 6"),
        (CommittedPosition(8, "id", 0, "h"), 0, 5, 5, "its log was truncated at offset 5"),
    ],
)
def test_a_record_that_was_deleted_is_a_loss_of_its_partition(
    sites, known, first, end, accepted, reason
):
    sites.committed = {0: known, 1: CommittedPosition(5, "id", 0, "h")}
    sites.firsts[ZERO], sites.end = first, end
    starts = find_starts(ROUTE)
    loss = starts.refused[ZERO]
    assert isinstance(loss, LinkLossError)
    assert (loss.accepted_offset, loss.partition, loss.site) == (accepted, "clicks/0", "waw")
    assert reason in loss.reason
    assert starts.positions.keys() == {ONE}


@pytest.mark.parametrize(("sent", "is_lost"), [([3, 6], False), ([3, 5], True), ([], True)])
def test_records_that_were_sent_before_they_went_are_no_loss(sites, sent, is_lost):
    sites.committed = {0: CommittedPosition(3, "id", 20, "h"), 1: EIGHT}
    sites.firsts[ZERO], sites.since[0] = 7, sent
    starts = find_starts(ROUTE)
    assert (ZERO in starts.refused) == is_lost
    if not is_lost:
        assert starts.positions[ZERO] == CommittedPosition(
            7, "id", 20, "h", sites.epoch, "target-id"
        )


def test_a_log_that_was_cut_before_the_position_and_grew_again_is_a_loss(sites):
    sites.committed = {0: EIGHT, 1: EIGHT}
    sites.cuts = {ONE: 6}
    starts = find_starts(ROUTE)
    assert starts.positions.keys() == {ZERO}
    assert starts.refused[ONE].accepted_offset == 6
    assert "truncated at offset 6" in starts.refused[ONE].reason


@pytest.mark.parametrize("missing", ["clicks", "events"])
def test_a_topic_that_does_not_exist_is_named(sites, missing):
    del sites.topics[missing]
    with pytest.raises(LinkNoPartitionError, match=missing):
        find_starts(ROUTE)


def test_a_partition_that_the_target_lacks_is_refused(sites):
    sites.topics["events"] = LiveTopic("events", "target-id", 1, 1)
    starts = find_starts(ROUTE)
    assert isinstance(starts.refused[ONE], LinkNoPartitionError)
    assert starts.positions.keys() == {ZERO}


@pytest.mark.parametrize(("topic", "site"), [("clicks", "central"), ("events", "waw")])
def test_a_partition_without_a_leader_holds_up_no_other(sites, topic, site):
    sites.topics[topic] = LiveTopic(topic, "id", 2, 1, frozenset({1}))
    starts = find_starts(ROUTE)
    refusal = starts.refused[ONE]
    assert isinstance(refusal, LinkNoLeaderError)
    assert (refusal.site, refusal.partition) == (site, f"{topic}/1")
    assert starts.positions.keys() == {ZERO}
