"""Replays the spool into Kafka."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.ingest.spool.cursor import SpoolCursor
from headrace.ingest.spool.quarantine import (
    quarantine_ranges,
    quarantine_rejected,
    quarantine_segment,
)
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.segment import (
    ReadableSegment,
    SegmentReader,
    SpoolBatch,
    UnknownVersionError,
)
from headrace.ingest.spool.spool import Spool
from headrace.runtime.files.file_locks import FileLock, open_lock_file
from headrace.runtime.retrying import exponential_backoff

_LOG = logging.getLogger("headrace.ingest.spool")
_MAX_RECORDS = 1000  # a crash repeats one batch at most
_POLL_SECONDS = 0.2
_MAX_DELAY_SECONDS = 5.0  # how late a recovery of Kafka may be noticed
_SEND_SECONDS = 30.0
_LOCKED_SEND_SECONDS = 3.0  # requests wait for the lock meanwhile


@dataclass(frozen=True)
class SendResult:
    """Kafka's answers for records: each was taken, rejected or waits.

    Attributes:
        rejected: why Kafka will never take them, by their places in what was sent, from 0.
        waiting: places of those that must be repeated, in order.
        reason: why they wait.
    """

    rejected: Mapping[int, str] = field(default_factory=dict)
    waiting: Sequence[int] = ()
    reason: str = ""


Send = Callable[[Sequence[SpoolRecord], float], SendResult]


class NotSentError(Exception):
    """Kafka did not take all records; they stay in the spool."""


@dataclass
class LoadReport:
    """What one call of :meth:`Loader.run_once` did.

    Attributes:
        records: records that were replayed.
        missing: counters that no record came for: damaged, or deleted with their file.
        quarantined: damaged ranges and whole segments that were quarantined.
        rejected: records quarantined because Kafka rejects them permanently.
        standby: another loader of this host is active; nothing was done.
    """

    records: int = 0
    missing: int = 0
    quarantined: int = 0
    rejected: int = 0
    standby: bool = False


class Loader:
    """Replays the spool in the order of its counters. It is used from one thread.

    Any number may exist on a host: one works, the others stand by until it is closed or killed.
    Its cursor is kept durably after every batch, so a crash repeats the last batch at most, and
    so does a ``send`` that raises. What Kafka rejects permanently is quarantined with the reason.

    ``send(records, seconds)`` is called with up to 1,000 records, in order, and returns after about
    ``seconds`` at most. The next call has those that wait, before any that follow them.
    The last batches are sent while the spool's lock is held: no process can append meanwhile, so
    ``send`` must not append to the spool.
    """

    def __init__(self, spool: Spool, send: Send) -> None:
        self._spool, self._store, self._send = spool, spool.store, send
        self._lock = -1
        self._cursor = SpoolCursor()
        self._reader: SegmentReader | None = None
        self._batch = SpoolBatch()
        self._report = LoadReport()
        self._failure: Exception | None = None

    def run_once(self) -> LoadReport:
        """Replays the records that wait, and returns.

        Raises:
            SpoolError: if the disk failed.
            NotSentError: if records wait that Kafka did not take.
            Exception: whatever ``send`` raises; what was not acknowledged stays in the spool.
        """
        self._failure = None
        with self._store.failing():
            if not self._leading():
                return LoadReport(standby=True)
            self._report = LoadReport()
            # Sent, but the disk failed before that was noted: it must not be sent twice.
            if self._batch.end and not self._batch.records:
                self._advance(self._batch)
            while self._deliver(self._next(), _SEND_SECONDS) and self._spool.waiting > _MAX_RECORDS:
                pass
            if self._failure is None:
                self._drain()
        if self._failure is not None:
            raise self._failure
        return self._report

    def run(self, stop: threading.Event) -> None:
        """Replays whatever comes until ``stop`` is set. Failures are logged and retried."""
        delays = exponential_backoff(_POLL_SECONDS, _MAX_DELAY_SECONDS)
        while not stop.is_set():
            delay = next(delays)
            try:
                report = self.run_once()
                delay = _POLL_SECONDS
                delays = exponential_backoff(_POLL_SECONDS, _MAX_DELAY_SECONDS)
                if report.records:
                    _LOG.info(
                        "Sent %d events of the spool, %d wait", report.records, self._spool.waiting
                    )
            except NotSentError as error:
                _LOG.warning("%d events wait in the spool: %s", self._spool.waiting, error)
            except Exception:  # noqa: BLE001 - a dead loader would hold the events back until a restart
                _LOG.exception("Replaying the spool failed, retrying in %.1f s", delay)
            stop.wait(delay)

    def close(self) -> None:
        """Gives the lock back, so that another loader can work."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _leading(self) -> bool:
        if self._lock >= 0:
            return True
        lock = open_lock_file(self._store.loader_lock, 0o600)
        if not FileLock(lock).try_acquire():
            os.close(lock)
            return False
        try:
            # The last loader may have been killed before it noted in the state where it was.
            with self._store.exclusive():
                # Segments below it are deleted now, and a power failure must not take it back.
                self._store.cursor_file.sync()
                cursor = self._store.cursor_file.read()
                self._cursor = cursor.at(max(cursor.counter, self._store.state.loaded))
                self._store.state.loaded = self._cursor.counter
        except BaseException:
            os.close(lock)  # the process that leads must know the cursor
            raise
        self._lock = lock
        return True

    def _drain(self) -> None:
        """Sends the last records while no process can append; afterwards the spool is empty.

        Only right after Kafka took a batch: appenders wait meanwhile, which in an outage could be
        long.
        """
        with self._store.exclusive():
            while batch := self._next():
                if not (self._report.records and self._deliver(batch, _LOCKED_SEND_SECONDS)):
                    return
            if self._reader is not None:
                self._finish(self._reader)
            self._batch = SpoolBatch(end=self._store.state.written)
            self._advance(self._batch)

    def _next(self) -> Sequence[SpoolRecord]:
        """Returns the records to send next; none when nothing more can be read now."""
        while not self._batch.records:
            with self._store.exclusive():
                readable = self._store.oldest()
            if readable is None:
                break
            reader = self._reading(readable)
            if reader is None:
                continue
            self._batch = reader.batch(readable, self._cursor.counter, _MAX_RECORDS)
            # A segment that grows may get further records: only `_drain`, under the lock, finishes
            # it.
            if self._batch.records or readable.growing:
                break
            self._finish(reader)
        return self._batch.records

    def _reading(self, readable: ReadableSegment) -> SegmentReader | None:
        """Returns the reader of a segment; ``None`` if it was quarantined as a whole."""
        if self._reader is None or self._reader.segment != readable.segment:
            path = self._store.path(readable.segment)
            try:
                self._reader = SegmentReader(path, readable.segment)
            except UnknownVersionError as error:
                _LOG.error("Quarantined the whole segment %s: %s", path.name, error)
                self._report.quarantined += 1
                quarantine_segment(path, self._store.quarantine)
                return None
        return self._reader

    def _deliver(self, records: Sequence[SpoolRecord], seconds: float) -> bool:
        """Returns whether there were records, and none of them waits any more."""
        if not records:
            return False
        batch = self._batch
        try:
            outcome = self._send(records, seconds)
        except Exception as failure:  # noqa: BLE001 - re-raised once the spool's lock is free
            self._failure = failure
            return False
        batch.settle(outcome.rejected, outcome.waiting)
        if batch.records:
            self._failure = NotSentError(outcome.reason)
            return False
        self._advance(batch)
        return True

    def _advance(self, batch: SpoolBatch) -> None:
        """Moves the cursor past a batch: what Kafka did not take is quarantined, or missing.

        The quarantine comes first: a crash between the two repeats a file, and loses no record.
        """
        if batch.rejected:
            reason = batch.rejected[0].reason
            _LOG.error("Quarantined %d events rejected by Kafka: %s", len(batch.rejected), reason)
            quarantine_rejected(batch.path, batch.rejected, self._store.quarantine)
        cursor = self._cursor.after(batch.end, batch.taken, len(batch.rejected))
        missing = cursor.missing - self._cursor.missing
        if missing:
            _LOG.error(
                "%d records below counter %d of the spool are lost: damaged, or deleted",
                missing,
                batch.end,
            )
        if cursor.counter > self._cursor.counter:
            self._store.cursor_file.write(cursor)
            self._cursor = cursor
            self._report.records += batch.taken
            self._report.rejected += len(batch.rejected)
            self._report.missing += missing
        self._batch = SpoolBatch()
        with self._store.exclusive():
            self._store.state.loaded = batch.end

    def _finish(self, reader: SegmentReader) -> None:
        """Removes a segment of which everything is in Kafka or in the quarantine."""
        self._reader = None
        if reader.damages:
            _LOG.error("Quarantined %d damaged ranges of %s", len(reader.damages), reader.path.name)
            self._report.quarantined += len(reader.damages)
            quarantine_ranges(reader.path, reader.damages, self._store.quarantine)
        with self._store.exclusive():
            self._store.remove(reader.segment)
