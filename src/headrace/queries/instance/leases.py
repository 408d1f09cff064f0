"""Which instance has which partitions: leases in a compacted topic, whose order decides.

The partitions are divided into slots, and an instance has one slot for life. It claims a slot with
a record, and renews the claim every second. All who read the topic know who has a slot, since they
read the same records in the same order, with the broker's times: a claim counts if the slot is free
at that place in the log, or its lease was renewed more than five seconds before. So it does where
the broker's clock was set back by more than that.

Leases fence nothing: an instance that has lost one may still write. The brokers refuse that, since
the instance that takes a partition initialises the partition's transactional id, which raises the
epoch of its producer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from headrace.queries.records.decoding import decode_json

LEASE_MS = 5_000
RENEW_SECONDS = 1.0


class Claim(msgspec.Struct, frozen=True):
    """The value of a record of the topic of leases; its key is the number of the slot.

    Attributes:
        holder: id of an instance, new with each start.
        host: where it runs.
        is_release: it gives the slot back.
        sent_ms: when it was sent, by the monotonic clock of its process.
    """

    holder: str
    host: str
    is_release: bool = False
    sent_ms: int = 0


# Made at import: msgspec crashes where several threads are the first to decode a class.
_CLAIM = msgspec.json.Decoder(Claim)


def read_claim(key: bytes | None, value: bytes | None) -> tuple[int, Claim]:
    """Returns the number of the slot, and the claim, of a record of the topic of leases.

    Raises:
        ValueError: if it is no such record.
    """
    return int(key or b""), decode_json(_CLAIM, value or b"")


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot that an instance has.

    Attributes:
        holder: id of the instance.
        host: where it runs.
        renewed_ms: broker's time of the last renewal, in milliseconds since 1970.
        seen: when this process sent the last renewal, or read it if it is of another, by its
            monotonic clock, in seconds.
    """

    holder: str
    host: str
    renewed_ms: int
    seen: float


class LeaseTable:
    """The slots, as the records of the topic say so far.

    Args:
        slots: how many there are.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._leases: dict[int, Lease] = {}

    def take(self, slot: int, claim: Claim, time_ms: int, now: float) -> None:
        """Takes the next record.

        Args:
            slot: number of the slot.
            claim: value of the record.
            time_ms: the broker's time of the record, in milliseconds since 1970.
            now: when this process sent the record, or read it, by its monotonic clock, in seconds.
        """
        known = self._leases.get(slot)
        if known is not None and claim.holder == known.holder:
            if claim.is_release:
                del self._leases[slot]
            else:
                self._leases[slot] = replace(known, renewed_ms=time_ms, seen=now)
        elif not claim.is_release and (known is None or abs(time_ms - known.renewed_ms) > LEASE_MS):
            self._leases[slot] = Lease(claim.holder, claim.host, time_ms, now)

    def of(self, holder: str) -> tuple[int, Lease] | None:
        """Returns the slot of an instance and its lease; None: it has none."""
        return next(((s, each) for s, each in self._leases.items() if each.holder == holder), None)

    def lease(self, slot: int) -> Lease | None:
        """Returns the lease of a slot."""
        return self._leases.get(slot)

    def free(self, now: float) -> list[int]:
        """Returns the slots that no instance has, or whose lease is about to be over.

        A claim that comes too early does not count, and is made again.

        Args:
            now: the monotonic clock of this process, in seconds.
        """
        return [
            slot
            for slot in range(self._slots)
            if (lease := self._leases.get(slot)) is None or now - lease.seen > LEASE_MS / 1000
        ]


def slots_of(partitions: int, per_instance: int | None) -> list[range]:
    """Returns the partitions of each slot.

    Args:
        partitions: how many there are.
        per_instance: how many of them an instance has; None: all.
    """
    size = per_instance or partitions
    return [range(at, min(at + size, partitions)) for at in range(0, partitions, size)]
