"""Where events wait while Kafka is unreachable."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from headrace.errors import SpoolError, SpoolFullError
from headrace.ingest.spool.frames import framed_bytes, frames
from headrace.ingest.spool.record import SpoolRecord, encode
from headrace.ingest.spool.segment import (
    HEADER_BYTES,
    Segment,
    UnknownVersionError,
    created_ms,
    header,
    read,
    segments,
)
from headrace.ingest.spool.store import Store
from headrace.runtime.files.durable_files import write_durably

Clock = Callable[[], float]


@dataclass(frozen=True)
class SpoolLimits:
    """When a segment is followed by the next, and how much disk the spool may take.

    Attributes:
        segment_bytes: a segment grows to this; one append may pass it. Read whole after a crash.
        segment_age: a segment is appended to for so long at most.
        budget_bytes: size of all segments and quarantined files together.
    """

    segment_bytes: int = 16 << 20
    segment_age: timedelta = timedelta(minutes=1)
    budget_bytes: int = 1 << 30


@dataclass(frozen=True)
class SpoolStats:
    """What the spool holds.

    Attributes:
        records: records that wait to be replayed.
        bytes: size of the segments that they are in.
        budget_bytes: what the segments and the quarantined files may take together.
        oldest_age: since the oldest of these segments was created.
        quarantined: files that wait for an operator.
        missing: records that were ever lost: damaged, or deleted with their file.
        rejected: records that were ever quarantined because Kafka rejects them.
    """

    records: int
    bytes: int
    budget_bytes: int
    oldest_age: timedelta
    quarantined: int
    missing: int
    rejected: int


class Spool:
    """A write-ahead log on local disk, shared by all worker processes of a host.

    One object per process, made after a fork; its methods may be called from any thread, and
    block. Appends of all processes follow each other under a lock that a killed process gives
    back, each record with the next counter.

    A crash loses nothing that ``append`` returned for. What it did not return for is unknown: a
    process that is killed, or a disk that fails twice, may leave records that are still replayed,
    all of an append or none.

    Order per key: records sent straight to Kafka while none are pending, and through ``append``
    or ``append_if_pending`` otherwise, arrive in the order of their acknowledgements.
    """

    def __init__(self, folder: Path, limits: SpoolLimits, clock: Clock = time.time) -> None:
        """Creates the folder unless it exists.

        Raises:
            SpoolError: if it can't be made or read.
        """
        self._limits, self._clock = limits, clock
        self.store = Store(folder)

    @property
    def pending(self) -> bool:
        """Records of any worker of this host wait to be replayed. No lock, no system call."""
        return self.store.state.pending

    @property
    def waiting(self) -> int:
        """How many records wait to be replayed."""
        return self.store.state.written - self.store.state.loaded

    @property
    def is_full(self) -> bool:
        """Less than a hundredth of the budget is left. No lock, no system call."""
        return self.store.state.disk_bytes > self._limits.budget_bytes * 0.99

    def append(self, records: Sequence[SpoolRecord]) -> None:
        """Returns once all records are on the disk: one write and one fsync.

        Raises:
            SpoolFullError: if the budget is used up; nothing was written.
            SpoolError: if the disk failed; the records are not replayed unless undoing failed too.
        """
        payloads = [encode(record) for record in records]
        if payloads:
            with self.store.exclusive():
                self._append(payloads)

    def append_if_pending(self, records: Sequence[SpoolRecord]) -> bool:
        """Appends if records are pending; if not, writes nothing and answers ``False``.

        ``False`` means that all that was ever acknowledged from the spool is in Kafka, so these
        may go straight to it. Without this the spool would never be empty under load: those who
        waited for the loader's last batch would refill it.

        Raises:
            SpoolFullError, SpoolError: as ``append``.
        """
        if not self.pending:
            return False
        # Encoded before the lock is taken, which all processes of the host wait for.
        payloads = [encode(record) for record in records]
        with self.store.exclusive():
            # Rechecked under the lock: the loader may have sent the last of them meanwhile.
            if not self.waiting:
                return False
            if payloads:
                self._append(payloads)
        return True

    def stats(self) -> SpoolStats:
        """Reads the folder for what the spool holds, such as for ``/metrics``.

        Raises:
            SpoolError: if it can't be read.
        """
        with self.store.exclusive():
            # Under the lock, so that the files and the counters belong together.
            held = segments(self.store.folder) if self.pending else []
            paths = [self.store.path(segment) for segment in held]
            cursor = self.store.cursor_file.read()
            return SpoolStats(
                records=self.waiting,
                bytes=sum(path.stat().st_size for path in paths),
                budget_bytes=self._limits.budget_bytes,
                oldest_age=self._age(paths[0]) if paths else timedelta(),
                quarantined=len(list(self.store.quarantine.iterdir())),
                missing=cursor.missing,
                rejected=cursor.rejected,
            )

    def close(self) -> None:
        """Closes the files of the folder. Nothing is lost by not calling it."""
        self.store.close()

    def _append(self, payloads: Sequence[bytes]) -> None:
        state, created = self.store.state, self._now_ms()
        current = self._current(framed_bytes(payloads))
        segment = current or self.store.next_segment()
        content = frames(payloads, segment.marker, state.written)
        if current is None:
            content = header(created) + content
        held, budget = state.disk_bytes, self._limits.budget_bytes
        if held + len(content) > budget:
            reason = f"{held} of {budget} bytes are used, {len(content)} are needed"
            raise SpoolFullError(str(self.store.folder), reason)
        # A process that is killed from here on leaves 0: the next one that locks the spool finds
        # the state again from the files.
        state.settled = 0
        start = state.end if current else 0
        self._write(segment, content, start)
        if current is None:
            state.number, state.first, state.marker = segment.number, segment.first, segment.marker
            state.created_ms = created
        state.end = start + len(content)
        state.disk_bytes += len(content)
        # Last, for readers take no lock: what they see below `written` is on the disk.
        state.advance(state.written + len(payloads))
        state.settled = 1

    def _write(self, segment: Segment, content: bytes, start: int) -> None:
        path = self.store.path(segment)
        try:
            write_durably(path, content, start)
        except OSError as error:
            # Where even the undoing failed, what is left lies at or above the first counter of the
            # next segment, and so is never replayed.
            self.store.seal()
            self.store.state.settled = 1
            raise SpoolError(str(self.store.folder), str(error)) from error

    def _current(self, more_bytes: int) -> Segment | None:
        """Returns the segment that takes ``more_bytes``; ``None`` if it takes a new one."""
        segment, state = self.store.current(), self.store.state
        if segment is None:
            return None
        age = timedelta(milliseconds=self._now_ms() - state.created_ms)
        full = state.end + more_bytes > self._limits.segment_bytes
        return (
            None if full or age >= self._limits.segment_age or self._altered(segment) else segment
        )

    def _altered(self, segment: Segment) -> bool:
        """Returns whether something other than headrace removed or changed the file."""
        try:
            return self.store.path(segment).stat().st_size != self.store.state.end
        except FileNotFoundError:
            return True

    def _age(self, path: Path) -> timedelta:
        try:
            created = created_ms(read(path, 0, HEADER_BYTES))
        except UnknownVersionError:
            created = None
        age = 0 if created is None else self._now_ms() - created
        # The clock may have been set back since.
        return timedelta(milliseconds=max(0, age))

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
