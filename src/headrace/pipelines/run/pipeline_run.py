"""One pipeline's life in a driver: started, watched, restarted, stopped."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.errors import (
    CheckpointBehindTableError,
    CheckpointInUseError,
    CheckpointLostError,
    ClaimLostError,
    HeadraceError,
)
from headrace.kafka.client.clients import client_config
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import Start
from headrace.pipelines.batch.batch_claim import BatchClaim
from headrace.pipelines.batch.committer import BatchResult
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.graph import Graph, build
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.ledger.reprocessed import ReprocessedFolder
from headrace.pipelines.rows import RunContext
from headrace.pipelines.run.figures import RunFigures
from headrace.pipelines.run.lifecycle_log import log_changes
from headrace.pipelines.source.staging import driver_staging
from headrace.pipelines.source.state import SourceState
from headrace.pipelines.standby.claim import DriverClaim, MachineClaim, SharedClaim
from headrace.pipelines.standby.rehearsal import Rehearsal
from headrace.pipelines.standby.status import DriverStatus
from headrace.pipelines.standby.warm_claim import WarmClaim
from headrace.pipelines.start.checkpoint import (
    FROM_TABLE,
    Checkpoint,
    CurrentCheckpoint,
    checkpoint_root,
)
from headrace.pipelines.start.checks import StartChecks, check_topics
from headrace.pipelines.status import PipelineStatus
from headrace.runtime.error_text import exc_info
from headrace.runtime.logs import Subject, logging_about
from headrace.service.restart import Fail, Refuse, Restart, RestartPolicy
from headrace.service.status import State, StatusFolder
from headrace.spark.checkpoints import start_query
from headrace.spark.failures import cause, headline, kind_of, used_twice
from headrace.spark.lock import CheckpointLock, lock_folder
from headrace.storage import files as storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from headrace.settings import Settings

# Reading Spark's reports costs the driver a millisecond; to people, 0.2 s is immediate.
POLL_INTERVAL_SECONDS = 0.2
STANDBY_INTERVAL_SECONDS = 0.05
# How often Spark asks the planner for a batch. The planner decides how long a batch fills.
TRIGGER = "100 milliseconds"
# A batch that is cut short is read and written again by the next run, so it may end first.
STOP_GRACE_SECONDS = 30.0
# For what sinks do beside the batches, such as merging small files.
FINISH_SECONDS = 60.0

_LOG = logging.getLogger("headrace.pipelines")


@dataclass(frozen=True)
class Deployment:
    """The places where the pipelines of a run read, compute and write.

    Attributes:
        bootstrap: the cluster's bootstrap servers.
        lake: root URI of the lake.
        master: Spark's master.
        java: JAVA_HOME and PATH for Spark's JVM.
        standby: whether the driver waits while another one runs a pipeline.
    """

    bootstrap: str
    lake: str
    master: str
    java: Mapping[str, str]
    standby: bool = False


def run_context(settings: Settings, pipeline: Pipeline, deployment: Deployment) -> RunContext:
    """Returns what ``pipeline`` runs with; its staging folder is chosen by each start."""
    return RunContext(
        lake=deployment.lake,
        client=client_config(settings.of("pipelines", pipeline.name).kafka, deployment.bootstrap),
        sinks=settings.sinks,
        state=settings.state / "state" / pipeline.name,
        registry=settings.schema_registry,
        storage=settings.storage,
        ledger=settings.ledger,
    )


class PipelineRun:
    """One pipeline's life in this driver. ``poll`` is called repeatedly, on one thread."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        pipeline: Pipeline,
        deployment: Deployment,
        *,
        once: bool,
        lock: CheckpointLock | None = None,
    ) -> None:
        self.pipeline = pipeline
        self._subject = Subject("pipeline", pipeline.name)
        self._spark = spark
        self._settings = settings
        self._once, self._is_standby = once, deployment.standby
        self._context = run_context(settings, pipeline, deployment)
        self._claim = self._claim_of(deployment, lock)
        self._is_ending = threading.Event()
        claim = BatchClaim(self._begin_batch, self._claim.check)
        self._context = replace(self._context, claim=claim)
        self._status = StatusFolder(settings.state, PipelineStatus)
        self._policy = RestartPolicy(settings.restart, kind_of, has_end=once)
        self._start_at = 0.0
        self._graph: Graph | None = None
        self._has_locked = lock is not None and lock.is_held
        self._has_begun = False
        self._query: StreamingQuery | None = None
        self._figures = RunFigures(pipeline, SourceState(self._context.state))
        self._guard = threading.Lock()
        self.progress = PipelineStatus(pipeline.name)

    def poll(self) -> None:
        """Starts the query when it is due, restarts it when it failed, keeps the figures."""
        if not self.progress.has_ended:
            with logging_about(self._subject):
                if self._has_locked and not self._claim.keep():
                    self._step_down()
                elif self._claim.is_asked:
                    self._hand_over()
                elif self._query is None:
                    self._start_when_due()
                elif not self._query.isActive:
                    self._ended(self._query.exception())
                else:
                    self._figures.take_reports(self._query)
                    self._refresh_figures()

    def stop(self) -> None:
        """Lets the current batch end, within a grace, then stops the query."""
        with logging_about(self._subject):
            self._stop()

    def _stop(self) -> None:
        self._end_query()
        self._claim.release()
        if self._graph is not None:
            # Work beside the batches, such as merging files, ends only if the run has caught up.
            done = self.progress.state is State.FINISHED
            self._graph.close(FINISH_SECONDS if done else 0.0)
            self._update_progress(figures=self._own_figures())
            self._graph = None
        if self.progress.state is State.WAITING:
            self._update_progress(state=State.STOPPED, reason="")
        elif not self.progress.has_ended:
            self._update_progress(state=State.STOPPED)

    def _end_query(self) -> None:
        """Lets the current batch end, within a grace, then stops the query."""
        query, self._query = self._query, None
        interval = POLL_INTERVAL_SECONDS
        if self._is_standby:
            interval = STANDBY_INTERVAL_SECONDS
            self._is_ending.set()
        if query is not None and query.isActive:
            deadline = time.monotonic() + STOP_GRACE_SECONDS
            while query.isActive and query.status["isTriggerActive"]:
                if time.monotonic() >= deadline:
                    break
                time.sleep(interval)
            # Spark interrupts a batch that has not ended within the grace; the next run repeats it.
            query.stop()
            self._figures.take_reports(query)
            self._refresh_figures()

    def _start_when_due(self) -> None:
        if time.monotonic() < self._start_at:
            return
        try:
            if not self._claim.try_acquire():
                self._update_progress(state=State.WAITING, reason=f"standby: {self._claim.waiting}")
                return
            if not self._has_locked:
                self._has_locked = True
                # It replaces the status that a killed driver has left.
                with self._guard:
                    self._status.write(self.progress)
            self._forget_backlog()
            self._query = self._started()
        except Exception as error:  # noqa: BLE001  whatever it was, the pipelines beside it continue
            self._failed(error)
        else:
            self._update_progress(state=State.RUNNING, reason="")

    def _claim_of(self, deployment: Deployment, lock: CheckpointLock | None) -> DriverClaim:
        name, state = self.pipeline.name, self._settings.state
        lock = lock or CheckpointLock(lock_folder(state, deployment.lake), name)
        if not deployment.standby:
            return MachineClaim(lock)
        folder = state / "rehearsals" / f"{name}.{os.getpid()}"
        return WarmClaim(
            name,
            SharedClaim(self._context.client, self.pipeline, lock),
            partial(Rehearsal, self._spark, self.pipeline, self._context, folder),
            StatusFolder(state, DriverStatus),
        )

    def _step_down(self) -> None:
        """Stops the query, which another driver runs now, and waits as its standby."""
        _LOG.warning("Another driver may have taken over; this one waits as a standby")
        query, self._query = self._query, None
        if query is not None:
            query.stop()
        self._claim.step_down()
        self._become_standby()

    def _hand_over(self) -> None:
        """Lets the current batch end, and leaves the next one to a standby."""
        _LOG.info("A handover was requested: a standby takes over after this batch")
        self._end_query()
        self._claim.hand_over()
        self._become_standby()

    def _become_standby(self) -> None:
        self._is_ending.clear()
        self._has_locked = self._has_begun = False
        if self._graph is not None:
            self._graph.close(0.0)
            self._graph = None
        self._update_progress(state=State.WAITING, reason=f"standby: {self._claim.waiting}")

    def _forget_backlog(self) -> None:
        """An earlier planner saw it; it is unknown until the next query's planner has looked."""
        state = SourceState(self._context.state)
        for source in self.pipeline.sources:
            state.forget_view(source.topic.name)
        state.forget_waiting()
        self._update_progress(backlog_records=None, backlog_seconds=None)

    def _started(self) -> StreamingQuery:
        client = self._context.client
        sink = self.pipeline.sink
        positions = sink.position_store(self._context.of_sink(self.pipeline, sink))
        lake, options = self._context.lake, self._context.storage
        root = checkpoint_root(lake, self._settings)
        parts = ReprocessedFolder(lake, self.pipeline.name, options)
        ledger = LedgerFolder(lake, self.pipeline.name, options)
        cluster = KafkaCluster(client)
        checks = StartChecks(self.pipeline, root, cluster, positions, parts, ledger)
        check_topics(client, self.pipeline)
        try:
            current = checks.checkpoint()
            graph = self._built(checks.folder.checkpoint(current), current.start)
            graph.committer.check_start()
        # In both cases the sink may know more than the checkpoint, and its positions can replace
        # it.
        except (CheckpointLostError, CheckpointBehindTableError) as error:
            current, graph = self._taken_over(checks, error)
        checkpoint = checks.folder.checkpoint(current)
        checks.check_query(checkpoint, graph.query)
        checkpoint.delete_torn_plan()
        writer = graph.manifests.writeStream.queryName(self.pipeline.name)
        writer = (
            writer.trigger(availableNow=True)
            if self._once
            else writer.trigger(processingTime=TRIGGER)
        )
        query = start_query(self._spark, writer.foreachBatch(graph.committer), checkpoint.uri)
        # After Spark has written its metadata: a checkpoint that is noted as started and has none
        # counts as lost, and a crash between the two must not look like that.
        try:
            if not current.begun:
                checks.folder.write(replace(current, begun=True))
        except BaseException:
            query.stop()  # a failed start releases the lock, and no query may run without it
            raise
        self._has_begun = True
        return query

    def _built(self, checkpoint: Checkpoint, starts_at: str) -> Graph:
        start = Start(starts_at) if starts_at not in ("", FROM_TABLE) else None
        context = self._context
        # Each start has a staging folder of its own; what earlier ones left is deleted.
        staging = driver_staging(context.lake, self.pipeline.name, context.state)
        storage.delete(staging, context.storage)
        context = replace(context, staging=storage.join(staging, uuid.uuid4().hex))
        graph = build(self._spark, self.pipeline, context, checkpoint, start, self._batch_ended)
        # A start that takes over builds twice, and so does a restart: the earlier sinks are closed.
        before, self._graph = self._graph, graph
        if before is not None:
            before.close(0.0)
        return graph

    def _taken_over(
        self, checks: StartChecks, error: CheckpointLostError | CheckpointBehindTableError
    ) -> tuple[CurrentCheckpoint, Graph]:
        """Begins a new checkpoint where the sink stands, if nothing but offsets is lost by that.

        State of steps would be, and event clocks, by which late events are sent elsewhere. Not
        where this run has had a query before: then another driver has taken over, and two
        that take over from each other would never end.
        """
        may_take_over = not self._has_begun and self.pipeline.late_data is LateData.KEEP
        number = checks.number_to_take_over() if may_take_over else None
        if number is None:
            raise error
        checkpoint = checks.folder.checkpoint(CurrentCheckpoint(number, FROM_TABLE, begun=False))
        graph = self._built(checkpoint, FROM_TABLE)
        # The state is lost with the checkpoint, and the sink does not hold it.
        if graph.keeps_state:
            raise error
        current = checks.resets.take_over(number, graph.sink)
        _LOG.warning(
            "%s: continuing at the positions that the sink records, as checkpoint %d",
            error.code,
            number,
        )
        return current, graph

    def _begin_batch(self) -> None:
        """Called on Spark's thread before each batch.

        A driver that hands over begins none: under load there is always a next one, which would
        have to be interrupted, and its standby waits.
        """
        if self._is_ending.is_set():
            raise ClaimLostError(self.pipeline.name)

    def _batch_ended(self, result: BatchResult) -> None:
        """Called on Spark's thread once per batch."""
        self._figures.batch_ended(result)
        self._refresh_figures()

    def _refresh_figures(self) -> None:
        self._update_progress(**self._figures.values(), figures=self._own_figures())

    def _own_figures(self) -> Mapping[str, int | str]:
        """Returns the figures of the sinks and of the steps."""
        graph = self._graph
        return self._figures.own({} if graph is None else graph.figures())

    def _ended(self, exception: Exception | None) -> None:
        query, self._query = self._query, None
        if query is not None:
            self._figures.take_reports(query)
        failure = self._graph.committer.failure if self._graph is not None else None
        # Spark's log of offsets takes each batch from one driver: ours was the second.
        # With a standby it is the first, which loses its claim: another start finds its batch.
        is_refused = not self._is_standby and used_twice(str(exception))
        if exception is not None and failure is None and is_refused:
            holder = "a driver that this machine can't see"
            failure = CheckpointInUseError(self.pipeline.name, self._context.lake, holder)
        error = cause(None if exception is None else failure, exception)
        if error is None:
            self._refresh_figures()
            self._claim.release()
            self._update_progress(state=State.FINISHED)
            return
        self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self._has_locked and not self._claim.keep():
            self._step_down()
            return
        reason, outcome = headline(error), self._policy.after(error)
        if outcome not in (Refuse(), Fail()):
            _LOG.error("The query failed: %s", reason, exc_info=exc_info(error))
        if isinstance(outcome, Refuse):
            self._end_failed(State.REFUSED, reason, error)
            return
        if isinstance(outcome, Fail):
            spent = outcome.spent and f"{outcome.spent}: "
            self._end_failed(State.FAILED, f"{spent}{reason}", error)
            return
        restarts = self.progress.restarts + isinstance(outcome, Restart)
        self._start_at = time.monotonic() + outcome.seconds
        _LOG.info("The next start follows in %.1f s, after %d restarts", outcome.seconds, restarts)
        self._update_progress(state=State.RESTARTING, reason=reason, restarts=restarts)

    def _end_failed(self, state: State, reason: str, error: Exception) -> None:
        self._claim.release()
        # Released although this process continues: others may start the pipeline.
        exit_code = error.exit_code if isinstance(error, HeadraceError) else HeadraceError.exit_code
        self._update_progress(state=state, reason=reason, exit_code=exit_code)

    def _update_progress(self, **changes: Any) -> None:
        with self._guard:
            # Spark's thread updates it too, at the end of each batch.
            before, self.progress = self.progress, self.progress.after(**changes)
            if not self.progress.same_as(before):
                # Before that, the status is that of the run that has the lock.
                if self._has_locked:
                    self._status.write(self.progress)
                log_changes(before, self.progress)
