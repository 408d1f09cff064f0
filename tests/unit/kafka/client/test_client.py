from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.mock_brokers import LIST_OFFSETS, MockBrokers

from headrace.errors import AuthorizationError, BrokerUnreachableError
from headrace.kafka.client import client
from headrace.model import TopicPartition
from headrace.settings import KafkaSettings, Secret

SETTLED_SECONDS = 2.5  # after that, a client does not ask again who coordinates its group
NOWHERE = "127.0.0.1:1"


def test_a_key_goes_where_java_clients_send_it():
    assert client.client_config(KafkaSettings(), "b:1") == {
        "bootstrap.servers": "b:1",
        "partitioner": "murmur2_random",
    }


def test_security_and_secrets_are_for_the_users_own_cluster_only():
    security = {"security.protocol": "SASL_SSL"}
    secrets = {"sasl.password": Secret("x")}
    own = KafkaSettings("b:1", security, secrets)
    embedded = KafkaSettings("", security, secrets)
    assert client.client_config(own, "b:1")["sasl.password"] == "x"
    assert "sasl.password" not in client.client_config(embedded, "b:1")


def test_records_are_acknowledged_by_all_in_sync_replicas(monkeypatch):
    """Also where a project's settings of the client say otherwise."""
    monkeypatch.setattr(client.confluent_kafka, "Producer", lambda config, **_: config)
    settings = client.producer({"acks": "1", "enable.idempotence": "false"})
    assert (settings["acks"], settings["enable.idempotence"]) == ("all", "true")


def test_a_new_producer_knows_brokers_before_its_first_record(monkeypatch):
    """Otherwise it asks for its id, without which it sends nothing, half a second later."""
    asked = []
    made = SimpleNamespace(list_topics=lambda topic, timeout: asked.append(topic))
    monkeypatch.setattr(client.confluent_kafka, "Producer", lambda *_, **__: made)
    assert client.connected_producer({}) is made
    assert asked == [client.ALWAYS_THERE]


def test_brokers_that_do_not_answer_are_no_error_of_a_new_producer():
    client.connected_producer({"bootstrap.servers": NOWHERE})


def test_a_broker_that_does_not_answer_is_named_with_the_reason(monkeypatch):
    # In which the client is to connect: on a busy machine, that may take more than a second.
    monkeypatch.setattr(client, "REQUEST_TIMEOUT_SECONDS", 5.0)
    config = client.client_config(KafkaSettings(), NOWHERE)
    with pytest.raises(BrokerUnreachableError, match=NOWHERE) as raised:
        client.topic_ids(config, ["clicks"])
    assert "Connection refused" in str(raised.value)


def test_nothing_asked_needs_no_broker():
    config = client.client_config(KafkaSettings(), NOWHERE)
    assert client.describe(config, []) == {}
    assert client.watermarks(config, []) == {}
    assert client.group_offsets(config, "g", []) == {}
    client.commit_offsets(config, "g", {})


@pytest.mark.parametrize("code", [KafkaError._DESTROY_BROKER, KafkaError.FENCED_LEADER_EPOCH])
def test_brokers_that_change_their_leaders_are_asked_again(code):
    changing = [KafkaException(KafkaError(code))] * 2

    def request(_):
        if changing:
            raise changing.pop()
        return "answer"

    assert client.admin_request(MockBrokers().config, request) == "answer"


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
    assert client.watermarks(brokers.config, [orders]) == {orders: (0, 2)}
    brokers.answer(LIST_OFFSETS, code, 2)
    assert client.watermarks(brokers.config, [orders]) == {orders: (0, 2)}


def test_a_request_that_met_a_cluster_out_of_service_is_sent_again_by_a_new_client():
    """librdkafka waits for a controller until the timeout, and may reach no broker any more."""
    brokers, clients = MockBrokers(), []

    def request(client):
        clients.append(client)
        if len(clients) < 3:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "waiting for controller"))
        return "answer"

    assert client.admin_request(brokers.config, request) == "answer"
    assert len(set(map(id, clients))) == 3


def test_an_answer_without_an_offset_is_none_and_newer_metadata_is_fetched(monkeypatch):
    """Taken for the end of a log, it would be one that was cut."""
    brokers, orders = MockBrokers(), TopicPartition("orders", 0)
    brokers.create("orders")
    brokers.append("orders", [b"1", b"2"])
    real, refreshed, offsets = client.admin(brokers.config), [], [-1001]

    def list_offsets(asked, **options):
        if not offsets:
            return real.list_offsets(asked, **options)
        answer = Future()
        answer.set_result(SimpleNamespace(offset=offsets.pop(), leader_epoch=None))
        return dict.fromkeys(asked, answer)

    def list_topics(**_):
        refreshed.append("metadata")

    forgetful = SimpleNamespace(list_offsets=list_offsets, list_topics=list_topics, poll=real.poll)
    monkeypatch.setattr(client, "admin", lambda _: forgetful)
    assert client.latest_offsets(brokers.config, [orders])[orders][0] == 2
    assert len(refreshed) == 1


def test_a_coordinator_that_stops_answering_is_given_up_for_its_successor():
    """Its connection stays open, as that of a broker which is frozen or behind a dead switch."""
    brokers, orders = MockBrokers(), TopicPartition("orders", 0)
    brokers.create("orders")
    brokers.coordinate("g", 2)
    client.commit_offsets(brokers.config, "g", {orders: 1})
    time.sleep(SETTLED_SECONDS)
    brokers.answer_after(3_600_000, [2])
    brokers.coordinate("g", 3)
    assert client.group_offsets(brokers.config, "g", [orders]) == {orders: 1}


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
    client.watermarks(config, [orders])  # it has logged in
    monkeypatch.setattr(client, "REQUEST_TIMEOUT_SECONDS", -1.0)
    monkeypatch.setattr(client, "consumer", lambda *_: SilentConsumer())
    with pytest.raises(AuthorizationError, match="group forbidden-once"):
        client.group_offsets(config, "forbidden-once", [TopicPartition("orders", 0)])
    with pytest.raises(BrokerUnreachableError):
        client.group_offsets(config, "forbidden-once", [TopicPartition("orders", 0)])


@pytest.mark.parametrize("before_1970_ms", [-1, -2, -(10**10), -62135596800000])
def test_a_time_before_1970_is_no_name_of_an_offset(before_1970_ms):
    brokers = MockBrokers()
    brokers.create("clicks")
    brokers.append("clicks", [b"1", b"2"])
    clicks = [TopicPartition("clicks", 0)]
    since_1970 = client.offsets_since(brokers.config, clicks, 0)
    assert client.offsets_since(brokers.config, clicks, before_1970_ms) == since_1970


@pytest.mark.parametrize("nobody", [None, SimpleNamespace(id=-1)])
def test_a_partition_that_no_broker_leads_is_known(nobody):
    leaders = [SimpleNamespace(id=0), nobody]
    partitions = [SimpleNamespace(id=n, leader=at, replicas=[1]) for n, at in enumerate(leaders)]
    topic = SimpleNamespace(name="clicks", topic_id="id", partitions=partitions)
    assert client._live(topic).leaderless == {1}
