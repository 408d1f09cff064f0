"""Rate limits shared by every host that asks one Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from importlib.resources import files

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from headrace.ingest.limits.bucket_request import BucketRequest, Limiter
from headrace.settings import SecretUrl

_TAKE_SECONDS = 0.1  # a request waits this long, before the limits of this host alone decide
_CONNECT_SECONDS = 1.0
_MAX_AT_ONCE = 64  # Redis runs one script at a time: a long one delays all other hosts
_PROOF = BucketRequest("proof", amount=1, per_second=1e6, burst_seconds=1)

_Waiting = tuple[Sequence[BucketRequest], asyncio.Future[float]]


class RedisLimiter(Limiter):
    """Buckets in Redis, by its clock, in one script that runs as a whole: exact over all hosts.

    Charges that come while a call is in progress go to Redis together, in the next call. A bucket's
    key expires when it is full. What Redis forgets, because it started without its data or evicts
    keys, is a full bucket.

    Every method raises what the client or the network raises, and ``TimeoutError`` if no answer
    came in time; the charge may have been taken then.
    """

    def __init__(self, url: SecretUrl, project: str, answer_seconds: float = _TAKE_SECONDS) -> None:
        self._pool = BlockingConnectionPool.from_url(
            url.reveal(),
            max_connections=2,
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
        self._waiting: list[_Waiting] = []
        self._asking: asyncio.Task[None] | None = None

    async def acquire(self, charges: Sequence[BucketRequest]) -> float:
        if not charges:
            return 0.0
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((charges, answer))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        async with asyncio.timeout(self._answer_seconds):
            return await answer

    async def reconnect(self) -> None:
        """Returns when a new connection takes charges within the time of a request."""
        await self._pool.disconnect(inuse_connections=False)
        async with asyncio.timeout(_CONNECT_SECONDS):
            await self._client.ping()
        await self.acquire([_PROOF])

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        await self._client.aclose()

    async def _ask(self) -> None:
        while self._waiting:
            # A request that has timed out is not charged.
            requests = [
                waiting for waiting in self._waiting[:_MAX_AT_ONCE] if not waiting[1].done()
            ]
            del self._waiting[:_MAX_AT_ONCE]
            if requests:
                await self._answer(requests)

    async def _answer(self, requests: list[_Waiting]) -> None:
        try:
            waits = await self._call([charges for charges, _ in requests])
            for (_, answer), wait in zip(requests, waits, strict=True):
                if not answer.done():
                    answer.set_result(wait)
        except Exception as error:  # noqa: BLE001 - it is theirs
            for _, answer in requests:
                if not answer.done():
                    answer.set_exception(error)

    async def _call(self, requests: list[Sequence[BucketRequest]]) -> list[float]:
        keys = [self._prefix + charge.bucket for charges in requests for charge in charges]
        numbers = [number for charges in requests for number in _numbers(charges)]
        async with asyncio.timeout(self._answer_seconds):
            return [float(wait) for wait in await self._script(keys, numbers)]


def _numbers(charges: Sequence[BucketRequest]) -> Iterator[float]:
    yield len(charges)
    for charge in charges:
        yield from (charge.amount, charge.per_second, charge.burst_seconds)
