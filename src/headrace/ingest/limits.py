"""Rate limits shared by the workers of a host."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

_SLOT = struct.Struct("=16sd")
_SLOTS = 1 << 16
_PROBES = 32
_WAIT_WHEN_FULL_SECONDS = 1.0
_ROUNDING_SECONDS = 1e-9


@dataclass(frozen=True, slots=True)
class Charge:
    """So much of one bucket.

    Attributes:
        bucket: its name, such as ``account/acme/events``.
        amount: events or bytes.
        per_second: what it refills by.
        burst_seconds: what it holds, in seconds of its rate.
    """

    bucket: str
    amount: float
    per_second: float
    burst_seconds: float


class LocalLimiter:
    """Token buckets in a file that every worker of the host maps: exact over all of them.

    A bucket is one number: the time at which it will be full again (the "theoretical arrival
    time" of the generic cell rate algorithm, ITU-T I.371). A charge is taken from all its buckets
    or from none. One that is larger than a bucket is taken when that is full, and leaves a debt.
    Over any time t a bucket gives at most ``rate * (burst + t)``, and one charge more.

    A worker may be killed at any instruction: the lock is the kernel's, and each number is written
    at once. Where no slot is left for a new bucket, its charge must wait.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._file = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, _SLOTS * _SLOT.size)
        self._map = mmap.mmap(self._file, _SLOTS * _SLOT.size)

    async def take(self, charges: Sequence[Charge]) -> float:
        """0.0 when all of it was taken, otherwise the seconds after which to try again."""
        if not charges:
            return 0.0
        # Held for microseconds, by processes that hold nothing else.
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            return self._take(charges, self._clock())
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Lets go of the file."""
        self._map.close()
        os.close(self._file)

    def _take(self, charges: Sequence[Charge], now: float) -> float:
        taken: dict[int, tuple[bytes, float]] = {}
        wait = 0.0
        for charge in charges:
            name = hashlib.blake2b(charge.bucket.encode(), digest_size=16).digest()
            place = self._slot(name, now, taken)
            if place is None:
                return _WAIT_WHEN_FULL_SECONDS
            holder, full_at = _SLOT.unpack_from(self._map, place)
            full_at = max(full_at, now) if holder == name else now
            needed = charge.amount / charge.per_second
            wait = max(wait, full_at + min(needed - charge.burst_seconds, 0.0) - now)
            taken[place] = name, full_at + needed
        if wait > _ROUNDING_SECONDS:
            return wait
        for place, slot in taken.items():
            _SLOT.pack_into(self._map, place, *slot)
        return 0.0

    def _slot(self, name: bytes, now: float, taken: Container[int]) -> int | None:
        """Where the bucket is, or a place for a new one."""
        first, free = int.from_bytes(name[:4], "big"), None
        for probe in range(_PROBES):
            place = (first + probe) % _SLOTS * _SLOT.size
            holder, full_at = _SLOT.unpack_from(self._map, place)
            if holder == name:
                return place
            # A full bucket is as good as none.
            if free is None and full_at <= now and place not in taken:
                free = place
        return free
