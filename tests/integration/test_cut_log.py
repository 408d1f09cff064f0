"""A log that an unclean election cut and that grew again: three brokers, a copy left behind."""

import contextlib

import confluent_kafka
import msgspec
import pytest
from confluent_kafka.admin import NewTopic
from tests.contracts.source import drained, event, read, spec
from tests.integration import instances
from tests.integration.instances import drill, recorder
from tests.integration.test_cut_logs import Aggregating
from tests.waiting import FLUSH_SECONDS, wait_for

from headrace import StandingQueries
from headrace.errors import (
    BrokerUnreachableError,
    QueryTopicTruncatedError,
    TopicTruncatedError,
    WorkerTruncatedError,
)
from headrace.kafka.client.admin_requests import admin
from headrace.kafka.client.offsets import commit_offsets, group_offsets
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import Start, Topic, TopicPartition
from headrace.pipelines.source.planning.planner import Planner
from headrace.queries.records.matched import Tick
from headrace.settings import KafkaSettings, Settings
from headrace.workers import Worker, WorkerInstance
from headrace.workers.reset import reset

TOPIC = "cut"
SOON_OUT_OF_SYNC = {"broker.session.timeout.ms": "3000", "replica.lag.time.max.ms": "3000"}


@pytest.fixture
def running(start_cluster):
    found = start_cluster(brokers=3, config=SOON_OUT_OF_SYNC)
    yield found
    found.cluster.resume(1)
    found.cluster.stop()


def in_time(ask, *asked):
    """The group's coordinator may be on the broker that is stopped, until another one leads."""
    answers = []

    def has_answered():
        with contextlib.suppress(BrokerUnreachableError):
            answers.append(ask(*asked))
        return answers

    return wait_for(has_answered)[0]


class UncleanElection:
    """A broker that is behind becomes the leader of a partition, and takes other records.

    Both brokers of the topic have 100 records, and the one that leads 50 more.
    """

    def __init__(self, running, topic=TOPIC):
        self.client = {"bootstrap.servers": running.bootstrap_servers}
        self._cluster, self._topic = running.cluster, topic
        settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        new = NewTopic(topic, 1, replica_assignment=[[1, 2]], config=settings)
        admin(self.client).create_topics([new])[topic].result()
        self._await(1, {1, 2})

    def write_before(self, values):
        """Writes the 150 records of before."""
        self.write(values[:100], acks="all")
        # The brokers make their topic of offsets now, while all copies of it have a place.
        in_time(commit_offsets, self.client, "first", {TopicPartition(self._topic, 0): 0})
        self._cluster.pause(2)
        self._await(1, {1})
        self.write(values[100:])

    def elect(self, values=()):
        """Has the broker that is behind lead, and writes these records."""
        self._cluster.pause(1)
        self._cluster.resume(2)
        self._await(2, {2})
        self.write(values)

    def write(self, values, acks="1"):
        """Writes these records."""
        sender = confluent_kafka.Producer({**self.client, "acks": acks})
        for value in values:
            sender.produce(self._topic, value, partition=0)
        assert sender.flush(FLUSH_SECONDS) == 0

    def _await(self, leader, in_sync):
        """Waits until this broker leads, and exactly these are in sync."""
        wait_for(lambda: self._leadership() == (leader, in_sync), self._leadership)

    def _leadership(self):
        try:
            topic = admin(self.client).list_topics(self._topic, timeout=5).topics[self._topic]
            partition = topic.partitions[0]
        except (confluent_kafka.KafkaException, KeyError):
            return None  # it asked the broker that is stopped, or one that does not know it yet
        return partition.leader, set(partition.isrs)


@pytest.mark.drill
def test_a_log_that_was_cut_and_grew_again_is_refused_and_read_from_the_cut(running, tmp_path):
    election = UncleanElection(running)
    client = election.client
    election.write_before([event(n) for n in range(150)])
    cluster = KafkaCluster(client)
    source = spec(cluster, TOPIC, tmp_path)
    planner = Planner(source)
    end = drained(planner, planner.initial_offset())
    assert end.partitions == {0: 150}
    group, position = source.planning.consumer_group, TopicPartition(TOPIC, 0)
    in_time(commit_offsets, client, group, {position: 150}, {position: end.epochs[0]})

    election.elect([event(n) for n in range(1_000, 1_080)])

    with pytest.raises(TopicTruncatedError, match="checkpoint offset 150, cut offset 100"):
        Planner(source).plan_next(end)
    again = spec(cluster, TOPIC, tmp_path / "again", start=Start.COMMITTED)
    planner = Planner(again)
    start = in_time(planner.initial_offset)
    rows = read(again, start, drained(planner, start))
    assert [n for _, _, n in rows] == list(range(1_000, 1_080))


@pytest.mark.drill
def test_a_worker_is_refused_and_begins_at_the_cut(running, tmp_path):
    election = UncleanElection(running)
    seen, task = recorder()
    worker = Worker("worker", Topic(TOPIC), task)
    place = TopicPartition(TOPIC, 0)

    def work(end):
        async def until_done():
            async with instances.running(WorkerInstance(worker, election.client)):
                done = group_offsets, election.client, worker.consumer_group, [place]
                await instances.until_brokers_say(lambda: in_time(*done) == {place: end})

        drill(until_done())

    election.write_before([b"%d" % n for n in range(150)])
    work(150)

    election.elect()

    for following in ([], [b"%d" % n for n in range(1_000, 1_080)]):  # first, the log is shorter
        election.write(following)
        with pytest.raises(WorkerTruncatedError) as refused:
            drill(WorkerInstance(worker, election.client).run())
        assert refused.value.cut_offset == 100
    kafka = KafkaSettings(bootstrap_servers=running.bootstrap_servers)
    reset(
        Settings(tmp_path, "cut", (), str(tmp_path), kafka=kafka),
        worker,
        to="committed",
        dry_run=False,
    )
    seen.clear()
    work(180)
    assert [*seen.values()] == [list(range(1_000, 1_080))]


@pytest.mark.drill
def test_standing_queries_are_refused(running):
    queries = StandingQueries("ads", partitions=1)
    election = UncleanElection(running, queries.matched_topic)
    aggregating = Aggregating(running, queries)
    tick = msgspec.json.encode(Tick("views", "match", None, 0, {}, 0))
    election.write_before([tick] * 150)
    aggregating.take(150)

    election.elect([tick] * 80)

    with pytest.raises(QueryTopicTruncatedError) as refused:
        aggregating.take(80)
    assert refused.value.cut_offset == 100
