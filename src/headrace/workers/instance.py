"""One instance of a worker: a member of its consumer group, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaException

from headrace.errors import (
    BrokerUnreachableError,
    CommittedOffsetError,
    TopicMissingError,
)
from headrace.kafka.client.admin_requests import topic_ids
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.group.subscription import Membership
from headrace.runtime.error_text import error_message, exc_info
from headrace.service.status import State
from headrace.workers.consumer_group.group_consumer import GroupConsumer
from headrace.workers.consumer_group.needed_topics import ensure_needed_topics
from headrace.workers.consumer_group.pause_requests import PauseRequests
from headrace.workers.consumer_group.restoring import StateRestores
from headrace.workers.declaration import Worker
from headrace.workers.failures.failures import Failures
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.threads import TaskThreads
from headrace.workers.lanes.timers import LaneTimers
from headrace.workers.lifespan import SharedResources
from headrace.workers.output import MakeOutput, output_of
from headrace.workers.references.followed import FollowedReferences
from headrace.workers.states import PauseReason, transition
from headrace.workers.tasks.retry_topics import consumed_topics
from headrace.workers.timing import WorkerTiming

_LOG = logging.getLogger("headrace.workers")
_LOG.addHandler(logging.NullHandler())  # silent unless the application asks for it


class WorkerInstance:
    """Runs a worker in this process, until it is stopped or fails. Used once.

    Args:
        worker: what to run.
        config: of librdkafka, at least ``bootstrap.servers``.
        source: that of the cluster with the topics; by default the same one.
        membership: how to be a member of the group; by default, cooperative and not static.
        on_end: called at the very end with the failure, or ``None``.
        timing: how long it waits for what it calls, where the worker declares nothing.
        make_output: makes what it sends and commits with, on its event loop.
    """

    def __init__(  # noqa: PLR0913 - each with a default
        self,
        worker: Worker,
        config: ClientConfig,
        *,
        source: ClientConfig | None = None,
        membership: Membership | None = None,
        on_end: Callable[[BaseException | None], None] | None = None,
        timing: WorkerTiming = WorkerTiming(),
        make_output: MakeOutput = output_of,
    ) -> None:
        self.worker = worker
        self.state = State.CREATED
        self.failure: BaseException | None = None
        self._config, self._source = config, source or config
        self._membership = membership or Membership(worker.consumer_group)
        self._on_end, self._timing, self._make_output = on_end, timing, make_output
        self._running: RunningInstance | None = None
        self._pause_requests: PauseRequests | None = None
        self._references: FollowedReferences | None = None
        self._stop_asked = False

    async def run(self) -> None:
        """Runs the instance to its end. Cancelling stops it as :meth:`stop` does, and raises.

        Raises:
            WorkerStateError: if it ran before, or was stopped before it began.
            HeadraceError, KafkaException: why it ended, other than by :meth:`stop`.
        """
        self._enter(State.STARTING)
        try:
            self._pause_requests = PauseRequests(self._config, self.worker.name)
            # Before any partition is assigned: a paused one must not process records after a
            # restart.
            await self._pause_requests.wait_ready()
            await asyncio.to_thread(
                ensure_needed_topics, self.worker, self._source, own=self._config
            )
            self._references = FollowedReferences(self.worker, self._config, self._timing)
            if not await self._references.wait_ready(lambda: self._stop_asked):
                return
            self._running = RunningInstance(
                self.worker,
                self._config,
                self._membership,
                self._timing,
                self._references,
                make_output=self._make_output,
                source=self._source,
            )
            self._pause_requests.subscribe(self._running.assignments.backpressure.set_requested)
            self._enter(State.RUNNING)
            # It was stopped while it started, when there was nothing to stop.
            if self._stop_asked:
                self._running.stop()
            await self._running.read()
        except Exception as error:  # noqa: BLE001 - reported at the end
            self.failure = error
        finally:
            await self._close()
        if self.failure is not None:
            raise self.failure

    @property
    def assignments(self) -> PartitionSet | None:
        """The partitions of the instance, while it runs."""
        return self._running.assignments if self._running else None

    @property
    def counts(self) -> Counter[str]:
        """The counters since the start, by the names of :class:`WorkerStatus`."""
        return self._running.counts if self._running else Counter()

    @property
    def sent_to(self) -> Collection[str]:
        """The topics that its tasks have sent to."""
        return self._running.sent_to if self._running else ()

    @property
    def reference_figures(self) -> dict[str, Any]:
        """The figures of its references, by the names of :class:`WorkerStatus`."""
        return self._references.figures() if self._references else {}

    @property
    def state_figures(self) -> dict[str, Any]:
        """The figures of its state, by the names of :class:`WorkerStatus`."""
        assignments = self.assignments
        state = None if assignments is None else assignments.state
        if assignments is None or state is None:
            return {}
        restoring = (PauseReason.RESTORING in own.paused_for for own in assignments.values())
        return {
            "state_keys": state.keys,
            "state_bytes": state.bytes,
            "state_restoring": sum(restoring),
        }

    def stop(self) -> None:
        """Ends it: what is in process may end. From any thread; harmless when it has ended."""
        self._stop_asked = True
        if self._running is not None:
            self._running.stop()
        elif self.state is State.CREATED:
            self._enter(State.CLOSED)

    async def _close(self) -> None:
        if self._running is not None:
            self._enter(State.DRAINING)
            self.failure = await self._running.close(self.failure)
        if self._references is not None:
            await self._references.close()
        if self._pause_requests is not None:
            await self._pause_requests.close()
        self._enter(State.CLOSED if self.failure is None else State.FAILED)
        if self._on_end is not None:
            self._on_end(self.failure)

    def _enter(self, state: State) -> None:
        self.state = transition(self.state, state)


class RunningInstance:
    """The parts of an instance between start and end. Everything happens on the event loop."""

    def __init__(  # noqa: PLR0913 - each with a default
        self,
        worker: Worker,
        config: ClientConfig,
        membership: Membership,
        timing: WorkerTiming = WorkerTiming(),
        references: FollowedReferences | None = None,
        *,
        make_output: MakeOutput = output_of,
        source: ClientConfig | None = None,
    ) -> None:
        self._worker, self._timing = worker, timing
        self._source = source or config
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._missed: set[str] = set()
        self.counts: Counter[str] = Counter()
        self._task_threads = TaskThreads(worker.parallelism, f"{worker.name}-task")
        self._output = make_output(worker, config, self._source, timing)
        self._shared = SharedResources(worker, self._fail, timing)
        make = self._shared.given_to(worker.task)
        if references is not None:
            make = references.tables.given_to(make)
        self._context = LaneContext(
            worker,
            # Tasks are made only after the lifespan was entered.
            make,
            self._task_threads,
            self._output.send,
            Failures(worker, self._output.letters, self._output.retries),
            self.counts,
            self._fail,
            timing=timing,
        )
        self.assignments = PartitionSet(self._context)
        self._restores: StateRestores | None = None
        if worker.state is not None:
            self._restores = StateRestores(worker, config, self.assignments, self._fail)
            self.assignments.restore = self._restores.begin
        self._membership = membership
        self._members: list[GroupConsumer] = []
        self._background_tasks: list[asyncio.Task[None]] = []
        timers = LaneTimers(self._context, self.assignments)
        # Also while it drains: deadlines must end what hangs.
        for run in (*timers.loops, self._watch_topics):
            self._run_in_background(run())
        if references is not None:
            references.subscribe(self._fail)
            self._run_in_background(references.watch())

    @property
    def sent_to(self) -> Collection[str]:
        """The topics that its tasks have sent to."""
        return self._output.sent_to

    def stop(self) -> None:
        """Ends the instance; may be called from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the instance before it
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def read(self) -> None:
        """Hands records to their lanes and commits, until the instance is stopped or fails.

        Raises:
            HeadraceError, KafkaException: if it can't continue.
            Exception: what the worker's lifespan raises when it is entered.
        """
        # Before it joins: partitions that are assigned would wait for a slow lifespan.
        await self._shared.enter()
        if self._output.places is not None:
            await asyncio.to_thread(self._output.places.start)
        # One at a time: members that joined before one that fails are closed with the instance.
        for group, topics in consumed_topics(self._worker).items():
            membership = replace(self._membership, group=group, topics=topics)
            member = self._output.consumer(membership, self._context, self.assignments)
            self._members.append(member)
        for member in self._members:
            self._run_in_background(member.read(self._stopping))
        await self._stopping.wait()
        if self._failure is not None:
            raise self._failure

    async def close(self, failure: BaseException | None) -> BaseException | None:
        """Drains, commits and leaves the group; returns why the instance failed, if it did."""
        seconds = self._worker.drain_timeout.total_seconds()
        deadline = self._loop.time() + seconds
        # Readers still poll meanwhile: a member that does not is evicted, and can't commit.
        await self.assignments.drain(seconds)
        for task in self._background_tasks:
            task.cancel()
        # Before the last commit: a record is done only when what it sent is confirmed.
        await self._output.close(seconds)
        if self._output.places is not None:
            self._output.places.close()
        if done := sum(assigned.uncommitted for assigned in self.assignments.values()):
            _LOG.warning(
                "%s: %d records are done beyond one that is not; those that do not fit into the "
                "commit's metadata will be repeated",
                self._worker.name,
                done,
            )
        closing = (member.close(deadline) for member in self._members)
        results = await asyncio.gather(*closing, return_exceptions=True)
        results += await asyncio.gather(self._shared.leave(), return_exceptions=True)
        self._task_threads.shutdown(wait=False)
        if self._restores is not None:
            self._restores.close()
        for error in results:
            if error is not None:
                _LOG.error("%s: %s", self._worker.name, error_message(error))
        failures = (failure, self._failure, *results)
        return next((error for error in failures if error is not None), None)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            _LOG.error("%s: %s", self._worker.name, error_message(error), exc_info=exc_info(error))
        self._stopping.set()

    # -- in the background ------------------------------------------------------------------------

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs ``work`` until the instance ends. Its failure ends the instance.

        Without polls nothing is read or committed, and without deadlines records may hang.
        """
        task = self._loop.create_task(work)
        task.add_done_callback(self._check_background_task)
        self._background_tasks.append(task)

    def _check_background_task(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    async def _watch_topics(self) -> None:
        """Ends the instance when a topic was deleted and recreated, with other records."""
        while True:
            await asyncio.sleep(self._timing.topic_check_seconds)
            names = [topic.name for topic in self._worker.topics]
            try:
                live = await asyncio.to_thread(topic_ids, self._source, names)
            except (BrokerUnreachableError, KafkaException) as error:
                _LOG.warning(
                    "%s: cannot describe its topics, retrying in %.0f s: %s",
                    self._worker.name,
                    self._timing.topic_check_seconds,
                    error,
                )
            else:
                self._compare(live)

    def _compare(self, live: Mapping[str, str]) -> None:
        for assigned in self.assignments.values():
            topic, number = assigned.partition.topic, assigned.partition.partition
            if topic not in live and topic in self._missed:
                self._fail(TopicMissingError(topic))
            elif live.get(topic, assigned.topic_id) != assigned.topic_id:
                group, reason = self._worker.consumer_group, "the topic was deleted and recreated"
                self._fail(CommittedOffsetError(group, topic, number, assigned.position, reason))
        # Only twice in a row: a broker that has just started does not know them all.
        self._missed = {topic.name for topic in self._worker.topics} - set(live)
