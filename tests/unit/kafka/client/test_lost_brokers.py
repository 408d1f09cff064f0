"""A consumer that has lost all brokers is told from one whose brokers are away."""

from dataclasses import replace

import pytest
from tests.mock_brokers import MockBrokers
from tests.waiting import LIMIT_SECONDS

from headrace.kafka.client import lost_brokers
from headrace.kafka.client.clients import consumer
from headrace.kafka.client.lost_brokers import (
    BrokersLostError,
    CheckTiming,
    IdleCheck,
    has_lost_brokers,
)

SOON = CheckTiming(answer_seconds=0.5, reconnect_seconds=0.5)
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture(scope="module")
def brokers():
    return MockBrokers()


def test_a_client_that_asks_nobody_while_brokers_answer_another_has_lost_brokers(brokers):
    assert has_lost_brokers(brokers.config, consumer(NOWHERE), SOON)


def test_a_client_that_is_answered_is_not(brokers):
    client = consumer(brokers.config)
    client.list_topics(timeout=LIMIT_SECONDS)
    assert not has_lost_brokers(brokers.config, client)


def test_brokers_that_are_away_cut_nobody_off():
    timing = replace(SOON, connect_seconds=0.5)
    assert not has_lost_brokers(NOWHERE, consumer(NOWHERE), timing)


def test_a_consumer_is_looked_after_once_it_has_been_quiet_for_a_while(brokers, monkeypatch):
    cut_off = consumer(NOWHERE)
    IdleCheck(brokers.config).check(cut_off, has_received=False)
    monkeypatch.setattr(lost_brokers, "IDLE_SECONDS", 0.0)
    with pytest.raises(BrokersLostError):
        IdleCheck(brokers.config, SOON).check(cut_off, has_received=False)
