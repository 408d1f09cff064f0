"""Threads for tasks of ordinary functions."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from headrace.runtime.error_text import error_text

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class TaskThreads(Executor):
    """Runs calls on daemon threads: one that never returns does not keep the process alive."""

    def __init__(self, count: int, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._given_up: dict[Future[Any], tuple[float, str]] = {}
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self,
        fn: Callable[Arguments, Result],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Future[Result]:
        """Runs ``fn`` on one of the threads, in the order of the calls."""
        future: Future[Result] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                _settle(future, fn, *args, **kwargs)

        self._calls.put(call)
        return future

    async def call(self, name: str, function: Callable[[], Result]) -> Result:
        """Returns what ``function`` returned on a thread.

        When this is cancelled, a call that no thread has started is dropped. One that a thread
        continues counts by its ``name`` in :meth:`all_hang`, until it ends.
        """
        # wrap_future passes a cancellation on, but a call that a thread has started ignores it.
        future = self.submit(function)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():
                self._given_up[future] = (time.monotonic(), name)
                future.add_done_callback(lambda ended: self._given_up.pop(ended, None))
            raise

    def all_hang(self, seconds: float) -> list[str]:
        """Returns what holds the threads, if all have been held by such calls for so long."""
        until = time.monotonic() - seconds
        held = [name for since, name in list(self._given_up.values()) if since <= until]
        return held if len(held) >= len(self._threads) else []

    def shutdown(
        self,
        wait: bool = True,
        *,
        cancel_futures: bool = False,  # noqa: ARG002 - what waits is run in any case
    ) -> None:
        """Ends each thread once no call waits."""
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _work(self) -> None:
        # Daemon threads: a call that never returns must not keep the process alive.
        while (call := self._calls.get()) is not None:
            call()


def _settle(future: Future[Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    try:
        result = function(*args, **kwargs)
    except (StopIteration, GeneratorExit) as error:  # from a future they end a coroutine
        raised = RuntimeError(f"a function raised {error_text(error)}")
        raised.__cause__ = error
        future.set_exception(raised)
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        future.set_exception(error)
    else:
        future.set_result(result)
