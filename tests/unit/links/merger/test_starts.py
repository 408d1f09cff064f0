"""Where the partitions of a merger go on, by what the broker says; it is not asked."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import confluent_kafka
import pytest

from headrace.errors import LinkLossError, LinkNoLeaderError, LinkNoPartitionError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.read import resume
from headrace.links.merger.plan import ClockSource, MergerPlan
from headrace.links.merger.positions import losses, starts
from headrace.links.merger.positions.position import (
    InputPosition,
    WrittenTo,
    committed_offset,
    position_of,
)
from headrace.links.merger.positions.starts import find_loss, find_starts
from headrace.links.merger.sorting.clock import InputClock
from headrace.links.merger.sorting.target_partition import (
    LATE,
    SourcePartition,
    TargetPartition,
    Written,
)
from headrace.model import TopicPartition

SOURCES = {"here": ClockSource.WALL, "there": ClockSource.MIRROR}
PLAN = MergerPlan("m", "headrace.merger.m", {}, SOURCES, "merged", "late", 0, 1.0)
ZERO, ONE = TopicPartition("merged", 0), TopicPartition("merged", 1)
LOST = TopicPartition("there", 1)
HERE = TopicPartition("here", 0)
MESSAGE = SimpleNamespace(value=lambda: b"v")
EIGHT = InputPosition(8, 8, epoch=3, topics={"here": "here-id", "there": "there-id"})


class Broker:
    """Topics of two partitions with offsets 0 to 9; of each source, those from 8 on are next."""

    def __init__(self):
        self.topics = {
            name: LiveTopic(name, f"{name}-id", 2, 1) for name in (*SOURCES, "merged", "late")
        }
        self.firsts, self.ends, self.cuts = {}, {}, {}
        self.position = EIGHT

    def describe(self, _, names):
        return {name: self.topics[name] for name in names if name in self.topics}

    def earliest(self, _, partitions):
        return {partition: self.firsts.get(partition, 0) for partition in partitions}

    def latest(self, _, partitions):
        return {partition: (self.ends.get(partition, 10), 0) for partition in partitions}

    def find_cuts(self, _, seen, ends):
        assert ends.keys() == seen.keys()
        return {source: self.cuts[source] for source in seen if source in self.cuts}

    def find_starts(self):
        return find_starts(PLAN, [ZERO, ONE], self.committed())

    def committed(self):
        inputs = [*PLAN.inputs_of(ZERO), *PLAN.inputs_of(ONE)]
        return [committed_offset(source, self.position) for source in inputs]


@pytest.fixture
def broker(monkeypatch):
    made = Broker()
    monkeypatch.setattr(starts, "describe", made.describe)
    monkeypatch.setattr(resume, "earliest_offsets", made.earliest)
    monkeypatch.setattr(resume, "latest_offsets", made.latest)
    monkeypatch.setattr(resume, "find_cuts_by_new_leaders", made.find_cuts)
    monkeypatch.setattr(starts, "last_times", lambda *_: {})
    return made


def test_positions_of_earlier_instances_are_read():
    metadata = "9 3 1000 999 1 here=7oQbwHlWT_2kY0GqDpeWdg,there=tvT6rHmlQ0ed8gJyYhRAsA"
    committed = confluent_kafka.TopicPartition("there", 1, 8, metadata)
    topics = {"here": "7oQbwHlWT_2kY0GqDpeWdg", "there": "tvT6rHmlQ0ed8gJyYhRAsA"}
    position = InputPosition(8, 9, 3, 1000, WrittenTo(999, 1), topics)
    assert position_of(committed) == position
    assert position.metadata == metadata


def test_partitions_go_on_where_they_are_committed(broker):
    found = broker.find_starts()
    assert found.refused == {}
    assert {output: [at.offset for at in inputs] for output, inputs in found.positions.items()} == {
        ZERO: [8, 8],
        ONE: [8, 8],
    }


def recreate(broker, *names):
    """After an instance has committed what it merged into them."""
    written = {name: f"{name}-id" for name in broker.topics}
    broker.position = replace(EIGHT, topics=written)
    for name in names:
        broker.topics[name] = LiveTopic(name, f"new-{name}-id", 2, 1)


def test_a_target_that_was_recreated_beside_its_late_records_is_refused_with_the_way(broker):
    """What they have would be there twice if all was merged again."""
    recreate(broker, "merged")
    found = broker.find_starts()
    assert found.positions == {}
    assert {refusal.code for refusal in found.refused.values()} == {"MERGER_RECREATED"}
    assert "delete the topic of late records, too" in str(found.refused[ZERO])
    with pytest.raises(LinkLossError):
        find_loss(PLAN, LOST, broker.committed())


def test_a_target_that_was_recreated_with_its_late_records_is_filled_from_the_start(broker):
    recreate(broker, "merged", "late")
    broker.firsts[HERE] = 2
    found = broker.find_starts()
    assert found.refused == {}
    assert [at.offset for at in found.positions[ZERO]] == [2, 0]
    assert [at.offset for at in found.positions[ONE]] == [0, 0]
    assert found.positions[ZERO][0].topics["merged"] == "new-merged-id"


def test_late_records_that_were_recreated_alone_repeat_nothing(broker):
    recreate(broker, "late")
    found = broker.find_starts()
    assert [at.offset for at in found.positions[ZERO]] == [8, 8]
    assert found.positions[ZERO][0].topics["late"] == "new-late-id"


def test_a_target_that_no_position_names_was_written_by_an_earlier_release(broker):
    broker.topics["merged"] = LiveTopic("merged", "new-merged-id", 2, 1)
    assert [at.offset for at in broker.find_starts().positions[ZERO]] == [8, 8]


def deleted(broker):
    broker.firsts[LOST] = 9


def truncated(broker):
    broker.cuts[LOST] = 5


def shorter(broker):
    broker.ends[LOST] = 5


@pytest.mark.parametrize(
    ("lose", "accepted", "reason"),
    [
        (deleted, 9, "1 offsets are lost, 8 to 8"),
        (truncated, 5, "its log was truncated at offset 5"),
        (shorter, 5, "its log was truncated at offset 5"),
    ],
)
def test_a_source_that_lacks_what_comes_next_holds_up_its_partition_alone(
    broker, lose, accepted, reason
):
    lose(broker)
    found = broker.find_starts()
    assert found.positions.keys() == {ZERO}
    refusal = found.refused[ONE]
    assert isinstance(refusal, LinkLossError)
    assert (refusal.code, refusal.partition) == ("MERGER_LOSS", "there/1")
    assert reason in str(refusal)
    loss = find_loss(PLAN, LOST, broker.committed())
    assert find_loss(PLAN, TopicPartition("here", 1), broker.committed()) is None
    assert (loss.source, loss.next_offset, loss.accepted.offset) == (LOST, 8, accepted)


def test_a_source_that_was_made_again_is_refused_from_its_first_record(broker):
    broker.topics["there"] = LiveTopic("there", "another-id", 2, 1)
    found = broker.find_starts()
    assert {type(refusal) for refusal in found.refused.values()} == {LinkLossError}
    assert find_loss(PLAN, LOST, broker.committed()).accepted.offset == 0


@pytest.mark.parametrize("topic", ["here", "there", "merged", "late"])
def test_a_partition_that_a_topic_lacks_holds_up_no_other(broker, topic):
    broker.topics[topic] = LiveTopic(topic, f"{topic}-id", 1, 1)
    found = broker.find_starts()
    assert found.positions.keys() == {ZERO}
    assert isinstance(found.refused[ONE], LinkNoPartitionError)
    assert (found.refused[ONE].code, found.refused[ONE].partition) == (
        "MERGER_NO_PARTITION",
        f"{topic}/1",
    )


@pytest.mark.parametrize("topic", ["here", "there", "merged", "late"])
def test_a_topic_that_does_not_exist_is_named(broker, topic):
    del broker.topics[topic]
    found = broker.find_starts()
    assert {refusal.partition for refusal in found.refused.values()} == {f"{topic}/0", f"{topic}/1"}
    with pytest.raises(LinkNoPartitionError):
        find_loss(PLAN, HERE, broker.committed())


@pytest.mark.parametrize("topic", ["here", "there", "merged", "late"])
def test_a_partition_without_a_leader_holds_up_no_other(broker, topic):
    broker.topics[topic] = LiveTopic(topic, f"{topic}-id", 2, 1, frozenset({1}))
    found = broker.find_starts()
    assert found.positions.keys() == {ZERO}
    assert isinstance(found.refused[ONE], LinkNoLeaderError)
    assert (found.refused[ONE].code, found.refused[ONE].partition) == (
        "MERGER_NO_LEADER",
        f"{topic}/1",
    )


def test_of_an_input_without_a_position_nothing_is_taken_where_the_target_has_records(
    broker, monkeypatch
):
    monkeypatch.setattr(starts, "last_times", lambda *_: {ZERO: 1_000})
    monkeypatch.setattr(losses, "offsets_since", lambda *_: {})
    nothing = [
        confluent_kafka.TopicPartition(source.topic, source.partition)
        for source in (*PLAN.inputs_of(ZERO), *PLAN.inputs_of(ONE))
    ]
    found = find_starts(PLAN, [ZERO, ONE], nothing)
    assert found.positions.keys() == {ONE}
    assert "no position is committed" in str(found.refused[ZERO])


def test_what_an_input_has_before_the_last_record_of_the_target_is_late_once_its_loss_is_accepted(
    broker, monkeypatch
):
    monkeypatch.setattr(starts, "last_times", lambda *_: {ZERO: 1_000})
    monkeypatch.setattr(losses, "offsets_since", lambda *_: {HERE: 3})
    committed = dict.fromkeys(PLAN.inputs_of(ZERO))
    output = output_of(accept(committed, PLAN.inputs_of(ZERO)))
    records = [(1_000, 0, 3, MESSAGE), (999, 0, 4, MESSAGE), (1_001, 0, 5, MESSAGE)]
    assert output.put(0, records, 2_000) == [Written(records[1], LATE)]
    output.inputs[1].clock.is_idle = True
    assert output.take(2_000, limit=9) == [Written(records[0]), Written(records[2])]


def test_what_a_recreated_topic_has_before_the_last_record_of_the_target_is_late(broker):
    for name in SOURCES:
        broker.topics[name] = LiveTopic(name, "another-id", 2, 1)
    written = WrittenTo(1_000, 1)
    committed = dict.fromkeys(PLAN.inputs_of(ZERO), replace(EIGHT, written=written))
    output = output_of(accept(committed, PLAN.inputs_of(ZERO)))
    records = [(999, 1, 0, MESSAGE), (1_000, 1, 1, MESSAGE)]
    assert output.put(1, records, 2_000) == [Written(records[0], LATE)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("lose", ["records", "topics", "positions"])
def test_each_input_has_its_own_loss_and_they_are_accepted_in_any_order(
    broker, lose, order, monkeypatch
):
    inputs = PLAN.inputs_of(ZERO)
    committed = dict.fromkeys(inputs, None if lose == "positions" else EIGHT)
    if lose == "topics":
        broker.topics |= {name: LiveTopic(name, "another-id", 2, 1) for name in SOURCES}
    broker.firsts = dict(zip(inputs, (9, 10), strict=True))
    monkeypatch.setattr(starts, "last_times", lambda *_: {ZERO: 1_000})
    monkeypatch.setattr(losses, "offsets_since", lambda *_: broker.firsts)
    found = find_starts(PLAN, [ZERO], offsets_of(committed))
    assert {source: loss.accepted.offset for source, loss in found.losses.items()} == broker.firsts
    assert found.refused[ZERO].partition == inputs[0].path
    accept(committed, [inputs[place] for place in order])
    assert find_starts(PLAN, [ZERO], offsets_of(committed)).refused == {}


def accept(committed, sources):
    """Accepts what inputs have lost, one after the other."""
    for source in sources:
        committed[source] = find_loss(PLAN, source, offsets_of(committed)).accepted
    return committed


def offsets_of(committed):
    return [
        confluent_kafka.TopicPartition(source.topic, source.partition)
        if at is None
        else committed_offset(source, at)
        for source, at in committed.items()
    ]


def output_of(committed):
    """The first partition of the target, as an instance starts with it."""
    inputs = [
        SourcePartition.at(source, ClockSource.WALL, at, InputClock(place, 0, at.time_ms))
        for place, (source, at) in enumerate(committed.items())
    ]
    return TargetPartition(ZERO, inputs)
