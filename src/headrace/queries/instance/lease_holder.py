"""The lease of this instance: claimed, renewed, and given back, on a thread of its own."""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
import uuid
from typing import Any

import confluent_kafka
import msgspec
from confluent_kafka import KafkaException

from headrace.kafka.broker_errors import Meaning, meaning
from headrace.kafka.client import ClientConfig, consumer, producer
from headrace.queries.declaration import StandingQueries
from headrace.queries.instance.leases import (
    LEASE_MS,
    RENEW_SECONDS,
    Claim,
    LeaseTable,
    read_claim,
    slots_of,
)

_LOG = logging.getLogger("headrace.queries")
_POLL_SECONDS = 0.2
_RETRY_SECONDS = 1.0
# Less than a lease: this instance stops before another one may begin.
_OWN_SECONDS = LEASE_MS / 1000 - 1.0
_UNCOVERED_SECONDS = 10.0
_READING = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": "100"}
_SENDING = {"linger.ms": "0", "message.timeout.ms": str(LEASE_MS), "enable.idempotence": "false"}


class LeaseHolder:
    """Holds the slot of this instance, or waits for one. Its methods are called on any thread.

    Args:
        config: librdkafka's settings of the cluster.
        queries: whose partitions these are.
    """

    def __init__(self, config: ClientConfig, queries: StandingQueries) -> None:
        self._config, self._topic = config, queries.leases_topic
        self._slots = slots_of(queries.partitions, queries.partitions_per_instance)
        self._claim = Claim(uuid.uuid4().hex, socket.gethostname())
        self._table = LeaseTable(len(self._slots))
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._began = time.monotonic()
        self._at_end = False
        self._sent_at = 0.0
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    @property
    def partitions(self) -> range | None:
        """The partitions of this instance; None: it has none now."""
        with self._lock:
            own = self._table.of(self._claim.holder)
            if own is None or time.monotonic() - own[1].seen > _OWN_SECONDS:
                return None
            return self._slots[own[0]]

    @property
    def uncovered(self) -> tuple[int, ...]:
        """The partitions that no instance has had for ten seconds: there are too few instances."""
        now = time.monotonic()
        uncovered: list[int] = []
        with self._lock:
            for slot, partitions in enumerate(self._slots):
                lease = self._table.lease(slot)
                since = self._began if lease is None else lease.seen
                if self._at_end and now - since > _UNCOVERED_SECONDS:
                    uncovered += partitions
        return tuple(uncovered)

    def close(self) -> None:
        """Gives the slot back."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._hold()
            except Exception:  # noqa: BLE001 - a thread that ended would leave the slot for good
                _LOG.exception("The lease can't be looked after, retrying in %g s", _RETRY_SECONDS)
                self._ending.wait(_RETRY_SECONDS)

    def _hold(self) -> None:
        reader = consumer(self._config, "headrace.leases", _READING)
        sender = producer(self._config, _SENDING)
        with self._lock:
            self._table = LeaseTable(len(self._slots))
        reader.assign(
            [confluent_kafka.TopicPartition(self._topic, 0, confluent_kafka.OFFSET_BEGINNING)]
        )
        try:
            while not self._ending.is_set():
                for message in reader.consume(100, _POLL_SECONDS):
                    self._take(message)
                if self._at_end and time.monotonic() - self._sent_at >= RENEW_SECONDS:
                    self._renew_or_claim(sender)
                sender.poll(0)
            self._release(sender)
        finally:
            reader.close()

    def _take(self, message: confluent_kafka.Message) -> None:
        error = message.error()
        if error is not None:
            if meaning(error) is Meaning.END:
                self._at_end = True
            elif meaning(error) not in {Meaning.UNREACHABLE, Meaning.TRANSIENT}:
                raise KafkaException(error)
            return
        try:
            slot, claim = read_claim(message.key(), message.value())
        except ValueError as error:
            _LOG.warning("%s: offset %d is no lease: %s", self._topic, message.offset(), error)
            return
        with self._lock:
            place: tuple[Any, int] = message.offset(), message.timestamp()[1]
            self._table.take(slot, claim, *place, time.monotonic())

    def _renew_or_claim(self, sender: confluent_kafka.Producer) -> None:
        with self._lock:
            own = self._table.of(self._claim.holder)
            free = self._table.free(time.monotonic())
        if own is not None:
            self._send(sender, own[0], self._claim)
        elif free:
            # Spares that see the same free slots seldom choose the same one.
            self._send(sender, random.choice(free), self._claim)  # noqa: S311 - no secret

    def _release(self, sender: confluent_kafka.Producer) -> None:
        with self._lock:
            own = self._table.of(self._claim.holder)
        if own is not None:
            release = Claim(self._claim.holder, self._claim.host, is_release=True)
            self._send(sender, own[0], release)
            sender.flush(RENEW_SECONDS)

    def _send(self, sender: confluent_kafka.Producer, slot: int, claim: Claim) -> None:
        self._sent_at = time.monotonic()
        value = msgspec.json.encode(claim)
        sender.produce(self._topic, value, str(slot).encode(), partition=0)
