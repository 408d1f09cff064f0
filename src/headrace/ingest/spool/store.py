"""The spool's folder: one lock, the shared state, the segments."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import SpoolError
from headrace.ingest.spool.cursor import FIRST_COUNTER, CursorFile
from headrace.ingest.spool.frames import Frame, scan
from headrace.ingest.spool.segment import HEADER_BYTES, ReadableSegment, Segment, segments
from headrace.ingest.spool.state import SpoolState
from headrace.runtime.files.durable_files import make_private_folder, sync_file, sync_folder
from headrace.runtime.files.file_locks import FileLock, open_lock_file


class Store:
    """What appenders and the loader share. Every method but ``exclusive`` needs the lock.

    Raises:
        SpoolError: if the folder can't be made, locked or read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.quarantine = folder / "quarantine"
        self.loader_lock = folder / "loader.lock"
        self._threads = threading.RLock()
        self._depth = 0
        with self.failing(), contextlib.ExitStack() as opened:
            make_private_folder(folder)
            make_private_folder(self.quarantine)
            self._lock_file = open_lock_file(folder / "lock", 0o600)
            opened.callback(os.close, self._lock_file)
            self._lock = FileLock(self._lock_file)
            with self._locked():
                self.cursor_file = CursorFile(folder / "position")
                self.state = SpoolState(folder / "state")
                opened.callback(self.state.close)
                self._recover()
            opened.pop_all()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keeps every other process and thread out of the folder. A thread may enter it twice."""
        with self._threads, self.failing(), self._locked():
            if not self.state.settled:
                self._recover()
            yield

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Raises errors of the operating system as SpoolError."""
        try:
            yield
        except OSError as error:
            raise SpoolError(str(self.folder), str(error)) from error

    def path(self, segment: Segment) -> Path:
        """Returns the path of its file."""
        return self.folder / segment.name

    def oldest(self) -> ReadableSegment | None:
        """Returns the segment to replay first."""
        existing = segments(self.folder)
        if not existing:
            return None
        segment = existing[0]
        limit = existing[1].first if len(existing) > 1 else self.state.written
        if segment == self.current():
            return ReadableSegment(segment, self.state.end, limit, growing=True)
        return ReadableSegment(segment, self.path(segment).stat().st_size, limit, growing=False)

    def current(self) -> Segment | None:
        """Returns the segment that is appended to."""
        state = self.state
        return Segment(state.first, state.number, state.marker) if state.number else None

    def next_segment(self) -> Segment:
        """Returns the segment that the next append creates."""
        existing = segments(self.folder)
        number = 1 + max((segment.number for segment in existing), default=0)
        return Segment.new(self.state.written, number)

    def seal(self) -> None:
        """Ends the current segment: the next append creates another."""
        self.state.number = 0

    def remove(self, segment: Segment) -> None:
        """Removes a segment. All of it is replayed, durably: should it come back, it is skipped."""
        if segment == self.current():
            self.seal()  # before the file goes: nothing may be appended to a file without a name
        self.path(segment).unlink(missing_ok=True)
        self.count_bytes()

    def count_bytes(self) -> None:
        """Computes ``disk_bytes`` from the files."""
        kept = [self.path(segment) for segment in segments(self.folder)]
        self.state.disk_bytes = sum(
            path.stat().st_size for path in (*kept, *self.quarantine.iterdir())
        )

    def close(self) -> None:
        """Closes the folder. Nothing is lost by not calling it."""
        self.state.close()
        os.close(self._lock_file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # A thread that is inside already must not leave the lock before its outermost exit.
        with contextlib.nullcontext() if self._depth else self._lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def _recover(self) -> None:
        """Finds the state from the files alone; changes none of them.

        What an unfinished append left is not cut: the next append starts a segment whose first
        counter is where the acknowledged records end, and so says where they end.
        """
        existing, state = segments(self.folder), self.state
        replayed = self.cursor_file.read().counter
        # No counter may be used twice, even if the segments were deleted.
        written = max(FIRST_COUNTER, replayed, state.verified_end_counter)
        if existing:
            written = max(written, self._end_counter(existing[-1]))
        state.settled = 0
        # After what an unfinished append may have left, nothing is appended.
        self.seal()
        state.advance(written)
        state.loaded = replayed or (existing[0].first if existing else written)
        self.count_bytes()
        state.settled = 1

    def _end_counter(self, segment: Segment) -> int:
        """Returns the counter after the last append that is complete."""
        path = self.path(segment)
        # A killed process may have written what it did not sync: from here on it counts as
        # acknowledged, so a power failure must not take it back.
        sync_file(path)
        sync_folder(self.folder)
        content = path.read_bytes()
        end = segment.first
        for item in scan(content, segment.marker, HEADER_BYTES):
            if isinstance(item, Frame) and item.end + item.bytes_left <= len(content):
                end = item.counter + item.records_left + 1
        return end
