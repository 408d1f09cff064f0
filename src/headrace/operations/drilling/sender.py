"""Sends events at a rate, and notes when and where each was acknowledged."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.kafka.admin.measuring import SampledRecord
from headrace.kafka.client.broker_errors import delivery_failure
from headrace.kafka.client.clients import ClientConfig, producer
from headrace.kafka.write.record import until_taken
from headrace.model import TopicPartition
from headrace.operations.drilling.events import EventName, TopicEvents

_POLL_SECONDS = 0.05
_JOIN_SECONDS = 0.2
_FLUSH_SECONDS = 180.0
"""Longer than a message waits for its brokers: none is left without an answer."""


class EventSender(threading.Thread):
    """Sends events to each topic in turn until it is stopped.

    Attributes:
        acknowledged: the events that all in-sync replicas have.
        refused: of the others, why Kafka has not confirmed them. They may be there all the same.
        ends: by partition, the offset after the last event.
        times: by partition, when events were acknowledged: seconds since 1970.
        failure: what ended it before it was stopped.
    """

    def __init__(self, config: ClientConfig, topics: Sequence[TopicEvents], rate: float) -> None:
        super().__init__(name="drill-sender", daemon=True)
        self.acknowledged: set[EventName] = set()
        self.refused: dict[EventName, str] = {}
        self.ends: dict[TopicPartition, int] = defaultdict(int)
        self.times: dict[TopicPartition, list[float]] = defaultdict(list)
        self.failure: Exception | None = None
        self._config, self._topics, self._rate = config, topics, rate
        self._is_enough, self._is_abandoned = threading.Event(), threading.Event()

    def run(self) -> None:
        """Sends until :meth:`stop`."""
        try:
            self._send_all()
        except Exception as error:  # noqa: BLE001 - raised where the drill waits
            self.failure = error

    def stop(self) -> None:
        """Ends it once all that was sent is answered."""
        self._is_enough.set()
        while self.is_alive():  # in steps, so that Ctrl-C takes effect
            self.join(_JOIN_SECONDS)

    def abandon(self) -> None:
        """Ends it without a wait for answers."""
        self._is_abandoned.set()
        self.stop()

    def _send_all(self) -> None:
        sender = producer(self._config)
        start = time.monotonic()
        for sent in itertools.count():
            while (wait := start + sent / self._rate - time.monotonic()) > 0:
                if self._is_enough.is_set():
                    break
                sender.poll(min(wait, _POLL_SECONDS))
            if self._is_enough.is_set():
                break
            self._send(sender, self._topics[sent % len(self._topics)], sent // len(self._topics))
        deadline = time.monotonic() + _FLUSH_SECONDS
        while sender.flush(_POLL_SECONDS) and time.monotonic() < deadline:
            if self._is_abandoned.is_set():
                sender.purge()

    def _send(self, sender: Producer, topic: TopicEvents, number: int) -> None:
        record = topic.event(number, time.time())
        answered = self._answered(EventName(topic.number, number))
        place = (record.partition, answered)
        key = record.key or None
        until_taken(sender.produce, sender.poll, (topic.topic.name, record.value, key, *place))

    def _answered(self, name: EventName) -> Callable[[KafkaError | None, Message], None]:
        def answer(error: KafkaError | None, message: Message) -> None:
            if (cause := delivery_failure(error, message)) is not None:
                self.refused[name] = str(cause)
                return
            partition = TopicPartition(message.topic(), message.partition())
            self.acknowledged.add(name)
            self.ends[partition] = max(self.ends[partition], message.offset() + 1)
            self.times[partition].append(time.time())

        return answer


def send_records(config: ClientConfig, topic: str, records: Sequence[SampledRecord]) -> None:
    """Sends records as they are, to the partitions of their keys.

    Raises:
        KafkaException: if Kafka does not confirm one.
    """
    failures: list[KafkaError] = []

    def answer(error: KafkaError | None, message: Message) -> None:
        if (cause := delivery_failure(error, message)) is not None:
            failures.append(cause)

    sender = producer(config)
    for record in records:
        place = (-1, answer, None, 0, list(record.headers))
        until_taken(sender.produce, sender.poll, (topic, record.value, record.key, *place))
    while sender.flush(_POLL_SECONDS):  # in steps, so that Ctrl-C takes effect
        continue
    if failures:
        raise KafkaException(failures[0])
