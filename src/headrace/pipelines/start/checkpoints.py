"""Shows and resets the checkpoints of pipelines, and pauses their partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.offsets import group_offsets, watermarks
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import Start, TopicPartition
from headrace.pipelines.batch.positions import CheckpointIds, held_positions, newest_checkpoint
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.sinks import position_store, side_position_store
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.source.state import SourceState
from headrace.pipelines.start.checkpoint import (
    FROM_TABLE,
    CheckpointFolder,
    CurrentCheckpoint,
    checkpoint_root,
)
from headrace.pipelines.start.resets import Resets
from headrace.project.services import broker_config, lake_uri
from headrace.settings import Settings
from headrace.spark.lock import CheckpointLock, lock_folder

_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)/(?P<number>\d+)")


@dataclass(frozen=True)
class PartitionPositions:
    """The positions of a pipeline in a partition, and the offsets that the topic holds.

    Attributes:
        partition: ``topic/number``.
        table: offset of the next record that the table lacks; ``None`` if it records no position.
        committed: committed offset of the consumer group; ``None`` if there is none yet.
        earliest: first offset in the topic.
        latest: the offset after the last record.
    """

    partition: str
    table: int | None
    committed: int | None
    earliest: int
    latest: int


@dataclass(frozen=True)
class CheckpointStatus:
    """The checkpoint of a pipeline, and its positions.

    Attributes:
        checkpoint: URI of the current checkpoint; empty before the first run.
        number: number of checkpoints that the pipeline has had, this one included.
        start: where it began or will begin; empty: at the ``start`` of the source.
        begun: whether a run has used it.
        positions: those of each partition.
    """

    checkpoint: str
    number: int
    start: str
    begun: bool
    positions: tuple[PartitionPositions, ...]


def standing(settings: Settings, pipeline: Pipeline) -> CheckpointStatus:
    """Returns the checkpoint and the positions of ``pipeline``.

    Raises:
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
    """
    folder = CheckpointFolder(checkpoint_root(lake_uri(settings), settings), pipeline.name)
    current = folder.current()
    uri = folder.checkpoint(current).uri if current else ""
    current = current or CurrentCheckpoint(0, "", begun=False)
    positions = tuple(_positions(settings, pipeline))
    return CheckpointStatus(uri, current.number, current.start, current.begun, positions)


def reset(
    settings: Settings, pipeline: Pipeline, to: str, *, accept_loss: bool = False
) -> CheckpointStatus:
    """Makes the next run begin a new checkpoint; deletes nothing.

    Args:
        settings: the deployment.
        pipeline: the pipeline, which must not run.
        to: a :class:`Start`, or ``table`` for the positions that the table records.
        accept_loss: with ``table``, continue where retention has deleted records behind them.

    Raises:
        CheckpointInUseError: if the pipeline runs.
        NothingCommittedError: if there are no offsets to begin at.
        RetentionPassedError: if records behind the positions of the table were deleted.
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
    """
    # First, since a broker that does not respond is no reason to leave a half-made reset behind.
    before = standing(settings, pipeline)
    folder = CheckpointFolder(checkpoint_root(lake_uri(settings), settings), pipeline.name)
    positions = position_store(settings, pipeline)
    side_positions = side_position_store(settings, pipeline)
    cluster = KafkaCluster(broker_config(settings))
    ledger = LedgerFolder(lake_uri(settings), pipeline.name, settings.storage)
    resets = Resets(pipeline, folder, positions, cluster, side_positions, ledger)
    # No run of this machine may start between the read of the positions and the new checkpoint.
    # One elsewhere is noticed by the first commit (`Resets.to_table`).
    with _held(settings, pipeline):
        if to == FROM_TABLE:
            current = resets.to_table(accept_loss=accept_loss)
        else:
            current = resets.to_start(Start(to))
    uri = folder.checkpoint(current).uri
    return CheckpointStatus(uri, current.number, current.start, current.begun, before.positions)


def parse_partition(text: str) -> TopicPartition | None:
    """Parses ``topic/number``; returns ``None`` when the text is not of that form."""
    match = _PARTITION.fullmatch(text)
    return TopicPartition(match["topic"], int(match["number"])) if match else None


def paused(settings: Settings, pipeline: Pipeline) -> set[TopicPartition]:
    """Returns the paused partitions of ``pipeline``."""
    state = _state(settings, pipeline)
    return {
        TopicPartition(source.topic.name, number)
        for source in pipeline.sources
        for number in state.paused(source.topic.name)
    }


def missing_partitions(
    settings: Settings, pipeline: Pipeline, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the partitions that their topics don't have, with the number that these have.

    Asks the cluster only about partitions beyond the declared number.

    Raises:
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
    """
    declared = {source.topic.name: source.topic.partitions for source in pipeline.sources}
    # A partition within the declared number needs no broker, so pausing works without Kafka.
    beyond = [at for at in partitions if at.partition >= declared[at.topic]]
    topics = [partition.topic for partition in beyond]
    live = describe(broker_config(settings), topics) if topics else {}
    counts = {name: len(topic.all_partitions) for name, topic in live.items()}
    return {
        partition: count
        for partition in beyond
        if partition.partition >= (count := counts.get(partition.topic, declared[partition.topic]))
    }


def hold(settings: Settings, pipeline: Pipeline, partitions: Iterable[TopicPartition]) -> None:
    """Pauses exactly these partitions from the next batch on, also while the pipeline runs."""
    state, paused = _state(settings, pipeline), list(partitions)
    for source in pipeline.sources:
        name = source.topic.name
        state.pause(name, frozenset(at.partition for at in paused if at.topic == name))


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
    partitions = [at for topic in topics.values() for at in topic.all_partitions]
    committed = group_offsets(config, pipeline.consumer_group, partitions)
    table = _in_table(settings, pipeline, topics)
    for partition, (earliest, latest) in watermarks(config, partitions).items():
        name = f"{partition.topic}/{partition.partition}"
        own = (table.get(partition), committed.get(partition))
        yield PartitionPositions(name, *own, earliest, latest)


def _in_table(
    settings: Settings, pipeline: Pipeline, topics: Mapping[str, LiveTopic]
) -> Mapping[TopicPartition, int]:
    recorded = position_store(settings, pipeline)
    positions = None if recorded is None else held_positions(pipeline.name, recorded)
    number = newest_checkpoint(pipeline.name, positions)
    if positions is None or number is None:
        return {}
    # Only the ids and partitions of the topics are needed to name positions, not offsets or times.
    sources = {
        name: SourceOffset(name, topic.topic_id, dict.fromkeys(range(topic.partitions), 0), 0)
        for name, topic in topics.items()
    }
    return CheckpointIds(pipeline.name, number).recorded(positions, sources).positions
