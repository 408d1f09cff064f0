"""What `check` says of the state of a worker."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from headrace.model import (
    ByAccount,
    ByField,
    ByHash,
    ByShard,
    Guarantee,
    Random,
    Spread,
    Topic,
)
from headrace.workers import (
    BatchWorkerTask,
    KeyHash,
    KeyState,
    RetryTopics,
    RoundRobin,
    Worker,
    WorkerRecord,
    WorkerTask,
    worker,
)
from headrace.workers.rules import worker_faults
from headrace.workers.state.rules import state_topic

ONCE = Guarantee.EXACTLY_ONCE
HOUR, START = timedelta(hours=1), datetime(2026, 1, 1, tzinfo=UTC)
clicks = Topic("clicks", partitions=3, config={"min.insync.replicas": "2"})


@dataclass
class Visits:
    count: int = 0


class Task(WorkerTask):
    def process(self, record):
        """Does nothing."""


class Observed(WorkerTask):
    def process(self, record, observer):
        """Does nothing."""


class Batched(BatchWorkerTask):
    def process_batch(self, records):
        """Does nothing."""


DECLARED = Worker("w", clicks, Task, guarantee=ONCE, state=Visits)


def faults(declared):
    return [fault.message for fault in worker_faults(declared)]


def test_a_state_that_can_be_kept_has_no_fault():
    assert faults(DECLARED) == []
    assert faults(replace(DECLARED, partitioner=KeyHash(64), state=dict[str, int])) == []


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"guarantee": Guarantee.AT_LEAST_ONCE}, "is at least once"),
        ({"topic": [clicks, Topic("views")]}, "reads 2 topics"),
        ({"on_failure": RetryTopics((timedelta(seconds=1),))}, "has RetryTopics"),
        ({"partitioner": RoundRobin(4)}, "its partitioner is RoundRobin"),
        ({"task": Observed}, "Observed has an observer"),
        ({"task": Batched}, "Batched has process_batch"),
        ({"state": 7}, "keeps a state of 7"),
        ({"state": complex}, "keeps a state of <class 'complex'>"),
        ({"state_bytes": 0}, "state_bytes"),
        ({"state_ttl": timedelta(0)}, "state_ttl"),
        ({"state_ttl": 7}, "state_ttl"),
        ({"state": None, "state_ttl": timedelta(days=7)}, "has state_ttl, and no state"),
        ({"group": "g" * 250}, "keeps a state: topic name"),
        ({"references": {"state": Topic("t", compaction=True)}}, "has a reference 'state'"),
    ],
)
def test_what_can_not_be_kept_is_refused(changed, fault):
    assert any(fault in message for message in faults(replace(DECLARED, **changed)))


@pytest.mark.parametrize(
    ("partitioning", "is_refused"),
    [
        (ByField("user"), False),
        (ByShard("user", {}), False),
        (ByAccount(HOUR, account="user"), False),
        (Random(), True),
        (ByField("page"), True),
        (ByHash(("user",), HOUR), True),
        (ByShard("page", {}), True),
        (ByAccount(HOUR), True),
        (ByAccount(HOUR, account="user", lead=HOUR), True),
        (ByAccount(HOUR, {"a": (Spread(START, 2),)}, account="user"), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_topic_whose_keys_are_in_several_partitions_is_refused(partitioning, is_refused):
    topic = replace(clicks, key="user", partitioning=partitioning)
    messages = faults(replace(DECLARED, topic=topic))
    assert any("records of a key into several" in message for message in messages) == is_refused


def declared(function, **options):
    return worker(topic=clicks, **{"guarantee": ONCE, "state": Visits} | options)(function)


def test_a_function_takes_the_state_by_its_name():
    def takes(record: WorkerRecord, state: KeyState[Visits]) -> None:
        """Does nothing."""

    def other(record: WorkerRecord, state: KeyState[int]) -> None:
        """Does nothing."""

    def none(record: WorkerRecord) -> None:
        """Does nothing."""

    def observed(record: WorkerRecord, state: KeyState[Visits], observer) -> None:
        """Does nothing."""

    assert faults(declared(takes)) == []
    assert any("other takes another" in message for message in faults(declared(other)))
    assert any("none does not take it" in message for message in faults(declared(none)))
    assert any("observed takes observer" in message for message in faults(declared(observed)))


def test_state_is_the_event_of_a_function_whose_worker_keeps_none():
    def takes(state: bytes) -> None:
        """Does nothing."""

    assert faults(declared(takes, state=None)) == []


def test_the_topic_has_the_partitions_and_replicas_of_the_topic_that_is_read():
    topic = state_topic(replace(DECLARED, topic=replace(clicks, replication=3)))
    assert (topic.name, topic.partitions, topic.replication) == ("headrace.w.state", 3, 3)
    assert topic.kafka_config["cleanup.policy"] == "compact"
    assert topic.kafka_config["min.insync.replicas"] == "2"
