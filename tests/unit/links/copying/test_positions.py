"""Where partitions go on, by what a source and a target say; no broker is asked."""

from __future__ import annotations

from dataclasses import replace

import confluent_kafka
import pytest

from headrace.errors import LinkNoLeaderError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.origin import Origin
from headrace.kafka.read import resume
from headrace.kafka.read.log_cuts import Seen
from headrace.kafka.read.resume import Position
from headrace.links.copying import positions
from headrace.links.copying.positions import find_starts, positions_of
from headrace.links.mirror.plan import MirrorPlan
from headrace.model import TopicPartition

SOURCE, TARGET = {"bootstrap.servers": "s:1"}, {"bootstrap.servers": "t:1"}
LINK = MirrorPlan(
    "m", "headrace.mirror.m", "waw", "central", SOURCE, TARGET, {"a": "waw.a", "b": "waw.b"}
)
A, B = TopicPartition("a", 0), TopicPartition("b", 0)
COPY_A, COPY_B = TopicPartition("waw.a", 0), TopicPartition("waw.b", 0)
EIGHT = Position(8, "id-a", 6, 3, is_committed=True, target_id="id")
"""Five records, the last one at offset 5, with two markers behind it."""


class Sites:
    """What both clusters have: topics of one partition with offsets 0 to 10."""

    def __init__(self):
        self.source = {name: LiveTopic(name, f"id-{name}", 1, 1) for name in LINK.copies}
        self.target = {name: LiveTopic(name, "id", 1, 1) for name in LINK.copies.values()}
        self.first, self.end = 0, 10
        self.cuts, self.tails, self.asked = {}, {}, []

    def describe(self, config, names):
        live = self.source if config is SOURCE else self.target
        return {name: live[name] for name in names if name in live}

    def earliest(self, _, partitions):
        return dict.fromkeys(partitions, self.first)

    def latest(self, _, partitions):
        return dict.fromkeys(partitions, (self.end, 7))

    def find_cuts(self, _, seen, ends):
        assert ends == dict.fromkeys(seen, (self.end, 7))
        self.asked.append(seen)
        return {p: self.cuts[p.topic] for p in seen if p.topic in self.cuts}

    def last_origins(self, copies):
        return {copy: self.tails[copy] for copy in copies.sources if copy in self.tails}


@pytest.fixture
def sites(monkeypatch):
    made = Sites()
    monkeypatch.setattr(positions, "describe", made.describe)
    monkeypatch.setattr(resume, "earliest_offsets", made.earliest)
    monkeypatch.setattr(resume, "latest_offsets", made.latest)
    monkeypatch.setattr(resume, "find_cuts_by_new_leaders", made.find_cuts)
    monkeypatch.setattr(positions, "last_origins", made.last_origins)
    return made


@pytest.mark.parametrize(
    ("metadata", "position"),
    [
        ("tvT6rHmlQ0ed8gJyYhRAsA 6 3", Position(8, "tvT6rHmlQ0ed8gJyYhRAsA", 6, 3)),
        ("tvT6rHmlQ0ed8gJyYhRAsA -1 -1", Position(8, "tvT6rHmlQ0ed8gJyYhRAsA")),  # by `accept`
        ("tvT6rHmlQ0ed8gJyYhRAsA 3", Position(8, "tvT6rHmlQ0ed8gJyYhRAsA")),
    ],
)
def test_positions_of_earlier_instances_are_read(metadata, position):
    committed = confluent_kafka.TopicPartition("waw.a", 0, 8, metadata)
    assert positions_of([committed]) == {COPY_A: replace(position, is_committed=True)}


def test_the_position_of_a_copy_that_was_recreated_is_not_used(sites):
    """Brokers keep it if the coordinator of the group was down when the copy was deleted."""
    sites.target["waw.a"] = LiveTopic("waw.a", "other-id", 1, 1)
    [start] = find_starts(LINK, {COPY_A: EIGHT}).positions.values()
    assert start == Position(0, "id-a", target_id="other-id")


def test_a_position_of_an_earlier_release_is_committed_again_with_its_copy(sites):
    [start] = find_starts(LINK, {COPY_A: replace(EIGHT, target_id="")}).positions.values()
    assert start == replace(EIGHT, is_committed=False)
    assert start.metadata == "id-a 6 3 id"


def test_without_an_offset_nothing_was_committed():
    assert positions_of([confluent_kafka.TopicPartition("waw.a", 0)]) == {COPY_A: None}


