"""Reads a time range of a pipeline again, beside its live run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from headrace.errors import ReprocessRefusedError, ReprocessRunningError
from headrace.kafka.read.cluster import KafkaCluster, LivePositions
from headrace.pipelines.batch.positions import CheckpointIds, held_positions, newest_checkpoint
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.reprocessing.checks import refuse_inexact
from headrace.pipelines.reprocessing.plan import Observe, ReprocessPlan, ReprocessProgress
from headrace.pipelines.reprocessing.ranges import TimeRange, planned_ranges
from headrace.pipelines.reprocessing.run import Reprocessing
from headrace.pipelines.reprocessing.unread import unread_offsets
from headrace.pipelines.run.pipeline_run import Deployment, run_context
from headrace.pipelines.run.runner import driver_session
from headrace.pipelines.sinks import position_store
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.start.shared_targets import writers_beside
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config, lake_uri
from headrace.runtime.files.file_locks import ProcessLock
from headrace.settings import Settings
from headrace.sinks.api import PositionStore
from headrace.spark.lock import lock_folder
from headrace.topics.schemas import require_extras

ReprocessState: TypeAlias = Literal["finished", "interrupted"]
"""What ended it: the last part, or a signal after which no further part was started."""

MIN_TASKS = 8
"""Tasks that read at the same time, at least; of a topic with many partitions, twice as many."""


@dataclass(frozen=True)
class ReprocessRequest:
    """What to reprocess.

    Attributes:
        times: of the records.
        tasks: about how many tasks read at the same time; None: more than there are partitions.
        accept_loss: leave out what retention has removed.
    """

    times: TimeRange
    tasks: int | None = None
    accept_loss: bool = False


@dataclass(frozen=True)
class ReprocessResult:
    """What a reprocessing did.

    Attributes:
        plan: the ranges.
        state: what ended it.
        done: the figures of all its parts.
    """

    event: str = field(default="ended", init=False)
    plan: ReprocessPlan
    state: ReprocessState
    done: ReprocessProgress


def plan_reprocessing(
    project: LoadedProject, pipeline: Pipeline, request: ReprocessRequest
) -> ReprocessPlan:
    """Returns which offsets would be reprocessed. Changes nothing.

    Raises:
        ReprocessRefusedError: if the outcome would be another one than that of the live pipeline,
            as far as it is known before Spark has planned the steps.
        RangeExpiredError: if retention has removed records of the range.
        TopicMissingError: if the topic does not exist.
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
        SinkError: if the sink's positions can't be read.
    """
    refuse_inexact(pipeline, writers_beside(project, pipeline.sink))
    if request.times.start >= request.times.end:
        raise ReprocessRefusedError(pipeline.name, "the range ends before it begins")
    settings = project.settings
    [source] = pipeline.sources
    client = broker_config(settings)
    # The positions first: records that the pipeline takes meanwhile are beyond them.
    recorded = position_store(settings, pipeline)
    checkpoint = newest_checkpoint(pipeline.name, recorded)
    # What a RESTORE took back is left to the reset after it, which reads it again.
    store = None if recorded is None else held_positions(pipeline.name, recorded)
    live = KafkaCluster(client).live(source.topic.name)
    next_offsets = _next_offsets(pipeline, store, live, KafkaCluster(client))
    ranges = planned_ranges(
        client,
        source.topic.name,
        live,
        request.times,
        next_offsets,
        accept_loss=request.accept_loss,
    )
    tasks = request.tasks or max(MIN_TASKS, 2 * len(live.latest))
    plan = ReprocessPlan(
        pipeline.name, request.times, live.topic_id, checkpoint, tuple(ranges), tasks
    )
    if store is None:
        return plan
    unread = unread_offsets(plan, store, lake_uri(settings), settings.storage)
    return replace(plan, unread=tuple(unread))


def reprocess(
    project: LoadedProject,
    pipeline: Pipeline,
    request: ReprocessRequest,
    deployment: Deployment,
    *,
    observe: Observe,
    stop: threading.Event,
) -> ReprocessResult:
    """Reads a time range again, and brings the sink to what the pipeline makes of it now.

    :mod:`headrace.pipelines.reprocessing` has the contract.

    Args:
        project: declares the pipelines.
        pipeline: one of them; it may run meanwhile.
        request: what to reprocess.
        deployment: where.
        observe: called after each part.
        stop: once it is set, no further part is started.

    Raises:
        ReprocessRunningError: if another reprocessing of the pipeline runs on this machine.
        ReprocessRefusedError, RangeExpiredError: as :func:`plan_reprocessing`.
        DeadLetterLimitError: if too many records are bad.
        SinkError: if a part can't be committed.
    """
    settings = project.settings
    with _held(settings, pipeline):
        plan = plan_reprocessing(project, pipeline, request)
        if not plan.offsets:
            return ReprocessResult(plan, "finished", ReprocessProgress())
        require_extras(source.topic for source in pipeline.sources)
        with driver_session(settings, deployment) as spark:
            context = run_context(settings, pipeline, deployment)
            done = Reprocessing(spark, pipeline, context, plan).run(observe, stop)
    state: ReprocessState = "finished" if done.offsets == plan.offsets else "interrupted"
    return ReprocessResult(plan, state, done)


def _next_offsets(
    pipeline: Pipeline,
    store: PositionStore | None,
    live: LivePositions,
    cluster: KafkaCluster,
) -> dict[int, int]:
    """By partition, the next record that the live pipeline takes: those before are its past."""
    topic = pipeline.sources[0].topic.name
    if store is None:
        seen = cluster.committed(pipeline.consumer_group, topic)
        next_offsets = {p: at.offset for p, at in seen.items()}
    else:
        latest = SourceOffset(topic, live.topic_id, live.latest, 0)
        ids = CheckpointIds(pipeline.name, newest_checkpoint(pipeline.name, store) or 0)
        positions = ids.recorded(store, {topic: latest}).positions
        next_offsets = {partition.partition: at for partition, at in positions.items()}
    if not next_offsets:
        reason = f"{pipeline.sink.label} has nothing of topic {topic} yet, as it is now"
        remedy = f"Run the pipeline first: `headrace run {pipeline.name}`."
        raise ReprocessRefusedError(pipeline.name, reason, remedy)
    return next_offsets


@contextmanager
def _held(settings: Settings, pipeline: Pipeline) -> Iterator[None]:
    folder = lock_folder(settings.state, lake_uri(settings))
    lock = ProcessLock(folder / "reprocess" / f"{pipeline.name}.lock")
    if not lock.try_acquire():
        holder = lock.holder()
        name = f"process {holder.process.pid}" if holder else "another process"
        raise ReprocessRunningError(pipeline.name, name)
    try:
        yield
    finally:
        lock.release()
