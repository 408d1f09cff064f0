"""Records that are read as they come, by clients that fail."""

from __future__ import annotations

import itertools

import pytest
from confluent_kafka import KafkaError

from headrace.errors import RecordsUnreadableError
from headrace.kafka.client import lost_brokers
from headrace.kafka.read import polling
from headrace.kafka.read.tail import follow
from headrace.model import TopicPartition

PARTITION = TopicPartition("t", 0)


class Message:
    def __init__(self, offset, error=None):
        self._offset, self._error = offset, None if error is None else KafkaError(error)

    def error(self):
        return self._error

    def topic(self):
        return "t"

    def partition(self):
        return 0

    def offset(self):
        return self._offset

    def timestamp(self):
        return 0, -1

    def key(self):
        return b"k"

    def value(self):
        return b"v"

    def headers(self):
        return None


class Brokers:
    """Gives each of its consumers one list of messages, and then nothing.

    Attributes:
        assigned: the offset at which each consumer began.
        closed: how many consumers were closed.
    """

    def __init__(self, *lists):
        self._lists, self.assigned, self.closed = list(lists), [], 0
        self._messages = []

    def consumer(self, *_):
        self._messages = self._lists.pop(0)
        return self

    def list_topics(self, topic, timeout):
        pass

    def assign(self, partitions):
        self.assigned += [partition.offset for partition in partitions]

    def consume(self, number, seconds):
        taken, self._messages = self._messages[:number], self._messages[number:]
        return taken

    def close(self):
        self.closed += 1


@pytest.fixture
def brokers(monkeypatch):
    def start(*lists):
        brokers = Brokers(*lists)
        monkeypatch.setattr(polling, "consumer", brokers.consumer)
        return brokers

    return start


def test_a_new_consumer_continues_after_the_last_record(brokers, monkeypatch):
    monkeypatch.setattr(lost_brokers, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(lost_brokers, "has_lost_brokers", lambda *_: True)
    several = brokers([Message(7), Message(9)], [Message(10)])
    records = follow({}, {PARTITION: 5})
    assert [record.offset for record in itertools.islice(records, 3)] == [7, 9, 10]
    assert several.assigned == [5, 10]
    records.close()
    assert several.closed == 2


def test_errors_that_pass_by_themselves_are_left_out_and_others_raised(brokers):
    passing = [KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN]
    brokers([Message(7), *(Message(8, code) for code in passing), Message(8, KafkaError._BAD_MSG)])
    records = follow({}, {PARTITION: 5})
    assert next(records).offset == 7
    with pytest.raises(RecordsUnreadableError):
        next(records)
