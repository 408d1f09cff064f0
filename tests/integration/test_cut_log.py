"""A log that an unclean election cut and that grew again: three brokers, a copy left behind."""

import contextlib

import confluent_kafka
import pytest
from confluent_kafka.admin import NewTopic
from tests.contracts.source import drained, event, read, spec
from tests.waiting import FLUSH_SECONDS, wait_for

from headrace.errors import BrokerUnreachableError, TopicTruncatedError
from headrace.kafka.client import admin, commit_offsets
from headrace.kafka.cluster import KafkaCluster
from headrace.model import Start, TopicPartition
from headrace.pipelines.source.planner import Planner

TOPIC = "cut"
SOON_OUT_OF_SYNC = {"broker.session.timeout.ms": "3000", "replica.lag.time.max.ms": "3000"}


@pytest.fixture
def running(start_cluster):
    found = start_cluster(brokers=3, config=SOON_OUT_OF_SYNC)
    yield found
    found.cluster.resume(1)
    found.cluster.stop()


def write(client, first, last, acks="1"):
    sender = confluent_kafka.Producer({**client, "acks": acks})
    for n in range(first, last):
        sender.produce(TOPIC, event(n), partition=0)
    assert sender.flush(FLUSH_SECONDS) == 0


def await_partition(client, leader, in_sync):
    """Until this broker leads, and exactly these are in sync."""
    wait_for(lambda: leadership(client) == (leader, in_sync), lambda: leadership(client))


def in_time(ask, *asked):
    """The group's coordinator may be on the broker that is stopped, until another one leads."""
    answers = []

    def has_answered():
        with contextlib.suppress(BrokerUnreachableError):
            answers.append(ask(*asked))
        return answers

    return wait_for(has_answered)[0]


def leadership(client):
    try:
        found = admin(client).list_topics(TOPIC, timeout=5).topics[TOPIC].partitions[0]
    except (confluent_kafka.KafkaException, KeyError):
        return None  # it asked the broker that is stopped, or one that does not know the topic yet
    return found.leader, set(found.isrs)


@pytest.mark.drill
def test_a_log_that_was_cut_and_grew_again_is_refused_and_read_from_the_cut(running, tmp_path):
    client = {"bootstrap.servers": running.bootstrap_servers}
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    new = NewTopic(TOPIC, 1, replica_assignment=[[1, 2]], config=settings)
    admin(client).create_topics([new])[TOPIC].result()
    await_partition(client, 1, {1, 2})
    write(client, 0, 100, acks="all")  # both copies have them
    # The brokers make their topic of offsets now, while all copies of it have a place.
    in_time(commit_offsets, client, "first", {TopicPartition(TOPIC, 0): 0})
    running.cluster.pause(2)
    await_partition(client, 1, {1})
    write(client, 100, 150)
    cluster = KafkaCluster(client)
    found = spec(cluster, TOPIC, tmp_path)
    planner = Planner(found)
    end = drained(planner, planner.initial_offset())
    assert end.partitions == {0: 150}
    group, position = found.consumer_group, TopicPartition(TOPIC, 0)
    in_time(commit_offsets, client, group, {position: 150}, {position: end.epochs[0]})

    running.cluster.pause(1)
    running.cluster.resume(2)
    await_partition(client, 2, {2})
    write(client, 1_000, 1_080)

    with pytest.raises(TopicTruncatedError, match="checkpoint offset 150, cut offset 100"):
        Planner(found).plan_next(end)
    again = spec(cluster, TOPIC, tmp_path / "again", start=Start.COMMITTED)
    planner = Planner(again)
    start = in_time(planner.initial_offset)
    rows = read(again, start, drained(planner, start))
    assert [n for _, _, n in rows] == list(range(1_000, 1_080))
