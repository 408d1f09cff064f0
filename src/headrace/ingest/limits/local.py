"""Rate limits shared by the workers of a host."""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Callable, Container, Sequence
from pathlib import Path

from headrace.ingest.limits.bucket_request import BucketRequest, Limiter
from headrace.ingest.mapped_file import map_file, open_shared
from headrace.runtime.files.file_locks import FileLock

_SLOT = struct.Struct("=16sd")
_SLOTS = 1 << 16  # 1.5 MiB; buckets that are refilled free their slots
_PROBES = 32  # bounds the time under the lock when the table is nearly full
_WAIT_WHEN_FULL_SECONDS = 1.0
_ROUNDING_SECONDS = 1e-9  # sums of floating-point numbers may be late by less


class LocalLimiter(Limiter):
    """Buckets in a file that every worker of the host maps: exact over all of them.

    A bucket is one number: the time at which it will be full again (the "theoretical arrival
    time" of the generic cell rate algorithm, ITU-T I.371).

    A worker may be killed at any instruction: the lock is the kernel's, and each number is written
    at once. Where no slot is left for a new bucket, its charge must wait. The clock starts over
    with the machine, so the file must not outlive the service.

    Raises:
        IngestStateError: if the file can't be made, or the disk has no room for it.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._file = open_shared(file)
        # Held for microseconds by processes that hold nothing else: the loop may wait for it.
        self._lock = FileLock(self._file)
        self._map = map_file(self._file, file, _SLOTS * _SLOT.size)

    async def acquire(self, charges: Sequence[BucketRequest]) -> float:
        if not charges:
            return 0.0
        with self._lock:
            wait, slots = self._evaluate(charges, self._clock())
            if wait > _ROUNDING_SECONDS:
                return wait
            self._store(slots)
        return 0.0

    def record_external(self, charges: Sequence[BucketRequest]) -> None:
        """Takes what Redis has admitted, as a debt where less is left."""
        with self._lock:
            _, slots = self._evaluate(charges, self._clock())
            self._store(slots)

    async def close(self) -> None:
        self._map.close()
        os.close(self._file)

    def _evaluate(
        self, charges: Sequence[BucketRequest], now: float
    ) -> tuple[float, dict[int, tuple[bytes, float]]]:
        """Returns the seconds to wait, and what the slots hold once the charges are taken."""
        slots: dict[int, tuple[bytes, float]] = {}
        wait = 0.0
        for charge in charges:
            name = hashlib.blake2b(charge.bucket.encode(), digest_size=16).digest()
            place = self._slot(name, now, slots)
            if place is None:
                wait = max(wait, _WAIT_WHEN_FULL_SECONDS)
                continue
            holder, full_at = _SLOT.unpack_from(self._map, place)
            # A bucket that is not in the table is full.
            full_at = max(full_at, now) if holder == name else now
            needed = charge.amount / charge.per_second
            # A charge larger than the bucket waits until the bucket is full, and then leaves a
            # debt.
            wait = max(wait, full_at + min(needed - charge.burst_seconds, 0.0) - now)
            slots[place] = name, full_at + needed
        return wait, slots

    def _store(self, slots: dict[int, tuple[bytes, float]]) -> None:
        for place, slot in slots.items():
            _SLOT.pack_into(self._map, place, *slot)

    def _slot(self, name: bytes, now: float, taken: Container[int]) -> int | None:
        """Returns the slot of a bucket, or a free one; ``None`` if there is none."""
        first, free = int.from_bytes(name[:4], "big"), None
        for probe in range(_PROBES):
            place = (first + probe) % _SLOTS * _SLOT.size
            holder, full_at = _SLOT.unpack_from(self._map, place)
            if holder == name:
                return place
            # A full bucket equals a new one, so its slot is free.
            if free is None and full_at <= now and place not in taken:
                free = place
        return free
