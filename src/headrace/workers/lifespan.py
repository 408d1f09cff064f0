"""What the tasks of an instance share, from before it joins its group until they are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headrace.errors import LifespanEndedError, TaskTimeoutError
from headrace.workers.declaration import Lifespan, Worker
from headrace.workers.tasks.task import WorkerTask
from headrace.workers.timing import WorkerTiming


class SharedResources:
    """Enters the worker's lifespan and leaves it, in one asyncio task, as some managers require.

    A lifespan that ends while the instance runs, such as one whose ``asyncio.TaskGroup`` lost a
    task, ends the instance: its tasks would continue with a resource that is closed.

    Args:
        worker: whose lifespan it is.
        on_fatal: called with what ended the lifespan before it was left.
        timing: how long the lifespan may take.

    Attributes:
        value: what the lifespan gave; ``None`` before it is entered, and without one.
    """

    def __init__(
        self,
        worker: Worker,
        on_fatal: Callable[[BaseException], None],
        timing: WorkerTiming = WorkerTiming(),
    ) -> None:
        self.value: Any = None
        self._timing = timing
        self._on_fatal = on_fatal
        self._worker = worker
        self._leaving = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None

    def given_to(self, make: Callable[[], WorkerTask]) -> Callable[[], WorkerTask]:
        """Returns ``make`` so that each task it makes has what is shared."""

        def make_with_shared() -> WorkerTask:
            task = make()
            task.shared = self.value
            return task

        return make_with_shared

    async def enter(self) -> None:
        """Returns when the lifespan was entered; at once where the worker has none.

        Raises:
            TaskTimeoutError: if it takes longer than ``processing_timeout``, a minute at least.
            Exception: what it raises.
        """
        if self._worker.lifespan is None:
            return
        entered = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold(self._worker.lifespan, entered))
        timeout = self._worker.processing_timeout.total_seconds()
        seconds = max(timeout, self._timing.min_enter_seconds)
        await asyncio.wait(
            {self._holder, entered}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if self._holder.done():
            self._holder.result()
        elif not entered.done():
            self._holder.cancel()
            raise TaskTimeoutError(f"{self._name} was not entered within {seconds:.0f} s")
        self._holder.add_done_callback(self._check_end)

    async def leave(self) -> None:
        """Returns when the lifespan was left, if it was entered.

        Raises:
            TaskTimeoutError: if that takes longer than ten seconds.
            Exception: what it raises.
        """
        if self._holder is None or self._holder.done():
            return
        self._leaving.set()
        seconds = self._timing.leave_seconds
        await asyncio.wait({self._holder}, timeout=seconds)
        if not self._holder.done():
            self._holder.cancel()
            raise TaskTimeoutError(f"{self._name} was not left within {seconds:.0f} s")
        self._holder.result()

    def _check_end(self, holder: asyncio.Task[None]) -> None:
        if self._leaving.is_set():
            return
        error = None if holder.cancelled() else holder.exception()
        if error is None:
            error = LifespanEndedError(f"{self._name} ended before its instance")
        self._on_fatal(error)

    @property
    def _name(self) -> str:
        return f"the lifespan of worker {self._worker.name!r}"

    async def _hold(self, lifespan: Lifespan, entered: asyncio.Future[None]) -> None:
        async with lifespan(self._worker.config) as self.value:
            entered.set_result(None)
            await self._leaving.wait()
