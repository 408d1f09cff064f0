"""The contract for sources, on a real broker; and what only a broker can show."""

import uuid

import confluent_kafka
import pytest
from tests.contracts.source import SourceContract, event, reader_of, spec
from tests.kafka_topics import grow_topic, make_topic
from tests.waiting import FLUSH_SECONDS, wait_for

from headrace.kafka.client import admin_requests, clients
from headrace.kafka.client.admin_requests import admin
from headrace.kafka.client.clients import producer
from headrace.kafka.client.offsets import commit, commit_offsets
from headrace.kafka.dead_letters import replayed
from headrace.kafka.read import range_reader
from headrace.kafka.read.cluster import KafkaCluster
from headrace.kafka.read.log_cuts import Seen
from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.source.planning.planner import Planner


class KafkaLab:
    def __init__(self, bootstrap):
        self.client = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
        self.cluster = KafkaCluster(self.client)

    def create(self, topic, partitions, config=None):
        make_topic(self.client, topic, partitions, config=config or {})

    def add_partitions(self, topic, partitions):
        grow_topic(self.client, topic, partitions)

    def append(self, topic, partition, values, headers=()):
        sender = producer(self.client)
        for value in values:
            sender.produce(topic, value, partition=partition, headers=list(headers))
        assert sender.flush(FLUSH_SECONDS) == 0

    def delete_before(self, topic, partition, offset):
        self.cluster.live(topic)  # a new partition has a leader only after a moment
        upto = confluent_kafka.TopicPartition(topic, partition, offset)
        self._done(admin(self.client).delete_records([upto]))

    def recreate(self, topic, partitions):
        self._done(admin(self.client).delete_topics([topic], operation_timeout=20))
        self.create(topic, partitions)

    def commit(self, group, topic, offsets):
        positions = {TopicPartition(topic, p): at for p, at in offsets.items()}
        commit_offsets(self.client, group, positions)

    def replay(self, topic, partition, value, *readers):
        live = admin_requests.describe(self.client, [topic])[topic]
        partitions = live.all_partitions
        opened = replayed.opened_windows(self.client, topic, partitions)
        commit(self.client, replayed.replay_group(topic), opened)
        sender = clients.producer(self.client)
        place = replayed.PartitionId(TopicPartition(topic, partition), live.topic_id)
        header = replayed.addressees(readers, place)
        sender.produce(topic, value, partition=partition, headers=[header])
        assert sender.flush(FLUSH_SECONDS) == 0
        closed = replayed.closed_windows(self.client, topic, partitions)
        commit(self.client, replayed.replay_group(topic), closed)

    @staticmethod
    def _done(futures):
        for future in futures.values():
            future.result()


@pytest.fixture
def lab(broker):
    return KafkaLab(broker.bootstrap_servers)


@pytest.fixture
def topic_name():
    return f"numbers-{uuid.uuid4().hex[:8]}"


class TestKafka(SourceContract):
    pass


def markers_written(lab, topic_name, latest, partition=0):
    """The broker answers before its transaction markers are in the log."""
    wait_for(
        lambda: lab.cluster.live(topic_name).latest[partition] >= latest, "the transaction markers"
    )


def numbers(found, start, end):
    reader = reader_of(
        found, OffsetRange(TopicPartition(found.topic, 0), start, end), 0, topic_id="id"
    )
    return [row["n"] for table in reader.tables() for row in table.to_pylist()]


def test_aborted_records_are_not_read_and_a_marker_at_the_end_ends_the_range(
    lab, topic_name, tmp_path
):
    lab.create(topic_name, 1)
    sender = confluent_kafka.Producer({**lab.client, "transactional.id": topic_name})
    sender.init_transactions()
    for number, ends in ((1, sender.commit_transaction), (2, sender.abort_transaction)):
        sender.begin_transaction()
        sender.produce(topic_name, event(number), partition=0)
        sender.flush(FLUSH_SECONDS)  # an abort forgets what was not sent yet
        ends()
    markers_written(lab, topic_name, 4)
    found = spec(lab.cluster, topic_name, tmp_path)
    planner = Planner(found)
    start = planner.initial_offset()
    planner.stop_at_latest()
    assert planner.plan_next(start).partitions == {0: 4}
    assert numbers(found, 0, 4) == [1]


