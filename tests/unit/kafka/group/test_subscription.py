"""Errors of a member of a group, wherever the client raises them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from headrace import model
from headrace.errors import CommittedOffsetError, InstanceIdInUseError, WorkerTruncatedError
from headrace.kafka.client import lost_brokers
from headrace.kafka.client.lost_brokers import BrokersLostError
from headrace.kafka.group import subscription
from headrace.kafka.group.start_positions import StartPosition
from headrace.kafka.group.subscription import Membership, Pauses, Subscription
from headrace.kafka.read.log_cuts import Seen

FENCED = KafkaException(KafkaError(KafkaError.FENCED_INSTANCE_ID))


def refuse(*_):
    raise FENCED


def refuse_with(code):
    raise KafkaException(KafkaError(code))


class Records:
    """A consumer whose ``poll`` gives these in turn, and calls what can be called before that."""

    def __init__(self, *given):
        self._given = list(given)
        self.calls, self.epochs = [], []
        self.at = OFFSET_INVALID, None

    def give(self, *given):
        self._given += given

    def poll(self, _seconds):
        given = self._given.pop(0) if self._given else None
        while callable(given):
            given()
            given = self._given.pop(0)
        return given

    def incremental_assign(self, partitions):
        pass

    def incremental_unassign(self, partitions):
        pass

    def seek(self, partition):
        self.calls.append(("seek", partition.partition, partition.offset))
        self.epochs.append(partition.leader_epoch)

    def position(self, partitions):
        offset, epoch = self.at
        return [SimpleNamespace(offset=offset, leader_epoch=epoch) for _ in partitions]

    def pause(self, partitions):
        self.calls += [("pause", one.partition) for one in partitions]

    def resume(self, partitions):
        self.calls += [("resume", one.partition) for one in partitions]


class Record(NamedTuple):
    number: int
    at: int
    failed: KafkaError | None = None

    def topic(self):
        return "orders"

    def partition(self):
        return self.number

    def offset(self):
        return self.at

    def error(self):
        return self.failed


END = KafkaError(KafkaError._PARTITION_EOF)


def member_with(consumer, **membership):
    membership = Membership("g", ("orders",), **membership or {"instance_id": "web-0"})
    config = {"bootstrap.servers": "127.0.0.1:1"}
    member = Subscription(config, membership, Pauses(), print, lambda _: [], print)
    member._consumer.close()
    member._consumer = consumer
    return member


@pytest.mark.parametrize("first", [(), (Record(0, 1),)], ids=["at once", "after a record"])
def test_an_instance_id_that_another_member_took_is_named(first):
    member = member_with(Records(*first, refuse))
    with pytest.raises(InstanceIdInUseError, match="web-0"):
        member.take(10, 0.1)


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("classic", "the brokers have given it to an instance that joined later"),
        ("consumer", "the brokers still count a member with it"),
    ],
)
def test_whose_the_instance_id_is_depends_on_the_protocol(protocol, reason):
    """The client's own text, which says it twice, is not shown."""
    member = member_with(Records(refuse), instance_id="web-0", protocol=protocol)
    with pytest.raises(InstanceIdInUseError) as refused:
        member.take(10, 0.1)
    assert f": {reason}. Give each instance its own id." in str(refused.value)


def test_records_of_a_partition_that_moves_while_they_are_taken_are_left_to_its_next_member():
    consumer = Records(Record(0, 7), Record(1, 3), lambda: revoke(0), Record(1, 4))
    member = member_with(consumer)

    def revoke(number):
        member._revoke(consumer, [TopicPartition("orders", number)])

    assert member.take(10, 0.1).records == [Record(1, 3), Record(1, 4)]


def test_no_more_records_are_taken_than_there_is_room_for():
    member = member_with(Records(*(Record(0, offset) for offset in range(9))))
    assert [len(member.take(4, 0.1).records) for _ in range(3)] == [4, 4, 1]


