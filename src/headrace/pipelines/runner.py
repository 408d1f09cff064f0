"""Runs pipelines side by side in one driver: starts, watches, restarts, stops."""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import errors
from headrace.errors import (
    CheckpointLostError,
    DeadLetterLimitError,
    HeadraceError,
    RefusedError,
)
from headrace.kafka.client import client_config
from headrace.kafka.cluster import KafkaCluster
from headrace.model import Pipeline, Start
from headrace.pipelines.batch import BatchResult
from headrace.pipelines.checkpoint import CheckpointFolder, CurrentCheckpoint
from headrace.pipelines.graph import Graph, Place, build
from headrace.pipelines.lock import CheckpointLock, lock_folder
from headrace.pipelines.progress import PipelineProgress, PipelineState, StatusFolder
from headrace.pipelines.session import start_session
from headrace.pipelines.source.state import SharedState
from headrace.sinks import storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from headrace.settings import RestartSettings, Settings, SparkSettings

Observe = Callable[[Mapping[str, PipelineProgress]], None]

POLL_SECONDS = 0.2
TRIGGER = "100 milliseconds"
STOP_GRACE_SECONDS = 30.0
BUDGET_WINDOW_SECONDS = 3600.0

_LOG = logging.getLogger("headrace.pipelines")


@dataclass(frozen=True)
class Placement:
    """Where pipelines run.

    Attributes:
        bootstrap: the cluster's bootstrap servers.
        lake: root URI of the lake.
        master: Spark's master.
        java: JAVA_HOME and PATH for Spark's JVM.
    """

    bootstrap: str
    lake: str
    master: str
    java: Mapping[str, str]


def run_pipelines(
    settings: Settings,
    pipelines: Sequence[Pipeline],
    *,
    placement: Placement,
    once: bool,
    observe: Observe,
    stop: threading.Event,
) -> Mapping[str, PipelineProgress]:
    """Runs pipelines in a Spark session of their own, see :meth:`Driver.run`."""
    spark = start_session(
        f"headrace {settings.name}",
        _spark_settings(settings),
        master=placement.master,
        java=placement.java,
        state=settings.state,
    )
    try:
        return Driver(spark, settings, placement).run(
            pipelines, once=once, observe=observe, stop=stop
        )
    finally:
        spark.stop()


class Driver:
    """Pipelines side by side in one Spark session."""

    def __init__(self, spark: SparkSession, settings: Settings, placement: Placement) -> None:
        self._spark = spark
        self._settings = settings
        self._placement = placement

    def run(
        self,
        pipelines: Sequence[Pipeline],
        *,
        once: bool,
        observe: Observe,
        stop: threading.Event,
    ) -> Mapping[str, PipelineProgress]:
        """Runs pipelines until they end, or until ``stop`` is set; returns how each one ended.

        A pipeline that fails is restarted with back-off within its budget; the others go on. One
        that is refused, or reaches its dead-letter limit, stays as it is, with the reason.

        Args:
            pipelines: which to run.
            once: end when caught up with what the topics hold at the start.
            observe: called about five times a second with the progress of each, on this thread.
            stop: set it from anywhere to stop after the current batches.
        """
        runs = [
            PipelineRun(self._spark, self._settings, one, self._placement, once=once)
            for one in pipelines
        ]
        try:
            while not stop.is_set() and not all(run.progress.final for run in runs):
                for run in runs:
                    run.tend()
                observe({run.pipeline.name: run.progress for run in runs})
                stop.wait(POLL_SECONDS)
        finally:
            for run in runs:
                run.stop()
            observe({run.pipeline.name: run.progress for run in runs})
        return {run.pipeline.name: run.progress for run in runs}


