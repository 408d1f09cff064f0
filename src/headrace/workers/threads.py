"""Threads for tasks of ordinary functions."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class TaskThreads(Executor):
    """As the standard library's, but one that never returns does not keep the process alive."""

    def __init__(self, count: int, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
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
        """As any executor's."""
        future: Future[Result] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                _settle(future, fn, *args, **kwargs)

        self._calls.put(call)
        return future

    def shutdown(
        self,
        wait: bool = True,
        *,
        cancel_futures: bool = False,  # noqa: ARG002 - what waits is run in any case
    ) -> None:
        """Each thread ends once nothing waits."""
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _settle(future: Future[Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    try:
        result = function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        future.set_exception(error)
    else:
        future.set_result(result)
