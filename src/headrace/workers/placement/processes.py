"""Instances of a worker as processes of this machine, under one that watches them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from headrace.errors import PlacedRunError
from headrace.runtime.prometheus import MetricsServer, serving
from headrace.service.metrics import exposition
from headrace.service.restart import Fail, FailureKind, Restart, RestartPolicy
from headrace.service.run import RunOptions
from headrace.service.status import State, StatusFolder
from headrace.settings import Settings
from headrace.workers.monitoring.progress import Observe, final_counts_only, summed
from headrace.workers.status import WorkerStatus

STOP = "stop"
"""The parent's only message: what is in process may end."""

StartChild = Callable[[int], tuple[SpawnProcess, Connection]]
"""Starts the process of that number; what it reports comes through the connection."""

_LOG = logging.getLogger("headrace.workers")
# Messages end the wait at once; this bounds how late a stop or a restart that is due is noticed.
_POLL_INTERVAL_SECONDS = 0.2
_SHOW_SECONDS = 1.0  # instances report as often


@dataclass(frozen=True)
class ChildFailure:
    """Why an instance ended: its last message. ``is_permanent``: another start would meet it."""

    reason: str
    is_permanent: bool


class WorkerProcesses:
    """Instances of one worker, each in a process; one that ends by itself is restarted.

    Restarts back off, and have the budget of the project's ``[restart]``, for all of them together.
    """

    def __init__(
        self,
        settings: Settings,
        worker: str,
        processes: int,
        options: RunOptions,
        start: StartChild,
    ) -> None:
        self._worker, self._options = worker, options
        self._status = StatusFolder(settings.state, WorkerStatus)
        self._policy = RestartPolicy(settings.restart, _kind_of)
        self._children = [_Child(number, start) for number in range(processes)]
        self._stopping = threading.Event()
        self._failure = ""

    def stop(self) -> None:
        """Ends them all: what is in process may end. From any thread, and from a signal handler."""
        self._stopping.set()

    def run(self, observe: Observe) -> None:
        """Runs until all have ended; ``observe`` is called every second with the sum of all.

        Raises:
            ServerStartError: if the port of the metrics is taken.
            PlacedRunError: if an instance failed too often, or would fail again after a start.
        """
        options = self._options
        try:
            with serving(options.metrics_host, options.metrics_port) as server:
                self._tend(observe, server)
        finally:
            for child in self._children:
                child.kill()
        if self._failure:
            raise PlacedRunError(self._worker, self._failure)

    def _tend(self, observe: Observe, server: MetricsServer | None) -> None:
        show_at = 0.0
        # Until all have ended also while stopping: what they report last is part of the sum.
        while not (self._stopping.is_set() and all(not child.lives for child in self._children)):
            for child in self._children:
                if self._stopping.is_set():
                    child.ask_to_stop()
                elif not child.lives and time.monotonic() >= child.start_at:
                    child.start()
                # Read in each round, also while stopping: a child whose pipe is full would never
                # end.
                child.listen()
                if child.has_ended():
                    self._ended(child, child.end())
            wait(
                [child.connection for child in self._children if child.lives],
                _POLL_INTERVAL_SECONDS,
            )
            if time.monotonic() >= show_at:
                show_at = time.monotonic() + _SHOW_SECONDS
                is_ending = self._stopping.is_set()
                self._show(observe, server, State.DRAINING if is_ending else State.RUNNING)
        self._show(observe, server, State.FAILED if self._failure else State.CLOSED)

    def _ended(self, child: _Child, failure: ChildFailure) -> None:
        if child.seen is not None:
            # A process that was killed has written "running" as its last state.
            self._status.write(child.seen)
        if self._stopping.is_set():
            # The first failure is the reason: those after it follow from the stop.
            self._failure = self._failure or failure.reason
            return
        outcome = self._policy.after(failure)
        reason = failure.reason or "it ended without being stopped"
        if not isinstance(outcome, Restart):
            spent = outcome.spent if isinstance(outcome, Fail) else ""
            self._failure = self._failure or (f"{reason} ({spent})" if spent else reason)
            self.stop()
            return
        child.start_at = time.monotonic() + outcome.seconds
        _LOG.warning(
            "%s: process %d ended, starting another in %.1f s: %s",
            self._worker,
            child.number,
            outcome.seconds,
            reason,
        )

    def _show(self, observe: Observe, server: MetricsServer | None, state: State) -> None:
        seen = [child.seen for child in self._children if child.seen is not None]
        if server is not None:
            server.publish(exposition(WorkerStatus, seen))
        running = sum(child.lives for child in self._children)
        name = f"{running} of {len(self._children)} processes"
        whole = summed(self._worker, name, state, seen)
        observe(replace(whole, reason=self._failure or whole.reason))


def _kind_of(failure: ChildFailure) -> FailureKind:
    # The other processes of this worker would meet a permanent one, too.
    return FailureKind.PERMANENT if failure.is_permanent else FailureKind.TRANSIENT


class _Child:
    """One process after another under the same number."""

    connection: Connection

    def __init__(self, number: int, start: StartChild) -> None:
        self.number, self.start_at = number, 0.0
        self.seen: WorkerStatus | None = None
        self._start_process = start
        self._process: SpawnProcess | None = None
        self._failure = ChildFailure("", is_permanent=False)
        self._is_stopping = False

    @property
    def lives(self) -> bool:
        """It was started, and its end was not seen yet."""
        return self._process is not None

    def start(self) -> None:
        """Starts the process."""
        self._failure = ChildFailure("", is_permanent=False)
        self._process, self.connection = self._start_process(self.number)

    def ask_to_stop(self) -> None:
        """Once; harmless when it has ended."""
        if self._is_stopping or not self.lives:
            return
        self._is_stopping = True
        try:
            self.connection.send(STOP)
        except OSError:
            return  # it has ended

    def listen(self) -> None:
        """Reads what the process has reported."""
        try:
            while self.lives and self.connection.poll():
                message: ChildFailure | WorkerStatus = self.connection.recv()
                if isinstance(message, ChildFailure):
                    self._failure = message
                else:
                    self.seen = message
        except (EOFError, OSError):
            if self._process is not None:
                self._process.join()  # the connection ends with the process

    def has_ended(self) -> bool:
        """Returns whether the process has ended, and its last report was read."""
        if self._process is None or self._process.exitcode is None:
            return False
        # What it sent last may still be in the pipe, such as its failure.
        self.listen()
        return True

    def end(self) -> ChildFailure:
        """Returns why it ended, after :meth:`has_ended`; without a reason if it was stopped."""
        failure, code = self._failure, self._process.exitcode if self._process else 0
        if not failure.reason and code:
            words = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            failure = replace(failure, reason=f"process {self.number} {words}")
        if self.seen is not None:
            state = State.FAILED if failure.reason else State.CLOSED
            last = replace(self.seen, state=state, reason=failure.reason)
            # Its counts stay in the sum, or totals would fall; its partitions and lag are
            # those of other instances now.
            self.seen = final_counts_only(last)
        self.connection.close()
        self._process = None
        return failure

    def kill(self) -> None:
        """At once, where it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