class PipelineRun:
    """One pipeline's life in this driver. ``tend`` is called again and again, on one thread."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        pipeline: Pipeline,
        placement: Placement,
        *,
        once: bool,
    ) -> None:
        self.pipeline = pipeline
        self._spark = spark
        self._settings = settings
        self._once = once
        run = uuid.uuid4().hex
        self._place = Place(
            lake=placement.lake,
            client=client_config(settings.kafka, placement.bootstrap),
            state=settings.state / "state" / pipeline.name,
            staging=f"{placement.lake}/_headrace/staging/{pipeline.name}/{run}",
        )
        self._lock = CheckpointLock(lock_folder(settings.state, placement.lake), pipeline.name)
        self._status = StatusFolder(settings.state / "status")
        self._restarts = RestartBudget(settings.restart)
        self._start_at = 0.0
        self._graph: Graph | None = None
        self._query: StreamingQuery | None = None
        self._last_timestamp_ms = -1
        self._duplicates: dict[int, int] = {}
        self._positions: Mapping[Any, int] = {}
        self._guard = threading.Lock()
        self.progress = PipelineProgress(pipeline.name)

    def tend(self) -> None:
        """Starts the query when it is due, restarts it when it failed, keeps the figures."""
        if self.progress.final:
            return
        if self._query is None:
            self._start_when_due()
        elif not self._query.isActive:
            self._ended(self._query.exception())
        else:
            latest = self._query.lastProgress
            self._count_duplicates([latest] if latest else ())
            self._look()

    def stop(self) -> None:
        """Lets the current batch end, within a grace, then stops the query."""
        query, self._query = self._query, None
        if query is not None and query.isActive:
            _await_idle(query)
            query.stop()
        self._lock.release()
        if not self.progress.final:
            self._note(state=PipelineState.STOPPED)

    def _start_when_due(self) -> None:
        from pyspark.errors import AnalysisException

        if time.monotonic() < self._start_at:
            return
        try:
            self._lock.acquire()
            self._graph, self._query = self._started()
        except AnalysisException as error:  # Spark can't plan the steps: no restart mends that
            self._end_failed(PipelineState.FAILED, headline(error))
        except Exception as error:  # noqa: BLE001  whatever it was, the pipelines beside it go on
            self._failed(error)
        else:
            self._note(state=PipelineState.RUNNING, reason="")

    def _started(self) -> tuple[Graph, StreamingQuery]:
        folder = CheckpointFolder(self._place.lake, self.pipeline.name)
        current = self._usable(folder)
        checkpoint = folder.checkpoint(current)
        start = Start(current.start) if current.start else None
        storage.delete(f"{self._place.lake}/_headrace/staging/{self.pipeline.name}")
        graph = build(self._spark, self.pipeline, self._place, checkpoint, start, self._batch_ended)
        writer = graph.manifests.writeStream.queryName(self.pipeline.name)
        writer = writer.option("checkpointLocation", _spark_uri(checkpoint.uri))
        writer = (
            writer.trigger(availableNow=True)
            if self._once
            else writer.trigger(processingTime=TRIGGER)
        )
        query = writer.foreachBatch(graph.end).start()
        folder.write(replace(current, begun=True))
        return graph, query

    def _usable(self, folder: CheckpointFolder) -> CurrentCheckpoint:
        """The checkpoint to go on with; a new one only where nothing was there before.

        Raises:
            CheckpointLostError: there are traces of a checkpoint that is gone.
        """
        current = folder.current()
        if current is None:
            self._refuse_lost(folder)
            return CurrentCheckpoint(1, "", begun=False)
        checkpoint = folder.checkpoint(current)
        if current.begun and not checkpoint.exists():
            raise CheckpointLostError(
                self.pipeline.name, checkpoint.uri, f"{folder.uri}/current.json says it was begun"
            )
        return current

    def _refuse_lost(self, folder: CheckpointFolder) -> None:
        cluster, group = KafkaCluster(self._place.client), self.pipeline.consumer_group
        for source in self.pipeline.sources:
            if cluster.committed(group, source.topic.name):
                evidence = f"consumer group {group} has offsets of {source.topic.name}"
                raise CheckpointLostError(self.pipeline.name, folder.uri, evidence)

    def _batch_ended(self, result: BatchResult) -> None:
        """On Spark's thread, once a batch."""
        seen = self.progress
        with self._guard:
            self._positions = result.positions
            self._last_timestamp_ms = max(self._last_timestamp_ms, result.last_timestamp_ms)
        self._note(
            batch_id=result.batch_id,
            batches=seen.batches + 1,
            rows_in=seen.rows_in + result.records,
            rows_out=seen.rows_out + result.rows,
            late_rows=seen.late_rows + result.late_rows,
            dead_letters=seen.dead_letters + result.dead_letters,
            files_written=seen.files_written + result.files,
            batch_seconds=result.seconds,
            records_per_second=result.records / result.seconds if result.seconds else 0.0,
        )
        self._look()

    def _look(self) -> None:
        """Backlog, idle and paused partitions, as the planner last saw them."""
        state = SharedState(self._place.state)
        views = {one.topic.name: state.view(one.topic.name) for one in self.pipeline.sources}
        with self._guard:
            positions, last_ms = dict(self._positions), self._last_timestamp_ms
        backlog = sum(
            max(0, latest - position)
            for partition, position in positions.items()
            if (latest := views[partition.topic].latest.get(partition.partition)) is not None
        )
        behind_ms = time.time_ns() // 1_000_000 - last_ms if backlog and last_ms > 0 else 0
        self._note(
            backlog_records=backlog,
            backlog_seconds=max(0.0, behind_ms / 1000),
            idle_partitions=tuple(f"{t}[{p}]" for t, view in views.items() for p in view.idle),
            paused_partitions=tuple(f"{t}[{p}]" for t, view in views.items() for p in view.paused),
            reason="; ".join(view.unreachable for view in views.values() if view.unreachable),
            duplicate_rows=sum(self._duplicates.values()),
        )

    def _count_duplicates(self, reports: Iterable[Any]) -> None:
        for report in reports:
            self._duplicates[report["batchId"]] = _duplicates(report)

    def _ended(self, exception: Exception | None) -> None:
        query, self._query = self._query, None
        self._count_duplicates(query.recentProgress if query is not None else ())
        if exception is None:
            self._look()
            self._lock.release()
            self._note(state=PipelineState.FINISHED)
            return
        failure = self._graph.end.failure if self._graph is not None else None
        self._failed(failure or named_error(str(exception)) or exception)

    def _failed(self, error: Exception) -> None:
        reason = headline(error)
        if isinstance(error, RefusedError | DeadLetterLimitError):
            refused = isinstance(error, RefusedError)
            self._end_failed(PipelineState.REFUSED if refused else PipelineState.FAILED, reason)
            return
        _LOG.error("%s failed: %s", self.pipeline.name, reason, exc_info=error)
        delay = self._restarts.next_delay(time.monotonic())
        if delay is None:
            budget = f"{self._settings.restart.budget} restarts within an hour did not help"
            self._end_failed(PipelineState.FAILED, f"{budget}: {reason}")
            return
        self._start_at = time.monotonic() + delay
        restarts = self.progress.restarts + 1
        self._note(state=PipelineState.RESTARTING, reason=reason, restarts=restarts)

    def _end_failed(self, state: PipelineState, reason: str) -> None:
        self._lock.release()
        self._note(state=state, reason=reason)

    def _note(self, **changes: Any) -> None:
        with self._guard:
            before, self.progress = self.progress, self.progress.after(**changes)
            if not self.progress.same_as(before):
                self._status.write(self.progress)


