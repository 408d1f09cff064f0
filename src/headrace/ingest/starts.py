"""What a service knows of the starts of its worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

_MAX_REASON_BYTES = 2000  # below PIPE_BUF (4096): a pipe takes it whole, beside other writers
_MAX_FAILURES = 3  # of each worker
_DELAY_SECONDS = 6.0  # to Granian, a worker that ends sooner is a crash loop, which ends the others
_MAX_DELAY_SECONDS = 30.0


class WorkerStarts:
    """Counts failed starts in a row, over all workers of a service.

    It is pickled for each worker that is started, with the number of starts that failed before.
    The worker reports through a pipe; the service reads it on a thread, which calls ``on_limit``
    when three starts for each worker have failed with none between them that succeeded.

    Attributes:
        failures: failed starts in a row.
        reason: why the latest start failed.
    """

    def __init__(self, workers: int, on_limit: Callable[[], None]) -> None:
        self.failures, self.reason = 0, ""
        self._limit, self._on_limit = workers * _MAX_FAILURES, on_limit
        self._reader, self._writer = multiprocessing.get_context("spawn").Pipe(duplex=False)
        threading.Thread(target=self._listen, name="starts", daemon=True).start()

    def __getstate__(self) -> dict[str, Any]:
        return {"failures": self.failures, "_writer": self._writer}

    @property
    def is_hopeless(self) -> bool:
        """Too many starts have failed in a row: no worker will ever serve."""
        return self.failures >= self._limit

    def delay_seconds(self) -> float:
        """Returns how long a worker whose start failed waits before it ends and is replaced."""
        return min(self.failures * _DELAY_SECONDS, _MAX_DELAY_SECONDS)

    def succeeded(self) -> None:
        """Reports that this worker has started."""
        self._writer.send_bytes(b"")

    def failed(self, reason: str) -> None:
        """Reports that this worker can't start, and why."""
        self._writer.send_bytes((reason or "unknown").encode()[:_MAX_REASON_BYTES])

    def note(self, reason: str) -> None:
        """Counts a start, in the service: one that succeeded when ``reason`` is empty."""
        self.failures = self.failures + 1 if reason else 0
        self.reason = reason
        if self.is_hopeless:
            self._on_limit()

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.note(self._reader.recv_bytes().decode(errors="replace"))

    def close(self) -> None:
        """Ends the thread that listens to the workers."""
        self._writer.close()
