"""The topic of the registry: its settings, and what a write that fails is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import AuthorizationError, BrokerUnreachableError
from headrace.kafka.table import changelog
from headrace.queries.declaration import StandingQueries
from headrace.queries.registry.topic import registry_topic, write_registry

CONFIG = {"bootstrap.servers": "broker:1"}


class Message:
    """A record that was sent."""

    def offset(self):
        return 7

    def error(self):
        return None


class StandInProducer:
    """Reports one error or success; None of both: nothing."""

    def __init__(self, reports):
        self.reports, self.produced = reports, []

    def poll(self, seconds):
        """No report comes before the flush."""

    def produce(self, name, value, key, partition, on_delivery):
        self.produced.append((name, key, value))
        for error in self.reports:
            on_delivery(error, Message())

    def flush(self, timeout):
        return 1 - len(self.reports)


@pytest.fixture
def write(monkeypatch):
    """``write(reports)``: the offset of a record that is reported so."""

    def run(*reports):
        sender = StandInProducer(reports)
        monkeypatch.setattr(changelog, "connected_producer", lambda config: sender)
        offset = write_registry(CONFIG, "ads.queries", b"a", b"{}")
        assert sender.produced == [("ads.queries", b"a", b"{}")]
        return offset

    return run


def test_with_a_max_ttl_records_and_segments_last_twice_as_long():
    topic = registry_topic(StandingQueries("ads", max_ttl=timedelta(minutes=90)), 3)
    assert (topic.name, topic.partitions, topic.replication) == ("ads.queries", 1, 3)
    three_hours = str(3 * 3_600_000)
    assert topic.kafka_config == {
        "cleanup.policy": "delete",
        "retention.ms": three_hours,
        "segment.ms": three_hours,
    }


def test_without_a_max_ttl_the_topic_is_compacted_but_for_what_a_repeated_batch_may_read():
    topic = registry_topic(StandingQueries("ads", max_ttl=None), 1)
    assert topic.kafka_config == {
        "cleanup.policy": "compact",
        "segment.ms": "3600000",
        "min.compaction.lag.ms": "86400000",
    }


def test_a_write_returns_the_offset_of_its_record(write):
    assert write(None) == 7


@pytest.mark.parametrize(
    ("reports", "error"),
    [
        ((), BrokerUnreachableError),
        ((KafkaError(KafkaError._MSG_TIMED_OUT),), BrokerUnreachableError),
        ((KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED),), AuthorizationError),
        ((KafkaError(KafkaError.MSG_SIZE_TOO_LARGE),), KafkaException),
    ],
)
def test_a_write_that_fails_says_why(write, reports, error):
    with pytest.raises(error):
        write(*reports)
