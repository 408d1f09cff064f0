from __future__ import annotations

from types import SimpleNamespace

from headrace.kafka.client import clients
from headrace.settings import KafkaSettings, Secret

SETTLED_SECONDS = 2.5  # after that, a client does not ask again who coordinates its group
NOWHERE = "127.0.0.1:1"


def test_a_key_goes_where_java_clients_send_it():
    assert clients.client_config(KafkaSettings(), "b:1") == {
        "bootstrap.servers": "b:1",
        "partitioner": "murmur2_random",
    }


def test_security_and_secrets_are_for_the_users_own_cluster_only():
    security = {"security.protocol": "SASL_SSL"}
    secrets = {"sasl.password": Secret("x")}
    own = KafkaSettings("b:1", security, secrets)
    embedded = KafkaSettings("", security, secrets)
    assert clients.client_config(own, "b:1")["sasl.password"] == "x"
    assert "sasl.password" not in clients.client_config(embedded, "b:1")


def test_records_are_acknowledged_by_all_in_sync_replicas(monkeypatch):
    """Also where a project's settings of the client say otherwise."""
    monkeypatch.setattr(clients.confluent_kafka, "Producer", lambda config, **_: config)
    settings = clients.producer({"acks": "1", "enable.idempotence": "false"})
    assert (settings["acks"], settings["enable.idempotence"]) == ("all", "true")


def test_a_new_producer_knows_brokers_before_its_first_record(monkeypatch):
    """Otherwise it asks for its id, without which it sends nothing, half a second later."""
    asked = []
    made = SimpleNamespace(list_topics=lambda topic, timeout: asked.append(topic))
    monkeypatch.setattr(clients.confluent_kafka, "Producer", lambda *_, **__: made)
    assert clients.connected_producer({}) is made
    assert asked == [clients.ALWAYS_THERE]


def test_brokers_that_do_not_answer_are_no_error_of_a_new_producer():
    clients.connected_producer({"bootstrap.servers": NOWHERE})
