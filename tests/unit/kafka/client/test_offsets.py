from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.mock_brokers import LIST_OFFSETS, MockBrokers

from headrace.errors import AuthorizationError, BrokerUnreachableError
from headrace.kafka.client import admin_requests, clients, offsets
from headrace.kafka.client.offsets import (
    commit_offsets,
    group_offsets,
    latest_offsets,
    offsets_since,
    watermarks,
)
from headrace.model import TopicPartition
from headrace.settings import KafkaSettings

SETTLED_SECONDS = 2.5  # after that, a client does not ask again who coordinates its group
NOWHERE = "127.0.0.1:1"


def test_nothing_asked_needs_no_broker():
    config = clients.client_config(KafkaSettings(), NOWHERE)
    assert admin_requests.describe(config, []) == {}
    assert watermarks(config, []) == {}
    assert group_offsets(config, "g", []) == {}
    commit_offsets(config, "g", {})


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    ],
)
def test_offsets_are_asked_for_again_while_leaders_are_elected(code):
    brokers = MockBrokers()
    brokers.create("orders")
    brokers.append("orders", [b"1", b"2"])
    orders = TopicPartition("orders", 0)
    assert watermarks(brokers.config, [orders]) == {orders: (0, 2)}
    brokers.answer(LIST_OFFSETS, code, 2)
    assert watermarks(brokers.config, [orders]) == {orders: (0, 2)}


def test_an_answer_without_an_offset_is_none_and_newer_metadata_is_fetched(monkeypatch):
    """Taken for the end of a log, it would be one that was cut."""
    brokers, orders = MockBrokers(), TopicPartition("orders", 0)
    brokers.create("orders")
    brokers.append("orders", [b"1", b"2"])
    real, refreshed, offsets = admin_requests.admin(brokers.config), [], [-1001]

    def list_offsets(asked, **options):
        if not offsets:
            return real.list_offsets(asked, **options)
        answer = Future()
        answer.set_result(SimpleNamespace(offset=offsets.pop(), leader_epoch=None))
        return dict.fromkeys(asked, answer)

    def list_topics(**_):
        refreshed.append("metadata")

    forgetful = SimpleNamespace(list_offsets=list_offsets, list_topics=list_topics, poll=real.poll)
    monkeypatch.setattr(admin_requests, "admin", lambda _: forgetful)
    assert latest_offsets(brokers.config, [orders])[orders][0] == 2
    assert len(refreshed) == 1


@pytest.mark.parametrize("silent", [[2], [1, 2]])
def test_a_coordinator_that_stops_answering_is_given_up_for_its_successor(silent):
    """Its connection stays open, as that of a broker which is frozen or behind a dead switch.

    It can also be the broker that a client asks who coordinates the group now.
    """
    brokers, orders = MockBrokers(), TopicPartition("orders", 0)
    brokers.create("orders")
    brokers.coordinate("g", 2)
    commit_offsets(brokers.config, "g", {orders: 1})
    time.sleep(SETTLED_SECONDS)
    brokers.answer_after(3_600_000, silent)
    brokers.coordinate("g", 3)
    assert group_offsets(brokers.config, "g", [orders]) == {orders: 1}


def test_a_group_that_was_forbidden_once_is_not_said_to_be_forbidden_after_it_was_allowed(
    monkeypatch,
):
    denied = SimpleNamespace(error=lambda: KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    events = [denied]

    class SilentConsumer:
        def committed(self, *_, **__):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

        def poll(self, _):
            return events.pop() if events else None

    brokers, orders = MockBrokers(), TopicPartition("orders", 0)
    brokers.create("orders")
    config = brokers.config
    watermarks(config, [orders])  # it has logged in
    for module in (admin_requests, offsets):
        monkeypatch.setattr(module, "REQUEST_TIMEOUT_SECONDS", -1.0)
    monkeypatch.setattr(offsets, "consumer", lambda *_: SilentConsumer())
    with pytest.raises(AuthorizationError, match="group forbidden-once"):
        group_offsets(config, "forbidden-once", [TopicPartition("orders", 0)])
    with pytest.raises(BrokerUnreachableError):
        group_offsets(config, "forbidden-once", [TopicPartition("orders", 0)])


@pytest.mark.parametrize("before_1970_ms", [-1, -2, -(10**10), -62135596800000])
def test_a_time_before_1970_is_no_name_of_an_offset(before_1970_ms):
    brokers = MockBrokers()
    brokers.create("clicks")
    brokers.append("clicks", [b"1", b"2"])
    clicks = [TopicPartition("clicks", 0)]
    since_1970 = offsets_since(brokers.config, clicks, 0)
    assert offsets_since(brokers.config, clicks, before_1970_ms) == since_1970
