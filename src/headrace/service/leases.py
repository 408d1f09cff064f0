"""Leases: which process has which slot, as the records of a compacted topic decide.

A process has one slot at a time: of standing queries a part of their partitions, of a pipeline the
right to run it. It claims a slot with a record, and renews the claim several times in a lease. All
readers of the topic agree on which process has a slot, since they read the same records in the same
order, with the broker's timestamps: a claim counts if the slot is free at that offset, or if its
lease was last renewed longer ago than a lease lasts. A claim also counts if the broker's clock was
set back by more than that.

Leases fence nothing: a process that has lost its lease may still try to write. What it writes to
must refuse that. For standing queries the brokers do, since the instance that takes a partition
initialises the partition's transactional id, which raises the producer epoch and so fences the
earlier producer; for pipelines the sink does, since it compares positions. A consumer group would
move partitions whenever instances come and go, and each move reads the windows again (decision 35).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from headrace.events.times import TimeMs

# A slot is free if its lease was not renewed for this time: five renewals. A shorter lease would
# be lost in a failover of the brokers, and each move of a partition reads its windows again.
LEASE_MS = 5_000


@dataclass(frozen=True)
class LeaseTiming:
    """How long a lease lasts, and how its holder keeps it.

    Attributes:
        lease_ms: a slot is free if its lease was not renewed for this time.
        renew_seconds: leases are renewed at this interval.
        margin_seconds: an instance stops this long before another one may take its partitions.
        poll_seconds: one read of the leases waits this long for records.
        retry_seconds: after an error, leases are read again after this time.
        rest_seconds: an instance that has given its slot back claims no slot for this time.
        hung_seconds: an instance that shows no heartbeat for this time does not renew its lease.
            The default is that of Kafka's ``max.poll.interval.ms``.
    """

    lease_ms: int = LEASE_MS
    renew_seconds: float = 1.0
    margin_seconds: float = 1.0
    poll_seconds: float = 0.2
    retry_seconds: float = 1.0
    rest_seconds: float = 10.0
    hung_seconds: float = 300.0

    @property
    def own_seconds(self) -> float:
        """How long an instance has its partitions after the last renewal."""
        return self.lease_ms / 1000 - self.margin_seconds

    @property
    def renewals(self) -> int:
        """The renewals of one lease; a process that was frozen has sent fewer."""
        return int(self.lease_ms / 1000 / self.renew_seconds)


class Claim(msgspec.Struct, frozen=True):
    """The value of a record of the topic of leases; its key is the number of the slot.

    Attributes:
        holder: the id of an instance, new with each start.
        host: the host where the instance runs.
        is_release: whether the instance releases the slot.
        sent_ms: when the claim was sent, by the monotonic clock of its process, in milliseconds.
    """

    holder: str
    host: str
    is_release: bool = False
    sent_ms: TimeMs = 0


# Made at import: msgspec crashes where several threads are the first to decode a class.
_CLAIM = msgspec.json.Decoder(Claim)


def read_claim(key: bytes | None, value: bytes | None) -> tuple[int, Claim]:
    """Returns the slot number and the claim in a record of the topic of leases.

    Raises:
        ValueError: if the record is not a claim.
    """
    try:
        return int(key or b""), _CLAIM.decode(value or b"")
    except RecursionError as error:
        raise ValueError("JSON is nested too deep") from error


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot that an instance has.

    Attributes:
        holder: the id of the instance.
        host: the host where the instance runs.
        renewed_ms: the broker's timestamp of the last renewal, in milliseconds since 1970.
        seen: when this process sent the last renewal, or read it if another process sent it, by
            its monotonic clock, in seconds.
    """

    holder: str
    host: str
    renewed_ms: int
    seen: float


class LeaseTable:
    """The leases of the slots, as of the records that were taken.

    Args:
        slots: the number of slots.
        lease_ms: a slot is free if its lease was not renewed for this time.
    """

    def __init__(self, slots: int, lease_ms: int = LEASE_MS) -> None:
        self._slots, self._lease_ms = slots, lease_ms
        self._leases: dict[int, Lease] = {}

    def take(self, slot: int, claim: Claim, time_ms: int, now: float) -> None:
        """Takes the next record.

        Args:
            slot: the number of the slot.
            claim: the value of the record.
            time_ms: the broker's timestamp of the record, in milliseconds since 1970.
            now: when this process sent the record, or read it if another process sent it, by its
                monotonic clock, in seconds.
        """
        known = self._leases.get(slot)
        if known is not None and claim.holder == known.holder:
            if claim.is_release:
                del self._leases[slot]
            else:
                self._leases[slot] = replace(known, renewed_ms=time_ms, seen=now)
        elif not claim.is_release and (
            known is None or abs(time_ms - known.renewed_ms) > self._lease_ms
        ):
            self._leases[slot] = Lease(claim.holder, claim.host, time_ms, now)

    def of(self, holder: str) -> tuple[int, Lease] | None:
        """Returns the slot of an instance and its lease, or ``None`` if it has no slot."""
        return next(
            ((s, lease) for s, lease in self._leases.items() if lease.holder == holder), None
        )

    def lease(self, slot: int) -> Lease | None:
        """Returns the lease of a slot, or ``None`` if the slot is free."""
        return self._leases.get(slot)

    def free(self, now: float) -> list[int]:
        """Returns the slots that no instance has, or whose lease has expired by this clock.

        The broker's timestamps decide: a claim that is too early does not count, and is repeated.

        Args:
            now: the monotonic clock of this process, in seconds.
        """
        seconds = self._lease_ms / 1000
        return [
            slot
            for slot in range(self._slots)
            if (lease := self._leases.get(slot)) is None or now - lease.seen > seconds
        ]


class OwnLease:
    """What a process knows of its own lease: the table as far as it has read, and its clock.

    Args:
        holder: its id in the leases.
        slots: the number of slots.
        timing: of the leases.
    """

    def __init__(self, holder: str, slots: int, timing: LeaseTiming) -> None:
        self.holder, self._slots, self._timing = holder, slots, timing
        self.term = 0
        """How often it has got a slot: with another number, it had none in between."""
        self.read_again()

    def read_again(self) -> None:
        """Forgets what it knows: the topic is read from its start."""
        self.table, self.at_end = LeaseTable(self._slots, self._timing.lease_ms), False

    def take(self, slot: int, claim: Claim, time_ms: int, now: float) -> None:
        """Takes the next record, as :meth:`LeaseTable.take`."""
        # A process that was frozen reads its old renewals late, so the time of sending counts.
        seen = claim.sent_ms / 1000 if claim.holder == self.holder else now
        had_slot = self.own is not None
        self.table.take(slot, claim, time_ms, seen)
        if not had_slot and self.own is not None:
            self.term += 1

    @property
    def own(self) -> tuple[int, Lease] | None:
        """Returns its slot and lease, as far as it has read."""
        return self.table.of(self.holder)

    def slot(self, now: float) -> int | None:
        """Returns its slot; ``None`` if it has no valid lease at a time of its monotonic clock."""
        own = self.own
        # Before the end is read, an unread record may have given the slot to another process.
        if not self.at_end or own is None:
            return None
        return None if now - own[1].seen > self._timing.own_seconds else own[0]

    def has_lost(self, term: int) -> bool:
        """Returns whether another process may have had the slot that it got with ``term``.

        False while the leases are read again: an unread renewal may say that it is still its own.
        """
        return self.at_end and (self.own is None or self.term != term)
