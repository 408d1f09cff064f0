"""The main function of a task process, and its protocol with the instance.

Both ways, a frame is a length in four bytes and a pickle: of a :class:`TaskRequest`, or of an
:data:`Answer`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import struct
import threading
import time
import traceback
from collections.abc import Awaitable, Generator
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from headrace.runtime.error_text import bounded_text, error_text, is_error
from headrace.workers.task import Headers, WorkerTask

SIZE = struct.Struct("!I")
_POLL_INTERVAL_SECONDS = 1.0


class TaskRequest(NamedTuple):
    """A method of a task, by its number; ``make`` makes the task, from its pickled factory."""

    number: int
    method: str
    arguments: tuple[Any, ...]


Sent: TypeAlias = tuple[str, bytes | None, bytes | None, Headers, int]
"""Topic, value, key, headers, partition."""

Answer: TypeAlias = list[Sent] | BaseException
"""What the method sent, or what it raised."""


def framed(content: object) -> bytes:
    """A frame with the pickle of ``content``."""
    pickled = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return SIZE.pack(len(pickled)) + pickled


def serve(channel: socket.socket) -> None:
    """Does what the instance asks for, one thing after the other, until it is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # for the whole group: the instance drains
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # What a task starts must not hold the channel: it would outlive this process.
    channel.set_inheritable(False)
    os.register_at_fork(after_in_child=lambda: _close(channel))
    tasks = _Tasks()
    with channel, channel.makefile("rb") as requests:
        channel.sendall(framed([]))  # it has begun: from now on what it is given takes its own time
        while (request := _read(requests)) is not None:
            channel.sendall(_answer(tasks, request))


def _close(channel: socket.socket) -> None:
    """Closes ``channel`` in a process that was forked, also while a file of it is open."""
    if channel.fileno() >= 0:  # a fork of a fork has closed it
        os.close(channel.detach())


def _end_with(parent: int) -> None:
    """Ends this process when its parent has ended, also while a task never returns."""
    while os.getppid() == parent:
        time.sleep(_POLL_INTERVAL_SECONDS)
    os._exit(1)


def _read(requests: BinaryIO) -> TaskRequest | None:
    """Returns the next request; ``None``: the instance has closed the channel."""
    head = requests.read(SIZE.size)
    if len(head) < SIZE.size:
        return None
    [size] = SIZE.unpack(head)
    request: TaskRequest = pickle.loads(requests.read(size))  # noqa: S301 - the instance wrote it
    return request


def _answer(tasks: _Tasks, request: TaskRequest) -> bytes:
    try:
        return framed(tasks.call(request))
    except (KeyboardInterrupt, SystemExit):
        raise  # they end this process, or one that the task has forked
    except BaseException as error:  # noqa: BLE001 - it is the instance's to handle
        return _framed_error(error)


def _framed_error(error: BaseException) -> bytes:
    """Returns the frame of ``error``, as text where a pickle does not preserve the exception."""
    with contextlib.suppress(Exception):
        error.add_note(bounded_text(error, lambda: "".join(traceback.format_exception(error))))
    try:
        frame = framed(error)
        is_kept = isinstance(pickle.loads(frame[SIZE.size :]), BaseException)  # noqa: S301
    except BaseException:  # noqa: BLE001 - whatever its class does
        is_kept = False
    # From a future, these would end the caller's coroutine.
    if not is_kept or is_error(error, StopIteration, GeneratorExit):
        return framed(RuntimeError(error_text(error)))
    return frame


class _Tasks:
    """The tasks of this process, by number."""

    def __init__(self) -> None:
        self._tasks: dict[int, WorkerTask] = {}
        self._sent: list[Sent] = []

    def call(self, request: TaskRequest) -> list[Sent]:
        self._sent = []
        if request.method == "make":
            self._make(request.number, *request.arguments)
            return []
        result = getattr(self._tasks[request.number], request.method)(*request.arguments)
        if asyncio.iscoroutine(result):  # `headrace check` refuses those; a program may not
            asyncio.run(result)
        if request.method == "close":
            del self._tasks[request.number]
        return self._sent

    def _make(self, number: int, make: bytes) -> None:
        from pyspark import cloudpickle

        task: WorkerTask = cloudpickle.loads(make)()
        task.send = self._send
        self._tasks[number] = task

    def _send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = -1,
    ) -> Awaitable[None]:
        self._sent.append((topic, value, key, headers, partition))
        return _Later()


class _Later:
    """The result of ``send`` in a process: records are sent when the method has returned."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()
