"""Where accepted events go: to Kafka, or to the spool while Kafka is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

from headrace.errors import SpoolError
from headrace.ingest.delivery import Delivery, Headers, QueueFullError, UnknownOutcomeError
from headrace.ingest.spool import Spool, SpoolRecord
from headrace.ingest.validation import Accepted


class Acceptance:
    """What is acknowledged is on all in-sync replicas, or, where its topic says so, on disk.

    While the spool holds anything, events of its topics go there too, so that what is acknowledged
    later arrives later. An event that Kafka did not confirm in time and that is spooled then may be
    in its topic twice, with one id.
    """

    def __init__(self, delivery: Delivery, spool: Spool | None, spooled: Collection[str]) -> None:
        self._delivery, self._spool, self._spooled = delivery, spool, frozenset(spooled)

    async def accept(
        self, topic: str, events: Sequence[Accepted], headers: Headers, seconds: float
    ) -> bool:
        """Returns once the events are safe: ``True`` when the spool has them.

        Raises:
            QueueFullError: nothing was taken.
            UnknownOutcomeError: Kafka did not confirm them, nor did the disk.
        """
        spool = self._spool
        if spool is None or topic not in self._spooled:
            await self._delivery.send(topic, events, headers, seconds)
            return False
        try:
            if spool.pending:
                records = _records(topic, events, headers)
                if await asyncio.to_thread(spool.append_behind, records):
                    return True
            return await self._send_or_spool(spool, topic, events, headers, seconds)
        except SpoolError as error:
            raise UnknownOutcomeError(str(error)) from error

    def ready(self) -> bool:
        """Events can be taken, by Kafka or the spool. Blocks for a second at most."""
        return self._spool is not None or self._delivery.reachable()

    async def _send_or_spool(
        self,
        spool: Spool,
        topic: str,
        events: Sequence[Accepted],
        headers: Headers,
        seconds: float,
    ) -> bool:
        try:
            await self._delivery.send(topic, events, headers, seconds)
        except (QueueFullError, UnknownOutcomeError):
            await asyncio.to_thread(spool.append, _records(topic, events, headers))
            return True
        return False


def _records(topic: str, events: Sequence[Accepted], headers: Headers) -> list[SpoolRecord]:
    now = int(time.time() * 1000)
    return [
        SpoolRecord(
            topic=topic,
            key=event.key,
            value=event.value,
            headers=tuple(headers),
            timestamp_ms=now,
            partition=None if event.partition < 0 else event.partition,
        )
        for event in events
    ]
