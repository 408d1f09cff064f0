"""Tasks in processes of their own, for work that keeps a processor busy.

Each task lives in one process from its ``init`` to its ``close``; a process may have several. When
it ends by itself, the record that it was at has failed, and its tasks are recreated in another one.
What they exchange is pickled: the task's factory and config once, then records and Arrow batches.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import logging
import math
import multiprocessing
import os
import pickle
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.errors import TaskProcessError, TaskProcessesEndedError
from headrace.runtime.error_text import error_text
from headrace.runtime.extras import require_extra
from headrace.workers.lanes.attempt import CURRENT, Call, RecordAttempt
from headrace.workers.lanes.task_process import SIZE, Answer, Sent, TaskRequest, framed, serve
from headrace.workers.task import BatchWorkerTask, WorkerRecord, WorkerSubpartition, WorkerTask
from headrace.workers.timing import WorkerTiming

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger("headrace.workers")


class TaskProcesses:
    """Runs the tasks of one instance in ``count`` processes. Used on the event loop.

    Args:
        make: makes a task, in its process.
        count: how many processes.
        on_fatal: called when a process ended too often.
        timing: how long a start may take.
    """

    def __init__(
        self,
        make: Callable[[], WorkerTask],
        count: int,
        on_fatal: Callable[[BaseException], None],
        timing: WorkerTiming = WorkerTiming(),
    ) -> None:
        require_extra("spark")
        from pyspark import cloudpickle  # functions that a decorator replaced have no other way

        self._make = cloudpickle.dumps(make)
        self._is_batch = isinstance(make(), BatchWorkerTask)
        self._numbers = itertools.count()
        self._processes = [TaskProcess(on_fatal, timing) for _ in range(count)]

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
    """One process, which does one thing at a time, in the order of the calls.

    What waits is kept here until the process has answered what it was given before: so a call
    whose caller was cancelled is not made, and when the process ends by itself, only the call that
    it was at has failed. Another process takes its place then. So it does when a call goes on for
    too long after it was given up, as that of a revoked partition.

    Attributes:
        generation: counts the processes that there were in this place.
        max_ends_in_a_row: a task that crashes at its start would start processes for ever.
    """

    max_ends_in_a_row = 10

    def __init__(self, on_fatal: Callable[[BaseException], None], timing: WorkerTiming) -> None:
        self.generation = 0
        self._on_fatal, self._timing = on_fatal, timing
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_PendingCall] = deque()
        self._running: _PendingCall | None = None
        self._ends_in_a_row = 0
        self._is_closed = self._is_over = False
        self._start()

    async def call(self, request: TaskRequest) -> list[Sent]:
        """Calls a method; returns what the task sent meanwhile.

        Raises:
            TaskProcessError: if the process ended while it was at this.
            ProcessReplacedError: if another process took its place before this was begun.
            TaskProcessesEndedError: if it is closed, or ended too often, and none takes its place.
            Exception: what the task raised.
        """
        if self._is_over:
            raise TaskProcessesEndedError
        call = CURRENT.get(None) or Call()
        call.started = math.inf
        pending = _PendingCall(framed(request), request.method, call, self._loop.create_future())
        self._waiting.append(pending)
        self._take_next()
        try:
            return await pending.answer
        except asyncio.CancelledError:
            # Those that wait have no deadline, and this call has none any more.
            seconds = self._timing.hanging_seconds
            self._loop.call_later(seconds, self._end_given_up, pending, seconds)
            raise

    def close(self) -> None:
        """Ends it, whatever it does; later calls fail."""
        self._is_closed = self._is_over = True
        self._connecting.cancel()
        if self._transport is None:
            self._channel.close()
        else:
            self._transport.abort()
        self._kill()

    def _start(self) -> None:
        self.generation += 1
        self._is_ready = False
        self._transport: asyncio.WriteTransport | None = None
        self._channel, theirs = socket.socketpair()
        # Spawned: librdkafka does not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=serve, args=(theirs,))
        self._process.start()
        self._start_deadline = self._loop.call_later(
            self._timing.process_start_seconds, self._process.kill
        )
        atexit.register(self._process.kill)  # multiprocessing waits for one that still runs
        theirs.close()
        watched = self._process.pid, self._channel
        threading.Thread(target=self._watch, args=watched, daemon=True).start()
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        def answers() -> _Answers:
            return _Answers(self._answered, self._ended)

        transport, _ = await self._loop.create_unix_connection(answers, sock=self._channel)
        self._transport = transport
        self._take_next()

    def _watch(self, pid: int, channel: socket.socket) -> None:
        """Waits on a thread for the end of a process: what it has started may hold its channel."""
        with contextlib.suppress(ChildProcessError):  # it was waited for
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(_end_channel, channel)

    def _end_given_up(self, pending: _PendingCall, seconds: float) -> None:
        """Ends the process if it goes on with a call that was given up."""
        if pending is self._running and not self._is_closed:
            _LOG.warning(
                "%s goes on %.0f s after it was given up, ending its process", pending, seconds
            )
            self._process.kill()

    def _kill(self) -> None:
        self._start_deadline.cancel()
        atexit.unregister(self._process.kill)
        self._process.kill()
        self._process.join()

    def _take_next(self) -> None:
        if not self._is_ready or self._transport is None:
            return
        while self._running is None and self._waiting:
            pending = self._waiting.popleft()
            if not pending.answer.done():  # else its caller was cancelled
                self._running = pending
                pending.call.started = self._loop.time()
                self._transport.write(pending.frame)

    def _answered(self, answer: Answer) -> None:
        pending, self._running = self._running, None
        if pending is None:  # it says that it has begun
            self._is_ready = True
            self._start_deadline.cancel()
            self._take_next()
            return
        if pending.method.startswith("process"):
            self._ends_in_a_row = 0
        if isinstance(answer, BaseException):
            pending.fail(answer)
        elif not pending.answer.done():
            pending.answer.set_result(answer)
        self._take_next()

    def _ended(self) -> None:
        """The process is gone."""
        if self._is_closed:
            return
        self._kill()
        self._ends_in_a_row += 1
        error = TaskProcessError(f"the process of a task ended by itself: {self._how}")
        # Of the running call alone it is unknown what it did; those that wait were not begun.
        taken, self._running = self._running, None
        if taken is not None:
            taken.fail(error)
        waiting, self._waiting = self._waiting, deque()
        if self._ends_in_a_row < self.max_ends_in_a_row:
            _LOG.warning("%s, starting another one", error)
            self._start()
        else:
            self._is_over = True
            self._on_fatal(error)
        for pending in waiting:
            pending.fail(TaskProcessesEndedError() if self._is_over else ProcessReplacedError())

    @property
    def _how(self) -> str:
        code = self._process.exitcode or 0
        return f"signal {-code}" if code < 0 else f"exit code {code}"


@dataclass(frozen=True, slots=True)
class _PendingCall:
    """A request to a process, and the future of its answer."""

    frame: bytes
    method: str
    call: Call
    answer: asyncio.Future[list[Sent]]

    def __str__(self) -> str:
        record = f" at {self.call.record}" if isinstance(self.call, RecordAttempt) else ""
        return f"{self.method} of a task{record}"

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def _end_channel(channel: socket.socket) -> None:
    """Ends a channel whose process has ended: what it has answered is read, then it is lost."""
    with contextlib.suppress(OSError):  # it was lost before
        channel.shutdown(socket.SHUT_RDWR)


class ProcessReplacedError(Exception):
    """A call was not begun in its process, which ended."""


class _Answers(asyncio.Protocol):
    """Reads the answers of a process, in the order of the requests."""

    def __init__(self, answered: Callable[[Answer], None], ended: Callable[[], None]) -> None:
        self._answered, self._ended = answered, ended
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._end()) <= len(self._received):
            content = bytes(self._received[SIZE.size : end])
            del self._received[:end]
            self._answered(_answer_in(content))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the interface
        self._ended()

    def _end(self) -> int:
        """Returns the size of the first answer, as far as it is known."""
        if len(self._received) < SIZE.size:
            return SIZE.size
        [size] = SIZE.unpack_from(self._received)
        return SIZE.size + int(size)


def _answer_in(content: bytes) -> Answer:
    """Returns what a frame holds; an exception of a class that only the process has, as text."""
    try:
        answer: Answer = pickle.loads(content)  # noqa: S301 - our own process wrote it
    except BaseException as error:  # noqa: BLE001 - whatever the class does
        return RuntimeError(f"cannot read what the process of a task answered: {error_text(error)}")
    return answer


class RemoteTask(WorkerTask):
    """Stands for a task in another process, and is recreated in the one that takes its place."""

    def __init__(self, process: TaskProcess, number: int, make: bytes) -> None:
        self._process, self._number, self._make = process, number, make
        self._made_in = 0

    async def init(self, subpartition: WorkerSubpartition, config: Mapping[str, Any]) -> None:
        self._given = (subpartition, dict(config))
        await self._made()

    async def process(self, record: WorkerRecord) -> None:
        await self._call("process", record)

    async def punctuate(self, now: datetime) -> None:
        await self._call("punctuate", now)

    async def close(self) -> None:
        if self._made_in == self._process.generation:
            with contextlib.suppress(ProcessReplacedError):
                await self._request("close")

    async def _call(self, method: str, *arguments: Any) -> None:
        while True:
            await self._made()
            try:
                return await self._request(method, *arguments)
            except ProcessReplacedError:
                continue

    async def _made(self) -> None:
        """Returns when the task is in the process that there is now."""
        while self._made_in != self._process.generation:
            generation = self._process.generation
            with contextlib.suppress(ProcessReplacedError):
                await self._request("make", self._make)
                await self._request("init", *self._given)
                self._made_in = generation

    async def _request(self, method: str, *arguments: Any) -> None:
        sent = await self._process.call(TaskRequest(self._number, method, arguments))
        for topic, value, key, headers, partition in sent:
            self.send(topic, value, key=key, headers=headers, partition=partition)


class RemoteBatchTask(RemoteTask, BatchWorkerTask):
    """Stands for a task in another process that takes batches."""

    async def process_batch(self, records: pa.RecordBatch) -> None:
        await self._call("process_batch", records)
