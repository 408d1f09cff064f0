"""From a worker to Kafka: accepted means that the in-sync replicas have it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError

from headrace.ingest.kafka_answers import MISSING, REFUSALS
from headrace.ingest.validation import Accepted, largest_message
from headrace.kafka.client import ClientConfig, producer
from headrace.model import Topic

_LOG = logging.getLogger("headrace.ingest")
_POLL_SECONDS = 0.1
_REACH_SECONDS = 1.0
_TAKEN_BACK_SECONDS = 5.0
_CLOSING_SECONDS = 0.01
_TUNING = {
    # Requests wait for their events: a batch is what came in while the last one was on its way.
    "linger.ms": "2",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "131072",
}

Headers = list[tuple[str, bytes]]


class QueueFullError(Exception):
    """More events wait for Kafka than are held in memory. Nothing of this request was taken."""


class UnknownOutcomeError(Exception):
    """Kafka did not confirm the events in time, or refused some; they may be there or not."""


class _Outstanding:
    """The events of one request until the last is reported.

    ``reported`` runs on the poll thread, all else in the event loop.

    Attributes:
        done: set once every event that was sent is reported.
        failure: what Kafka said of an event that it did not take; a refusal before all else.
    """

    __slots__ = ("_failed", "_left", "_loop", "_unsent", "done", "failure")

    def __init__(self, events: int) -> None:
        self._left, self._unsent = events, 0
        self._failed: set[bytes] = set()
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.failure: KafkaError | None = None

    def reported(self, error: KafkaError | None, message: Any) -> None:
        """A delivery report."""
        if error is not None:
            self._failed.add(message.value())
            if self.failure is None or error.code() in REFUSALS:
                self.failure = error
        self._left -= 1
        if self._left == self._unsent:
            self._loop.call_soon_threadsafe(self._settle)

    def not_sent(self, events: Sequence[Accepted], failure: KafkaError) -> None:
        """The last of the request's events never reached the producer."""
        self.failure = failure
        self._failed.update(event.value for event in events)
        self._unsent = len(events)
        if self._left == self._unsent:
            self._settle()

    async def settled(self, seconds: float) -> bool:
        """Every event is reported, after ``seconds`` at most."""
        if not self.done.done():
            await asyncio.wait((self.done,), timeout=seconds)
        return self.done.done()

    def failed(self, events: Sequence[Accepted]) -> list[Accepted]:
        """Those of the request's events that Kafka did not confirm."""
        return [event for event in events if event.value in self._failed]

    def _settle(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Delivery:
    """One worker's way to Kafka: producers, each with a thread that polls it.

    Order: events of one key arrive in the order in which ``send`` was called. A crash, a time-out
    and a failure leave events unknown: the client sends them again with the same id.
    """

    def __init__(self, config: ClientConfig, topics: Iterable[Topic]) -> None:
        # What a topic takes is the size of a batch, and a producer has one size for all its topics.
        # Taking back is of all that a producer holds: topics without a spool are not to suffer it.
        kinds = {topic.name: (largest_message(topic), topic.spool) for topic in topics}
        lanes = {kind: _Lane(config, kind[0]) for kind in {*kinds.values()}}
        self._lanes = {name: lanes[kind] for name, kind in kinds.items()}

    async def send(
        self, topic: str, events: Sequence[Accepted], headers: Headers, seconds: float
    ) -> None:
        """Returns once all in-sync replicas have every event.

        Raises:
            QueueFullError: nothing was sent.
            UnknownOutcomeError: after ``seconds``, or when Kafka said no to an event.
        """
        outstanding = self._lanes[topic].enqueue(topic, events, headers)
        try:
            await asyncio.wait_for(outstanding.done, seconds)
        except TimeoutError:
            raise UnknownOutcomeError(f"Kafka did not confirm within {seconds:g} s") from None
        if outstanding.failure is not None:
            raise UnknownOutcomeError(f"Kafka answered {outstanding.failure.str()}")

    async def send_or_take_back(
        self, topic: str, events: Sequence[Accepted], headers: Headers, seconds: float
    ) -> list[Accepted]:
        """The same for a topic with a spool: gives the events that Kafka has not and will not get.

        After ``seconds`` everything that waits for Kafka in this worker is taken back, for all
        topics with a spool: each request learns it from its own reports. What was on the wire
        at that moment Kafka may have got; nobody can know.

        Raises:
            QueueFullError: nothing was sent.
            UnknownOutcomeError: Kafka refused an event for ever.
        """
        lane = self._lanes[topic]
        outstanding = lane.enqueue(topic, events, headers)
        if not await outstanding.settled(seconds):
            lane.take_back()
            if not await outstanding.settled(_TAKEN_BACK_SECONDS):
                return list(events)
        failure = outstanding.failure
        if failure is not None and failure.code() in REFUSALS | MISSING:
            raise UnknownOutcomeError(f"Kafka answered {failure.str()}")
        return outstanding.failed(events)

    def reachable(self) -> bool:
        """Kafka answers. Blocks for a second at most."""
        return next(iter(self._lanes.values())).reachable()

    def close(self, seconds: float) -> int:
        """Wait for what is on its way; how many events were still out after ``seconds``."""
        deadline = time.monotonic() + seconds
        return sum(
            lane.close(max(0.0, deadline - time.monotonic())) for lane in {*self._lanes.values()}
        )


class _Lane:
    """A producer for topics that take batches of one size."""

    def __init__(self, config: ClientConfig, size: int) -> None:
        self._config = config
        self._tuning = _TUNING | {"message.max.bytes": str(size), "batch.size": str(size)}
        self._producer = self._new()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="delivery", daemon=True)
        self._thread.start()

    def enqueue(self, topic: str, events: Sequence[Accepted], headers: Headers) -> _Outstanding:
        """Hands the events to the producer, all or (with QueueFullError) none."""
        sender = self._producer
        if len(sender) + len(events) > int(_TUNING["queue.buffering.max.messages"]):
            raise QueueFullError
        outstanding = _Outstanding(len(events))
        produce, report = sender.produce, outstanding.reported
        sent = 0
        try:
            for event in events:
                produce(
                    topic,
                    event.value,
                    event.key,
                    event.partition,
                    headers=headers,
                    on_delivery=report,
                )
                sent += 1
        except BufferError as error:
            if not sent:
                raise QueueFullError from error
            outstanding.not_sent(events[sent:], KafkaError(KafkaError._QUEUE_FULL))  # noqa: SLF001
        except confluent_kafka.KafkaException as error:
            outstanding.not_sent(events[sent:], error.args[0])
        return outstanding

    def take_back(self) -> None:
        """Fails all that waits; each event gets its report."""
        self._producer.purge(blocking=False)

    def reachable(self) -> bool:
        """Kafka answers."""
        try:
            self._producer.list_topics(timeout=_REACH_SECONDS)
        except confluent_kafka.KafkaException:
            return False
        return True

    def close(self, seconds: float) -> int:
        """Events that were still out after ``seconds``."""
        deadline = time.monotonic() + seconds
        while (left := len(self._producer)) and time.monotonic() < deadline:
            time.sleep(_CLOSING_SECONDS)
        self._ending.set()
        self._thread.join()
        return left

    def _poll(self) -> None:
        while not self._ending.is_set():
            try:
                self._producer.poll(_POLL_SECONDS)
            except Exception as error:  # noqa: BLE001 - without this thread nothing is confirmed
                if _is_fatal(error):
                    self._replace(error)
                else:
                    _LOG.exception("polling the producer failed")

    def _replace(self, error: Exception) -> None:
        """A fatal error ends a producer: what it held is reported as failed, and it takes no more.

        The client library raises such an error from ``poll``; it does not call ``error_cb``.
        """
        _LOG.error("the producer ended, another takes its place: %s", error)
        ended, self._producer = self._producer, self._new()
        ended.purge()
        deadline = time.monotonic() + _TAKEN_BACK_SECONDS
        while len(ended) and time.monotonic() < deadline:
            ended.poll(_POLL_SECONDS)

    def _new(self) -> confluent_kafka.Producer:
        return producer({**self._config, "error_cb": _on_error}, self._tuning)


def _on_error(error: KafkaError) -> None:
    _LOG.warning("kafka: %s", error.str())


def _is_fatal(error: Exception) -> bool:
    cause = error.args[0] if error.args else None
    return isinstance(cause, KafkaError) and cause.fatal()
