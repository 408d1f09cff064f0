"""Time that is spent in a worker's own function."""

from __future__ import annotations

import functools
import inspect
import threading
import time
import types
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from headrace.workers.tasks.function_task import FunctionFactory, parameters_of

_Call = Callable[[dict[str, Any]], dict[str, Any]]


class UserClock:
    """Adds up the time of all calls of a function.

    Attributes:
        calls: that have ended.
        seconds: from call to end, waiting included, of all calls.
        cpu_seconds: of the threads that ran them.
        first_error: what the function raised first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls = 0
        self.seconds = self.cpu_seconds = 0.0
        self.first_error: BaseException | None = None

    def ended(self, begin_ns: int) -> None:
        """Notes the end of a call."""
        seconds = (time.perf_counter_ns() - begin_ns) / 1e9
        with self._lock:
            self.calls += 1
            self.seconds += seconds

    def used(self, begin_ns: int) -> None:
        """Adds CPU of this thread."""
        seconds = (time.thread_time_ns() - begin_ns) / 1e9
        with self._lock:
            self.cpu_seconds += seconds

    def failed(self, error: BaseException) -> None:
        """Keeps the first error."""
        if self.first_error is None:
            self.first_error = error


def timed(task: FunctionFactory, clock: UserClock, origins: Mapping[str, str]) -> FunctionFactory:
    """Returns the task with its function timed; records have the names of their real topics.

    Args:
        task: of the worker.
        clock: takes the times.
        origins: the real topics, by the names of those that are read.
    """
    function = task.function
    if isinstance(function, functools.partial):  # its annotations would be lost
        return task
    name = parameters_of(function, task.references).record

    def arguments(values: dict[str, Any]) -> dict[str, Any]:
        if name:
            record = values[name]
            values[name] = msgspec.structs.replace(record, topic=origins[record.topic])
        return values

    is_coroutine = inspect.iscoroutinefunction(function)
    make = _timed_coroutine if is_coroutine else _timed_call
    return replace(task, function=make(function, clock, arguments))


def _timed_call(function: Callable[..., Any], clock: UserClock, arguments: _Call) -> Any:
    @functools.wraps(function)
    def call(**values: Any) -> Any:
        begin, cpu = time.perf_counter_ns(), time.thread_time_ns()
        try:
            return function(**arguments(values))
        except BaseException as error:
            clock.failed(error)
            raise
        finally:
            clock.used(cpu)
            clock.ended(begin)

    return call


def _timed_coroutine(function: Callable[..., Any], clock: UserClock, arguments: _Call) -> Any:
    @functools.wraps(function)
    async def call(**values: Any) -> Any:
        begin = time.perf_counter_ns()
        try:
            return await _stepped(function(**arguments(values)), clock)
        except Exception as error:
            clock.failed(error)
            raise
        finally:
            clock.ended(begin)

    return call


@types.coroutine
def _stepped(coroutine: Any, clock: UserClock) -> Generator[Any, Any, Any]:
    """Runs a coroutine step by step: what it does between two waits is CPU of its own."""
    value: Any = None
    error: BaseException | None = None
    while True:
        begin = time.thread_time_ns()
        try:
            waited = coroutine.send(value) if error is None else coroutine.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            clock.used(begin)
        value, error = None, None
        try:
            value = yield waited
        except BaseException as raised:  # noqa: BLE001 - it is for the coroutine
            error = raised
