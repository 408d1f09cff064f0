"""Where accepted events go: to Kafka, or to the spool while Kafka is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence

from headrace.errors import SpoolError
from headrace.ingest.delivery import Delivery, Headers, QueueFullError, UnknownOutcomeError
from headrace.ingest.spool import GroupCommit, Spool, SpoolRecord, SpoolStats
from headrace.ingest.validation import Accepted

_LOG = logging.getLogger("headrace.ingest")


class Acceptance:
    """What is acknowledged is on all in-sync replicas, or, where its topic says so, on disk.

    While the spool holds anything, events of its topics go there too: what is sent after an
    acknowledgement arrives after what was acknowledged. Kafka decides before the spool does: events
    that it did not confirm in time are taken back first, and only those that it does not have are
    spooled. What was on the wire just then may be in its topic twice, with one id.
    """

    def __init__(self, delivery: Delivery, spool: Spool | None, spooled: Collection[str]) -> None:
        self._delivery, self._spool, self._spooled = delivery, spool, frozenset(spooled)
        self._group = GroupCommit(spool) if spool else None

    async def accept(
        self, topic: str, events: Sequence[Accepted], headers: Headers, seconds: float
    ) -> bool:
        """Returns once the events are safe: ``True`` when the spool has some of them.

        Raises:
            QueueFullError: nothing was taken.
            UnknownOutcomeError: Kafka did not confirm them, nor did the disk.
        """
        if self._spool is None or self._group is None or topic not in self._spooled:
            await self._delivery.send(topic, events, headers, seconds)
            return False
        try:
            if self._spool.pending and await self._group.append_behind(
                _records(topic, events, headers)
            ):
                return True
            return await self._send_or_spool(self._group, topic, events, headers, seconds)
        except SpoolError as error:
            raise UnknownOutcomeError(str(error)) from error

    def ready(self) -> bool:
        """Events can be taken, by Kafka or the spool. Blocks for a second at most."""
        return self._spool is not None or self._delivery.reachable()

    def spool_stats(self) -> SpoolStats | None:
        """Of the spool that all workers of this host share; ``None``: none that can be read."""
        try:
            return self._spool.stats() if self._spool else None
        except SpoolError:
            _LOG.exception("the spool can't be read")
            return None

    async def _send_or_spool(
        self,
        group: GroupCommit,
        topic: str,
        events: Sequence[Accepted],
        headers: Headers,
        seconds: float,
    ) -> bool:
        try:
            left = await self._delivery.send_or_take_back(topic, events, headers, seconds)
        except QueueFullError:
            left = list(events)
        if left:
            await group.append(_records(topic, left, headers))
        return bool(left)


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
