"""Time limits of many waits at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

_CHECK_SECONDS = 0.1


class Deadlines:
    """Ends waits of one event loop that take too long, a tenth of a second late at most.

    One timer serves all of them: with ``asyncio.timeout`` and ``asyncio.wait_for``, which ask the
    kernel for the process's id several times, a request of one event would spend a fifth of its
    time on its limits.
    """

    def __init__(self) -> None:
        self._waits: dict[Hashable, tuple[float, Callable[[], object]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_checking = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running event loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def begin(self, wait: Hashable, seconds: float, expire: Callable[[], object]) -> None:
        """Calls ``expire`` after ``seconds``, unless the wait ends before."""
        loop = self.loop
        self._waits[wait] = loop.time() + seconds, expire
        if not self._is_checking:
            self._is_checking = True
            loop.call_later(_CHECK_SECONDS, self._check)

    def end(self, wait: Hashable) -> bool:
        """Ends a wait, and returns whether that was in time."""
        return self._waits.pop(wait, None) is not None

    def _check(self) -> None:
        now = self.loop.time()
        for wait in [wait for wait, (at, _) in self._waits.items() if at <= now]:
            _, expire = self._waits.pop(wait)
            expire()
        self._is_checking = bool(self._waits)
        if self._is_checking:
            self.loop.call_later(_CHECK_SECONDS, self._check)
