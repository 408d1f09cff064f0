"""The load: batches of lines into a destination, each line once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from headrace.errors import CounterReusedError, SinkError
from headrace.offline_files.destination import Destination, UnknownCommitStateError
from headrace.offline_files.entry import (
    Entry,
    RejectedEntry,
    digest,
    is_whole,
    read_counter,
    read_line,
)
from headrace.offline_files.files import (
    End,
    FileIdentity,
    Line,
    OfflineFile,
    read_file,
)
from headrace.offline_files.progress import LoadProgress

MAX_BATCH_BYTES = 16 * 1024 * 1024  # of memory, and of one transaction, however long lines are


@dataclass
class LoadStats:
    """What a load has done so far.

    When it has ended, each line is in one of ``loaded``, ``dead``, ``skipped``, ``left``.

    Attributes:
        files: how many were read, ``file`` being the last.
        lines: that are not blank.
        loaded: by table.
        dead: dead letters by reason.
        skipped: done before, by an earlier load or in another file.
        left: the half-written end of the newest file.
        backwards: lines whose counter is lower than that of a line before: files out of order.
        retries: batches that were retried.
        of_files: the number of files.
        done: what is done, as the destination has it.
    """

    files: int = 0
    file: str = ""
    lines: int = 0
    loaded: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    left: int = 0
    backwards: int = 0
    retries: int = 0
    of_files: int = 0
    done: LoadProgress = field(default_factory=lambda: LoadProgress(""))


@dataclass(frozen=True, slots=True)
class DoneFile:
    """A file whose lines are done, as it was when it was opened.

    Attributes:
        path: where it was.
        identity: of its content.
        newest: it was the newest, to which another process may still append.
        left: lines at its end that were half written.
        is_damaged: a part of it could not be read, and is nowhere else.
    """

    path: Path
    identity: FileIdentity
    newest: bool
    left: int
    is_damaged: bool

    @property
    def is_whole(self) -> bool:
        """Returns whether nothing of it is left to load."""
        return not (self.newest or self.is_damaged)


@dataclass(frozen=True)
class LoadPlan:
    """How to load.

    Attributes:
        batch_lines: lines in a transaction at most.
        max_body_bytes: of a body, once it is decompressed.
        on_done: called with each file once its lines are done.
        retry_delays_seconds: before each retry of a batch. Half a minute in all: an election of
            Kafka's, or a restart of PostgreSQL, takes less.
        wait: waits before a retry, given the seconds and why; what it raises ends the load.
    """

    batch_lines: int
    max_body_bytes: int
    on_done: Callable[[DoneFile], object] = lambda _: None
    retry_delays_seconds: Sequence[float] = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 10.0)
    wait: Callable[[float, str], object] = lambda seconds, _: time.sleep(seconds)


OnBatch = Callable[[LoadStats], None]
"""Called after each batch, and sometimes in between; what it raises ends the load."""


def load(
    files: Sequence[OfflineFile],
    plan: LoadPlan,
    destination: Destination,
    figures: LoadStats,
    on_batch: OnBatch,
) -> None:
    """Loads every line of the files that is not done.

    ``figures`` are counted up as it goes. Whatever ends it, the destination is closed.

    Raises: as :class:`FileLoader`.
    """
    figures.of_files = len(files)
    with FileLoader(plan, destination, figures, on_batch) as loader:
        for file in files:
            loader.read(file)
        loader.flush()


class FileLoader:
    """Loads files into an open destination, which its end closes.

    Raises:
        OfflineFilesError: if a file can't be read.
        CounterReusedError: if files of another source are among these.
        LoaderRunningError: if another loader of the source runs.
        SinkError: if the destination stays unreachable, or can't take a batch.
    """

    def __init__(
        self, plan: LoadPlan, destination: Destination, figures: LoadStats, on_batch: OnBatch
    ) -> None:
        self._plan, self._destination = plan, destination
        self._figures, self._on_batch = figures, on_batch
        self._progress = LoadProgress("")
        self._batch: list[Entry | RejectedEntry] = []
        self._batch_bytes = 0
        self._counters: dict[int, str] = {}
        self._uncounted: set[str] = set()
        self._highest = -1
        self._read: list[DoneFile] = []

    def __enter__(self) -> Self:
        try:
            self._progress = self._destination.open()
        except BaseException as error:
            self._destination.close()
            if isinstance(error, UnknownCommitStateError):
                raise SinkError(self._destination.name, error.reason) from error
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._destination.close()

    def read(self, file: OfflineFile) -> None:
        """Loads the lines of a file; the last ones may wait for :meth:`flush`."""
        self._figures.files += 1
        self._figures.file = file.path.name
        identities: list[FileIdentity] = []
        left = self._figures.left
        ends = {self._take(line, file) for line in read_file(file, identities.append)}
        left = self._figures.left - left
        is_damaged = bool(ends & {End.DAMAGE, End.TOO_LONG})
        self._read += [
            DoneFile(file.path, identity, file.newest, left, is_damaged) for identity in identities
        ]

    def flush(self) -> None:
        """Writes the lines that were read and are not written yet."""
        if self._batch:
            try:
                self._write(self._batch)
            except UnknownCommitStateError as error:
                self._retry_write(self._batch, error)
        self._batch, self._batch_bytes = [], 0
        self._counters.clear()
        self._uncounted.clear()
        for file in self._read:
            self._plan.on_done(file)
        self._read.clear()
        self._figures.done = self._progress
        self._on_batch(self._figures)

    def _take(self, line: Line, file: OfflineFile) -> End:
        self._figures.lines += 1
        # A line that is still being written: the next load reads it whole.
        if file.newest and line.end is End.FILE and not is_whole(line):
            self._figures.left += 1
        else:
            self._take_whole(line)
        return line.end

    def _take_whole(self, line: Line) -> None:
        counter, text = read_counter(line), digest(line)
        if self._is_done(counter, text):
            self._figures.skipped += 1
            # A file that is done has no batches, but shows progress and ends on a signal.
            if self._figures.skipped % self._plan.batch_lines == 0:
                self._on_batch(self._figures)
            return
        self._note(counter, text)
        entry = read_line(line, self._plan.max_body_bytes)
        self._batch.append(entry)
        if isinstance(entry, Entry):
            self._batch_bytes += sum(map(len, entry.row.values()))
        else:
            self._batch_bytes += len(line.content)
        if len(self._batch) >= self._plan.batch_lines or self._batch_bytes >= MAX_BATCH_BYTES:
            self.flush()

    def _is_done(self, counter: int | None, text: str) -> bool:
        if counter is None:
            return text in self._uncounted or self._progress.is_done(None, text)
        known = self._counters.get(counter)
        if known is None:
            return self._progress.is_done(counter, text)
        if known != text:
            raise CounterReusedError(self._progress.source, counter)
        return True

    def _note(self, counter: int | None, text: str) -> None:
        if counter is None:
            self._uncounted.add(text)
            return
        self._counters[counter] = text
        self._figures.backwards += counter < self._highest
        self._highest = max(self._highest, counter)

    def _write(self, batch: list[Entry | RejectedEntry]) -> None:
        # Rows and progress are one transaction: after a crash, both exist or neither does.
        after = self._progress.adding(map(_mark, batch))
        rejected = self._destination.write(batch, after)
        self._progress = after
        self._count(batch, rejected)

    def _retry_write(
        self, batch: list[Entry | RejectedEntry], error: UnknownCommitStateError
    ) -> None:
        for delay in self._plan.retry_delays_seconds:
            self._figures.retries += 1
            self._on_batch(self._figures)
            self._plan.wait(delay, error.reason)
            try:
                # Opening ends the transaction whose outcome is unknown.
                self._progress = self._destination.open()
                fresh = [entry for entry in batch if not self._progress.is_done(*_mark(entry))]
                if not fresh:  # it had been written, and only the answer was lost
                    return self._count(batch, error.rejected)
                self._figures.skipped += len(batch) - len(fresh)
                batch = fresh
                return self._write(batch)
            except UnknownCommitStateError as latest:
                latest.rejected = latest.rejected or error.rejected
                error = latest
        raise SinkError(self._destination.name, error.reason) from error

    def _count(self, batch: list[Entry | RejectedEntry], rejected: Sequence[RejectedEntry]) -> None:
        self._figures.dead.update(entry.reason for entry in rejected)
        # By identity: lines of a file may be equal.
        lost = {id(entry.line) for entry in rejected}
        self._figures.loaded.update(entry.table for entry in batch if id(entry.line) not in lost)


def _mark(entry: Entry | RejectedEntry) -> tuple[int | None, str]:
    return entry.counter, digest(entry.line)