class RestartBudget:
    """How often a failed pipeline may start again within an hour, and after how long."""

    def __init__(self, settings: RestartSettings) -> None:
        self._settings = settings
        self._spent: list[float] = []

    def next_delay(self, now: float) -> float | None:
        """Seconds to wait before the next start; ``None`` when the budget is spent."""
        self._spent = [at for at in self._spent if now - at < BUDGET_WINDOW_SECONDS]
        if len(self._spent) >= self._settings.budget:
            return None
        delay = self._settings.first_delay_seconds * 2.0 ** len(self._spent)
        self._spent.append(now)
        return min(delay, self._settings.longest_delay_seconds)


def named_error(text: str) -> Exception | None:
    """Our own error inside a traceback that came through Spark as text; ``None`` without one.

    Spark runs planner and tasks in other processes and passes on what they print.
    """
    found = re.findall(r"headrace\.errors\.(\w+Error): (.+)", text)
    if not found:
        return None
    name, message = found[-1]
    kind = getattr(errors, name, HeadraceError)
    base = RefusedError if issubclass(kind, RefusedError) else HeadraceError
    remote: Exception = type(name, (base,), {"__str__": lambda _: message.strip()})()
    return remote


def _spark_settings(settings: Settings) -> SparkSettings:
    """The embedded HDFS has one DataNode, so Spark's checkpoints can have one copy."""
    if not settings.embedded_hdfs:
        return settings.spark
    one_copy = {"spark.hadoop.dfs.replication": "1"}
    return replace(settings.spark, config=one_copy | dict(settings.spark.config))


def headline(error: BaseException) -> str:
    """The sentence that says what went wrong; Spark's errors go on with plans and traces."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    headline = lines[0] if lines else type(error).__name__
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return f"{headline} ({raised[-1]})" if raised and raised[-1] not in headline else headline


def _await_idle(query: StreamingQuery) -> None:
    deadline = time.monotonic() + STOP_GRACE_SECONDS
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _duplicates(progress: Mapping[str, Any]) -> int:
    """Rows that Spark's de-duplication dropped in one batch."""
    return sum(
        int(operator["customMetrics"].get("numDroppedDuplicateRows", 0))
        for operator in progress["stateOperators"]
    )


def _spark_uri(uri: str) -> str:
    """Spark takes a bare path for one of its default file system, which may be another."""
    return uri if "://" in uri else Path(uri).as_uri()
