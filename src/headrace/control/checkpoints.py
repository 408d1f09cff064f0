"""Where pipelines stand: their checkpoints and paused partitions, looked at and set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.control.services import broker_config, lake_uri
from headrace.control.sinks import position_store
from headrace.kafka.client import LiveTopic, describe, group_offsets, watermarks
from headrace.kafka.cluster import KafkaCluster
from headrace.model import Start, TopicPartition
from headrace.pipelines.checkpoint import (
    FROM_TABLE,
    CheckpointFolder,
    CurrentCheckpoint,
    checkpoint_root,
)
from headrace.pipelines.lock import CheckpointLock, lock_folder
from headrace.pipelines.pipeline import Pipeline
from headrace.pipelines.positions import CheckpointIds, newest_checkpoint
from headrace.pipelines.resets import Resets
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.source.state import SourceState
from headrace.settings import Settings

_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)/(?P<number>\d+)")


@dataclass(frozen=True)
class PartitionPositions:
    """One partition: where the table and the group stand, and what the topic holds.

    Attributes:
        partition: ``topic/number``.
        table: the next record that the table lacks; None: it records nothing of it.
        committed: the group's offset; None: none yet.
        earliest: first offset in the topic.
        latest: the one after the last.
    """

    partition: str
    table: int | None
    committed: int | None
    earliest: int
    latest: int


@dataclass(frozen=True)
class CheckpointStatus:
    """Where a pipeline stands.

    Attributes:
        checkpoint: URI of the checkpoint that counts; empty before the first run.
        number: how many there have been, this one included.
        start: where it began or will begin; empty: where the source's ``start`` says.
        begun: a run has begun it.
        positions: one a partition.
    """

    checkpoint: str
    number: int
    start: str
    begun: bool
    positions: tuple[PartitionPositions, ...]


def standing(settings: Settings, pipeline: Pipeline) -> CheckpointStatus:
    """Where ``pipeline`` stands.

    Raises:
        BrokerUnreachableError: no answer.
    """
    folder = CheckpointFolder(checkpoint_root(lake_uri(settings), settings), pipeline.name)
    current = folder.current()
    uri = folder.checkpoint(current).uri if current else ""
    found = current or CurrentCheckpoint(0, "", begun=False)
    positions = tuple(_positions(settings, pipeline))
    return CheckpointStatus(uri, found.number, found.start, found.begun, positions)


def reset(
    settings: Settings, pipeline: Pipeline, to: str, *, accept_loss: bool = False
) -> CheckpointStatus:
    """Begin a new checkpoint with the next run; deletes nothing.

    Args:
        settings: the deployment.
        pipeline: which must not run.
        to: a :class:`Start`, or ``table``: where the table stands.
        accept_loss: with ``table``: also where retention has removed records after that.

    Raises:
        CheckpointInUseError: the pipeline runs.
        NothingCommittedError: there are no offsets to begin at.
        RetentionPassedError: records after the place where the table stands are gone.
        BrokerUnreachableError: no answer.
    """
    before = standing(settings, pipeline)  # a start that can't be reached is no reason to reset
    folder = CheckpointFolder(checkpoint_root(lake_uri(settings), settings), pipeline.name)
    positions = position_store(settings, pipeline)
    resets = Resets(pipeline, folder, positions, KafkaCluster(broker_config(settings)))
    with _held(settings, pipeline):
        if to == FROM_TABLE:
            current = resets.to_table(accept_loss=accept_loss)
        else:
            current = resets.to_start(Start(to))
    uri = folder.checkpoint(current).uri
    return CheckpointStatus(uri, current.number, current.start, current.begun, before.positions)


def parse_partition(text: str) -> TopicPartition | None:
    """``topic/number``; None when it is not of that form."""
    found = _PARTITION.fullmatch(text)
    return TopicPartition(found["topic"], int(found["number"])) if found else None


def paused(settings: Settings, pipeline: Pipeline) -> set[TopicPartition]:
    """Partitions of ``pipeline`` that are held where they are."""
    state = _state(settings, pipeline)
    return {
        TopicPartition(source.topic.name, number)
        for source in pipeline.sources
        for number in state.paused(source.topic.name)
    }


def missing_partitions(
    settings: Settings, pipeline: Pipeline, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Those of ``partitions`` that their topics don't have, and how many these have.

    The cluster is asked only for those beyond the declared number.

    Raises:
        BrokerUnreachableError: no answer.
    """
    declared = {source.topic.name: source.topic.partitions for source in pipeline.sources}
    beyond = [one for one in partitions if one.partition >= declared[one.topic]]
    live = describe(broker_config(settings), [one.topic for one in beyond]) if beyond else {}
    counts = {name: len(topic.all_partitions) for name, topic in live.items()}
    return {
        one: count
        for one in beyond
        if one.partition >= (count := counts.get(one.topic, declared[one.topic]))
    }


def hold(settings: Settings, pipeline: Pipeline, partitions: Iterable[TopicPartition]) -> None:
    """Pause exactly these partitions, from the next batch on, also while the pipeline runs."""
    state, wanted = _state(settings, pipeline), list(partitions)
    for source in pipeline.sources:
        name = source.topic.name
        state.pause(name, frozenset(one.partition for one in wanted if one.topic == name))


def _state(settings: Settings, pipeline: Pipeline) -> SourceState:
    return SourceState(settings.state / "state" / pipeline.name)


@contextmanager
def _held(settings: Settings, pipeline: Pipeline) -> Iterator[None]:
    lock = CheckpointLock(lock_folder(settings.state, lake_uri(settings)), pipeline.name)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _positions(settings: Settings, pipeline: Pipeline) -> Iterator[PartitionPositions]:
    config = broker_config(settings)
    topics = describe(config, [source.topic.name for source in pipeline.sources])
    partitions = [one for topic in topics.values() for one in topic.all_partitions]
    committed = group_offsets(config, pipeline.consumer_group, partitions)
    table = _in_table(settings, pipeline, topics)
    for one, (earliest, latest) in watermarks(config, partitions).items():
        name = f"{one.topic}/{one.partition}"
        yield PartitionPositions(name, table.get(one), committed.get(one), earliest, latest)


def _in_table(
    settings: Settings, pipeline: Pipeline, topics: Mapping[str, LiveTopic]
) -> Mapping[TopicPartition, int]:
    positions = position_store(settings, pipeline)
    number = newest_checkpoint(pipeline.name, positions)
    if positions is None or number is None:
        return {}
    asked = {
        name: SourceOffset(name, topic.topic_id, dict.fromkeys(range(topic.partitions), 0), 0)
        for name, topic in topics.items()
    }
    return CheckpointIds(pipeline.name, number).recorded(positions, asked).positions
