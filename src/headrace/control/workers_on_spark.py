"""Instances of a worker as long-running tasks of one Spark job, on any master."""

from __future__ import annotations

import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.control.services import broker_config
from headrace.control.workers import standings
from headrace.errors import BrokerUnreachableError, PlacedRunError
from headrace.kafka.subscription import Membership
from headrace.pipelines.failures import headline
from headrace.pipelines.session import start_session
from headrace.workers.placed import PlacedRun
from headrace.workers.progress import WorkerProgress
from headrace.workers.states import InstanceState

if TYPE_CHECKING:
    from pyspark import SparkContext

    from headrace.settings import Settings
    from headrace.workers import Worker

_LOG = logging.getLogger("headrace.workers")
_LOOK_SECONDS = 1.0
_MOST_STARTS = 1000  # of one instance; Spark's own number is four

Observe = Callable[[WorkerProgress], None]


@dataclass(frozen=True)
class SparkPlacement:
    """Where instances run.

    Attributes:
        master: Spark's; each instance takes one of its cores for as long as it runs.
        instances: how many.
        java: JAVA_HOME and PATH for Spark's JVM.
        protocol: of the consumer group, ``classic`` or ``consumer``.
    """

    master: str
    instances: int
    java: Mapping[str, str]
    protocol: str = "classic"


def run_on_spark(
    settings: Settings,
    worker: Worker,
    placement: SparkPlacement,
    *,
    observe: Observe,
    stop: threading.Event,
) -> None:
    """Runs instances of ``worker`` until ``stop`` is set; Spark restarts those that are lost.

    The project's own modules travel with the job; what they import must be installed there.

    Args:
        settings: the project's deployment.
        worker: what to run.
        placement: where, and how many.
        observe: called about every second with how the group stands.
        stop: what is in process ends then, and is committed.

    Raises:
        BrokerUnreachableError: the embedded broker is down, or there is no answer.
        PlacedRunError: an instance failed in a way that another start would meet again.
    """
    membership = Membership(worker.consumer_group, protocol=placement.protocol)
    run = PlacedRun(worker, broker_config(settings), membership, uuid.uuid4().hex)
    run.begin()
    spark = start_session(
        f"headrace worker {worker.name}",
        replace(settings.spark, config=dict(settings.spark.config) | _restarts()),
        master=_master(placement),
        java=placement.java,
        state=settings.state,
    )
    try:
        _ship_by_value(settings)
        job = _Job(spark.sparkContext, run, placement.instances)
        _tend(job, settings, worker, observe, stop)
    finally:
        spark.stop()
    reason = run.end()
    if reason or job.failure:
        raise PlacedRunError(worker.name, reason or job.failure)


class _Job:
    """The Spark job, on a thread of its own."""

    def __init__(self, context: SparkContext, run: PlacedRun, instances: int) -> None:
        self.run, self.instances, self.failure = run, instances, ""
        self._context = context
        self._thread = threading.Thread(target=self._work, name="spark job", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Some instance has not ended."""
        return self._thread.is_alive()

    def running(self) -> int:
        """Instances that run now."""
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
        return sum(one.numActiveTasks for one in stages if one is not None)

    def _work(self) -> None:
        run = self.run
        indexes = self._context.parallelize(range(self.instances), self.instances)
        try:
            indexes.foreach(run.instance)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises
            self.failure = headline(error)


def _tend(
    job: _Job, settings: Settings, worker: Worker, observe: Observe, stop: threading.Event
) -> None:
    asked = False
    while job.alive:
        if stop.wait(_LOOK_SECONDS) and not asked:
            asked = True
            job.run.stop()
        elif asked:
            time.sleep(_LOOK_SECONDS)
        state = InstanceState.DRAINING if asked else InstanceState.RUNNING
        observe(_progress(job, settings, worker, state))
    observe(_progress(job, settings, worker, InstanceState.CLOSED))


def _progress(
    job: _Job, settings: Settings, worker: Worker, state: InstanceState
) -> WorkerProgress:
    running = job.running() if state is not InstanceState.CLOSED else 0
    name = f"{running} of {job.instances} on Spark"
    try:
        [standing] = standings(settings, [worker])
    except BrokerUnreachableError as error:
        return WorkerProgress(worker.name, name, state, str(error))
    return WorkerProgress(
        worker.name,
        name,
        state,
        partitions=len(standing.partitions),
        lag_records=standing.lag_records,
        lag_seconds=standing.lag_seconds,
        paused_partitions=dict.fromkeys(standing.paused_partitions, ("intent",)),
    )


def _restarts() -> dict[str, str]:
    return {"spark.task.maxFailures": str(_MOST_STARTS)}


def _master(placement: SparkPlacement) -> str:
    """On this machine, a thread for each instance; Spark says there how often one may fail."""
    if placement.master.startswith("local"):
        return f"local[{placement.instances},{_MOST_STARTS}]"
    return placement.master


def _ship_by_value(settings: Settings) -> None:
    """The project's modules are nowhere but here."""
    from pyspark import cloudpickle

    root = str(settings.root)
    for module in list(sys.modules.values()):
        if (getattr(module, "__file__", None) or "").startswith(f"{root}/"):
            cloudpickle.register_pickle_by_value(module)
