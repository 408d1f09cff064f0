"""Rate limits of all hosts, and of this host alone while Redis is unavailable."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.ingest.limits.bucket_request import BucketRequest, Limiter
from headrace.ingest.limits.local import LocalLimiter

_LOG = logging.getLogger("headrace.ingest")


class RemoteLimiter(Limiter, Protocol):
    """A limiter that may fail, in any way, such as that of Redis."""

    async def reconnect(self) -> None:
        """Returns once it works."""
        ...


class FallbackLimiter(Limiter):
    """Limits by all hosts' buckets, and by those of this host while the former are unavailable.

    No failure of the remote limiter makes a request fail or go unlimited, and only requests in
    flight when it fails wait for it. What all hosts' limits admit is also charged to this host's:
    whichever is in use, one host alone stays below ``per_second * (2 * burst_seconds + t)`` or so.

    Must be created while the event loop runs, and starts with this host's limits.
    """

    def __init__(
        self,
        remote: RemoteLimiter,
        local: LocalLimiter,
        on_local: Callable[[], None],
        retry_seconds: float = 1.0,
    ) -> None:
        self._remote, self._local, self._on_local = remote, local, on_local
        self._retry_seconds = retry_seconds
        self._connecting: asyncio.Task[None] | None = None
        self._connect()

    async def acquire(self, charges: Sequence[BucketRequest]) -> float:
        if not charges:
            return 0.0
        if self._connecting is None:
            try:
                wait = await self._remote.acquire(charges)
            except Exception:  # noqa: BLE001 - whatever it is, there must be a limit
                self._connect()
            else:
                if wait == 0:
                    self._local.record_external(charges)
                return wait
        self._on_local()
        return await self._local.acquire(charges)

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._connecting
        await self._remote.close()
        await self._local.close()

    def _connect(self) -> None:
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._until_it_answers())

    async def _until_it_answers(self) -> None:
        """Reconnects until it works; a first answer that was only late is not logged."""
        silent = False
        while (reason := await self._failure()) is not None:
            if not silent:
                _LOG.warning(
                    "Redis unavailable, using the rate limits of this host alone: %s", reason
                )
            silent = True
            await asyncio.sleep(self._retry_seconds)
        if silent:
            _LOG.warning("Redis available again, using the rate limits of all hosts")
        self._connecting = None

    async def _failure(self) -> str | None:
        try:
            await self._remote.reconnect()
        except Exception as error:  # noqa: BLE001 - any failure is one
            return f"{type(error).__name__}: {error}".removesuffix(": ")
        return None
