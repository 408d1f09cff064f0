"""Three brokers in two racks: where the copies of a partition are, and which of them is read."""

import json
import os

import pytest
from tests.integration.instances import drill, running
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, until, wait_for

from headrace.kafka.client.clients import client_config, connected_producer
from headrace.kafka.embedded import cluster as embedded
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import OffsetRange, Topic, TopicPartition
from headrace.operations.planning.plan import make_plan
from headrace.project.check import load_project
from headrace.settings import load_settings
from headrace.workers import Worker, WorkerInstance, WorkerTask

RACKS = {1: "a", 2: "b", 3: "b"}
RECORDS, BYTES = 20, 100_000


@pytest.fixture(scope="module")
def three(start_cluster):
    plain = embedded.broker_config

    def in_rack(broker, layout, data):
        return plain(broker, layout, data) | {"broker.rack": RACKS[broker.node]}

    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "broker_config", in_rack)
        yield start_cluster(brokers=3, config={"replica.selector.class": selector})


@pytest.fixture
def settings(three, tmp_path):
    """Those of a project whose machine is in rack b."""
    (tmp_path / "headrace.toml").write_text(
        '[project]\nname = "racks"\nmodules = ["flow"]\n'
        f'[kafka]\nbootstrap_servers = "{three.bootstrap_servers}"\n'
        '[kafka.client]\nclient.rack = "b"\n'
    )
    return load_settings(tmp_path, environ={})


def test_a_plan_warns_of_one_copy_and_of_copies_that_are_all_in_one_rack(settings):
    (settings.root / "flow.py").write_text(
        "from headrace import Topic\n"
        'once = Topic("once")\n'
        'twice = Topic("twice", partitions=2, replication=2)\n'
    )
    client = client_config(settings.kafka, settings.kafka.bootstrap_servers)
    make_topic(client, "twice", 2, replica_assignment=[[1, 2], [2, 3]])
    warnings = make_plan(load_project(settings)).warnings
    one, equal, rack = (warning.message for warning in warnings)
    assert "'once': replication is 1 (the default) on 3 brokers" in one
    assert "'twice': min.insync.replicas equals replication 2" in equal
    assert "'twice': all copies of 1 of 2 partition(s) (1) are in rack 'b'" in rack


class Traffic:
    """Bytes that clients have received from each broker, by their statistics."""

    def __init__(self):
        self._received = {}

    def __call__(self, statistics):
        told = json.loads(statistics)
        for broker in told["brokers"].values():
            self._received[told["name"], broker["nodeid"]] = broker["rxbytes"]

    def received(self, broker):
        return sum(count for (_, node), count in self._received.items() if node == broker)


def test_a_source_and_a_worker_read_from_the_replica_in_their_rack(settings, topic):
    """The broker in rack a leads the partition, and sends none of its records."""
    plain = client_config(settings.kafka, settings.kafka.bootstrap_servers)
    name = topic()
    make_topic(plain, name, 1, replica_assignment=[[1, 2]])
    producer = connected_producer(plain)
    for _ in range(RECORDS):
        producer.produce(name, os.urandom(BYTES))
    assert producer.flush(FLUSH_SECONDS) == 0

    by_source, by_worker = Traffic(), Traffic()
    statistics = {"statistics.interval.ms": "50"}
    source = KafkaCluster(plain | statistics | {"stats_cb": by_source})
    wanted = [OffsetRange(TopicPartition(name, 0), 0, RECORDS)]

    def all_came_from_the_follower():
        read = [record for chunk in source.read(wanted) for record in chunk.records]
        return len(read) == RECORDS and by_source.received(2) > RECORDS * BYTES

    wait_for(all_came_from_the_follower)
    assert by_source.received(1) < BYTES

    processed = []

    class Task(WorkerTask):
        async def process(self, record):
            processed.append(record.offset)

    async def run():
        worker = Worker(topic=Topic(name), task=Task, name=f"worker-{name}")
        instance = WorkerInstance(worker, plain | statistics | {"stats_cb": by_worker})
        async with running(instance):
            await until(lambda: by_worker.received(2) > RECORDS * BYTES)
            await until(lambda: len(processed) == RECORDS)

    drill(run())
    assert by_worker.received(1) < BYTES
