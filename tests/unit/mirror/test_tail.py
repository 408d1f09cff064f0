"""The end of a copy, on librdkafka's mock brokers."""

from __future__ import annotations

import confluent_kafka
import pytest
from tests.mock_brokers import MockBrokers

from headrace.mirror import tail
from headrace.mirror.link import Link
from headrace.mirror.origin import ORIGIN, Origin
from headrace.mirror.tail import last_origins
from headrace.model import TopicPartition

COPY = TopicPartition("waw.a", 0)


@pytest.fixture
def brokers():
    made = MockBrokers()
    made.create("waw.a")
    return made


def link_to(brokers):
    return Link("m", "headrace.mirror.m", "waw", "central", {}, brokers.config, {"a": "waw.a"})


def append(brokers, *offsets, topic="a"):
    sender = confluent_kafka.Producer(brokers.config)
    for offset in offsets:
        origin = b"waw/%s/0/%d" % (topic.encode(), offset)
        sender.produce("waw.a", b"v", partition=0, headers=[(ORIGIN, origin)])
        assert sender.flush(30) == 0


def test_the_last_record_of_the_link_is_looked_for_behind_those_of_others(brokers):
    append(brokers, 3, 4)
    append(brokers, *range(40), topic="other")
    assert last_origins(link_to(brokers), [COPY]) == {COPY: Origin("waw", "a", 0, 4)}


def test_a_copy_without_records_tells_nothing(brokers):
    assert last_origins(link_to(brokers), [COPY]) == {}


@pytest.mark.parametrize(("removed", "origins"), [(2, {COPY: Origin("waw", "a", 0, 2)}), (3, {})])
def test_records_that_retention_removes_meanwhile_are_read_past(
    brokers, monkeypatch, removed, origins
):
    append(brokers, 0, 1, 2)
    consumer = tail.consumer

    def delete_first(*arguments):
        brokers.delete_before("waw.a", 0, removed)
        return consumer(*arguments)

    monkeypatch.setattr(tail, "consumer", delete_first)
    assert last_origins(link_to(brokers), [COPY]) == origins