@pytest.mark.parametrize("metadata", ["", "id-a", "id-a 6", "id-a -1 -1", "id-a x 3"])
def test_metadata_without_an_epoch_says_nothing_of_the_log(metadata):
    committed = confluent_kafka.TopicPartition("waw.a", 0, 8, metadata)
    [position] = positions_of([committed]).values()
    assert position.seen == Seen(8)


def test_leaders_are_asked_about_the_offset_behind_the_record_whose_epoch_it_is(sites):
    starts = find_starts(LINK, {COPY_A: EIGHT})
    assert sites.asked == [{A: Seen(6, 3)}]
    assert starts.positions == {A: EIGHT}
    assert starts.positions[A].seen == Seen(6, 3)


def test_a_log_that_was_truncated_before_the_record_is_refused(sites):
    sites.cuts["a"] = 4
    [refusal] = find_starts(LINK, {COPY_A: EIGHT}).refused.values()
    assert refusal.code == "MIRROR_TRUNCATED"
    assert refusal.accepted_offset == 4


def test_markers_behind_the_record_that_were_truncated_are_no_loss(sites):
    sites.end = 7
    starts = find_starts(LINK, {COPY_A: EIGHT})
    assert not starts.refused
    assert starts.positions[A].seen.offset == 6  # what took their place is copied


def test_markers_behind_the_record_that_retention_removed_are_no_loss(sites):
    sites.first = 8
    starts = find_starts(LINK, {COPY_A: EIGHT})
    assert not starts.refused
    assert starts.positions[A].seen == Seen(8)


def test_records_that_retention_removed_are_a_gap(sites):
    sites.first = 9
    [refusal] = find_starts(LINK, {COPY_A: EIGHT}).refused.values()
    assert refusal.code == "MIRROR_GAP"
    assert (refusal.next_offset, refusal.last_offset) == (8, 8)


def test_a_topic_that_was_made_again_is_refused_and_its_epochs_are_not_asked_for(sites):
    sites.source["a"] = LiveTopic("a", "id-other", 1, 1)
    [refusal] = find_starts(LINK, {COPY_A: EIGHT}).refused.values()
    assert refusal.code == "MIRROR_RECREATED"
    assert sites.asked == [{}]


def test_without_a_committed_position_the_copy_tells_it(sites):
    sites.tails[COPY_A] = Origin("waw", "a", 0, 4)
    starts = find_starts(LINK, {COPY_A: None, COPY_B: None})
    assert starts.positions == {
        A: Position(5, "id-a", target_id="id"),
        B: Position(0, "id-b", target_id="id"),
    }


def test_a_topic_that_was_deleted_holds_up_no_other(sites):
    del sites.source["a"]
    starts = find_starts(LINK, {COPY_A: EIGHT, COPY_B: None})
    assert starts.refused[A].code == "MIRROR_TOPIC_MISSING"
    assert list(starts.positions) == [B]


@pytest.mark.parametrize("site", ["waw", "central"])
def test_a_partition_without_a_leader_holds_up_no_other(sites, site):
    topics, name = (sites.source, "a") if site == "waw" else (sites.target, "waw.a")
    topics[name] = LiveTopic(name, "id-a", 1, 1, frozenset({0}))
    starts = find_starts(LINK, {COPY_A: EIGHT, COPY_B: None})
    refusal = starts.refused[A]
    assert isinstance(refusal, LinkNoLeaderError)
    assert (refusal.site, refusal.partition) == (site, f"{name}/0")
    assert list(starts.positions) == [B]


def test_a_partition_that_the_source_does_not_have_yet_is_awaited(sites):
    sites.target["waw.a"] = LiveTopic("waw.a", "id", 2, 1)
    starts = find_starts(LINK, {COPY_A: None, TopicPartition("waw.a", 1): None})
    assert starts.awaited == {TopicPartition("a", 1)}
    assert list(starts.positions) == [A]
    assert not starts.refused


def test_a_partition_without_a_copy_is_refused(sites):
    sites.source["a"] = LiveTopic("a", "id-a", 2, 1)
    starts = find_starts(LINK, {COPY_A: None, TopicPartition("waw.a", 1): None})
    refusal = starts.refused[TopicPartition("a", 1)]
    assert refusal.code == "MIRROR_NO_COPY"
    assert refusal.copy == "waw.a/1"
