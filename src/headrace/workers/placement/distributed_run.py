"""An instance as one of many of a distributed run, such as on Spark: stopped remotely."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import uvloop

from headrace.errors import (
    AuthorizationError,
    CommittedOffsetError,
    DeadLetterLimitError,
    ProcessingFailedError,
    ProcessingTimeoutError,
    ReferencesTooLargeError,
    StateRefusedError,
    StateTooLargeError,
    SubpartitionError,
    WorkerTruncatedError,
)
from headrace.kafka.group.subscription import Membership
from headrace.kafka.table.changelog import ensure_changelog, write_changelog
from headrace.kafka.table.topic_table import TableFollower, read_table
from headrace.runtime.error_text import is_error
from headrace.workers.consumer_group.pause_requests import CONTROL_TOPIC
from headrace.workers.declaration import Worker
from headrace.workers.instance import WorkerInstance
from headrace.workers.monitoring.progress_monitor import ProgressMonitor
from headrace.workers.monitoring.progress_topic import ProgressReporter, ensure_progress_topic
from headrace.workers.tasks.policy import Stop, ending

_LOG = logging.getLogger("headrace.workers")
_STOPPED = b"stopped"
_PERMANENT = (
    AuthorizationError,
    CommittedOffsetError,
    DeadLetterLimitError,
    ProcessingFailedError,
    ReferencesTooLargeError,
    StateRefusedError,
    StateTooLargeError,
    SubpartitionError,
    WorkerTruncatedError,
)
_RETRY_DELAY_SECONDS = 5.0


@dataclass(frozen=True)
class DistributedRun:
    """Instances of a worker that start and end together. Pickled to where each one runs.

    Attributes:
        worker: what they run.
        config: of librdkafka.
        membership: of the group; each instance is a static member, so that one which is restarted
            in another place keeps its partitions, without a rebalance.
        run: name of this run, not used before.
        source: as ``config``, of the cluster that has the topics; empty: the same one.
    """

    worker: Worker
    config: Mapping[str, str]
    membership: Membership
    run: str
    source: Mapping[str, str] = field(default_factory=dict)

    def instance(self, index: int) -> None:
        """Runs instance ``index`` until the run is stopped, and reports its progress; blocks.

        A permanent failure stops the whole run.

        Raises:
            HeadraceError, KafkaException: a failure that may pass: Spark restarts the instance.
        """
        name = f"{self.worker.name}-{index}"
        membership = replace(self.membership, instance_id=name)
        source = self.source or self.config
        instance = WorkerInstance(self.worker, self.config, source=source, membership=membership)
        follower = TableFollower(
            self.config, CONTROL_TOPIC, lambda key, _: instance.stop() if key == self._key else None
        )
        reporter = ProgressReporter(self.config, self.run)
        try:
            monitor = ProgressMonitor(instance, name, source, reporter.report, self.config)
            uvloop.run(monitor.run_instance())
        except Exception as error:
            if is_permanent(self.worker, error):
                # Every instance would meet the failure, and Spark would keep restarting them.
                self.stop(f"{name}: {error}")
                return
            _LOG.exception("%s failed, restarting in %.0f s", name, _RETRY_DELAY_SECONDS)
            # Spark restarts a failed task at once, and fails the job after several failures.
            time.sleep(_RETRY_DELAY_SECONDS)
            raise
        finally:
            follower.close()
            reporter.close()

    def prepare(self) -> None:
        """Prepares the run before the first instance starts.

        Raises:
            BrokerUnreachableError: if the brokers do not answer.
        """
        ensure_changelog(self.config, CONTROL_TOPIC)
        ensure_progress_topic(self.config)

    def stop(self, reason: str = "") -> None:
        """Ends every instance, wherever it is; none is restarted.

        Raises:
            KafkaException: if it was not written, or it is not known whether it was.
        """
        write_changelog(self.config, CONTROL_TOPIC, {self._key: reason.encode() or _STOPPED})

    def end(self) -> str:
        """Forgets the run after its last instance; returns the failure that stopped it.

        Empty where an operator stopped it.
        """
        # Read before its key is deleted: an instance may have stopped the run.
        reason = read_table(self.config, CONTROL_TOPIC).get(self._key, _STOPPED)
        write_changelog(self.config, CONTROL_TOPIC, {self._key: None})
        return "" if reason == _STOPPED else reason.decode()

    @property
    def _key(self) -> bytes:
        return f"run/{self.run}".encode()


def is_permanent(worker: Worker, error: BaseException) -> bool:
    """Returns whether another start of ``worker`` would fail with ``error`` too.

    A process that was killed, a thread that hung, a topic that a broker does not know yet: in
    another place, or a little later, it does not recur. A record at which the worker stops by its
    policy comes first after a restart.
    """
    if is_error(error, ProcessingTimeoutError):
        return isinstance(ending(worker.on_failure), Stop)
    return is_error(error, *_PERMANENT)
