"""Rate limits shared by every host that asks one Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.resources import files

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from headrace.ingest.limits.charge import Charge, Limiter
from headrace.settings import SecretUrl

_TAKE_SECONDS = 0.1
_CONNECT_SECONDS = 1.0
_CONNECTIONS = 16
_PROOF = Charge("proof", amount=1, per_second=1e6, burst_seconds=1)


class RedisLimiter(Limiter):
    """Buckets in Redis, by its clock, in one script that runs as a whole: exact over all hosts.

    A bucket's key goes when it is full. What Redis forgets, because it started without its data
    or evicts keys, is a full bucket.

    Everything raises what the client or the network raises, and ``TimeoutError`` where no answer
    came in time; the charge may have been taken then.
    """

    def __init__(self, url: SecretUrl, project: str, answer_seconds: float = _TAKE_SECONDS) -> None:
        self._pool = BlockingConnectionPool.from_url(
            url.reveal(),
            max_connections=_CONNECTIONS,
            socket_connect_timeout=_CONNECT_SECONDS,
            socket_timeout=_CONNECT_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self._client = Redis.from_pool(self._pool)
        self._script = self._client.register_script(
            files("headrace.ingest.limits").joinpath("take.lua").read_text("utf-8")
        )
        # The braces keep all buckets of a project in one slot of a Redis cluster.
        self._prefix = f"headrace:{{{project}}}:limits:"
        self._answer_seconds = answer_seconds

    async def take(self, charges: Sequence[Charge]) -> float:
        if not charges:
            return 0.0
        keys = [self._prefix + charge.bucket for charge in charges]
        numbers = [
            number
            for charge in charges
            for number in (charge.amount, charge.per_second, charge.burst_seconds)
        ]
        async with asyncio.timeout(self._answer_seconds):
            return float(await self._script(keys, numbers))

    async def reconnect(self) -> None:
        """Returns when a new connection takes charges within the time of a request."""
        await self._pool.disconnect(inuse_connections=False)
        async with asyncio.timeout(_CONNECT_SECONDS):
            await self._client.ping()
        await self.take([_PROOF])

    async def close(self) -> None:
        await self._client.aclose()
