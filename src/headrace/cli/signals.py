"""Handles Ctrl-C and SIGTERM in commands that run for long."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType
from typing import Any

from headrace.runtime.futures import result_of

SLICE_SECONDS = 0.2


@contextmanager
def stop_on_signal(on_stop: Callable[[], None]) -> Iterator[threading.Event]:
    """Sets the event at the first signal, and calls ``on_stop``; the second one ends the process.

    Both happen on a thread of their own, and have happened when the context is left: what
    ``on_stop`` prints comes before what is printed afterwards, and what it raises is raised there.
    Enter it within the output's ``live``, which reserves stdout for as long as it lasts.

    The second signal is equivalent to a crash: the next run resumes from the last commit.
    """
    reaction = _Reaction(on_stop)
    is_first = True

    def handle(number: int, _frame: object) -> None:
        nonlocal is_first
        if not is_first:
            # At once: Spark, threads and clients of Kafka would be waited for by an orderly exit.
            os._exit(128 + number)
        is_first = False
        reaction.request()

    with _handled_by(handle):
        try:
            yield reaction.stop
        finally:
            reaction.end()
    reaction.raise_failure()


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Handles SIGINT and SIGTERM by ``handler`` for as long as the context lasts."""
    handled = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


class _Reaction:
    """Reacts to a signal on a thread.

    A handler runs between two instructions of the main thread, whatever locks that holds: a print
    in a handler fails within another print ("reentrant call"), and an event that is set there may
    wait for ever. ``SimpleQueue.put`` is made for that: it takes no lock that the main thread has.

    Attributes:
        stop: set once a signal was received.
    """

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self.stop = threading.Event()
        self._on_stop = on_stop
        self._failure: BaseException | None = None
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="stop-on-signal", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Lets the thread react; may be called by a signal handler."""
        self._requests.put(True)

    def end(self) -> None:
        """Ends the thread, after its reaction if there was a signal."""
        self._requests.put(False)
        self._thread.join()

    def raise_failure(self) -> None:
        """Raises what the reaction raised."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        if not self._requests.get():
            return
        self.stop.set()
        try:
            self._on_stop()
        except BaseException as error:  # noqa: BLE001 - raised where the context is left
            self._failure = error


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Raises KeyboardInterrupt at SIGTERM, too, so that temporary resources are removed.

    Ctrl-C works also where a shell ignores it for its jobs: in the background of a script.
    """
    with _handled_by(signal.default_int_handler):
        yield


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
        return result_of(result)


def until_signal(action: Callable[..., Any], *arguments: Any) -> Any:
    """Runs :func:`beside_main_thread` what only reads; Ctrl-C and SIGTERM end the process at once.

    An orderly end waits for Spark's jobs, and one while Spark starts leaves its JVM running: Python
    removes the folder that the JVM writes its port to. A JVM whose Python has exited ends by
    itself.
    """

    def end(number: int, _frame: object) -> None:
        os._exit(128 + number)

    with _handled_by(end):
        return beside_main_thread(action, *arguments)
