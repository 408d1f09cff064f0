"""Errors of a member of a group, wherever the client raises them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.errors import InstanceIdTakenError
from headrace.kafka import subscription
from headrace.kafka.subscription import Membership, Subscription

FENCED = KafkaException(KafkaError(KafkaError.FENCED_INSTANCE_ID))


def refuse(*_):
    raise FENCED


class Records:
    """A consumer whose ``poll`` gives these in turn, and calls what can be called before that."""

    def __init__(self, *given):
        self._given = list(given)

    def poll(self, _seconds):
        given = self._given.pop(0) if self._given else None
        while callable(given):
            given()
            given = self._given.pop(0)
        return given

    def incremental_unassign(self, partitions):
        pass


class Record(NamedTuple):
    number: int
    at: int

    def topic(self):
        return "orders"

    def partition(self):
        return self.number

    def offset(self):
        return self.at

    def error(self):
        return None


def member_with(consumer):
    membership = Membership("g", ("orders",), instance_id="web-0")
    config = {"bootstrap.servers": "127.0.0.1:1"}
    member = Subscription(config, membership, print, lambda _: [], print)
    member._consumer.close()
    member._consumer = consumer
    return member


@pytest.mark.parametrize("first", [(), (Record(0, 1),)], ids=["at once", "after a record"])
def test_an_instance_id_that_another_member_took_is_named(first):
    member = member_with(Records(*first, refuse))
    with pytest.raises(InstanceIdTakenError, match="web-0"):
        member.take(10, 0.1)


def test_records_of_a_partition_that_moves_while_they_are_taken_are_left_to_its_next_member():
    consumer = Records(Record(0, 7), Record(1, 3), lambda: revoke(0), Record(1, 4))
    member = member_with(consumer)

    def revoke(number):
        member._revoke(consumer, [TopicPartition("orders", number)])

    assert member.take(10, 0.1).records == [Record(1, 3), Record(1, 4)]


def test_no_more_records_are_taken_than_there_is_room_for():
    member = member_with(Records(*(Record(0, offset) for offset in range(9))))
    assert [len(member.take(4, 0.1).records) for _ in range(3)] == [4, 4, 1]


class Coordinator:
    """A consumer that is given its id after a while, and then an answer."""

    def __init__(self, *ids, committed=lambda: None):
        self._ids, self._committed = list(ids), committed

    def memberid(self):
        return self._ids.pop(0)

    def committed(self, _partitions, timeout):
        return self._committed()


def late():
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_a_member_joins_until_it_has_an_id_and_the_coordinator_answers():
    member = member_with(Coordinator("", "", "id"))
    member.begin_close()
    assert [member.is_joining() for _ in range(3)] == [True, True, False]
    member._consumer = Coordinator("id", committed=late)
    assert member.is_joining()


def test_an_id_that_brokers_do_not_give_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(subscription, "_ID_SECONDS", 0.0)
    member = member_with(Coordinator(""))
    member.begin_close()
    assert not member.is_joining()
