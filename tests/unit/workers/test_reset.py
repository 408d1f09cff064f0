"""What a reset of a worker commits, and when it is refused."""

from __future__ import annotations

from datetime import timedelta

import confluent_kafka
import pytest

from headrace import Topic, Worker, WorkerTask
from headrace.errors import PartitionMissingError, TopicMissingError, WorkerRunningError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.group.groups import ConsumerGroup, Member
from headrace.kafka.read.log_cuts import Seen
from headrace.model import Start, TopicPartition
from headrace.workers import RetryTopics
from headrace.workers import reset as worker_reset
from headrace.workers import run as worker_run
from headrace.workers.consumer_group import needed_topics
from headrace.workers.lanes.offsets import PartitionOffsets
from headrace.workers.tasks.retry_topics import retry_topic

CLICKS = TopicPartition("clicks", 0)
RETRY = TopicPartition(retry_topic("w", "clicks", 1), 0)
GROUP = "headrace.w"
MARKS = {CLICKS: (5, 90), RETRY: (2, 9)}
EPOCH = 3


class Idle(WorkerTask):
    async def process(self, record):
        """Nothing comes."""


@pytest.fixture
def worker():
    return Worker(
        "w",
        Topic("clicks"),
        Idle,
        on_failure=RetryTopics([timedelta(0)]),
        start=Start.LATEST,
    )


@pytest.fixture
def cluster(monkeypatch):
    """Committed offsets and members by group."""
    offsets, members = {}, {}

    def read(_, group, partitions):
        mine = offsets.get(group, {})
        return {one: mine[one] for one in partitions if one in mine}

    def commit(_, group, begins, epochs):
        assert epochs == dict.fromkeys(begins, EPOCH)
        offsets.setdefault(group, {}).update(begins)

    live = {one.topic: LiveTopic(one.topic, "id", 1, 1) for one in MARKS}
    monkeypatch.setattr(worker_reset, "source_config", lambda *_: {})
    monkeypatch.setattr(
        worker_reset, "committed_offsets", lambda config, _, all_: read(config, GROUP, all_)
    )
    monkeypatch.setattr(
        worker_reset, "describe_group", lambda _, group: ConsumerGroup("", members.get(group, ()))
    )
    monkeypatch.setattr(needed_topics, "group_offsets", read)
    for module in (worker_run, needed_topics):
        monkeypatch.setattr(
            module, "describe", lambda _, topics: {name: live[name] for name in topics}
        )
    for module in (worker_reset, needed_topics):
        monkeypatch.setattr(
            module,
            "latest_offsets",
            lambda _, partitions: {one: (MARKS[one][1], EPOCH) for one in partitions},
        )
        monkeypatch.setattr(module, "commit_offsets", commit)
    monkeypatch.setattr(
        worker_reset, "watermarks", lambda _, partitions: {one: MARKS[one] for one in partitions}
    )
    return offsets, members


def test_a_worker_that_starts_with_the_latest_begins_with_the_earliest_after_its_reset(
    cluster, worker
):
    offsets, _ = cluster
    assert worker.consumer_group == GROUP
    needed_topics.begin_at_latest(worker, {})
    assert offsets == {GROUP: {CLICKS: 90}}
    worker_reset.reset(None, worker, to="earliest", dry_run=False)
    needed_topics.begin_at_latest(worker, {})
    assert offsets == {GROUP: {CLICKS: 5}, f"{GROUP}:retry": {RETRY: 2}}


@pytest.mark.parametrize("group", [GROUP, f"{GROUP}:retry"])
@pytest.mark.parametrize("to", ["earliest", "latest"])
def test_members_of_either_group_refuse_a_reset_that_changes_nothing(cluster, worker, group, to):
    offsets, members = cluster
    members[group] = (Member("host", "", 1),)
    with pytest.raises(WorkerRunningError, match=group):
        worker_reset.reset(None, worker, to=to, dry_run=False)
    assert offsets == {}


def test_a_reset_of_some_partitions_leaves_the_others_and_the_retry_topics(
    cluster, worker, monkeypatch
):
    offsets, _ = cluster
    second = TopicPartition("clicks", 1)
    monkeypatch.setitem(MARKS, second, (0, 40))
    counts = {"clicks": 2, RETRY.topic: 1}
    live = {name: LiveTopic(name, "id", count, 1) for name, count in counts.items()}
    monkeypatch.setattr(
        worker_run, "describe", lambda _, names: {name: live[name] for name in names}
    )
    only = worker_reset.PartitionSelection(numbers=[1])
    result = worker_reset.reset(None, worker, to="earliest", only=only, dry_run=False)
    assert offsets == {GROUP: {second: 0}}
    assert result.begins == {"clicks/1": 0}
    in_retry_topic = worker_reset.PartitionSelection([RETRY.topic], [0])
    worker_reset.reset(None, worker, to="earliest", only=in_retry_topic, dry_run=False)
    assert offsets[f"{GROUP}:retry"] == {RETRY: 2}


@pytest.mark.parametrize(
    ("only", "error"),
    [
        (worker_reset.PartitionSelection(numbers=[1]), PartitionMissingError),
        (worker_reset.PartitionSelection(topics=["gone"]), TopicMissingError),
    ],
)
def test_a_reset_of_what_is_not_there_is_refused(cluster, worker, monkeypatch, only, error):
    offsets, _ = cluster
    live = {"clicks": LiveTopic("clicks", "id", 1, 1)}
    monkeypatch.setattr(
        worker_run,
        "describe",
        lambda _, names: {name: live[name] for name in names if name in live},
    )
    with pytest.raises(error):
        worker_reset.reset(None, worker, only=only, dry_run=False)
    assert offsets == {}


def test_what_waits_in_retry_topics_stays_when_the_reset_is_not_to_the_earliest(cluster, worker):
    offsets, _ = cluster
    worker_reset.reset(None, worker, to="latest", dry_run=False)
    assert {group: found for group, found in offsets.items() if found} == {GROUP: {CLICKS: 90}}


@pytest.mark.parametrize(
    ("cuts", "begins"), [({}, {}), ({CLICKS: 40}, {CLICKS: 40}), ({CLICKS: 55}, {CLICKS: 50})]
)
def test_a_reset_to_what_is_committed_moves_what_was_cut_before_what_is_done(
    cluster, worker, monkeypatch, cuts, begins
):
    """Of the worker's topic, 50 is committed, and records up to 60 are done."""
    offsets, _ = cluster
    done = PartitionOffsets(50)
    for offset in range(50, 60):
        done.consume(offset)
        if offset != 50:
            done.finish(offset)
    at = confluent_kafka.TopicPartition("clicks", 0, 50, done.metadata("id"), EPOCH - 1)
    monkeypatch.setattr(
        worker_reset, "committed", lambda _, group, __: [at] if group == GROUP else []
    )

    def find_cuts(_, topic, seen):
        assert seen == {0: Seen(60, EPOCH - 1)}
        return {one.partition: cut for one, cut in cuts.items()}

    monkeypatch.setattr(worker_reset, "find_cuts", find_cuts)
    worker_reset.reset(None, worker, to="committed", dry_run=False)
    assert offsets.get(GROUP, {}) == begins
