"""How a service announces its end to its workers, while their connections are open."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Callable
from typing import Any


class DrainNotice:
    """Makes workers drain, before the server waits for their open requests.

    The server announces its end to the application when all requests have been answered, and a
    stream has no end of its own. So each worker gets the end of a pipe, on which nothing is ever
    sent: it is closed when the service drains, and also when its process dies.

    It is pickled for each worker that is started.
    """

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.get_context("spawn").Pipe(duplex=False)

    def __getstate__(self) -> dict[str, Any]:
        return {"_reader": self._reader}

    def give(self) -> None:
        """Gives the notice to all workers, in the service; harmless when repeated."""
        with contextlib.suppress(OSError):
            self._writer.close()

    def call_when_given(self, function: Callable[[], None]) -> None:
        """Calls a function once the notice is given, in the running event loop of a worker."""
        loop = asyncio.get_running_loop()

        def note() -> None:
            loop.remove_reader(self._reader.fileno())
            function()

        loop.add_reader(self._reader.fileno(), note)
