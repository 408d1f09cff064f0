"""Claims, renews and releases the lease of a slot for this process, on a thread of its own."""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import ClassVar

import confluent_kafka
import msgspec
from confluent_kafka import KafkaError, KafkaException

from headrace.kafka.client.broker_errors import Meaning, delivery_failure, meaning
from headrace.kafka.client.clients import ClientConfig, producer
from headrace.kafka.client.lost_brokers import BrokersLostError
from headrace.kafka.read.polling import poll_endlessly
from headrace.model import TopicPartition
from headrace.service.leases import Claim, Lease, LeaseTiming, OwnLease, read_claim
from headrace.service.watchdog import Watchdog

_LOG = logging.getLogger("headrace.service")
_READING = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": "100"}
_SENDING = {"linger.ms": "0", "enable.idempotence": "false"}


class LeaseUnseenError(Exception):
    """The renewals that were sent are not read: they were not written, or the reader is stalled."""


class SlotLease:
    """Holds a slot for this process, or waits for a free slot. Used on any thread.

    While the thread that created it hangs, the lease is not renewed: see :meth:`heartbeat`.

    Args:
        config: librdkafka's settings of the cluster.
        topic: the topic of the leases, which exists.
        slots: the number of slots.
        timing: how long a lease lasts; all processes must agree on it.
        on_change: called on another thread when :attr:`slot` may have changed.
    """

    resting: ClassVar = "it has failed several times, and leaves its slot to others"
    claiming: ClassVar = "a slot is being claimed"
    taken: ClassVar = "other processes have all slots"

    def __init__(
        self,
        config: ClientConfig,
        topic: str,
        slots: int,
        timing: LeaseTiming = LeaseTiming(),
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._topic, self._timing = config, topic, timing
        self._on_change = on_change
        self._claim = Claim(uuid.uuid4().hex, socket.gethostname())
        self._state = OwnLease(self._claim.holder, slots, timing)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._began = time.monotonic()
        self._failure = self._send_failure = ""
        self._sent_at = 0.0
        self._unread_renewals = 0
        self._watchdog = Watchdog(timing.lease_ms / 1000, timing.hung_seconds)
        self._claimed: int | None = None
        self._dead = ""
        self._rests_until = 0.0
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def heartbeat(self) -> None:
        """Shows that the process does not hang. Without it for ``hung_seconds``, the lease ends."""
        self._watchdog.heartbeat()

    def give_back(self) -> None:
        """Releases the slot, so that another process can try; claims a slot after a rest."""
        self._rests_until = time.monotonic() + self._timing.rest_seconds

    @property
    def slot(self) -> int | None:
        """The slot of this process; ``None`` if it has no valid lease now."""
        with self._lock:
            return None if self._rests else self._state.slot(time.monotonic())

    @property
    def waiting(self) -> str:
        """Why this process has no slot."""
        with self._lock:
            if failure := self._failure or self._send_failure:
                return f"leases can't be read or renewed: {failure}"
            if not self._state.at_end:
                return "leases are being read"
            if self._rests:
                return self.resting
            if self._state.own is not None:
                return "its lease is not renewed in time"
            if self._state.table.free(time.monotonic()):
                return self.claiming
        return self.taken

    @property
    def holder(self) -> str:
        """The id of this process in the leases, new with each object."""
        return self._claim.holder

    @property
    def term(self) -> int:
        """How often this process has got a slot: another number, and it had none in between."""
        return self._state.term

    def has_lost(self, term: int) -> bool:
        """Returns whether another process may have had the slot that this one got with ``term``.

        False while the leases are read again: an unread renewal may say that it is still its own.
        """
        with self._lock:
            return self._state.has_lost(term)

    def void(self, holder: str) -> None:
        """Ends the lease of a process that is known to have died, before it expires.

        Args:
            holder: its id. A lease that it has no longer stays as it is.
        """
        self._dead = holder

    def lease(self, slot: int) -> Lease | None:
        """Returns the last lease of a slot, also one that has expired; ``None``: it is free."""
        with self._lock:
            return self._state.table.lease(slot)

    def vacant_seconds(self, slot: int) -> float:
        """Returns how long ago the last lease of a slot was renewed, or since when it is free.

        Zero while the leases are being read.
        """
        with self._lock:
            lease = self._state.table.lease(slot)
            since = self._began if lease is None else lease.seen
            return time.monotonic() - since if self._state.at_end else 0.0

    def close(self) -> None:
        """Releases the slot, and ends the thread."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        delay = self._timing.retry_seconds
        while not self._ending.is_set():
            try:
                self._hold()
            except (LeaseUnseenError, BrokersLostError) as error:
                self._failure = str(error)
                _LOG.warning("Cannot renew the lease, retrying in %g s: %s", delay, error)
                self._ending.wait(delay)
            except Exception as error:  # noqa: BLE001 - a thread that ended would leave the slot for good
                self._failure = str(error) or type(error).__name__
                _LOG.exception("Cannot renew the lease, retrying in %g s", delay)
                self._ending.wait(delay)

    def _hold(self) -> None:
        # A renewal that waits for a whole lease is dropped: the slot may be another's by then.
        timeout_ms = {"message.timeout.ms": str(self._timing.lease_ms)}
        sender = producer(self._config, _SENDING | timeout_ms)
        with self._lock:
            self._state.read_again()
        self._unread_renewals = 0
        starts = {TopicPartition(self._topic, 0): confluent_kafka.OFFSET_BEGINNING}
        wait = self._timing.poll_seconds
        for messages in poll_endlessly(self._config, "headrace.leases", starts, _READING, wait):
            for message in messages:
                self._take(message)
            is_due = time.monotonic() - self._sent_at >= self._timing.renew_seconds
            if self._state.at_end and self._dead:
                self._void_dead(sender)
            elif self._state.at_end and (is_due or self._rests) and not self._watchdog.is_hung():
                self._renew_or_claim(sender)
            self._say(sender)
            sender.poll(0)
            if self._ending.is_set():
                break
        self._say(sender)
        self._release(sender)
        sender.flush(self._timing.renew_seconds)

    def _say(self, sender: confluent_kafka.Producer) -> None:
        """Called after each read of the leases, and once at the end, to write other records."""

    def _take_other(self, message: confluent_kafka.Message) -> bool:  # noqa: ARG002 - of subclasses
        """Takes a record that is no claim; False if it does not know it either."""
        return False

    def _take(self, message: confluent_kafka.Message) -> None:
        error = message.error()
        if error is not None:
            if meaning(error) is Meaning.END:
                with self._lock:
                    self._state.at_end, self._failure = True, ""
                self._on_change()
            else:
                raise KafkaException(error)
            return
        try:
            slot, claim = read_claim(message.key(), message.value())
        except ValueError as error:
            if not self._take_other(message):
                _LOG.warning("%s: offset %d is no lease: %s", self._topic, message.offset(), error)
            return
        if claim.holder == self._claim.holder:
            self._unread_renewals = 0
        with self._lock:
            self._state.take(slot, claim, message.timestamp()[1], time.monotonic())
        if claim.holder == self._claim.holder:
            self._on_change()

    @property
    def _rests(self) -> bool:
        return time.monotonic() < self._rests_until

    def _renew_or_claim(self, sender: confluent_kafka.Producer) -> None:
        """Renews the lease, or claims a free slot.

        Raises:
            LeaseUnseenError: if none of the renewals of a whole lease was read.
        """
        with self._lock:
            own = self._state.own
            free = self._state.table.free(time.monotonic())
        if self._rests:
            self._release(sender)
        elif own is not None:
            # With a stalled reader, the instance would renew forever a slot that it can't use.
            if self._unread_renewals >= self._timing.renewals:
                raise LeaseUnseenError("the brokers give back none of the renewals that were sent")
            self._unread_renewals += 1
            self._send(sender, own[0], self._claim)
        elif free:
            # An earlier claim may have succeeded and not been read yet, so it claims that slot
            # again. The choice is random: spares seldom claim the same free slot.
            if self._claimed not in free:
                self._claimed = random.choice(free)  # noqa: S311 - no secret
            self._send(sender, self._claimed, self._claim)

    def _void_dead(self, sender: confluent_kafka.Producer) -> None:
        """Releases the slot of a process that has died, and claims it."""
        dead, self._dead = self._dead, ""
        with self._lock:
            its_own = self._state.table.of(dead)
        if its_own is not None:
            slot, lease = its_own
            self._send(sender, slot, Claim(dead, lease.host, is_release=True))
            # Behind the release in the topic, so it counts unless another claim came between.
            self._send(sender, slot, self._claim)

    def _release(self, sender: confluent_kafka.Producer) -> None:
        with self._lock:
            own = self._state.own
        if own is not None:
            release = msgspec.structs.replace(self._claim, is_release=True)
            self._send(sender, own[0], release)
            sender.flush(self._timing.renew_seconds)

    def _send(self, sender: confluent_kafka.Producer, slot: int, claim: Claim) -> None:
        self._sent_at = time.monotonic()
        claim = msgspec.structs.replace(claim, sent_ms=int(self._sent_at * 1000))
        self._produce(sender, str(slot).encode(), msgspec.json.encode(claim))

    def _produce(self, sender: confluent_kafka.Producer, key: bytes, value: bytes | None) -> None:
        # Not sent again where the buffer is full: a renewal that waits would come too late.
        sender.produce(self._topic, value, key, partition=0, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        failure = delivery_failure(error, message)
        reason = "" if failure is None else failure.str()
        if reason and reason != self._send_failure:
            _LOG.warning("The lease can't be renewed: %s", reason)
        self._send_failure = reason
