"""Notices that the reader of stdout has closed it, such as ``head`` once it has its lines."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

# Bounds how long the end of a command waits for this thread.
_POLL_MS = 200


class ReaderGoneError(SystemExit):
    """Nothing reads stdout any more; ends the process with 1, unless the command handles it."""


def end_output(file: int) -> NoReturn:
    """Ends the process after a write that met a closed pipe.

    From here on SIGINT is ignored: what is left is to close what the command opened.

    Raises:
        ReaderGoneError: always.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The interpreter flushes at its end, and would fail at the pipe again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), file)
    raise ReaderGoneError(1) from None


@contextmanager
def interrupt_when_closed(file: int) -> Iterator[None]:
    """Interrupts the main thread once the reader of ``file`` closed it; used in the main thread.

    Without it, a command that waits for records notices a closed pipe only when it writes the next
    one, which may never come. Needs Python's handler of SIGINT.

    Raises:
        ReaderGoneError: if the reader has closed the file.
    """
    ended, closed = threading.Event(), threading.Event()
    main_thread = threading.get_ident()

    def watch() -> None:
        poll = select.poll()
        poll.register(file, 0)  # POLLERR and POLLHUP are reported without being asked for
        while not ended.is_set():
            for _, event in poll.poll(_POLL_MS):
                if event & (select.POLLERR | select.POLLHUP):
                    closed.set()
                    # A signal to the process may go to any thread, and interrupt no wait.
                    signal.pthread_kill(main_thread, signal.SIGINT)
                return

    watching = threading.Thread(target=watch, name="closed-pipe", daemon=True)
    try:
        watching.start()  # within: the reader may have closed it already
        yield
    except KeyboardInterrupt:
        if closed.is_set():
            end_output(file)
        raise
    finally:
        ended.set()
        if watching.ident is not None:
            watching.join()
