"""Tasks in processes of their own, for work that keeps a processor busy.

Each task lives in one process from its ``init`` to its ``close``; a process may have several. What
they exchange is pickled: the task's factory and config once, then records and Arrow batches.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import multiprocessing
import pickle
import socket
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.errors import TaskProcessError
from headrace.workers.task import BatchWorkerTask, WorkerRecord, WorkerSubpartition, WorkerTask
from headrace.workers.task_process import SIZE, Answer, Request, Sent, framed, serve

if TYPE_CHECKING:
    import pyarrow as pa


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
        self._processes = [TaskProcess() for _ in range(count)]

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


class TaskProcess:
    """One process, which does one thing at a time, in the order in which it was asked."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        # Spawned: librdkafka does not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=serve, args=(theirs,))
        self._process.start()
        atexit.register(self._process.kill)  # multiprocessing waits for one that still runs
        theirs.close()
        self._connected = asyncio.ensure_future(
            asyncio.get_running_loop().create_unix_connection(_Answers, sock=self._channel)
        )

    async def call(self, request: Request) -> list[Sent]:
        """What the task sent meanwhile.

        Raises:
            TaskProcessError: the process is gone.
            Exception: what the task raised.
        """
        _, answers = await asyncio.shield(self._connected)
        return await answers.ask(request)

    def close(self) -> None:
        """Ends it, whatever it does."""
        atexit.unregister(self._process.kill)
        self._process.kill()
        self._process.join()
        if self._connected.done():
            transport, _ = self._connected.result()
            transport.abort()
        else:
            self._connected.cancel()
            self._channel.close()


class _Answers(asyncio.Protocol):
    """What a process answers, in the order of the requests."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._asked: deque[asyncio.Future[list[Sent]]] = deque()
        self._received = bytearray()

    def ask(self, request: Request) -> asyncio.Future[list[Sent]]:
        """Queues it; the answer may be waited for or not."""
        answer: asyncio.Future[list[Sent]] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            answer.set_exception(_ended())
        else:
            self._transport.write(framed(request))
            self._asked.append(answer)
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a socket's can write

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._end()) <= len(self._received):
            content = bytes(self._received[SIZE.size : end])
            del self._received[:end]
            self._answer(pickle.loads(content))  # noqa: S301 - our own process wrote it

    def _end(self) -> int:
        """Of the first answer, as far as that can be told."""
        if len(self._received) < SIZE.size:
            return SIZE.size
        [size] = SIZE.unpack_from(self._received)
        return SIZE.size + int(size)

    def _answer(self, found: Answer) -> None:
        answer = self._asked.popleft()
        if answer.cancelled():
            return
        if isinstance(found, BaseException):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the interface
        self._transport = None
        for answer in self._asked:
            if not answer.cancelled():
                answer.set_exception(_ended())
        self._asked.clear()


def _ended() -> TaskProcessError:
    return TaskProcessError("the process of a task ended by itself")


class RemoteTask(WorkerTask):
    """Stands for a task in another process."""

    def __init__(self, process: TaskProcess, number: int, make: bytes) -> None:
        self._process, self._number, self._make = process, number, make

    async def init(self, subpartition: WorkerSubpartition, config: Mapping[str, Any]) -> None:
        await self._call("make", self._make)
        await self._call("init", subpartition, dict(config))

    async def process(self, record: WorkerRecord) -> None:
        await self._call("process", record)

    async def punctuate(self, now: datetime) -> None:
        await self._call("punctuate", now)

    async def close(self) -> None:
        await self._call("close")

    async def _call(self, method: str, *arguments: Any) -> None:
        sent = await self._process.call(Request(self._number, method, arguments))
        for topic, value, key, headers, partition in sent:
            self.send(topic, value, key=key, headers=headers, partition=partition)


class RemoteBatchTask(RemoteTask, BatchWorkerTask):
    """The same for a task that takes batches."""

    async def process_batch(self, records: pa.RecordBatch) -> None:
        await self._call("process_batch", records)
