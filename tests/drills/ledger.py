"""What was sent, and what became of it by the broker's answers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaException
from tests.drills.checker import Claim, Outcome, Stored, id_of, payload_of
from tests.waiting import FLUSH_SECONDS

from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.broker_errors import delivery_failure
from headrace.kafka.client.clients import consumer, producer
from headrace.kafka.client.offsets import watermarks

TICK_SECONDS = 0.02
HOT_KEYS, COLD_KEYS = 30, 1000
MAX_BYTES = 4000
REJECT_EVERY = 250
_TUNING = {
    "linger.ms": "5",
    "message.max.bytes": str(MAX_BYTES),
    "topic.metadata.refresh.interval.ms": "500",
}


class Ledger(threading.Thread):
    """Sends records at a steady rate until it is told to end.

    Most have one of few keys. Now and then one is too large, so that it is rejected.

    Args:
        client: librdkafka's configuration.
        topic: where they go.
        rate: records a second.
        burst: records at once, before those.
        deeds: by the number of a record, what its id is to end with (``.slow``), or nothing.
    """

    def __init__(
        self,
        client: dict[str, str],
        topic: str,
        *,
        rate: int = 400,
        burst: int = 0,
        deeds: Callable[[int], str] = lambda number: "",
        seed: int = 0,
    ) -> None:
        super().__init__(name=f"ledger-{topic}")
        self.claims: list[Claim] = []
        self.acked = 0
        self._topic, self._rate, self._burst, self._deeds = topic, rate, burst, deeds
        self._rng = random.Random(seed)
        self._producer = producer(client, _TUNING)
        self._ended = threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(TICK_SECONDS):
            self._send_until(self._burst + int((time.monotonic() - began) * self._rate))
            self._producer.poll(0)
        self._producer.flush(FLUSH_SECONDS)

    def end(self) -> None:
        self._ended.set()
        self.join()

    def _send_until(self, number: int) -> None:
        for each in range(len(self.claims), number):
            self._send(each)

    def _send(self, number: int) -> None:
        name = f"r-{number}{self._deeds(number)}"
        too_large = number % REJECT_EVERY == REJECT_EVERY - 1
        value = payload_of(name) + bytes(MAX_BYTES if too_large else 0)
        key = self._key()
        self.claims.append(Claim(name, key, Outcome.UNKNOWN, time.monotonic_ns(), 0))

        def answered(error, message) -> None:
            failure = delivery_failure(error, message)
            outcome = Outcome.ACKED if failure is None else Outcome.UNKNOWN
            self.acked += failure is None
            self._note(number, outcome, message.partition(), message.offset())

        try:
            self._producer.produce(self._topic, value, key, on_delivery=answered)
        except KafkaException:
            self._note(number, Outcome.REJECTED)

    def _note(self, number: int, outcome: Outcome, *where: int) -> None:
        claim = self.claims[number]._replace(outcome=outcome, answered_at=time.monotonic_ns())
        if outcome is Outcome.ACKED:
            claim = claim._replace(partition=where[0], offset=where[1])
        self.claims[number] = claim

    def _key(self) -> bytes:
        if self._rng.random() < 0.9:
            return b"hot-%d" % self._rng.randrange(HOT_KEYS)
        return b"cold-%d" % self._rng.randrange(COLD_KEYS)


def topic_ends(client: dict[str, str], topic: str) -> dict[int, int]:
    """By partition, the offset after the last record."""
    live = describe(client, [topic])[topic]
    marks = watermarks(client, live.all_partitions)
    return {one.partition: end for one, (_, end) in marks.items()}


def read_topic(client: dict[str, str], topic: str) -> list[Stored]:
    """Everything that is in it now, by partition and offset."""
    from confluent_kafka import TopicPartition

    unread = {partition: end for partition, end in topic_ends(client, topic).items() if end}
    reader = consumer(client, "drills", {"enable.partition.eof": "false"})
    reader.assign([TopicPartition(topic, partition, 0) for partition in unread])
    found = []
    while unread:
        for message in reader.consume(10_000, 0.2):
            assert message.error() is None, message.error()
            found.append(_stored(message))
            if message.offset() + 1 == unread.get(message.partition()):
                del unread[message.partition()]
    reader.close()
    return sorted(found)


def _stored(message) -> Stored:
    value = message.value()
    _, timestamp = message.timestamp()
    return Stored(
        message.partition(), message.offset(), id_of(value), message.key(), value, timestamp
    )
