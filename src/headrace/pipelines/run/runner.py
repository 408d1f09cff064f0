"""Runs pipelines side by side in one Spark session."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.model import Registered
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.run.announced import announced
from headrace.pipelines.run.pipeline_run import (
    POLL_INTERVAL_SECONDS,
    STANDBY_INTERVAL_SECONDS,
    Deployment,
    PipelineRun,
)
from headrace.pipelines.status import PipelineStatus
from headrace.project.modules import own_modules
from headrace.runtime.extras import require_extra
from headrace.service.status import State
from headrace.spark.modules import path_of_modules, sent_modules
from headrace.spark.session import SPARK_STARTS, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.settings import Settings, SparkSettings
    from headrace.spark.lock import CheckpointLock

Observe = Callable[[Mapping[str, PipelineStatus]], None]


def run_pipelines(
    settings: Settings,
    pipelines: Sequence[Pipeline],
    *,
    deployment: Deployment,
    once: bool,
    observe: Observe,
    stop: threading.Event,
) -> Mapping[str, PipelineStatus]:
    """Runs pipelines in a Spark session of their own, see :meth:`Driver.run`.

    Raises:
        ExtraMissingError: if the extra of a topic's format is not installed.
    """
    sources = [source for pipeline in pipelines for source in pipeline.sources]
    # Before Spark starts, which takes seconds.
    for source in sources:
        if isinstance(source.topic.record_format, Registered):
            require_extra(source.topic.record_format.extra)
    observe(
        {
            pipeline.name: PipelineStatus(pipeline.name, reason=SPARK_STARTS)
            for pipeline in pipelines
        }
    )
    # A driver that may become a standby holds no lock until it has the lease.
    named = () if deployment.standby else pipelines
    with (
        announced(settings, named, deployment.lake) as locks,
        driver_session(settings, deployment) as spark,
    ):
        return Driver(spark, settings, deployment, locks).run(
            pipelines, once=once, observe=observe, stop=stop
        )


@contextmanager
def driver_session(settings: Settings, deployment: Deployment) -> Iterator[SparkSession]:
    """A Spark session for as long as the context lasts."""
    spark = start_session(
        f"headrace {settings.name}",
        _spark_settings(settings, deployment.master),
        master=deployment.master,
        java=deployment.java,
        state=settings.state,
    )
    try:
        # Tasks import the classes of events that they write, and functions of steps.
        modules = own_modules(settings.root, sys.modules.copy())
        with sent_modules(spark, deployment.master, modules):
            yield spark
    finally:
        spark.stop()


class Driver:
    """Pipelines side by side in one Spark session.

    Args:
        spark: the session.
        settings: of the project.
        deployment: where the pipelines read, compute and write.
        locks: of pipelines that are announced, by name.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        deployment: Deployment,
        locks: Mapping[str, CheckpointLock] = MappingProxyType({}),
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._deployment = deployment
        self._locks = locks

    def run(
        self,
        pipelines: Sequence[Pipeline],
        *,
        once: bool,
        observe: Observe,
        stop: threading.Event,
    ) -> Mapping[str, PipelineStatus]:
        """Runs pipelines until they end, or until ``stop`` is set; returns how each one ended.

        A pipeline that fails is restarted with back-off within its budget; the others continue. One
        that is refused, or reaches its dead-letter limit, stays as it is, with the reason.

        Args:
            pipelines: which to run.
            once: end when caught up with what the topics hold at the start. A pipeline that reads
                what another one writes starts when that one has ended.
            observe: called about five times a second with the progress of each, on this thread.
            stop: set it from any thread to stop after the current batches.
        """
        runs = [
            PipelineRun(
                self._spark,
                self._settings,
                pipeline,
                self._deployment,
                once=once,
                lock=self._locks.get(pipeline.name),
            )
            for pipeline in pipelines
        ]
        try:
            while not stop.is_set() and (unfinished := _unfinished(runs)):
                # With --once, a reader that starts before its writer has ended would miss the rest.
                for run in due(unfinished) if once else unfinished:
                    run.poll()
                observe({run.pipeline.name: run.progress for run in runs})
                stop.wait(_interval(unfinished))
        finally:
            # However the loop has ended: a query that continues would hold its lock, and commit
            # batches.
            for run in runs:
                run.stop()
            observe({run.pipeline.name: run.progress for run in runs})
        return {run.pipeline.name: run.progress for run in runs}


def due(runs: Sequence[PipelineRun]) -> Sequence[PipelineRun]:
    """Returns those whose topics no unfinished one writes; all, where they wait for each other."""
    unfinished = _unfinished(runs)
    written = {t.name for run in unfinished for sink in run.pipeline.sinks for t in sink.topics}
    ready = [run for run in unfinished if not written & _topics_read(run.pipeline)]
    return ready or unfinished


def _interval(runs: Sequence[PipelineRun]) -> float:
    """Returns how long the driver may wait for the next look: a standby starts at once."""
    if any(run.progress.state is State.WAITING for run in runs):
        return STANDBY_INTERVAL_SECONDS
    return POLL_INTERVAL_SECONDS if _unfinished(runs) else 0.0


def _unfinished(runs: Sequence[PipelineRun]) -> list[PipelineRun]:
    return [run for run in runs if not run.progress.has_ended]


def _topics_read(pipeline: Pipeline) -> set[str]:
    topics = (*(source.topic for source in pipeline.sources), *pipeline.references)
    return {topic.name for topic in topics}


def _spark_settings(settings: Settings, master: str) -> SparkSettings:
    config = path_of_modules(master, settings.root)
    if settings.embedded_hdfs:
        config["spark.hadoop.dfs.replication"] = "1"  # it has one DataNode
    # Defaults: the user's own settings override them.
    return replace(settings.spark, config=config | dict(settings.spark.config))
