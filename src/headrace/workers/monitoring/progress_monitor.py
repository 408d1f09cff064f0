"""Measures an instance while it runs, and reports the figures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from headrace.kafka.client.clients import ClientConfig
from headrace.service.status import State
from headrace.workers.instance import WorkerInstance
from headrace.workers.monitoring.lag import EndOffsets
from headrace.workers.monitoring.progress import Observe, measure, measure_partitions
from headrace.workers.monitoring.waiting import WaitReason

_LOG = logging.getLogger("headrace.workers")
POLL_INTERVAL_SECONDS = 1.0
_ENDS_EVERY_SECONDS = 3.0  # each time is a request to every leader
WHY_AFTER_SECONDS = 3.0  # most groups have given partitions to a new member by then


class ProgressMonitor:
    """Reports the progress of ``instance`` to ``observe`` every second, on the event loop.

    Args:
        instance: what is measured.
        name: of the instance.
        config: of its cluster, which is asked where partitions end.
        observe: called with the progress; it must not block for long.
        own: of the cluster that its tasks send to; by default the same one.
    """

    def __init__(
        self,
        instance: WorkerInstance,
        name: str,
        config: ClientConfig,
        observe: Observe,
        own: ClientConfig | None = None,
    ) -> None:
        self._instance, self._name, self._observe = instance, name, observe
        self._ends = EndOffsets(config)
        self._refreshing: asyncio.Task[None] | None = None
        self._ask_at = 0.0
        self._waits = WaitReason(instance.worker.consumer_group, name, config, own or config)
        self._asking: asyncio.Task[None] | None = None
        self._ask_why_at = 0.0

    async def run_instance(self) -> None:
        """Runs the instance, and reports its end too; a failure to report does not end it.

        Raises:
            HeadraceError, KafkaException: why it ended, other than by being stopped.
        """
        watching = asyncio.create_task(self._watch())
        try:
            if self._instance.state is State.CREATED:  # otherwise it was stopped before
                await self._instance.run()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            self._try(self._report)

    async def _watch(self) -> None:
        while True:
            self._try(self._refresh_ends)
            self._try(self._refresh_waits)
            self._try(self._report)
            await asyncio.sleep(POLL_INTERVAL_SECONDS)

    def _try(self, step: Callable[[], None]) -> None:
        """Takes a step; what fails once, such as a write to a full disk, may succeed later."""
        try:
            step()
        except Exception:  # noqa: BLE001 - whatever observers raise
            _LOG.exception("Cannot report the progress of %s", self._name)

    def _report(self) -> None:
        partitions = measure_partitions(self._instance, self._ends)
        now = asyncio.get_running_loop().time()
        progress = measure(self._instance, self._name, partitions, now)
        if not progress.reason and not progress.has_ended:
            progress = replace(progress, reason=self._ends.reason or self._waits.reason)
        self._observe(progress)

    def _refresh_ends(self) -> None:
        """Fetches the ends of partitions, unless the last request is not answered yet."""
        assignments, now = self._instance.assignments, asyncio.get_running_loop().time()
        if not assignments or now < self._ask_at:
            return
        if self._refreshing is not None and not self._refreshing.done():
            return
        self._ask_at = now + _ENDS_EVERY_SECONDS
        unread = {
            assigned.partition: assigned.committable
            for assigned in assignments.values()
            if assigned.times.at(assigned.committable) < 0
        }
        self._refreshing = asyncio.create_task(self._ends.refresh(unread, set(assignments)))

    def _refresh_waits(self) -> None:
        """Asks why nothing is done, unless it is known, or the last request is not answered yet."""
        instance, now = self._instance, asyncio.get_running_loop().time()
        if instance.state is not State.RUNNING:
            self._waits.reason = ""
            self._ask_why_at = now + WHY_AFTER_SECONDS
            return
        if now < self._ask_why_at or (self._asking is not None and not self._asking.done()):
            return
        sent_to, has_partitions = instance.sent_to, bool(instance.assignments)
        if self._waits.is_settled(sent_to, has_partitions=has_partitions):
            self._waits.reason = ""
            return
        self._ask_why_at = now + WHY_AFTER_SECONDS
        asking = self._waits.refresh(sent_to, has_partitions=has_partitions)
        self._asking = asyncio.create_task(asking)
