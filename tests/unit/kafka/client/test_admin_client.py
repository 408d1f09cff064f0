"""Offsets are asked for where a leader is known: waiting for one may end the process."""

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.mock_brokers import MockBrokers

from headrace.kafka.client.admin_client import OffsetsAdminClient

SECONDS = 15.0


@pytest.fixture
def brokers():
    brokers = MockBrokers()
    brokers.create("orders", 2)
    brokers.append("orders", [b"1", b"2"], partition=1)
    return brokers


@pytest.fixture
def admin(brokers):
    return OffsetsAdminClient(brokers.config | {"allow.auto.create.topics": "true"})


@pytest.fixture
def requests(monkeypatch):
    """Names and arguments of what librdkafka is asked."""
    requests = []
    for name in ("list_topics", "list_offsets"):
        real = getattr(AdminClient, name)

        def recorded(client, *arguments, name=name, real=real, **options):
            partitions = [(each.topic, each.partition) for each in next(iter(arguments), ())]
            requests.append((name, partitions or options.get("topic")))
            return real(client, *arguments, **options)

        monkeypatch.setattr(AdminClient, name, recorded)
    return requests


def ends(admin, *partitions):
    """Returns the offset, or the name of the error, of each partition."""
    asked = {TopicPartition(*partition): OffsetSpec.latest() for partition in partitions}
    futures = admin.list_offsets(asked, request_timeout=SECONDS)
    return {(each.topic, each.partition): outcome(future) for each, future in futures.items()}


def outcome(future):
    try:
        return future.result(SECONDS).offset
    except KafkaException as error:
        return error.args[0].name()


def test_partitions_that_are_not_there_are_not_asked_for(admin, requests):
    assert ends(admin, ("orders", 1), ("orders", 7), ("missing", 0)) == {
        ("orders", 1): 2,
        ("orders", 7): "UNKNOWN_TOPIC_OR_PART",
        ("missing", 0): "UNKNOWN_TOPIC_OR_PART",
    }
    assert requests[-1] == ("list_offsets", [("orders", 1)])
    assert "missing" not in admin.list_topics(timeout=SECONDS).topics


def test_leaders_are_fetched_once_and_again_where_one_was_missing(admin, brokers, requests):
    for _ in range(3):
        assert ends(admin, ("orders", 0), ("orders", 1)) == {("orders", 0): 0, ("orders", 1): 2}
    assert [name for name, _ in requests] == ["list_topics", *["list_offsets"] * 3]
    brokers.lead("orders", 0, -1)
    admin.list_topics(timeout=SECONDS)
    for _ in range(2):
        assert ends(admin, ("orders", 0)) == {("orders", 0): "LEADER_NOT_AVAILABLE"}
    brokers.lead("orders", 0, 1)
    assert ends(admin, ("orders", 0)) == {("orders", 0): 0}
    both = [("orders", 0), ("orders", 1)]
    asked = [what for name, what in requests if name == "list_offsets"]
    assert asked == [both, both, both, [("orders", 0)]]


def test_a_topic_that_is_created_later_is_found(admin, brokers):
    assert ends(admin, ("later", 0)) == {("later", 0): "UNKNOWN_TOPIC_OR_PART"}
    brokers.create("later")
    assert ends(admin, ("later", 0)) == {("later", 0): 0}
