"""The end of a copy, on librdkafka's mock brokers."""

from __future__ import annotations

import confluent_kafka
import pytest
from tests.mock_brokers import MockBrokers
from tests.waiting import FLUSH_SECONDS

from headrace.kafka.origin import ORIGIN, Origin
from headrace.kafka.read import range_reader
from headrace.links.copy_ends import Copies, copied_since, last_origins
from headrace.model import TopicPartition

COPY = TopicPartition("waw.a", 0)


@pytest.fixture
def brokers():
    made = MockBrokers()
    made.create("waw.a")
    return made


def copies_at(brokers):
    sources = {COPY: TopicPartition("a", 0)}
    return Copies(brokers.config, "headrace.mirror.m", "central", "waw", sources)


def append(brokers, *offsets, topic="a"):
    sender = confluent_kafka.Producer(brokers.config)
    for offset in offsets:
        origin = b"waw/%s/0/%d" % (topic.encode(), offset)
        sender.produce("waw.a", b"v", partition=0, headers=[(ORIGIN, origin)])
        assert sender.flush(FLUSH_SECONDS) == 0


def test_the_last_record_of_the_source_is_looked_for_behind_those_of_others(brokers):
    append(brokers, 3, 4)
    append(brokers, *range(40), topic="other")
    assert last_origins(copies_at(brokers)) == {COPY: Origin("waw", "a", 0, 4)}


@pytest.mark.parametrize(("floor", "offsets"), [(0, [3, 4, 7]), (1, [4, 7]), (9, None)])
def test_all_records_of_the_source_from_a_place_on_are_told(brokers, floor, offsets):
    append(brokers, 3, 4)
    append(brokers, 5, 6, topic="other")
    append(brokers, 7)
    expected = {} if offsets is None else {COPY: offsets}
    assert copied_since(copies_at(brokers), {COPY: floor}) == expected


def test_a_copy_without_records_tells_nothing(brokers):
    assert last_origins(copies_at(brokers)) == {}


@pytest.mark.parametrize(("removed", "origins"), [(2, {COPY: Origin("waw", "a", 0, 2)}), (3, {})])
def test_records_that_retention_removes_meanwhile_are_read_past(
    brokers, monkeypatch, removed, origins
):
    append(brokers, 0, 1, 2)
    consumer = range_reader.consumer

    def delete_first(*arguments):
        brokers.delete_before("waw.a", 0, removed)
        return consumer(*arguments)

    monkeypatch.setattr(range_reader, "consumer", delete_first)
    assert last_origins(copies_at(brokers)) == origins
