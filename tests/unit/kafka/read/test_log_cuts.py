"""Cuts of a log, as leaders' epochs tell them: on librdkafka's mock brokers."""

import pytest
from confluent_kafka import KafkaError
from tests.mock_brokers import FETCH, OFFSETS_FOR_LEADER_EPOCH, MockBrokers

from headrace.errors import AuthorizationError, BrokerUnreachableError
from headrace.kafka.client.clients import consumer
from headrace.kafka.read import log_cuts
from headrace.kafka.read.log_cuts import Seen, find_cuts, whole_ends
from headrace.model import TopicPartition

EPOCH_OF_FIRST_LEADER = 1


@pytest.fixture
def brokers():
    """Ten records of broker 1, one of broker 3."""
    found = MockBrokers()
    found.create("orders")
    for n in range(10):
        found.append("orders", [str(n).encode()])
    found.lead("orders", 0, 3)
    found.append("orders", [b"of another leader"])
    return found


@pytest.mark.parametrize("offset", [1, 10])
def test_a_position_that_the_new_leader_knows_is_no_cut(brokers, offset):
    assert find_cuts(brokers.config, "orders", {0: Seen(offset, EPOCH_OF_FIRST_LEADER)}) == {}


def test_a_position_beyond_what_the_new_leader_had_is_a_cut(brokers):
    seen = {0: Seen(11, EPOCH_OF_FIRST_LEADER)}
    assert find_cuts(brokers.config, "orders", seen) == {0: 10}


def test_a_client_that_has_the_metadata_before_it_is_assigned_compares_too(brokers, monkeypatch):
    def with_metadata(*config):
        reader = consumer(*config)
        reader.list_topics("orders", timeout=15)
        return reader

    monkeypatch.setattr(log_cuts, "consumer", with_metadata)
    seen = {0: Seen(11, EPOCH_OF_FIRST_LEADER)}
    assert find_cuts(brokers.config, "orders", seen) == {0: 10}


def test_a_position_without_an_epoch_can_not_be_judged(brokers):
    assert find_cuts(brokers.config, "orders", {0: Seen(11)}) == {}


@pytest.mark.parametrize(("offset", "end"), [(10, 11), (11, None)])
def test_a_log_that_was_cut_before_what_was_read_has_no_end_to_go_by(brokers, offset, end):
    place = TopicPartition("orders", 0)
    ends = whole_ends(brokers.config, {place: Seen(offset, EPOCH_OF_FIRST_LEADER)})
    # These brokers do not tell the epoch of an end.
    assert ends == ({} if end is None else {place: Seen(end)})


def test_leaders_that_settle_are_asked_again(brokers):
    brokers.answer(OFFSETS_FOR_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION, 1)
    seen = {0: Seen(11, EPOCH_OF_FIRST_LEADER)}
    assert find_cuts(brokers.config, "orders", seen) == {0: 10}


def test_a_missing_permission_is_said(brokers):
    brokers.answer(FETCH, KafkaError.TOPIC_AUTHORIZATION_FAILED, 100)
    with pytest.raises(AuthorizationError, match="READ"):
        find_cuts(brokers.config, "orders", {0: Seen(5, EPOCH_OF_FIRST_LEADER)})


def test_leaders_that_do_not_answer_are_no_cut(brokers, monkeypatch):
    monkeypatch.setattr(log_cuts, "REQUEST_TIMEOUT_SECONDS", 0.5)
    brokers.answer(FETCH, KafkaError.NETWORK_EXCEPTION, 1_000)
    with pytest.raises(BrokerUnreachableError):
        find_cuts(brokers.config, "orders", {0: Seen(5, EPOCH_OF_FIRST_LEADER)})
