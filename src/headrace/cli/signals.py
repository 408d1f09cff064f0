"""Handles Ctrl-C and SIGTERM in commands that run for long."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

SLICE_SECONDS = 0.2


@contextmanager
def stop_on_signal(on_stop: Callable[[], None]) -> Iterator[threading.Event]:
    """Sets the event at the first signal, and calls ``on_stop``; the second one ends the process.

    The second signal is equivalent to a crash: the next run resumes from the last commit.
    """
    stop = threading.Event()

    def handle(number: int, _frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()
        on_stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Raises KeyboardInterrupt at SIGTERM, too, so that temporary resources are removed.

    Ctrl-C works also where a shell ignores it for its jobs: in the background of a script.
    """
    handled = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def beside_main_thread(action: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Runs the action on a thread of its own and returns its result.

    Spark started on the main thread takes SIGINT for itself and cancels what runs. The main thread
    waits in slices: a library may install its own handler with SA_RESTART, as polars does when it
    is imported, and then a signal does not end a wait, so that Python's handlers never run.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="run") as thread:
        result = thread.submit(action, *arguments, **options)
        while not result.done():
            wait([result], timeout=SLICE_SECONDS)
        return result.result()
