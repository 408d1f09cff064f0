"""From a worker to Kafka: accepted means that the in-sync replicas have it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError

from headrace.ingest.spool import SpoolRecord
from headrace.ingest.validation import Accepted, largest_message
from headrace.kafka.client import ClientConfig, producer
from headrace.model import Topic

_LOG = logging.getLogger("headrace.ingest")
_POLL_SECONDS = 0.1
_REACH_SECONDS = 1.0
_SPOOLED_SECONDS = 30.0
_TUNING = {
    # Requests wait for their events: a batch is what came in while the last one was on its way.
    "linger.ms": "2",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "131072",
}

Headers = list[tuple[str, bytes]]
Report = Callable[[KafkaError | None, Any], None]


class QueueFullError(Exception):
    """More events wait for Kafka than are held in memory. Nothing of this request was taken."""


class UnknownOutcomeError(Exception):
    """Kafka did not confirm the events in time, or refused some; they may be there or not."""


class _Outstanding:
    """The events of one request until the last is confirmed. Counted down on the poll thread."""

    __slots__ = ("_left", "_loop", "done", "failure")

    def __init__(self, events: int) -> None:
        self._left = events
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.failure: KafkaError | None = None

    def reported(self, error: KafkaError | None, _: Any) -> None:
        """A delivery report: on the poll thread only."""
        if error is not None:
            self.failure = error
        self._left -= 1
        if not self._left:
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class _Settled:
    """Counts records until the last is confirmed. Counted down on poll threads."""

    def __init__(self, records: int) -> None:
        self._left = records
        self._lock = threading.Condition()
        self.failure: KafkaError | None = None

    def reported(self, error: KafkaError | None, _: Any) -> None:
        """A delivery report."""
        with self._lock:
            self.failure = error or self.failure
            self._left -= 1
            self._lock.notify()

    def wait(self, seconds: float) -> bool:
        """All were confirmed or failed in time."""
        with self._lock:
            return self._lock.wait_for(lambda: self._left == 0, seconds)


class Delivery:
    """One worker's way to Kafka: producers, each with a thread that polls it.

    Order: events of one key arrive in the order in which ``send`` was called. A crash, a time-out
    and a failure leave events unknown: the client sends them again with the same id.
    """

    def __init__(self, config: ClientConfig, topics: Iterable[Topic]) -> None:
        sizes = {topic.name: largest_message(topic) for topic in topics}
        # What a topic takes is the size of a batch, and a producer has one size for all its topics.
        lanes = {size: _Lane(config, size) for size in sizes.values()}
        self._lanes = {name: lanes[size] for name, size in sizes.items()}

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

    def send_spooled(self, records: Sequence[SpoolRecord]) -> None:
        """The same for records of the spool. Blocks; for the spool's loader.

        Raises:
            UnknownOutcomeError: Kafka did not take all of them; they must be sent again.
        """
        if not self.reachable():
            raise UnknownOutcomeError("Kafka does not answer")
        settled = _Settled(len(records))
        for record in records:
            lane = self._lanes.get(record.topic) or next(iter(self._lanes.values()))
            lane.produce(record, settled.reported)
        if not settled.wait(_SPOOLED_SECONDS) or settled.failure is not None:
            raise UnknownOutcomeError(f"Kafka did not confirm spooled events: {settled.failure}")

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
        self._config = dict(config)
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
            raise UnknownOutcomeError("the queue to Kafka is full") from error
        except confluent_kafka.KafkaException as error:
            raise UnknownOutcomeError(f"Kafka answered {error}") from error
        return outstanding

    def produce(self, record: SpoolRecord, report: Report) -> None:
        """Hands one record over; waits while the queue is full."""
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    -1 if record.partition is None else record.partition,
                    headers=list(record.headers),
                    timestamp=record.timestamp_ms,
                    on_delivery=report,
                )
            except BufferError:
                time.sleep(_POLL_SECONDS)
            except confluent_kafka.KafkaException as error:
                raise UnknownOutcomeError(f"Kafka answered {error}") from error
            else:
                return

    def reachable(self) -> bool:
        """Kafka answers."""
        try:
            self._producer.list_topics(timeout=_REACH_SECONDS)
        except confluent_kafka.KafkaException:
            return False
        return True

    def close(self, seconds: float) -> int:
        """Events that were still out after ``seconds``."""
        left = int(self._producer.flush(seconds))
        self._ending.set()
        self._thread.join()
        return left

    def _poll(self) -> None:
        while not self._ending.is_set():
            try:
                self._producer.poll(_POLL_SECONDS)
            except confluent_kafka.KafkaException:
                _LOG.exception("polling the producer failed")

    def _new(self) -> confluent_kafka.Producer:
        return producer(self._config | {"error_cb": self._on_error}, self._tuning)

    def _on_error(self, error: KafkaError) -> None:
        """On the poll thread. A fatal error ends a producer; what it held stays unknown."""
        _LOG.warning("kafka: %s", error.str())
        if error.fatal():
            self._producer = self._new()
