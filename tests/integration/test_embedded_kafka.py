"""The embedded cluster, with a real client."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic


def create(bootstrap_servers: str, topic: str, **settings) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    settings.setdefault("num_partitions", 1)
    admin.create_topics([NewTopic(topic, **settings)])[topic].result(30)


def produce(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda e, _: failures.append(e) if e else None)
    assert producer.flush(60) == 0
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
        records = consumer.consume(count, timeout=60)
        return [record.value() for record in records]
    finally:
        consumer.close()


def test_what_is_produced_is_consumed(broker, topic):
    name = topic()
    create(broker.bootstrap_servers, name)
    produce(broker.bootstrap_servers, name, [b"a", b"b", b"c"])
    assert consume(broker.bootstrap_servers, name, 3) == [b"a", b"b", b"c"]
