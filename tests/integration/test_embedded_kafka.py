"""The embedded cluster, with a real client."""

from __future__ import annotations

import socket

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS

from headrace.errors import ServerStartError
from headrace.kafka.client.clients import connected_producer


def create(bootstrap_servers: str, topic: str, **settings) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    settings.setdefault("num_partitions", 1)
    admin.create_topics([NewTopic(topic, **settings)])[topic].result(LIMIT_SECONDS)


def produce(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    failures: list[object] = []
    sender = connected_producer({"bootstrap.servers": bootstrap_servers})
    for value in values:
        sender.produce(topic, value, on_delivery=lambda e, _: failures.append(e) if e else None)
    assert sender.flush(FLUSH_SECONDS) == 0
    assert failures == []


def consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"test.{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        records = consumer.consume(count, timeout=LIMIT_SECONDS)
        return [record.value() for record in records]
    finally:
        consumer.close()


def test_what_is_produced_is_consumed(broker, topic):
    name = topic()
    create(broker.bootstrap_servers, name)
    produce(broker.bootstrap_servers, name, [b"a", b"b", b"c"])
    assert consume(broker.bootstrap_servers, name, 3) == [b"a", b"b", b"c"]


def refusals(sender: Producer, topic: str) -> list[int]:
    """Codes of what a send comes to: refused at once, or later, as the metadata comes in."""
    codes: list[int] = []
    try:
        sender.produce(topic, b"lost", on_delivery=lambda error, _: codes.append(error.code()))
    except KafkaException as error:
        codes.append(error.args[0].code())
    sender.flush(FLUSH_SECONDS)
    return codes


def test_no_topic_comes_into_being_unasked(broker, topic):
    name = topic()
    sender = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "topic.metadata.propagation.max.ms": 0}
    )
    assert refusals(sender, name) in (
        [KafkaError.UNKNOWN_TOPIC_OR_PART],
        [KafkaError._UNKNOWN_TOPIC],
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert name not in admin.list_topics(timeout=LIMIT_SECONDS).topics


def test_starting_twice_is_one_cluster(broker):
    before = broker.cluster.status()
    assert broker.cluster.start() == broker.bootstrap_servers
    assert broker.cluster.status() == before
    assert before.running


def test_the_ports_of_a_running_cluster_are_not_changed_under_it(broker, start_cluster):
    with pytest.raises(ServerStartError, match="stop it before you change its ports"):
        start_cluster(ports=(29_999,), folder=broker.folder)
    assert broker.cluster.status().bootstrap_servers == broker.bootstrap_servers


def test_a_stopped_cluster_comes_back_at_the_same_address_with_its_records(
    start_cluster, topic, tmp_path, monkeypatch
):
    """From a folder with spaces and accents."""
    # After a kill, a broker comes back only when its session is over.
    config = {"broker.session.timeout.ms": "6000"}
    monkeypatch.setenv("LC_ALL", "C")
    folder = tmp_path / "d\u00e9mo (\u6d4b\u8bd5) 100%"
    name, first = topic(), start_cluster(folder=folder, config=config)
    assert first.cluster.status().running
    create(first.bootstrap_servers, name)
    produce(first.bootstrap_servers, name, [b"kept"])
    first.cluster.stop()
    assert not first.cluster.status().running
    again = start_cluster(folder=first.folder, config=config)
    assert again.bootstrap_servers == first.bootstrap_servers
    assert consume(again.bootstrap_servers, name, 1) == [b"kept"]
    produce(again.bootstrap_servers, name, [b"acknowledged"])
    again.cluster.kill(1)
    again.cluster.start()
    assert consume(again.bootstrap_servers, name, 2) == [b"kept", b"acknowledged"]
    again.cluster.stop()


@pytest.mark.drill
def test_three_brokers_lose_nothing_when_one_is_killed_and_another_paused(start_cluster, topic):
    name, three = topic(), start_cluster(brokers=3)
    create(three.bootstrap_servers, name, num_partitions=3, replication_factor=3)
    produce(three.bootstrap_servers, name, [b"1", b"2", b"3"])
    single = topic("one-copy")
    create(three.bootstrap_servers, single, replication_factor=1)
    produce(three.bootstrap_servers, single, [b"fewer copies than the broker wants in sync"])
    three.cluster.kill(1)
    assert [broker.pid is None for broker in three.cluster.status().brokers] == [True, False, False]
    produce(three.bootstrap_servers, name, [b"4", b"5", b"6"])
    three.cluster.start_broker(1)
    three.cluster.pause(2)
    produce(three.bootstrap_servers, name, [b"7", b"8", b"9"])
    three.cluster.resume(2)
    values = consume(three.bootstrap_servers, name, 9)
    assert sorted(values) == [str(number).encode() for number in range(1, 10)]
    three.cluster.stop()
    assert not any(broker.pid for broker in three.cluster.status().brokers)


def test_a_configured_port_that_is_taken_is_named(start_cluster, tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ServerStartError, match=f"port {port} of 127.0.0.1 is taken"):
            start_cluster(ports=(port,), folder=tmp_path)


def test_a_broker_that_cannot_start_says_why_in_its_own_words(start_cluster, tmp_path):
    with pytest.raises(ServerStartError, match=r"num\.io\.threads") as caught:
        start_cluster(config={"num.io.threads": "0"}, folder=tmp_path)
    assert caught.value.server.startswith("Kafka")
