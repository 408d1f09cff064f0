"""Binds a task's methods: coroutine functions to the event loop, ordinary ones to a thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from headrace.workers.lanes.attempt import CURRENT
from headrace.workers.lanes.threads import TaskThreads
from headrace.workers.tasks.function_task import FunctionTask
from headrace.workers.tasks.task import BatchWorkerTask, WorkerRecord, WorkerTask, arrow_batch
from headrace.workers.tasks.timers import TimerRecord

Call = Callable[..., Awaitable[Any]]

_OPTIONAL = (WorkerTask.init, WorkerTask.punctuate, WorkerTask.close)


@dataclass(frozen=True, slots=True)
class BoundTask:
    """A task's methods, each as a coroutine function.

    Attributes:
        accept: ``None`` for a task that accepts everything.
        process: of one record, and an observer where ``is_observed``.
        on_timer: of a timer in place of a record.
        process_batch: of an Arrow batch; ``None`` for a task that takes records.
        is_observed: ``process`` takes an observer, which ends the record.
        is_interruptible: cancelling ``process`` ends it; a thread continues.
        is_timer_interruptible: cancelling ``on_timer`` ends it.
    """

    init: Call
    accept: Callable[[WorkerRecord], bool] | None
    process: Call
    process_batch: Call | None
    on_timer: Call
    punctuate: Call
    close: Call
    is_observed: bool
    is_interruptible: bool
    is_timer_interruptible: bool


def bind(task: WorkerTask, threads: TaskThreads) -> BoundTask:
    """Returns ``task`` with its ordinary functions on ``threads``, one at a time."""

    def call(method: Callable[..., Any]) -> Call:
        if inspect.iscoroutinefunction(method):
            return method
        # A default that does nothing needs no thread.
        is_undefined = getattr(method, "__func__", None) in _OPTIONAL
        return _nothing if is_undefined else _on(threads, method)

    method = task.process_batch if isinstance(task, BatchWorkerTask) else task.process
    batch = call(task.process_batch) if isinstance(task, BatchWorkerTask) else None
    process = call(task.process) if batch is None else _batch_of_one(batch)
    if isinstance(task, FunctionTask) and task.needs_schemas:
        process = _after_lookup(task, threads, process)
    overrides = type(task).accept is not WorkerTask.accept
    return BoundTask(
        init=call(task.init),
        accept=task.accept if overrides else None,
        process=process,
        process_batch=batch,
        on_timer=_of_timer(call(task.on_timer)),
        punctuate=call(task.punctuate),
        close=call(task.close),
        is_observed=batch is None and len(inspect.signature(task.process).parameters) > 1,
        is_interruptible=inspect.iscoroutinefunction(method),
        is_timer_interruptible=inspect.iscoroutinefunction(task.on_timer),
    )


def _of_timer(on_timer: Call) -> Call:
    async def call(record: TimerRecord) -> None:
        await on_timer(record.timer)

    return call


async def _nothing(*_: Any) -> None:
    """Stands for a method that the task does not define."""


def _on(threads: TaskThreads, method: Callable[..., Any]) -> Call:
    async def call(*arguments: Any) -> Any:
        context = contextvars.copy_context()  # knows for which record something is sent
        loop = asyncio.get_running_loop()
        current = CURRENT.get()
        current.started = math.inf

        def taken() -> Any:
            current.started = loop.time()
            return method(*arguments)

        return await threads.call(str(method.__qualname__), lambda: context.run(taken))

    return call


def _after_lookup(task: FunctionTask, threads: TaskThreads, process: Call) -> Call:
    """Returns ``process``, which waits for the schema of its record's event first.

    The registry may take many seconds. The event loop and the other lanes must not wait for it, and
    the record must not become a dead letter because the lookup took too long.
    """

    async def call(record: WorkerRecord, *observer: Any) -> None:
        if task.needs_lookup(record):
            current = CURRENT.get()
            current.started = math.inf
            await threads.call(f"the schema of {record}", lambda: task.look_up(record))
            current.started = asyncio.get_running_loop().time()
        await process(record, *observer)

    return call


def _batch_of_one(process_batch: Call) -> Call:
    async def call(record: WorkerRecord) -> None:
        await process_batch(arrow_batch([record]))

    return call
