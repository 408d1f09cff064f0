"""Topics on a real broker: created as declared, drift found and mended, offsets committed."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace.errors import BrokerUnreachableError, TopicChangeError, TopicMissingError
from headrace.kafka.admin import propagation
from headrace.kafka.admin.topics import (
    Action,
    KnownKey,
    apply_changes,
    dead_letter_topic,
    delete_topic,
    ensure_topics,
    plan_topics,
    topic_states,
)
from headrace.kafka.client import clients
from headrace.kafka.client.admin_requests import admin, describe, topic_ids
from headrace.kafka.client.brokers import describe_brokers
from headrace.kafka.client.offsets import commit_offsets, group_offsets, watermarks
from headrace.model import Topic, TopicPartition
from headrace.settings import KafkaSettings


class Click:
    id: str
    campaign: str


@pytest.fixture
def config(broker) -> dict[str, str]:
    return clients.client_config(KafkaSettings(), broker.bootstrap_servers)


@pytest.fixture
def plan(config) -> Callable[..., list]:
    def changes(*declared: Topic, keys=None) -> list:
        return plan_topics(declared, topic_states(config, [one.name for one in declared]), keys)

    return changes


def write(config: dict[str, str], topic: str, values: list[bytes]) -> None:
    producer = clients.producer(config)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(FLUSH_SECONDS) == 0


def test_a_topic_is_created_with_exactly_what_is_declared(config, plan, topic):
    declared = Topic(
        topic(), partitions=3, retention=timedelta(hours=1), config={"segment.bytes": "1048576"}
    )
    [creation] = plan(declared)
    apply_changes(config, [creation])
    state = topic_states(config, [declared.name])[declared.name]
    assert (state.live.partitions, state.live.replication) == (3, 1)
    assert {name: state.config[name] for name in state.overrides} == declared.kafka_config
    assert plan(declared) == []


def test_a_dead_letter_topic_takes_a_record_of_the_largest_size_with_its_headers(config, topic):
    dead = dead_letter_topic(Topic(topic()))
    apply_changes(config, plan_topics([dead], {}))
    producer = clients.producer(config)
    producer.produce(dead.name, b"x" * 1_048_000, headers=[("headrace-detail", b"y" * 2_000)])
    assert producer.flush(FLUSH_SECONDS) == 0
    partition = TopicPartition(dead.name, 0)
    assert watermarks(config, [partition]) == {partition: (0, 1)}


def test_partitions_are_added(config, plan, topic):
    name = topic()
    apply_changes(config, plan(Topic(name, partitions=2)))
    [change] = plan(Topic(name, partitions=4))
    assert change.action is Action.ADD_PARTITIONS
    apply_changes(config, [change])
    assert plan(Topic(name, partitions=4)) == []


def test_settings_are_altered_and_what_is_not_declared_returns_to_the_default(config, plan, topic):
    name = topic()
    apply_changes(config, plan(Topic(name, config={"segment.bytes": "1048576"})))
    wanted = Topic(name, retention=timedelta(days=2))
    [change] = plan(wanted)
    assert change.config == {"retention.ms": "172800000", "segment.bytes": None}
    apply_changes(config, [change])
    assert plan(wanted) == []


def shows(config: dict[str, str], number: int, topic: str) -> bool:
    """Whether this very broker shows a topic."""
    broker = admin(config).list_topics(topic, timeout=LIMIT_SECONDS).brokers[number]
    answers = (
        clients.broker_client(config, broker).list_topics(topic, timeout=LIMIT_SECONDS)
        for _ in itertools.count()
    )
    own = next(answer for answer in answers if answer.orig_broker_id in {-1, number})
    return topic in own.topics and own.topics[topic].error is None


def answered(ask: Callable[[], object]) -> bool:
    """Asks until a broker answers: the one that hangs may be asked several times in a row."""
    with contextlib.suppress(BrokerUnreachableError):
        ask()
        return True
    return False


def test_a_topic_is_created_once_every_broker_shows_it(start_cluster, topic, monkeypatch):
    """Also one that hangs: it may come back with what it knew, and any of them is asked next."""
    monkeypatch.setattr(propagation, "KNOWN_WITHIN", timedelta(hours=1))
    three = start_cluster(brokers=3, config={"broker.session.timeout.ms": "600000"})
    config = clients.client_config(KafkaSettings(), three.bootstrap_servers)
    declared, shown = Topic(topic(), partitions=3, replication=2), []
    wait_for(lambda: describe_brokers(config).count == 3)  # the others name it from now on
    three.cluster.pause(3)
    with ThreadPoolExecutor(1) as pool:
        try:
            created = pool.submit(
                wait_for, lambda: answered(lambda: ensure_topics(config, [declared]))
            )
            for _ in range(5):
                wait_for(
                    lambda: (
                        answered(lambda: shown.append(describe(config, [declared.name])))
                        and declared.name in shown[-1]
                    )
                )
            assert not created.done()
        finally:
            three.cluster.resume(3)
        created.result()
    assert all(shows(config, number, declared.name) for number in (1, 2, 3))
    three.cluster.stop()


def test_fewer_partitions_are_refused_with_the_reason(config, plan, topic):
    name = topic()
    apply_changes(config, plan(Topic(name, partitions=2)))
    [change] = plan(Topic(name))
    assert change.action is Action.REFUSED
    assert "can't take any away" in change.detail
    apply_changes(config, [change])
    assert describe(config, [name])[name].partitions == 2


def test_a_changed_key_is_refused_once_there_are_records(config, plan, topic):
    name = topic()
    before, after = (Topic(name, event=Click, key=key) for key in ("id", "campaign"))
    apply_changes(config, plan(before))
    keys = {name: KnownKey(topic_ids(config, [name])[name], "id")}
    assert plan(after, keys=keys) == []
    write(config, name, [b"{}"])
    assert plan(before, keys=keys) == []
    [change] = plan(after, keys=keys)
    assert change.action is Action.REFUSED
    assert "keyed by 'id'" in change.detail


def test_what_kafka_refuses_is_an_error_with_its_reason(config, plan, topic):
    with pytest.raises(TopicChangeError, match=r"(?i)replication factor"):
        apply_changes(config, plan(Topic(topic(), replication=3)))
    with pytest.raises(TopicChangeError, match=r"(?i)segment\.bites"):
        apply_changes(config, plan(Topic(topic(), config={"segment.bites": "1"})))


def test_a_recreated_topic_has_another_id(config, plan, topic):
    name = topic()
    apply_changes(config, plan(Topic(name)))
    first = topic_ids(config, [name])
    admin(config).delete_topics([name])[name].result()
    wait_for(lambda: not topic_ids(config, [name]))
    apply_changes(config, plan(Topic(name)))
    assert topic_ids(config, [name]) != first


def test_a_topic_that_does_not_exist_has_no_id_and_no_watermarks(config, topic):
    name = topic()
    assert topic_ids(config, [name]) == {}
    with pytest.raises(TopicMissingError):
        watermarks(config, [TopicPartition(name, 0)])


def test_offsets_are_committed_without_subscribing_and_any_consumer_sees_them(config, plan, topic):
    name, group = topic(), topic("group")
    apply_changes(config, plan(Topic(name, partitions=2)))
    write(config, name, [b"a", b"b"])
    offsets = {TopicPartition(name, 0): 1, TopicPartition(name, 1): 0}
    assert group_offsets(config, group, offsets) == {}
    commit_offsets(config, group, offsets)
    assert group_offsets(config, group, offsets) == offsets


def test_offsets_are_told_after_a_broker_was_taken_for_dead_for_a_moment(start_cluster):
    sessions = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "300"}
    cluster = start_cluster(config=sessions)
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    ensure_topics(config, [Topic("orders", partitions=1)])
    orders = TopicPartition("orders", 0)
    told = {orders: (0, 0)}
    [broker] = cluster.cluster.status().brokers
    for _ in range(2):  # a client that asks for the first time fetches the metadata anyway
        assert watermarks(config, [orders]) == told
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(6)
        os.kill(broker.pid, signal.SIGCONT)
        time.sleep(2)
    assert watermarks(config, [orders]) == told


def test_watermarks_say_the_earliest_and_the_next_offset_of_each_partition(config, plan, topic):
    name = topic()
    apply_changes(config, plan(Topic(name, partitions=2)))
    write(config, name, [b"x"] * 10)
    marks = watermarks(config, [TopicPartition(name, 0), TopicPartition(name, 1)])
    assert sum(latest for _, latest in marks.values()) == 10
    assert {earliest for earliest, _ in marks.values()} == {0}


def test_brokers_say_how_many_they_are_and_how_they_are_set(config):
    brokers = describe_brokers(config)
    assert brokers.count == 1
    assert brokers.config["min.insync.replicas"] == "1"
    assert "socket.request.max.bytes" in brokers.config


def test_a_deleted_topic_is_gone_and_may_be_deleted_again(config, topic):
    name = topic()
    apply_changes(config, plan_topics([Topic(name)], {}))
    delete_topic(config, name)
    assert describe(config, [name]) == {}
    delete_topic(config, name)


def test_several_may_ensure_a_topic_at_once(config, topic):
    wanted = Topic(topic(), partitions=3)
    with ThreadPoolExecutor(6) as executor:
        done = [executor.submit(ensure_topics, config, [wanted]) for _ in range(6)]
        assert [one.result() for one in done] == [None] * 6
    assert describe(config, [wanted.name])[wanted.name].partitions == 3


def test_a_write_is_confirmed_where_more_copies_must_be_in_sync_than_there_are(config, topic):
    """What `headrace check` says of such a topic is what Kafka does."""
    declared = Topic(topic(), config={"min.insync.replicas": "2"})
    apply_changes(config, plan_topics([declared], {}))
    write(config, declared.name, [b"x"])
