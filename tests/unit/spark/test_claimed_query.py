"""A query whose positions are claimed: what it commits, and what it refuses to commit."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from headrace.errors import BrokerUnreachableError, DispatcherRunningError
from headrace.kafka.read.log_cuts import Seen
from headrace.kafka.read.resume import SourceChangedError
from headrace.model import TopicPartition
from headrace.spark import claimed_query
from headrace.spark.claimed_query import ClaimedQuery, Claims, CommittedPosition
from headrace.spark.topic_query import DoneBatches

SOURCE, COPY = TopicPartition("clicks", 0), TopicPartition("events", 0)
START = CommittedPosition(10, "id", 70, "own", 1)


class Cluster:
    """A source that ends at 30, a target that ends at 80, and a query that has read up to 20."""

    def __init__(self):
        self.is_active, self.failure = False, None
        self.committed, self.commits = {SOURCE: START}, []
        self.source = SimpleNamespace(name="clicks", topic_id="id", partitions=1)
        self.target = SimpleNamespace(name="events", topic_id="target-id")
        self.readable = {SOURCE}
        self.ends = {SOURCE: Seen(30, 2)}
        self.target_ends = [80, 90]
        self.done = DoneBatches(1, 10, 5, {SOURCE: 20})

    def commit(self, positions):
        self.commits.append(positions[SOURCE])
        self.committed = positions

    def progress(self):
        return self.done

    def acknowledge(self, _):
        self.done = None

    def query(self, folder, sent_to=0):
        """Returns the query, which has ended, as it starts."""
        claims = Claims(
            {},
            {},
            lambda _: COPY,
            live=lambda: (self.source, self.target),
            readable=lambda _: self.readable,
            committed=lambda _: self.committed,
            commit=self.commit,
            commit_seconds=60.0,
            taken_by=lambda other: DispatcherRunningError("d", "waw", other),
        )
        start = {SOURCE: START}
        return ClaimedQuery(claims, start, "target-id", {SOURCE: sent_to}, lambda _: self, folder)


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    watermarks = {"high_watermarks": lambda *_: {COPY: made.target_ends.pop(0)}}
    watermarks["latest_offsets"] = lambda *_: {SOURCE: (30, 2)}
    watermarks["whole_ends"] = lambda *_: made.ends
    for name, fake in watermarks.items():
        monkeypatch.setattr(claimed_query, name, fake)
    return made


def watched(query):
    return list(query.watch(threading.Event(), 0.0, lambda _: None))


@pytest.mark.parametrize(("sent_to", "scan_from"), [(0, 80), (20, 80), (21, 70)])
def test_the_next_start_scans_from_the_end_before_the_batch_unless_what_follows_was_sent(
    cluster, tmp_path, sent_to, scan_from
):
    query = cluster.query(tmp_path / "checkpoint", sent_to)
    assert watched(query) == [{"clicks/0": 10}]
    assert cluster.commits == [CommittedPosition(20, "id", scan_from, "own", 2)]
    assert query.has_ended_batches


def recreate_source(cluster):
    cluster.source.topic_id = "other-id"


def recreate_target(cluster):
    cluster.target.topic_id = "other-id"


def delete_positions(cluster):
    cluster.committed = {}


def truncate(cluster):
    cluster.ends = {}


def take(cluster):
    cluster.committed = {SOURCE: CommittedPosition(10, "id", 70, "other", 1)}


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (recreate_source, SourceChangedError),
        (recreate_target, SourceChangedError),
        (delete_positions, SourceChangedError),
        (truncate, SourceChangedError),
        (take, DispatcherRunningError),
    ],
)
def test_nothing_is_committed_where_another_instance_or_topic_has_come(
    cluster, tmp_path, happens, error
):
    query = cluster.query(tmp_path / "checkpoint")
    happens(cluster)
    with pytest.raises(error):
        watched(query)
    assert cluster.commits == []


def test_a_query_continues_without_brokers_and_does_not_end_before_its_last_commit(
    cluster, tmp_path
):
    query = cluster.query(tmp_path / "checkpoint")
    unreachable = BrokerUnreachableError("localhost", "they are silent")

    def raising():
        raise unreachable

    cluster.progress, cluster.is_active = raising, True
    looks = query.watch(threading.Event(), 0.0, lambda _: None)
    cluster.target_ends = [80, 80]
    assert next(looks) is unreachable
    cluster.is_active = False
    with pytest.raises(BrokerUnreachableError):
        next(looks)


def test_the_checkpoint_is_empty_at_the_start_and_removed_at_the_end(cluster, tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "left-over").touch()
    query = cluster.query(folder)
    assert list(folder.iterdir()) == []
    cluster.stop = lambda: None
    query.stop()
    assert not folder.exists()
