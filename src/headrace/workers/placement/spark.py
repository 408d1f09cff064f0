"""Instances of a worker as long-running tasks of one Spark job, on any master."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import BrokerUnreachableError, PlacedRunError
from headrace.kafka.group.subscription import Membership
from headrace.project.modules import own_modules
from headrace.project.services import broker_config
from headrace.runtime.prometheus import MetricsServer, serving
from headrace.service.metrics import exposition
from headrace.service.status import State, StatusFolder
from headrace.spark.failures import headline
from headrace.spark.modules import path_of_modules, sent_modules
from headrace.spark.session import SPARK_STARTS, start_session
from headrace.workers.monitoring.progress import Observe, summed
from headrace.workers.monitoring.progress_topic import ProgressFollower
from headrace.workers.placement.distributed_run import DistributedRun
from headrace.workers.run import WorkerStanding, source_config, standings
from headrace.workers.schemas import with_schemas
from headrace.workers.status import WorkerStatus

if TYPE_CHECKING:
    from pyspark import SparkContext

    from headrace.settings import Settings
    from headrace.workers import Worker

_POLL_INTERVAL_SECONDS = 1.0
_STANDING_SECONDS = 5.0
# Final reports come through a topic, so some are read only after Spark says that all have ended.
_FINAL_REPORTS_SECONDS = 5.0
_MAX_STARTS = 1000  # of one instance; Spark's own number is four


@dataclass(frozen=True)
class SparkPlacement:
    """The Spark master of the instances, and the address of their metrics.

    Attributes:
        master: Spark's; each instance takes one of its cores for as long as it runs.
        instances: how many.
        java: JAVA_HOME and PATH for Spark's JVM.
        protocol: of the consumer group, ``classic`` or ``consumer``.
        metrics_host: where the metrics of all instances are served, on the driver's machine.
        metrics_port: the port; ``None``: they are not.
    """

    master: str
    instances: int
    java: Mapping[str, str]
    protocol: str = "classic"
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None


def run_on_spark(
    settings: Settings,
    worker: Worker,
    placement: SparkPlacement,
    *,
    observe: Observe,
    stop: threading.Event,
) -> None:
    """Runs instances of ``worker`` until ``stop`` is set; Spark restarts those that are lost.

    The project's own modules are sent with the job; what they import must be installed there.

    Args:
        settings: the project's deployment.
        worker: what to run.
        placement: where, and how many.
        observe: called about every second, and at the end, with all instances as one.
        stop: records in process are then completed and committed.

    Raises:
        BrokerUnreachableError: if the embedded broker is down, or there is no answer.
        PlacedRunError: if an instance failed in a way that another start would repeat.
        ServerStartError: if the port of the metrics is taken.
    """
    membership = Membership(worker.consumer_group, protocol=placement.protocol)
    worker = with_schemas(worker, settings)
    own = settings.of("workers", worker.name)
    run = DistributedRun(
        worker, broker_config(own), membership, uuid.uuid4().hex, source_config(own, worker)
    )
    run.prepare()
    with (
        serving(placement.metrics_host, placement.metrics_port) as server,
        contextlib.closing(_Overview(settings, run, observe, server)) as overview,
    ):
        failure = _place(settings, run, placement, overview, stop)
        # What stopped the run is the reason; Spark only reports that a job failed.
        failure = run.end() or failure
        overview.wait_for_final_reports()
        state = State.FAILED if failure else State.CLOSED
        overview.show(f"0 of {placement.instances} on Spark", state, failure)
    if failure:
        raise PlacedRunError(worker.name, failure)


def _place(
    settings: Settings,
    run: DistributedRun,
    placement: SparkPlacement,
    overview: _Overview,
    stop: threading.Event,
) -> str:
    """Runs until every instance has ended; returns why Spark failed the job, if it did."""
    overview.show(f"0 of {placement.instances} on Spark", State.STARTING, SPARK_STARTS)
    restarts = {"spark.task.maxFailures": str(_MAX_STARTS)}
    master = placement.master
    if master.startswith("local"):
        # A thread for each instance; a local master says itself how often a task may fail.
        master = f"local[{placement.instances},{_MAX_STARTS}]"
    config = path_of_modules(master, settings.root) | dict(settings.spark.config) | restarts
    spark = start_session(
        f"headrace worker {run.worker.name}",
        replace(settings.spark, config=config),
        master=master,
        java=placement.java,
        state=settings.state,
    )
    try:
        modules = own_modules(settings.root, sys.modules.copy())
        with sent_modules(spark, master, modules):
            job = _Job(spark.sparkContext, run, placement.instances)
            _tend(job, overview, stop)
            return job.failure
    finally:
        spark.stop()


class _Overview:
    """Shows the instances of ``run``: to ``headrace status``, as metrics, and as one."""

    def __init__(
        self,
        settings: Settings,
        run: DistributedRun,
        observe: Observe,
        server: MetricsServer | None,
    ) -> None:
        self._settings, self._worker, self._observe = settings, run.worker, observe
        self._server, self._status = server, StatusFolder(settings.state, WorkerStatus)
        # Ended instances of earlier runs would be shown beside those of this one.
        self._status.forget(run.worker.name)
        self._follower = ProgressFollower(run.config, run.run)
        self._shown: dict[str, WorkerStatus] = {}
        self._known: WorkerStanding | BrokerUnreachableError | None = None
        self._refresh_at = 0.0

    def show(self, name: str, state: State, reason: str = "") -> None:
        """Shows the progress of the instances, and the state of the run."""
        standing = self._standing()  # first: it shows whether silence means a failure
        instances = self._follower.seen()
        if self._server is not None:
            self._server.publish(exposition(WorkerStatus, instances))
        for progress in instances:
            if self._shown.get(progress.instance) != progress:
                self._status.write(progress)
                self._shown[progress.instance] = progress
        whole = _of_group(summed(self._worker.name, name, state, instances), standing)
        self._observe(replace(whole, reason=reason or whole.reason))

    def wait_for_final_reports(self) -> None:
        """Waits a moment for the final reports of instances that have ended."""
        deadline = time.monotonic() + _FINAL_REPORTS_SECONDS
        while time.monotonic() < deadline and not all(
            progress.has_ended for progress in self._follower.seen()
        ):
            time.sleep(_FINAL_REPORTS_SECONDS / 50)

    def close(self) -> None:
        """Stops following the instances."""
        self._follower.close()

    def _standing(self) -> WorkerStanding | BrokerUnreachableError:
        """Returns what Kafka knows, cached for a while: each request takes clients of its own."""
        if self._known is None or time.monotonic() >= self._refresh_at:
            self._refresh_at = time.monotonic() + _STANDING_SECONDS
            try:
                self._known = standings(self._settings, [self._worker])[0]
            except BrokerUnreachableError as error:
                self._known = error
        if isinstance(self._known, BrokerUnreachableError):
            self._follower.reset_liveness_timeout()
        return self._known


def _of_group(
    whole: WorkerStatus, standing: WorkerStanding | BrokerUnreachableError
) -> WorkerStatus:
    """Adds what Kafka knows of the group, which is correct also while an instance is lost."""
    if isinstance(standing, BrokerUnreachableError):
        return replace(whole, reason=str(standing))
    intents = dict.fromkeys(standing.paused_partitions, ("requested",))
    return replace(
        whole,
        partitions=len(standing.partitions),
        lag_records=standing.lag_records,
        lag_seconds=standing.lag_seconds,
        paused_partitions=intents | dict(whole.paused_partitions),
    )


class _Job:
    """The Spark job, on a thread of its own."""

    def __init__(self, context: SparkContext, run: DistributedRun, instances: int) -> None:
        self.run, self.instances, self.failure = run, instances, ""
        self._context = context
        # The action blocks until the last instance has ended; the driver has to report and to stop.
        self._thread = threading.Thread(target=self._work, name="spark job", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Some instance has not ended."""
        return self._thread.is_alive()

    def running(self) -> int:
        """Instances that run now."""
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)

    def _work(self) -> None:
        run = self.run
        # One partition for each instance, and so one task, whatever the default parallelism is.
        indexes = self._context.parallelize(range(self.instances), self.instances)
        try:
            indexes.foreach(run.instance)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises
            self.failure = headline(error)


def _tend(job: _Job, overview: _Overview, stop: threading.Event) -> None:
    is_stopping = False
    while job.alive:
        if stop.wait(_POLL_INTERVAL_SECONDS) and not is_stopping:
            is_stopping = True
            job.run.stop()
        # The event stays set, so waiting for it would not wait.
        elif is_stopping:
            time.sleep(_POLL_INTERVAL_SECONDS)
        state = State.DRAINING if is_stopping else State.RUNNING
        overview.show(f"{job.running()} of {job.instances} on Spark", state)