def test_a_member_to_which_nothing_comes_looks_whether_it_still_reaches_a_broker(monkeypatch):
    member = member_with(Records(Record(0, 7)))
    monkeypatch.setattr(lost_brokers, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(lost_brokers, "has_lost_brokers", lambda *_: True)
    assert member.take(10, 0.1).records == [Record(0, 7)]
    with pytest.raises(BrokersLostError):
        member.take(10, 0.1)


@pytest.fixture
def assigning():
    """``assigning(consumer, *(number, position))``: its member, and a call that assigns these."""

    def assigning(consumer, *positions, epoch=-1):
        member = member_with(consumer)
        starts = [
            StartPosition(model.TopicPartition("orders", number), position, "", "id", epoch)
            for number, position in positions
        ]
        member._starts = SimpleNamespace(of=lambda *_: starts)
        found = [TopicPartition("orders", number) for number, _ in positions]
        return member, lambda: member._assign(consumer, found)

    return assigning


@pytest.mark.parametrize("error", [None, END], ids=["a record", "the end"])
def test_a_client_that_begins_beyond_the_position_asked_for_reads_again_from_there(
    assigning, error, caplog
):
    consumer = Records()
    member, assign = assigning(consumer, (0, 7))
    consumer.give(assign, Record(0, 40, error), Record(0, 7), Record(0, 8))
    taken = member.take(10, 0.1)
    assert taken.records == [Record(0, 7), Record(0, 8)]
    assert taken.ends == []
    assert consumer.calls == [("seek", 0, 7)]
    assert "orders[0] should start at 7, the client started at 40" in caplog.text


@pytest.mark.parametrize("error", [None, END], ids=["a record", "the end"])
def test_a_client_seeks_a_start_with_its_epoch_for_then_it_compares_the_log(assigning, error):
    consumer = Records()
    member, assign = assigning(consumer, (0, 7), epoch=3)
    consumer.give(assign, Record(0, 7, error), Record(0, 7, error), Record(0, 8))
    taken = member.take(10, 0.1)
    assert len(taken.records) + len(taken.ends) == 2
    assert (consumer.calls, consumer.epochs) == ([("seek", 0, 7)], [3])


def test_a_log_that_was_truncated_before_the_position_ends_the_member(assigning):
    consumer = Records()
    member, assign = assigning(consumer, (0, 7), epoch=3)
    text = "Partition log truncation detected: broker end offset is 5 (offset leader epoch 4)."
    consumer.give(
        assign, Record(0, 7), Record(0, -1001, KafkaError(KafkaError._LOG_TRUNCATION, text))
    )
    with pytest.raises(WorkerTruncatedError) as raised:
        member.take(10, 0.1)
    assert (raised.value.topic, raised.value.partition, raised.value.cut_offset) == ("orders", 0, 5)


def test_a_client_that_stopped_a_truncated_partition_before_the_seek_names_the_cut(assigning):
    """It has compared the log by itself: what it found comes with the next poll."""
    consumer = Records()
    member, assign = assigning(consumer, (0, 7), epoch=3)
    consumer.seek = lambda _: refuse_with(KafkaError._STATE)
    cut = KafkaError(KafkaError._LOG_TRUNCATION, "broker end offset is 5 (offset leader epoch 4).")
    consumer.give(assign, Record(0, 7), Record(0, -1001, cut))
    with pytest.raises(WorkerTruncatedError):
        member.take(10, 0.1)


def test_a_committed_offset_that_the_topic_does_not_have_ends_the_member(assigning):
    """Its records were deleted before they were read."""
    consumer = Records()
    member, assign = assigning(consumer, (0, 7))
    consumer.give(assign, Record(0, 7, KafkaError(KafkaError._AUTO_OFFSET_RESET)))
    with pytest.raises(CommittedOffsetError) as raised:
        member.take(10, 0.1)
    assert raised.value.code == "COMMITTED_OFFSET"


@pytest.mark.parametrize(
    ("at", "seen"),
    [((OFFSET_INVALID, None), Seen(7, 3)), ((9, 4), Seen(9, 4))],
    ids=["at its start", "later"],
)
def test_a_log_that_is_shorter_than_the_position_was_truncated(assigning, monkeypatch, at, seen):
    """Its leader was behind: it answers as after a deletion, until the log is as long again."""
    asked = []

    def find_cuts(_, topic, positions):
        asked.append((topic, positions))
        return {0: 5}

    monkeypatch.setattr(subscription, "find_cuts", find_cuts)
    consumer = Records()
    consumer.at = at
    member, assign = assigning(consumer, (0, 7), epoch=3)
    consumer.give(assign, Record(0, 9, KafkaError(KafkaError._AUTO_OFFSET_RESET)))
    with pytest.raises(WorkerTruncatedError) as raised:
        member.take(10, 0.1)
    assert raised.value.cut_offset == 5
    assert asked == [("orders", {0: seen})]


def test_records_that_are_not_there_when_read_again_were_compacted_away(assigning, caplog):
    consumer = Records()
    member, assign = assigning(consumer, (0, 7), (1, 0))
    consumer.give(assign, Record(0, 40), Record(1, 0), Record(0, 40), Record(0, 44))
    assert member.take(10, 0.1).records == [Record(1, 0), Record(0, 40), Record(0, 44)]
    assert consumer.calls == [("seek", 0, 7)]
    assert "began at" not in caplog.text


def test_where_a_partition_was_to_begin_is_forgotten_with_it(assigning):
    consumer = Records()
    member, assign = assigning(consumer, (0, 9))

    def lose():
        member._lose(consumer, [TopicPartition("orders", 0)])
        assert not member._starting

    consumer.give(assign, lose, assign, Record(0, 9))
    assert member.take(10, 0.1).records == [Record(0, 9)]


def test_a_partition_that_comes_back_is_not_paused_for_what_it_was_before(assigning):
    consumer = Records()
    member, assign = assigning(consumer, (0, 7), (1, 7))

    def lose():
        member._pauses.add([model.TopicPartition("orders", number) for number in (0, 1)])
        member._on_lost = member._pauses.remove
        member._lose(consumer, [TopicPartition("orders", 0)])

    consumer.give(assign, lose, assign, Record(0, 7))
    member.take(10, 0.1)
    assert consumer.calls == [("resume", 0), ("pause", 1)]


class Coordinator:
    """A consumer that is given its id after a while, and then an answer."""

    def __init__(self, *ids, committed=lambda: None):
        self._ids, self._committed, self.calls = list(ids), committed, []

    def memberid(self):
        return self._ids.pop(0)

    def committed(self, _partitions, timeout):
        return self._committed()

    def unsubscribe(self):
        self.calls.append("unsubscribe")

    def poll(self, _seconds):
        self.calls.append("poll")

    def close(self):
        self.calls.append("close")


def late():
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_a_member_joins_until_it_has_an_id_and_the_coordinator_answers():
    member = member_with(Coordinator("", "", "id"))
    member.begin_close()
    assert [member.is_joining() for _ in range(3)] == [True, True, False]
    member._consumer = Coordinator("id", committed=late)
    assert member.is_joining()


def test_a_member_without_partitions_is_closed_when_it_has_left():
    consumer = Coordinator("id", "id", "")
    member_with(consumer, protocol="classic").close()
    assert consumer.calls == ["unsubscribe", "poll", "poll", "close"]


def test_a_static_member_does_not_leave():
    consumer = Coordinator()
    member_with(consumer, instance_id="web-0").close()
    assert consumer.calls == ["close"]


def test_an_id_that_brokers_do_not_give_is_not_waited_for():
    member = member_with(Coordinator(""), id_seconds=0.0)
    member.begin_close()
    assert not member.is_joining()
