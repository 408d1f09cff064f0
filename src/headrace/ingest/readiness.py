"""Whether events can be taken, for probes that may ask often."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

_VALID_SECONDS = 1.0


class Readiness:
    """Looks at most once a second, however often and by how many it is asked.

    Probes need no token, and to look may block for a second: it has a thread of its own, and one
    look at a time, so that probes hold up nothing but probes.
    """

    def __init__(
        self, look: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look, self._clock = look, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="readiness")
        self._looking: asyncio.Task[bool] | None = None
        self._is_ready, self._valid_until = False, float("-inf")

    async def is_ready(self) -> bool:
        """What was seen within the last second."""
        if self._clock() < self._valid_until:
            return self._is_ready
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_once())
        # A client that leaves must not end the look that others wait for.
        return await asyncio.shield(self._looking)

    async def _look_once(self) -> bool:
        try:
            loop = asyncio.get_running_loop()
            self._is_ready = await loop.run_in_executor(self._thread, self._look)
            self._valid_until = self._clock() + _VALID_SECONDS
            return self._is_ready
        finally:
            self._looking = None
