"""Produces events to Kafka: an event is accepted once the in-sync replicas have it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError

from headrace.ingest.events.overdue import OverdueRequests, OverdueTopics
from headrace.ingest.events.validation import Accepted, largest_message
from headrace.ingest.http.deadlines import Deadlines
from headrace.kafka.client.broker_errors import (
    Meaning,
    delivery_failure,
    is_final_for_topic,
    is_of_record,
    meaning,
)
from headrace.kafka.client.clients import ClientConfig, writer_tuning
from headrace.kafka.write.polled_producer import PolledProducer
from headrace.model import Topic

_TAKEN_BACK_SECONDS = 5.0  # a purge reports at once, but through the event loop
_LINGER_SECONDS = 0.01  # a batch gathers the requests of this time, and each of them waits for it
_TUNING = {
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "131072",
}
_QUEUE_FULL = KafkaError(KafkaError._QUEUE_FULL)  # noqa: SLF001 - Kafka's name of it

Headers = list[tuple[str, bytes]]


class NotTakenError(Exception):
    """Nothing of the request was taken; ``code`` is that of the answer."""

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        super().__init__(reason)


class QueueFullError(NotTakenError):
    """Too many events wait for Kafka, or some for too long."""

    def __init__(self, reason: str = "too many events wait for Kafka") -> None:
        super().__init__("overloaded", reason)


class UnknownOutcomeError(Exception):
    """Kafka did not confirm the events in time, or rejected some; they may be there or not.

    ``code`` is that of the answer.
    """

    def __init__(self, reason: str, code: str = "unknown-outcome") -> None:
        self.code = code
        super().__init__(reason)


class RejectedByKafkaError(Exception):
    """Kafka will never take some of the events, and has all others of the request.

    Attributes:
        reasons: Kafka's reasons, by the event's value.
    """

    def __init__(self, reasons: Mapping[bytes, str]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(set(reasons.values())))


class _Outstanding:
    """The events of one request until the last is reported.

    Attributes:
        failure: Kafka's error for an event that it did not take; a rejection replaces any other.
    """

    __slots__ = ("_deadlines", "_failed", "_left", "_rejected", "_unsent", "_woken", "failure")

    def __init__(self, events: int, deadlines: Deadlines) -> None:
        self._left, self._unsent = events, 0
        self._deadlines = deadlines
        self._failed: set[bytes] = set()
        self._rejected: dict[bytes, str] = {}
        self._woken: asyncio.Future[None] | None = None
        self.failure: KafkaError | None = None

    def reported(self, error: KafkaError | None, message: Any) -> None:
        """Takes the delivery report of an event."""
        failure = delivery_failure(error, message)
        if failure is not None:
            self._failed.add(message.value())
            # A final failure counts before one that may pass: a retry would meet it again.
            if self.failure is None or is_final_for_topic(failure):
                self.failure = failure
        self._left -= 1
        if self._left == self._unsent:
            self._wake()

    def not_sent(self, events: Sequence[Accepted], failure: KafkaError) -> None:
        """Notes that these events never reached the producer."""
        self.failure = failure
        self._failed.update(event.value for event in events)
        self._unsent += len(events)

    def rejected(self, event: Accepted, failure: KafkaError) -> None:
        """Notes an event that the producer rejected alone."""
        self.not_sent([event], failure)
        self._rejected[event.value] = failure.str()

    def error(self, failure: KafkaError) -> RejectedByKafkaError | UnknownOutcomeError:
        """Returns what to raise for ``failure``."""
        # Only events that the client itself rejects have failed, so Kafka has all others.
        if self._failed == self._rejected.keys():
            return RejectedByKafkaError(self._rejected)
        # A broker rejects a whole batch, which holds events of other requests too, and does not
        # say which of them is at fault.
        is_final = is_of_record(failure) and not self._rejected
        code = "batch-rejected" if is_final else "unknown-outcome"
        return UnknownOutcomeError(f"Kafka answered {failure.str()}", code)

    def is_settled(self) -> bool:
        """Returns whether every event that was sent is reported."""
        return self._left == self._unsent

    async def settled(self, seconds: float) -> bool:
        """Waits for the reports of all events, ``seconds`` at most; returns whether all came."""
        if self._left > self._unsent:
            self._woken = self._deadlines.loop.create_future()
            self._deadlines.begin(self, seconds, self._wake)
            try:
                await self._woken
            finally:
                self._deadlines.end(self)
        return self.is_settled()

    def failed(self, events: Sequence[Accepted]) -> list[Accepted]:
        """Returns the events that Kafka did not confirm."""
        return [event for event in events if event.value in self._failed]

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class Delivery:
    """Produces the events of one worker, by producers that its event loop polls.

    Order: events of one key arrive in the order in which ``send`` was called. A crash, a time-out
    and a failure leave events unknown: the client sends them again with the same id.

    Copies: events that timed out stay in the producer, which sends them when it can. Until Kafka
    has answered for them, no worker that shares ``overdue`` takes others of their topic, so at most
    two copies arrive of an event that is sent repeatedly.
    """

    def __init__(
        self,
        config: ClientConfig,
        topics: Iterable[Topic],
        linger_seconds: float = _LINGER_SECONDS,
        overdue: OverdueTopics | None = None,
    ) -> None:
        # Each batch of a partition is a request of its own, which costs the broker more than its
        # bytes do.
        tuning = _TUNING | {"linger.ms": str(linger_seconds * 1000)}
        # What a topic takes is the size of a batch, and a producer has one size for all its topics.
        # Taking back affects all that a producer holds, so topics without a spool have another one.
        kinds = {topic.name: (largest_message(topic), topic.spool) for topic in topics}
        producers = {kind: _TopicProducer(config, tuning, kind[0]) for kind in {*kinds.values()}}
        self._producers = {name: producers[kind] for name, kind in kinds.items()}
        self._overdue = overdue or OverdueTopics(kinds)
        self._late = OverdueRequests(self._overdue)

    async def send(
        self, topic: str, events: Sequence[Accepted], headers: Headers, seconds: float
    ) -> None:
        """Returns once all in-sync replicas have every event.

        Raises:
            QueueFullError: if nothing was sent.
            RejectedByKafkaError: if some events can't be sent, all others are there.
            UnknownOutcomeError: after ``seconds``, or when Kafka refused an event.
        """
        if topic in self._overdue:
            raise QueueFullError(f"Kafka is behind with earlier events of {topic!r}")
        outstanding = self._producers[topic].enqueue(topic, events, headers)
        if not await outstanding.settled(seconds):
            self._late.add(outstanding, topic, outstanding.is_settled)
            raise UnknownOutcomeError(f"Kafka did not confirm within {seconds:g} s")
        if outstanding.failure is not None:
            raise outstanding.error(outstanding.failure)

    async def send_or_reclaim(
        self, topic: str, events: Sequence[Accepted], headers: Headers, seconds: float
    ) -> list[Accepted]:
        """Sends events of a topic with a spool. Returns those that Kafka has not and will not get.

        After ``seconds`` everything that waits for Kafka in this worker is taken back, for all
        topics with a spool: each request learns it from its own reports. What was on the wire
        at that moment Kafka may have got; it can't be known.

        Raises:
            QueueFullError: if nothing was sent.
            RejectedByKafkaError: if some events can't be sent, all others are there.
            UnknownOutcomeError: if Kafka rejected an event permanently.
        """
        producer = self._producers[topic]
        outstanding = producer.enqueue(topic, events, headers)
        if not await outstanding.settled(seconds):
            producer.purge()
            if not await outstanding.settled(_TAKEN_BACK_SECONDS):
                # The purge is done and its reports are late: what Kafka has is unknown, so all
                # events are spooled.
                return list(events)
        failure = outstanding.failure
        # Not spooled where a loader would meet the same failure.
        if failure is not None and (
            is_final_for_topic(failure) or meaning(failure) is Meaning.MISSING
        ):
            raise outstanding.error(failure)
        return outstanding.failed(events)

    @property
    def waiting(self) -> int:
        """The number of events that Kafka has not answered for."""
        return sum(map(len, {*self._producers.values()}))

    async def close(self, seconds: float) -> int:
        """Waits for the reports of all events; returns how many are missing after ``seconds``."""
        # A set, as topics share producers.
        missing = await asyncio.gather(
            *(producer.close(seconds) for producer in {*self._producers.values()})
        )
        return sum(missing)


class _TopicProducer(PolledProducer):
    """A producer for topics that take batches of one size."""

    def __init__(self, config: ClientConfig, tuning: ClientConfig, size: int) -> None:
        sized = {**tuning, "message.max.bytes": str(size), "batch.size": str(size)}
        # What a request waits for is a setting of the service.
        super().__init__(config, writer_tuning(config, sized) | dict(tuning))
        self._deadlines = Deadlines()

    def enqueue(self, topic: str, events: Sequence[Accepted], headers: Headers) -> _Outstanding:
        """Hands the events to the producer, all or (with QueueFullError) none."""
        sender = self.current
        if len(sender) + len(events) > int(_TUNING["queue.buffering.max.messages"]):
            raise QueueFullError
        outstanding = _Outstanding(len(events), self._deadlines)
        produce, report = sender.produce, outstanding.reported
        for place, event in enumerate(events):
            try:
                produce(
                    topic,
                    event.value,
                    event.key,
                    event.partition,
                    headers=headers,
                    on_delivery=report,
                )
            except BufferError as error:
                # An event loop can't wait for room: what was not handed over is not taken.
                if not place:
                    raise QueueFullError from error
                outstanding.not_sent(events[place:], _QUEUE_FULL)
                break
            except confluent_kafka.KafkaException as error:
                failure: KafkaError = error.args[0]
                # It is not the fault of this event: those after it would fail, too.
                if not is_of_record(failure):
                    outstanding.not_sent(events[place:], failure)
                    break
                outstanding.rejected(event, failure)
        self.expect_reports()
        return outstanding

    def purge(self) -> None:
        """Fails everything that waits; each event gets its delivery report."""
        self.current.purge(blocking=False)
