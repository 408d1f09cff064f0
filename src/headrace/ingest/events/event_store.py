"""Where accepted events go: to Kafka, or to the spool while Kafka is unreachable."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headrace.errors import SpoolError, SpoolFullError
from headrace.ingest.events.delivery import (
    Delivery,
    Headers,
    NotTakenError,
    QueueFullError,
    UnknownOutcomeError,
)
from headrace.ingest.events.topic_watch import TopicPresence, TopicWatch
from headrace.ingest.events.validation import Accepted
from headrace.ingest.spool.group import GroupCommit
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.topic_spools import TopicSpools
from headrace.runtime.clock import now_in_ms

_LOG = logging.getLogger("headrace.ingest")

READY, SPOOLING = "ready", "spooling"
MISSING, AWAY, FULL = "missing", "kafka-away", "spool-full"


class EventStore:
    """What is acknowledged is on all in-sync replicas, or, where its topic says so, on disk.

    While the spool of a topic holds anything, its events go there too: what is sent after an
    acknowledgement arrives after what was acknowledged. Kafka decides before the spool does: events
    that it did not confirm in time are taken back first, and only those that it does not have are
    spooled. What was on the wire just then may be in its topic twice, with one id.

    Nothing is taken for a topic that does not exist, or that this host has never seen.

    Attributes:
        spool_stats: what the spools of this host hold, by topic; reads their folders.
    """

    def __init__(self, delivery: Delivery, spools: TopicSpools, topics: TopicWatch) -> None:
        self._delivery, self._spools, self._topics = delivery, spools.open, topics
        self.spool_stats = spools.stats
        self._groups = {topic: GroupCommit(spool) for topic, spool in spools.open.items()}

    async def accept(
        self, topic: str, events: Sequence[Accepted], headers: Headers, seconds: float
    ) -> bool:
        """Returns once the events are safe: ``True`` when the spool has some of them.

        Raises:
            NotTakenError: if nothing was taken.
            UnknownOutcomeError: if Kafka did not confirm them, nor did the disk.
        """
        state, spool = self._topics.state(topic), self._spools.get(topic)
        if state is TopicPresence.MISSING:
            raise NotTakenError("topic-missing", f"topic {topic!r} is declared, but does not exist")
        if state is TopicPresence.UNKNOWN or (state is TopicPresence.KEPT and spool is None):
            raise NotTakenError("not-ready", "Kafka has not answered since the service started")
        if spool is None:
            await self._delivery.send(topic, events, headers, seconds)
            return False
        # Behind spooled events, so that an event does not overtake an earlier one of its key.
        if spool.pending and await self._append_behind(topic, events, headers):
            return True
        return await self._send_or_spool(topic, events, headers, seconds)

    @property
    def kafka_answers(self) -> bool:
        """Whether Kafka answered within the last seconds."""
        return self._topics.kafka_answers

    def standing(self, topic: str) -> str:
        """Returns ``ready`` or ``spooling`` if events of a topic can be accepted, else why not."""
        state, spool = self._topics.state(topic), self._spools.get(topic)
        if state is TopicPresence.MISSING:
            return MISSING
        # While its spool holds events, new ones go there as well.
        if self._topics.kafka_answers and not (spool and spool.pending):
            return READY
        if spool is None or state is TopicPresence.UNKNOWN:
            return AWAY
        return FULL if spool.is_full else SPOOLING

    async def _append_behind(
        self, topic: str, events: Sequence[Accepted], headers: Headers
    ) -> bool:
        try:
            return await self._groups[topic].append_if_pending(_records(topic, events, headers))
        except SpoolFullError as error:
            _LOG.warning("The spool of %s is full: %s", topic, error.reason)
            raise NotTakenError(
                "spool-full", "Kafka is unreachable, and the spool is full"
            ) from error
        except SpoolError as error:
            raise _failed(topic, error) from error

    async def _send_or_spool(
        self, topic: str, events: Sequence[Accepted], headers: Headers, seconds: float
    ) -> bool:
        try:
            unsent = await self._delivery.send_or_reclaim(topic, events, headers, seconds)
        except QueueFullError:
            # The producer is full of events that Kafka does not take: these go to the disk at once.
            unsent = list(events)
        if not unsent:
            return False
        # A topic that was deleted just now: its spool would wait forever.
        if self._topics.state(topic) is TopicPresence.MISSING:
            raise UnknownOutcomeError(f"topic {topic!r} was deleted", "topic-missing")
        _LOG.warning("Kafka does not confirm events of %s in time, spooling them", topic)
        try:
            await self._groups[topic].append(_records(topic, unsent, headers))
        except SpoolFullError as error:
            _LOG.warning("The spool of %s is full: %s", topic, error.reason)
            text = "Kafka did not confirm in time, and the spool is full"
            raise UnknownOutcomeError(text, "spool-full") from error
        except SpoolError as error:
            raise _failed(topic, error) from error
        return True


def _failed(topic: str, error: SpoolError) -> UnknownOutcomeError:
    """Returns an error that hides from clients where the service keeps its files."""
    _LOG.error("The spool of %s failed: %s", topic, error.reason)
    return UnknownOutcomeError("Kafka is unreachable, and the spool's disk failed", "spool-failed")


def _records(topic: str, events: Sequence[Accepted], headers: Headers) -> list[SpoolRecord]:
    # The loader keeps it as the record's timestamp: the time of acceptance, not that of the replay.
    now = now_in_ms()
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
