"""What users set for readers and writers of records is there, and in no other client."""

from __future__ import annotations

import asyncio

import confluent_kafka
import pytest

from headrace.kafka.client import clients
from headrace.kafka.client.clients import client_config, writer_tuning
from headrace.kafka.client.java_client import java_config
from headrace.kafka.group.group_member import GroupMember
from headrace.kafka.group.subscription import Membership, Pauses, Subscription
from headrace.kafka.read.polling import poll_endlessly
from headrace.kafka.write.counting_producer import CountingProducer
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.sending import send_each
from headrace.kafka.write.transactions import TransactionalProducer
from headrace.links.source_reader import SourceReader
from headrace.model import TopicPartition
from headrace.settings import ClientSettings, KafkaSettings
from headrace.spark.topic_query import OutgoingRows, ReadTopic
from headrace.workers.lanes.sender import Sender

OWN = ClientSettings(
    client={"client.id": "mine"},
    consumer={"fetch.min.bytes": "77", "fetch.wait.max.ms": "444"},
    producer={"linger.ms": "33", "batch.size": "5000", "compression.type": "zstd"},
)
CONFIG = client_config(KafkaSettings().with_clients(OWN), "127.0.0.1:1")
PARTITION = TopicPartition("t", 0)


class MadeError(Exception):
    """A client was made with this configuration."""


@pytest.fixture(autouse=True)
def made(monkeypatch):
    def client(config, **_):
        raise MadeError(config)

    monkeypatch.setattr(confluent_kafka, "Consumer", client)
    monkeypatch.setattr(confluent_kafka, "Producer", client)


def configuration(make):
    with pytest.raises(MadeError) as raised:
        make()
    [config] = raised.value.args
    assert not [name for name in config if name.startswith(("consumer.", "producer."))]
    assert config["client.id"] == "mine"
    return config


def nothing(*_):
    """Does nothing."""


def task_consumer():
    with clients.task_consumer(CONFIG):
        pass


async def _send():
    Sender(CONFIG).enqueue(("t", b"", b"", -1), (), None)


@pytest.mark.parametrize(
    "reader",
    [
        lambda: Subscription(CONFIG, Membership("g"), Pauses(), nothing, nothing, nothing),
        task_consumer,
        lambda: SourceReader(("", "m", ""), "g", CONFIG, {"fetch.wait.max.ms": "100"}, nothing),
    ],
)
def test_a_reader_of_records_has_what_is_set(reader):
    config = configuration(reader)
    assert config["fetch.min.bytes"] == "77"
    assert config["fetch.wait.max.ms"] == "444"
    assert config["isolation.level"] == "read_committed"
    assert config["enable.auto.commit"] == "false"
    assert "linger.ms" not in config


@pytest.mark.parametrize(
    "writer",
    [
        lambda: asyncio.run(_send()),
        lambda: TransactionalProducer(CONFIG, "id"),
        lambda: CountingProducer(CONFIG, 1_000_000),
        lambda: send_each(CONFIG, [ProducerRecord("t", b"", None, ())], {"batch.size": "9000"}),
    ],
)
def test_a_writer_of_records_has_what_is_set(writer):
    config = configuration(writer)
    assert config["linger.ms"] == "33"
    assert config["batch.size"] == "5000"
    assert config["compression.type"] == "zstd"
    assert config["acks"] == "all"
    assert config["enable.idempotence"] == "true"
    assert "fetch.min.bytes" not in config


def test_a_batch_has_the_lower_one_of_two_limits():
    """A topic refuses larger batches as a whole; a record at fault is found by batches of one."""
    limits = {"batch.size": "4000", "batch.num.messages": "1"}
    config = {"producer.batch.size": "5000", "producer.batch.num.messages": "10"}
    assert writer_tuning(config, limits) == limits
    assert writer_tuning(config, {"batch.size": "6000"})["batch.size"] == "5000"
    assert writer_tuning(config | {"batch.size": "4000"}, {})["batch.size"] == "4000"


@pytest.mark.parametrize(
    "look",
    [
        lambda: clients.consumer(CONFIG),
        lambda: clients.producer(CONFIG),
        lambda: next(poll_endlessly(CONFIG, "g", {PARTITION: 0}, {})),
        lambda: GroupMember(
            CONFIG, "g", ["t"], on_assigned=nothing, on_revoked=nothing, on_lost=nothing
        ),
    ],
)
def test_a_client_that_only_looks_something_up_has_the_common_settings_alone(look):
    config = configuration(look)
    assert "fetch.min.bytes" not in config
    assert config.get("linger.ms") != "33"


def test_kafkas_java_client_has_what_it_knows_by_its_names():
    read = ReadTopic(CONFIG, "t", {PARTITION: 0}, "g").options
    assert read["kafka.fetch.min.bytes"] == "77"
    assert read["kafka.fetch.max.wait.ms"] == "444"
    assert read["kafka.isolation.level"] == "read_committed"
    assert read["kafka.client.id"] == "mine"
    written = OutgoingRows(CONFIG, lambda rows: rows).options
    assert written["kafka.linger.ms"] == "33"
    assert written["kafka.batch.size"] == "5000"
    assert written["kafka.compression.type"] == "zstd"
    assert written["kafka.acks"] == "all"
    one_by_one = OutgoingRows(CONFIG, lambda rows: rows, one_by_one=True).options
    assert one_by_one["kafka.batch.size"] == "0"
    assert set(java_config(CONFIG)) == {"bootstrap.servers", "client.id"}
