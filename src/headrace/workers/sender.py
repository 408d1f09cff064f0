"""What tasks send: confirmed by all in-sync replicas before the record they sent it for is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.kafka.client import ClientConfig
from headrace.kafka.polled_producer import PolledProducer
from headrace.workers.handling import CURRENT
from headrace.workers.task import Headers

_TUNING = {"linger.ms": "5"}
_FULL_SECONDS = 0.01


class Sender:
    """One producer for all tasks of an instance. Made when something is sent first."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._producer: PolledProducer | None = None

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = -1,
    ) -> Awaitable[None]:
        """As :class:`headrace.workers.Send` says. From any thread."""
        record = (topic, value, key, partition, list(headers))
        on_loop = asyncio._get_running_loop() is self._loop  # noqa: SLF001 - asyncio's public name
        if on_loop:
            sent: Awaitable[None] = asyncio.ensure_future(self._deliver(*record))
        else:
            concurrent = asyncio.run_coroutine_threadsafe(self._deliver(*record), self._loop)
            sent = asyncio.wrap_future(concurrent, loop=self._loop)
        handling = CURRENT.get(None)
        if handling is not None:
            handling.sends.append(sent)
        return sent

    async def close(self, seconds: float) -> None:
        """Waits for what is on its way."""
        if self._producer is not None:
            await self._producer.close(seconds)

    async def _deliver(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int, headers: list[Any]
    ) -> None:
        if self._producer is None:
            self._producer = PolledProducer(self._config, _TUNING)
        confirmed: asyncio.Future[None] = self._loop.create_future()

        def report(error: KafkaError | None, message: confluent_kafka.Message) -> None:  # noqa: ARG001
            if confirmed.done():
                return
            if error is None:
                confirmed.set_result(None)
            else:
                confirmed.set_exception(KafkaException(error))

        async with self._turn:  # in the order of the calls, also when there is no room
            while True:
                try:
                    self._producer.current.produce(
                        topic, value, key, partition, headers=headers, on_delivery=report
                    )
                    break
                except BufferError:
                    await asyncio.sleep(_FULL_SECONDS)
        self._producer.expect_reports()
        await confirmed