def test_an_open_transaction_holds_the_batch_back(lab, topic_name, tmp_path):
    lab.create(topic_name, 1)
    lab.append(topic_name, 0, [event(0)])
    sender = confluent_kafka.Producer({**lab.client, "transactional.id": topic_name})
    sender.init_transactions()
    sender.begin_transaction()
    sender.produce(topic_name, event(1), partition=0)
    sender.flush(FLUSH_SECONDS)
    planner = Planner(spec(lab.cluster, topic_name, tmp_path))
    start = planner.initial_offset()
    planner.stop_at_latest()
    assert planner.plan_next(start).partitions == {0: 1}
    sender.abort_transaction()


def test_a_topic_with_an_open_transaction_in_one_partition_is_told_as_such(lab, topic_name):
    lab.create(topic_name, 2)
    lab.append(topic_name, 0, [event(0)])
    assert lab.cluster.live_unless_open(topic_name).latest == {0: 1, 1: 0}
    sender = confluent_kafka.Producer({**lab.client, "transactional.id": topic_name})
    sender.init_transactions()
    sender.begin_transaction()
    sender.produce(topic_name, event(1), partition=1)
    sender.flush(FLUSH_SECONDS)
    assert lab.cluster.live_unless_open(topic_name) is None
    sender.commit_transaction()
    markers_written(lab, topic_name, 2, partition=1)
    assert lab.cluster.live_unless_open(topic_name).latest == {0: 1, 1: 2}


def test_an_unreachable_broker_is_waited_for(tmp_path, lab, topic_name, monkeypatch):
    lab.create(topic_name, 1)
    start = Planner(spec(lab.cluster, topic_name, tmp_path)).initial_offset()
    monkeypatch.setattr(admin_requests, "REQUEST_TIMEOUT_SECONDS", 1.0)
    away = KafkaCluster({"bootstrap.servers": "127.0.0.1:9", "socket.timeout.ms": "1000"})
    assert Planner(spec(away, topic_name, tmp_path)).plan_next(start) == start


def test_a_committed_offset_keeps_the_epoch_of_its_leader(lab, topic_name):
    lab.create(topic_name, 2)
    lab.append(topic_name, 0, [event(0)])
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    assert lab.cluster.live(topic_name).epochs == {0: 0, 1: 0}
    commit_offsets(lab.client, topic_name, {first: 1, second: 0}, {first: 0})
    assert lab.cluster.committed(topic_name, topic_name) == {0: Seen(1, 0), 1: Seen(0, -1)}


def test_a_range_is_read_within_the_reading_of_another(lab, topic_name, monkeypatch):
    """A task that matches queries reads those that are new while it has records to come."""
    monkeypatch.setattr(range_reader, "CHUNK_RECORDS", 10)
    lab.create(topic_name, 2)
    for partition in (0, 1):
        lab.append(topic_name, partition, [event(n) for n in range(35)])
    read = {0: 0, 1: 0}
    for outer in lab.cluster.read([OffsetRange(TopicPartition(topic_name, 0), 0, 35)]):
        read[0] += len(outer.records)
        if not read[1]:
            for inner in lab.cluster.read([OffsetRange(TopicPartition(topic_name, 1), 0, 35)]):
                read[1] += len(inner.records)
    assert read == {0: 35, 1: 35}


def test_a_position_of_this_leader_is_no_cut(lab, topic_name):
    lab.create(topic_name, 1)
    lab.append(topic_name, 0, [event(0), event(1)])
    assert lab.cluster.cuts(topic_name, {0: Seen(2, 0)}) == {}


def test_an_election_of_many_partitions_with_a_backlog_is_answered(broker, topic):
    """Leaders answer with records: those of 200 partitions came one a second and partition."""
    lab, name = KafkaLab(broker.bootstrap_servers), topic()
    lab.create(name, 200)
    sender = producer(lab.client)
    for number in range(40_000):
        sender.produce(name, bytes(200), partition=number % 200)
    assert sender.flush(FLUSH_SECONDS) == 0
    epochs = lab.cluster.live(name).epochs
    assert lab.cluster.cuts(name, {p: Seen(10, epoch) for p, epoch in epochs.items()}) == {}
