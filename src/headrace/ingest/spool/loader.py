"""From the spool to Kafka."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.ingest.spool.quarantine import set_aside, set_aside_whole
from headrace.ingest.spool.reader import Batch, SegmentReader
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.segment import UnknownVersionError
from headrace.ingest.spool.spool import Spool
from headrace.ingest.spool.store import Readable

_LOG = logging.getLogger("headrace.ingest.spool")
_MOST_RECORDS = 1000
_POLL_SECONDS = 0.2
_LONGEST_DELAY_SECONDS = 5.0

Send = Callable[[Sequence[SpoolRecord]], None]


@dataclass
class LoadReport:
    """What one run did.

    Attributes:
        records: replayed.
        missing: counters that no record came for: damaged, or gone with their file.
        quarantined: stretches and segments set aside.
        standby: another loader of this host is at work; nothing was done.
    """

    records: int = 0
    missing: int = 0
    quarantined: int = 0
    standby: bool = False


class Loader:
    """Replays the spool in the order of its counters. Used from one thread.

    Any number may exist on a host: one works, the others stand by until it is closed or killed.
    Its place is kept durably after every batch, so a crash repeats the last batch at most, and
    so does a ``send`` that raises.

    ``send(records)`` is called with up to 1,000 records, in order. It returns once Kafka has
    acknowledged all of them and raises otherwise; it is then called with the same records again.
    The last batches are sent while the spool's lock is held: nobody can append meanwhile, so
    ``send`` must end within a bounded time and must not append to the spool.
    """

    def __init__(self, spool: Spool, send: Send) -> None:
        self._spool, self._store, self._send = spool, spool.store, send
        self._lock = -1
        self._position = self._missing = 0
        self._reader: SegmentReader | None = None
        self._batch = Batch()
        self._report = LoadReport()
        self._failure: Exception | None = None

    def run_once(self) -> LoadReport:
        """Replays what is there and returns.

        Raises:
            SpoolError: the disk failed.
            Exception: whatever ``send`` raises; what was not acknowledged stays in the spool.
        """
        self._failure = None
        with self._store.failing():
            if not self._leading():
                return LoadReport(standby=True)
            self._report = LoadReport()
            while self._deliver(self._next()) and self._spool.waiting > _MOST_RECORDS:
                pass
            if self._failure is None:
                self._drain()
        if self._failure is not None:
            raise self._failure
        return self._report

    def run(self, stop: threading.Event) -> None:
        """Replays whatever comes until ``stop`` is set. Failures are logged and tried again."""
        delay = _POLL_SECONDS
        while not stop.is_set():
            try:
                self.run_once()
                delay = _POLL_SECONDS
            except Exception:  # noqa: BLE001 - a dead loader would hold the events back until a restart
                _LOG.exception("replaying the spool failed; again in %.1f s", delay)
                delay = min(2 * delay, _LONGEST_DELAY_SECONDS)
            stop.wait(delay)

    def close(self) -> None:
        """Lets another loader work."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _leading(self) -> bool:
        if self._lock >= 0:
            return True
        lock = os.open(self._store.folder / "loader.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        self._take_over()
        return True

    def _take_over(self) -> None:
        """Goes on where the last loader was, which may have been killed before it could say so."""
        with self._store.exclusive():
            position, self._missing = self._store.position.read()
            self._position = max(position, self._store.state.loaded)
            self._store.state.loaded = self._position

    def _drain(self) -> None:
        """The last records, while nobody can append: afterwards the spool is empty.

        Only right after Kafka took a batch: with Kafka away, appenders would wait for it.
        """
        with self._store.exclusive():
            while batch := self._next():
                if not (self._report.records and self._deliver(batch)):
                    return
            if self._reader is not None:
                self._finish(self._reader)
            self._advance(self._store.state.written, 0)

    def _next(self) -> Sequence[SpoolRecord]:
        """The batch to send; none: nothing more is readable now."""
        while not self._batch.records:
            with self._store.exclusive():
                readable = self._store.oldest()
            if readable is None:
                break
            reader = self._reading(readable)
            if reader is None:
                continue
            self._batch = reader.batch(readable, self._position, _MOST_RECORDS)
            if self._batch.records or readable.growing:
                break
            self._finish(reader)
        return self._batch.records

    def _reading(self, readable: Readable) -> SegmentReader | None:
        """The reader of a segment; ``None`` when it was set aside as a whole."""
        if self._reader is None or self._reader.segment != readable.segment:
            path = self._store.path(readable.segment)
            try:
                self._reader = SegmentReader(path, readable.segment)
            except UnknownVersionError as error:
                _LOG.error("%s is set aside: %s", path.name, error)
                self._report.quarantined += 1
                set_aside_whole(path, self._store.quarantine)
                return None
        return self._reader

    def _deliver(self, records: Sequence[SpoolRecord]) -> bool:
        """Whether there were records and Kafka took them."""
        if not records:
            return False
        try:
            self._send(records)
        except Exception as failure:  # noqa: BLE001 - raised again once the spool's lock is free
            self._failure = failure
            return False
        self._advance(self._batch.end, len(records))
        return True

    def _advance(self, end: int, records: int) -> None:
        missing = end - self._position - records
        if missing:
            _LOG.error("%d records are missing below counter %d of the spool", missing, end)
        if end > self._position:
            self._store.position.write(end, self._missing + missing)
            self._position, self._missing = end, self._missing + missing
            self._batch = Batch()
            self._report.records += records
            self._report.missing += missing
        with self._store.exclusive():
            self._store.state.loaded = end

    def _finish(self, reader: SegmentReader) -> None:
        """All of a segment is in Kafka."""
        self._reader = None
        if reader.damages:
            _LOG.error("%d damaged stretches of %s", len(reader.damages), reader.path.name)
            self._report.quarantined += len(reader.damages)
            set_aside(reader.path, reader.damages, self._store.quarantine)
        with self._store.exclusive():
            self._store.remove(reader.segment)
