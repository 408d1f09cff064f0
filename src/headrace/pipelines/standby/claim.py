"""The right of a driver to run a pipeline: a lock on one machine, or a lease beside it."""

from __future__ import annotations

import threading
from typing import Protocol

from headrace.errors import ClaimLostError
from headrace.kafka.admin.propagation import until_known
from headrace.kafka.admin.topics import ensure_topics
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.changelog import possible_replication
from headrace.model import Topic
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.standby.driver_lease import DriverLease
from headrace.pipelines.standby.drivers import PIPELINE_SLOT, TIMING, leases_topic
from headrace.service.leases import LeaseTiming
from headrace.spark.lock import CheckpointLock

_LEASE = "lease"  # in the file of the lock: the id of its holder in the leases
_LOOK_SECONDS = 0.05


class DriverClaim(Protocol):
    """The right to run a pipeline. Called on the thread of the driver, but for ``check``."""

    @property
    def waiting(self) -> str:
        """Why the driver does not run the pipeline."""

    def try_acquire(self) -> bool:
        """Takes it, or keeps it; False while another driver has it.

        Raises:
            CheckpointInUseError: if another driver has it, and this one does not wait for it.
            BrokerUnreachableError: if the leases can't be read.
        """

    def keep(self) -> bool:
        """Shows that the driver does not hang; False if another driver may have the claim."""

    @property
    def is_asked(self) -> bool:
        """Whether a handover to a standby was requested."""

    def hand_over(self) -> None:
        """Leaves it to another driver for some seconds: this one becomes a standby."""

    def check(self) -> None:
        """Returns while the claim is valid, and waits while that is not known.

        Raises:
            ClaimLostError: if another driver has it, or it was released.
        """

    def step_down(self) -> None:
        """Called when it is lost: the driver becomes a standby."""

    def release(self) -> None:
        """Gives it back; harmless when it is not held."""


class MachineClaim:
    """The claim of a driver without a standby: the lock of its checkpoint on this machine."""

    waiting = ""
    is_asked = False

    def __init__(self, lock: CheckpointLock) -> None:
        self._lock = lock

    def try_acquire(self) -> bool:
        """Takes the lock. Raises CheckpointInUseError if another process holds it."""
        self._lock.acquire()
        return True

    def keep(self) -> bool:
        """Returns True: the lock is held until it is released."""
        return True

    def hand_over(self) -> None:
        """Is not called: no driver waits for the lock."""

    def check(self) -> None:
        """Does nothing: the lock can't be lost."""

    def step_down(self) -> None:
        """Is not called: the lock can't be lost."""

    def release(self) -> None:
        """Gives the lock back."""
        self._lock.release()


class SharedClaim:
    """The claim of a driver with ``--standby``: a lease, and the lock while no zombie has it.

    Args:
        client: librdkafka's settings of the cluster.
        pipeline: which it runs.
        lock: of its checkpoint on this machine.
        timing: of the lease.
    """

    def __init__(
        self,
        client: ClientConfig,
        pipeline: Pipeline,
        lock: CheckpointLock,
        timing: LeaseTiming = TIMING,
    ) -> None:
        self._client, self._name = client, pipeline.name
        self._topic, self._lock, self._timing = leases_topic(pipeline), lock, timing
        self._lease: DriverLease | None = None
        self._term = 0
        self.has_active = False
        """Whether another driver was active when this one asked last."""
        self._released = threading.Event()
        self._waiting = "the leases of its drivers are being read"

    @property
    def waiting(self) -> str:
        """Why the driver does not run the pipeline."""
        return self._waiting

    def try_acquire(self) -> bool:
        """Claims the lease when it is free, and takes the lock of this machine with it."""
        lease = self._opened()
        lease.heartbeat()
        term = lease.term
        if lease.slot is None:
            self._void_if_dead(lease)
            active = lease.lease(PIPELINE_SLOT)
            self.has_active = active is not None and active.holder != lease.holder
            if active is None or active.holder == lease.holder:
                self._waiting = lease.waiting
            else:
                self._waiting = f"a driver on {active.host} runs it"
            return False
        if not self._takes_lock(lease):
            self._waiting = "a process of this machine that has no standby runs it"
            return False
        self._term = term
        lease.be_active()
        self._released.clear()
        return True

    def keep(self) -> bool:
        """Renews the lease by its thread; False once another driver has it."""
        if self._lease is None:
            return False
        self._lease.heartbeat()
        self._lock.try_acquire(**{_LEASE: self._lease.holder})  # if a frozen process had it
        return not self._lease.has_lost(self._term)

    @property
    def is_asked(self) -> bool:
        """Whether a handover was requested since this driver got the lease."""
        return self._lease is not None and self._lease.is_asked

    def hand_over(self) -> None:
        """Releases the lease, and claims it again after three seconds if no other driver does."""
        if self._lease is not None:
            self._lease.give_back()
        self.step_down()

    def wait_as_standby(self, warm_age_seconds: float | None) -> None:
        """Says in the topic of leases that this driver waits, and how warm it is."""
        if self._lease is not None:
            self._lease.wait_as_standby(warm_age_seconds)

    def check(self) -> None:
        """Waits for a renewal that the brokers have confirmed, if the last one is too old."""
        lease = self._lease
        while True:
            is_valid = lease is not None and lease.slot is not None
            if lease is None or self._released.is_set() or lease.has_lost(self._term):
                raise ClaimLostError(self._name)
            if is_valid:
                return
            self._released.wait(_LOOK_SECONDS)

    def release(self) -> None:
        """Releases the lease first: the standby may start while this process ends."""
        self._released.set()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()
        self._lock.release()

    def step_down(self) -> None:
        """Leaves the lock of this machine to the driver that has the lease now."""
        self._released.set()
        self._lock.release()

    def _opened(self) -> DriverLease:
        if self._lease is None:
            ensure_leases_topic(self._client, self._topic)
            self._lease = DriverLease(self._client, self._topic, self._timing)
        return self._lease

    def _void_if_dead(self, lease: DriverLease) -> None:
        """Ends the lease of a process of this machine whose lock the kernel has freed."""
        active = lease.lease(PIPELINE_SLOT)
        if active is None or active.holder == lease.holder:
            return
        if self._lock.last_facts().get(_LEASE) != active.holder:
            return
        # Without the id of this driver: its lease is no reason to hold the lock yet, and another
        # standby that found the lock free would take it for dead.
        if self._lock.try_acquire(**{_LEASE: ""}):
            lease.void(active.holder)
            self._lock.release()

    def _takes_lock(self, lease: DriverLease) -> bool:
        if self._lock.try_acquire(**{_LEASE: lease.holder}):
            return True
        # A process with a lease that has lost it is frozen, or ends: it commits nothing.
        return _LEASE in self._lock.last_facts()


def ensure_leases_topic(client: ClientConfig, name: str) -> None:
    """Creates the topic of leases unless it exists.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicChangeError: if Kafka refuses the topic.
    """
    topic = Topic(
        name,
        replication=possible_replication(client),
        compaction=True,
        # Times are those of the brokers' clock, because clocks of machines may differ.
        config={"message.timestamp.type": "LogAppendTime", "segment.ms": "600000"},
    )
    ensure_topics(client, [topic])
    until_known(lambda: describe(client, [name]), [name])
