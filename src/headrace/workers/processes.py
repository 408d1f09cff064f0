"""Tasks in processes of their own, for work that keeps a processor busy.

Each task lives in one process from its ``init`` to its ``close``; a process may have several. What
they exchange is pickled: the task's factory and config once, then records and Arrow batches.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.errors import TaskProcessError
from headrace.workers.task import (
    BatchWorkerTask,
    Headers,
    WorkerRecord,
    WorkerSubpartition,
    WorkerTask,
)

if TYPE_CHECKING:
    import pyarrow as pa

_LOOK_SECONDS = 1.0

Sent = tuple[str, bytes | None, bytes | None, Headers, int]


class TaskProcesses:
    """Runs the tasks of one instance in ``count`` processes. Used on the event loop.

    Args:
        make: makes a task, in its process.
        count: how many processes.
    """

    def __init__(self, make: Callable[[], WorkerTask], count: int) -> None:
        from pyspark import cloudpickle  # functions that a decorator replaced have no other way

        self._make = cloudpickle.dumps(make)
        self._is_batch = isinstance(make(), BatchWorkerTask)
        self._numbers = itertools.count()
        self._processes = [_Process() for _ in range(count)]

    def task(self) -> WorkerTask:
        """A task that runs in one of the processes."""
        number = next(self._numbers)
        process = self._processes[number % len(self._processes)]
        kind = RemoteBatchTask if self._is_batch else RemoteTask
        return kind(process, number, self._make)

    def close(self) -> None:
        """Ends the processes, also one that does not answer."""
        for process in self._processes:
            process.close()


class _Process:
    """One process, which does one thing at a time."""

    def __init__(self) -> None:
        # Spawned: librdkafka does not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(1, context, _begin, (os.getpid(),))
        self._pid = self._executor.submit(os.getpid)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Raises what ``function`` raises, and TaskProcessError when the process is gone."""
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, function, *arguments)
        except BrokenProcessPool as error:
            raise TaskProcessError("the process of a task ended by itself") from error

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._pid.done() and self._pid.exception() is None:
            try:
                os.kill(self._pid.result(), signal.SIGKILL)
            except ProcessLookupError:
                return


class RemoteTask(WorkerTask):
    """Stands for a task in another process."""

    def __init__(self, process: _Process, number: int, make: bytes) -> None:
        self._process, self._number, self._make = process, number, make

    async def init(self, subpartition: WorkerSubpartition, config: Mapping[str, Any]) -> None:
        await self._process.call(_make, self._number, self._make)
        await self._call("init", subpartition, dict(config))

    async def process(self, record: WorkerRecord) -> None:
        await self._call("process", record)

    async def punctuate(self, now: datetime) -> None:
        await self._call("punctuate", now)

    async def close(self) -> None:
        await self._call("close")

    async def _call(self, method: str, *arguments: Any) -> None:
        sent: list[Sent] = await self._process.call(_call, self._number, method, arguments)
        for topic, value, key, headers, partition in sent:
            self.send(topic, value, key=key, headers=headers, partition=partition)


class RemoteBatchTask(RemoteTask, BatchWorkerTask):
    """The same for a task that takes batches."""

    async def process_batch(self, records: pa.RecordBatch) -> None:
        await self._call("process_batch", records)


# -- in the process -------------------------------------------------------------------------------

_TASKS: dict[int, WorkerTask] = {}
_SENT: list[Sent] = []


class _Later:
    """What ``send`` gives in a process: it takes effect when the method has returned."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def _begin(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the instance ends it
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def _make(number: int, make: bytes) -> None:
    from pyspark import cloudpickle

    task: WorkerTask = cloudpickle.loads(make)()
    task.send = _send
    _TASKS[number] = task


def _call(number: int, method: str, arguments: tuple[Any, ...]) -> list[Sent]:
    _SENT.clear()
    result = getattr(_TASKS[number], method)(*arguments)
    if asyncio.iscoroutine(result):  # those of WorkerTask itself, which do nothing
        asyncio.run(result)
    if method == "close":
        del _TASKS[number]
    return list(_SENT)


def _send(
    topic: str,
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: Headers = (),
    partition: int = -1,
) -> Awaitable[None]:
    _SENT.append((topic, value, key, headers, partition))
    return _Later()
