"""Measures a project's own cluster with a sample of its own events.

Rollbar's article measures the producer with Kafka's own tool and the consumer by batch size, on a
topic with one partition. So do these, with headrace's clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import msgspec

from headrace.errors import SampleError
from headrace.events import BYTE_ORDER_MARK
from headrace.kafka.admin.measuring import (
    Bounds,
    consume_values,
    newest_values,
    produce_values,
    temporary_topic,
)
from headrace.kafka.client.clients import ClientConfig

SAMPLE_EVENTS = 2000
CONSUMED_BATCHES = (1000, 2000, 5000)
MAX_SAMPLE_BYTES = 64 * 1024 * 1024

OnRun = Callable[[int, int, str], None]
"""Called before each run: runs done, runs in all, and what comes now."""


@dataclass(frozen=True)
class Sending:
    """How a producer sends: ``acks`` is "1" or "all"."""

    acks: str
    linger_ms: int
    batch_bytes: int
    compression: str

    @property
    def tuning(self) -> dict[str, str]:
        """Returns the settings by the names of librdkafka."""
        return {
            "acks": self.acks,
            # librdkafka allows idempotence only with acks=all.
            "enable.idempotence": "true" if self.acks == "all" else "false",
            "linger.ms": str(self.linger_ms),
            "batch.size": str(self.batch_bytes),
            "compression.type": self.compression,
        }

    def __str__(self) -> str:
        return (
            f"acks={self.acks}, linger.ms={self.linger_ms}, "
            f"batch.size={self.batch_bytes}, {self.compression}"
        )


# The first is near headrace's own; its records are those that the consumers read first.
SENDINGS = tuple(
    Sending(acks, linger_ms, batch_bytes, compression)
    for acks, compression, (linger_ms, batch_bytes) in product(
        ("all", "1"), ("lz4", "zstd", "none"), ((20, 1_000_000), (0, 16_384))
    )
)


@dataclass(frozen=True)
class Sample:
    """Events to measure with: values as they lie in Kafka, and where they are from."""

    source: str
    values: tuple[bytes, ...]

    @property
    def event_bytes(self) -> Fraction:
        """Returns the mean size of an event."""
        return Fraction(sum(map(len, self.values)), len(self.values))


@dataclass(frozen=True)
class Produced:
    """Throughput of one producer: events and bytes (before compression) a second."""

    sending: Sending
    events_per_second: int
    bytes_per_second: int


@dataclass(frozen=True)
class Consumed:
    """Throughput of one consumer that takes ``batch`` records at a time and decodes their JSON."""

    batch: int
    events_per_second: int
    bytes_per_second: int


@dataclass(frozen=True)
class Measurement:
    """The result of a measurement.

    Attributes:
        sample: where the events are from.
        sample_events: how many.
        event_bytes: their mean size.
        replication: copies of the topic that was measured with.
        produced: one for each way of sending.
        consumed: one for each size of a batch.
    """

    sample: str
    sample_events: int
    event_bytes: Fraction
    replication: int
    produced: tuple[Produced, ...]
    consumed: tuple[Consumed, ...]

    @property
    def consumer_rate(self) -> Fraction:
        """Returns the events a second of a consumer with the best size of a batch."""
        return Fraction(max(run.events_per_second for run in self.consumed))


def sample_of_topic(config: ClientConfig, topic: str) -> Sample:
    """Returns the newest events of ``topic``.

    Raises:
        SampleError: if it is empty, or holds something else than JSON.
        TopicMissingError: if there is no such topic.
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
    """
    return _sample(f"topic {topic}", newest_values(config, topic, SAMPLE_EVENTS))


def sample_of_file(path: Path) -> Sample:
    """Returns the first events of a file with a JSON document on each line.

    Raises:
        SampleError: if it can't be read, is empty, or holds something else than JSON.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SAMPLE_BYTES)
    except OSError as error:
        raise SampleError(str(path), error.strerror or str(error)) from error
    lines = [line for line in content.removeprefix(BYTE_ORDER_MARK).splitlines() if line.strip()]
    return _sample(str(path), lines[:SAMPLE_EVENTS])


def measure(
    config: ClientConfig,
    sample: Sample,
    bounds: Bounds,
    on_run: OnRun,
    sendings: Sequence[Sending] = SENDINGS,
) -> Measurement:
    """Sends and reads the sample repeatedly on a temporary topic.

    Raises:
        BrokerUnreachableError: if the broker does not respond within 15 seconds.
        TopicChangeError: if Kafka does not create the topic.
        KafkaException: if Kafka rejects a record or a fetch.
    """
    runs = len(sendings) + len(CONSUMED_BATCHES)
    produced, consumed = [], []
    with temporary_topic(config) as topic:
        for number, sending in enumerate(sendings):
            on_run(number, runs, f"producer: {sending}")
            run = produce_values(config, topic.name, sample.values, sending.tuning, bounds)
            produced.append(Produced(sending, run.events_per_second, run.bytes_per_second))
        for number, batch in enumerate(CONSUMED_BATCHES, len(sendings)):
            on_run(number, runs, f"consumer: {batch} records a batch")
            run = consume_values(config, topic.name, batch, msgspec.json.decode, bounds)
            consumed.append(Consumed(batch, run.events_per_second, run.bytes_per_second))
    return Measurement(
        sample.source,
        len(sample.values),
        sample.event_bytes,
        topic.replication,
        tuple(produced),
        tuple(consumed),
    )


def _sample(source: str, values: Sequence[bytes]) -> Sample:
    if not values:
        raise SampleError(source, "it is empty")
    # Consumers are measured while they decode JSON: a wrong value must not end a run.
    for number, value in enumerate(values, 1):
        try:
            msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise SampleError(source, f"event {number} is not JSON: {error}") from error
    return Sample(source, tuple(values))
