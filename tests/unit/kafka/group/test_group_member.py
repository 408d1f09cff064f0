"""A member of a group that reads nothing: its settings, and what errors mean."""

from __future__ import annotations

from types import SimpleNamespace

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import AuthorizationError, TopicMissingError
from headrace.kafka.group import group_member
from headrace.kafka.group.group_member import GroupMember
from headrace.model import TopicPartition


class Consumer:
    """Confluent's consumer, which is told one error."""

    def __init__(self, config, **_):
        Consumer.config, self.error, self.left, self.id = config, None, [], "id-1"

    def subscribe(self, *_, **__):
        """Joins at the next poll."""

    def poll(self, _):
        error, self.error = self.error, None
        return error and SimpleNamespace(error=lambda: error, topic=lambda: "waw.a")

    def committed(self, *_, timeout):
        raise KafkaException(self.error)

    def memberid(self):
        return self.id

    def unsubscribe(self):
        self.left.append("unsubscribe")
        self.id = ""

    def close(self):
        self.left.append("close")


@pytest.fixture
def member(monkeypatch):
    monkeypatch.setattr(confluent_kafka, "Consumer", Consumer)
    nothing = {name: lambda _: None for name in ("on_assigned", "on_revoked", "on_lost")}
    config = {"bootstrap.servers": "t:1", "client.id": "host-1"}
    return GroupMember(config, "headrace.mirror.m", ["waw.a"], **nothing)


def test_a_call_may_wait_for_brokers_an_hour_long(member):
    assert member._consumer.config["max.poll.interval.ms"] == "3600000"
    assert member._consumer.config["session.timeout.ms"] == "10000"
    assert member._consumer.config["client.id"] == "host-1"


def test_the_group_is_told_before_the_client_closes(member):
    member.close()
    assert member._consumer.left == ["unsubscribe", "close"]


@pytest.mark.parametrize(
    ("code", "operation", "resource"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "READ", "group headrace.mirror.m"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "DESCRIBE", "topic waw.a"),
    ],
)
def test_an_acl_that_is_missing_is_named(member, code, operation, resource):
    for act in (member.poll, lambda: member.committed([TopicPartition("waw.a", 0)])):
        member._consumer.error = KafkaError(code)
        with pytest.raises(AuthorizationError) as raised:
            act()
        assert (raised.value.operation, raised.value.resource) == (operation, resource)


def test_a_topic_that_does_not_exist_is_named(member):
    member._consumer.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    with pytest.raises(TopicMissingError, match=r"waw\.a"):
        member.poll()


def test_brokers_that_are_away_are_waited_for(member):
    member._consumer.error = KafkaError(KafkaError._ALL_BROKERS_DOWN)
    member.poll()


def test_an_unknown_error_ends_it(member):
    member._consumer.error = KafkaError(group_member.KafkaError._FATAL)
    with pytest.raises(KafkaException):
        member.poll()
