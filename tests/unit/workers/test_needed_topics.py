"""What an instance asks of its partitioner and of its topics before it begins."""

import asyncio
from collections import Counter
from datetime import timedelta
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace import Topic, Worker, WorkerTask
from headrace.errors import TopicMissingError
from headrace.kafka.admin.topics import TopicState
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.group.start_positions import StartPosition
from headrace.model import Start, TopicPartition
from headrace.workers import DeadLetters, RetryTopics
from headrace.workers.consumer_group import needed_topics
from headrace.workers.consumer_group.needed_topics import _like, ensure_needed_topics
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.threads import TaskThreads
from headrace.workers.tasks.retry_topics import retry_topic
from headrace.workers.timing import WorkerTiming


class Idle(WorkerTask):
    async def process(self, record):
        """Nothing comes."""


class ByTopic:
    """A partitioner that knows one topic."""

    def __init__(self):
        self.asked = []

    def subpartition(self, record):
        return 0

    def count(self, partition):
        self.asked.append(partition)
        return {"clicks": 2}[partition.topic]


def test_a_partitioner_is_asked_about_the_topic_that_it_was_written_for():
    partitioner = ByTopic()
    worker = Worker("w", Topic("clicks"), Idle, partitioner=partitioner, on_failure=RetryTopics())

    async def run():
        failures = SimpleNamespace(on_rebalance=lambda here: None)
        context = LaneContext(worker, Idle, TaskThreads(1, "t"), None, failures, Counter(), None)
        assignments = PartitionSet(context)
        retry = TopicPartition(retry_topic("w", "clicks", 1), 3)
        assignments.assign("group", [StartPosition(retry, 0, "", "id")])
        assert len(assignments.lanes) == 2
        await assignments.drain(0)

    asyncio.run(run())
    assert partitioner.asked == [TopicPartition("clicks", 3)]


@pytest.mark.parametrize(
    ("own_ms", "delay", "kept_ms"),
    [
        ("-1", timedelta(days=9), "-1"),
        ("1000", timedelta(seconds=1), "2000"),
        ("86400000", timedelta(seconds=1), "86400000"),
    ],
)
def test_a_retry_topic_is_like_its_topic_with_room_for_headers(own_ms, delay, kept_ms):
    settings = {"max.message.bytes": "4000000", "retention.ms": own_ms}
    origin = TopicState(LiveTopic("clicks", "id", 4, 3), settings, frozenset())
    made = _like(origin, "clicks.w.retry-1", delay)
    assert (made.partitions, made.replication) == (4, 3)
    assert made.config == {"max.message.bytes": "4065536", "retention.ms": kept_ms}


def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(monkeypatch):
    """A broker that has just started tells of no topic."""
    known = [["clicks", "clicks.dead"], ["clicks"], []]
    monkeypatch.setattr(needed_topics, "describe", lambda *_: dict.fromkeys(known.pop()))
    worker = Worker("w", Topic("clicks"), Idle, on_failure=DeadLetters())
    ensure_needed_topics(worker, {}, WorkerTiming(needed_topics_seconds=0))
    assert known == []


def test_a_dead_letter_topic_that_is_not_there_is_said_at_the_start(monkeypatch):
    monkeypatch.setattr(needed_topics, "describe", lambda *_: {"clicks": None})
    monkeypatch.setattr(needed_topics, "KNOWN_WITHIN", timedelta(seconds=-1))
    worker = Worker("w", Topic("clicks"), Idle, on_failure=DeadLetters())
    with pytest.raises(TopicMissingError, match=r"clicks\.dead"):
        ensure_needed_topics(worker, {})


def test_the_topic_of_a_reference_that_does_not_exist_is_said_at_the_start(monkeypatch):
    monkeypatch.setattr(needed_topics, "describe", lambda *_: {"clicks": None})
    monkeypatch.setattr(needed_topics, "KNOWN_WITHIN", timedelta(seconds=-1))
    worker = Worker("w", Topic("clicks"), Idle, references={"accounts": Topic("accounts")})
    with pytest.raises(TopicMissingError, match="accounts"):
        ensure_needed_topics(worker, {})


@pytest.fixture
def latest(monkeypatch):
    """A worker that begins at the end of a topic, whose group has committed nothing."""
    partition = TopicPartition("clicks", 0)
    live = {"clicks": LiveTopic("clicks", "id", 1, 1)}
    monkeypatch.setattr(needed_topics, "describe", lambda *_: live)
    monkeypatch.setattr(needed_topics, "group_offsets", lambda *_: {})
    monkeypatch.setattr(needed_topics, "latest_offsets", lambda *_: {partition: (90, 3)})
    return Worker("w", Topic("clicks"), Idle, start=Start.LATEST)


def test_a_start_at_the_end_of_a_topic_is_logged_with_its_offsets(latest, monkeypatch, caplog):
    committed = []
    monkeypatch.setattr(needed_topics, "commit_offsets", lambda *given: committed.append(given))
    needed_topics.begin_at_latest(latest, {})
    here = TopicPartition("clicks", 0)
    assert committed == [({}, "headrace.w", {here: 90}, {here: 3})]
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "clicks[0] at 90" in record.getMessage()


def test_a_topic_that_begins_at_its_earliest_records_beside_members_is_logged(
    latest, monkeypatch, caplog
):
    def refuse(*_):
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))

    monkeypatch.setattr(needed_topics, "commit_offsets", refuse)
    needed_topics.begin_at_latest(latest, {})
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "topic clicks" in record.getMessage()
    assert "earliest records" in record.getMessage()
