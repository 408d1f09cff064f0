"""Records produced at a steady rate, and how long each takes to be readable elsewhere."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import confluent_kafka

from bench.cluster import Broker
from bench.driver import OutputWrongError
from bench.events import events
from headrace.kafka.client.clients import client_config, consumer, producer
from headrace.settings.model import KafkaSettings

PARTITIONS = 4
SENT = "sent-us"
_VALUES = 1_000
_TICK_SECONDS = 0.001
_SILENCE_SECONDS = 60.0


class Traffic:
    """Records into all partitions in turn, each with the time when it was produced.

    Args:
        source: broker to send to.
        topic: topic to send to, of :data:`PARTITIONS` partitions.
        rate: records a second.
        values: of the records, in turn; by default those of the benchmarks' events.

    Attributes:
        sent_us: when each record was produced, in microseconds since 1970.
    """

    def __init__(self, source: Broker, topic: str, rate: int, values: Sequence[bytes] = ()) -> None:
        config = client_config(KafkaSettings(), source.bootstrap)
        self._sender = producer(config, {"linger.ms": "0"})
        self._topic = topic
        self._rate = rate
        self._values = values or list(events(_VALUES))
        self._ending = threading.Event()
        self.sent_us: list[int] = []

    @property
    def sent(self) -> int:
        """How many records were produced."""
        return len(self.sent_us)

    def value(self, now_us: int) -> bytes:  # noqa: ARG002
        """Returns the value of the next record, which is produced at that time."""
        return self._values[self.sent % len(self._values)]

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Sends beside the block, and until all are there."""
        thread = threading.Thread(target=self._send, name="traffic")
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def _send(self) -> None:
        began = time.monotonic()
        while not self._ending.wait(_TICK_SECONDS):
            due = int((time.monotonic() - began) * self._rate)
            while self.sent < due:
                partition, now_us = self.sent % PARTITIONS, time.time_ns() // 1000
                value = self.value(now_us)
                self.sent_us.append(now_us)
                headers = [(SENT, b"%d" % now_us)]
                self._sender.produce(self._topic, value, partition=partition, headers=headers)
            self._sender.poll(0)
        self._sender.flush()


class Arrival(NamedTuple):
    """A record that is readable.

    Attributes:
        sent_us: when it was produced, in microseconds since 1970.
        lag_ms: the time from then on.
    """

    sent_us: int
    lag_ms: float


class Arrivals:
    """What is readable in a topic that headrace copies :class:`Traffic` to."""

    def __init__(self, target: Broker, topic: str) -> None:
        self._reader = consumer(
            client_config(KafkaSettings(), target.bootstrap), tuning={"fetch.wait.max.ms": "500"}
        )
        self._reader.assign(
            [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        )
        self._next = dict.fromkeys(range(PARTITIONS), 0)
        self.count = 0

    def take(self, seconds: float) -> list[Arrival]:
        """Returns what comes within a time.

        Raises:
            OutputWrongError: a record is missing, or is there twice.
        """
        found: list[Arrival] = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = self._reader.poll(0.1)
            if message is None or message.error() is not None:
                continue
            now_us = time.time_ns() // 1000
            headers = dict(message.headers() or ())
            sent_us = int(headers[SENT])
            found.append(Arrival(sent_us, (now_us - sent_us) / 1000))
            self._check(message.partition(), headers["headrace-origin"])
        return found

    def take_rest(self, traffic: Traffic) -> list[Arrival]:
        """Returns what comes until all that was sent is there. Raises as :meth:`take`."""
        found: list[Arrival] = []
        deadline = time.monotonic() + _SILENCE_SECONDS
        while self.count < traffic.sent:
            found += self.take(0.5)
            if time.monotonic() > deadline:
                raise OutputWrongError(f"{self.count} of {traffic.sent} records came")
        return found

    def _check(self, partition: int, origin: bytes) -> None:
        offset = int(origin.rpartition(b"/")[2])
        if offset != self._next[partition]:
            expected = self._next[partition]
            raise OutputWrongError(f"partition {partition}: offset {offset}, not {expected}")
        self._next[partition] += 1
        self.count += 1

    def close(self) -> None:
        """Ends the consumer."""
        self._reader.close()


def quantile(ordered: Sequence[float], share: float) -> float:
    """Returns the least value that a share of all does not exceed; ``ordered`` is sorted."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
