from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.mock_brokers import MockBrokers

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client import admin_requests, clients
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.settings import KafkaSettings

SETTLED_SECONDS = 2.5  # after that, a client does not ask again who coordinates its group
NOWHERE = "127.0.0.1:1"


def test_a_broker_that_does_not_answer_is_named_with_the_reason(monkeypatch):
    # In which the client is to connect: on a busy machine, that may take more than a second.
    monkeypatch.setattr(admin_requests, "REQUEST_TIMEOUT_SECONDS", 5.0)
    config = clients.client_config(KafkaSettings(), NOWHERE)
    with pytest.raises(BrokerUnreachableError, match=NOWHERE) as raised:
        admin_requests.topic_ids(config, ["clicks"])
    assert "Connection refused" in str(raised.value)


@pytest.mark.parametrize("code", [KafkaError._DESTROY_BROKER, KafkaError.FENCED_LEADER_EPOCH])
def test_brokers_that_change_their_leaders_are_asked_again(code):
    changing = [KafkaException(KafkaError(code))] * 2

    def request(_):
        if changing:
            raise changing.pop()
        return "answer"

    assert admin_requests.admin_request(MockBrokers().config, request) == "answer"


def test_a_request_that_met_a_cluster_out_of_service_is_sent_again_by_a_new_client():
    """librdkafka waits for a controller until the timeout, and may reach no broker any more."""
    brokers, clients = MockBrokers(), []

    def request(client):
        clients.append(client)
        if len(clients) < 3:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "waiting for controller"))
        return "answer"

    assert admin_requests.admin_request(brokers.config, request) == "answer"
    assert len(set(map(id, clients))) == 3


@pytest.mark.parametrize("nobody", [None, SimpleNamespace(id=-1)])
def test_a_partition_that_no_broker_leads_is_known(nobody):
    leaders = [SimpleNamespace(id=0), nobody]
    replicas = [SimpleNamespace(id=7)]
    partitions = [
        SimpleNamespace(id=n, leader=at, replicas=replicas) for n, at in enumerate(leaders)
    ]
    topic = SimpleNamespace(name="clicks", topic_id="id", partitions=partitions)
    assert LiveTopic.of(topic).leaderless == {1}
    assert LiveTopic.of(topic).replicas == {0: {7}, 1: {7}}
