"""Keeps a table fast to read, beside its writers: merges small files, shortens its log.

One thread per table and process, shared by the pipelines that write the table. It is notified of
commits and is never waited for; what fails is logged, counted and retried, and fails no batch.

- Small files of a partition are merged when ``Lake.compact_files`` of them have gathered; in a
  partition that ended before the watermark, when eight have: what still comes there is little.
- Every 50 versions the log gets a checkpoint, so that readers need not read it from its start.
  :class:`Upkeep` is what differs between formats.

A crash, or an end that does not wait, leaves files that no version holds at most.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from deltalake import DeltaTable

from headrace.runtime.retrying import exponential_backoff
from headrace.sinks.api import CompactionResult
from headrace.sinks.lake.delta.log_tail import last_checkpoint
from headrace.sinks.lake.files.data_file import WriteSpec, WrittenFile
from headrace.sinks.lake.files.partitions import Partition
from headrace.sinks.lake.upkeep.compaction import Compaction, Threshold, is_small
from headrace.storage import files as storage

# A partition whose time has ended gets few more files, and would never reach `compact_files`.
LATE_FILES = 8
# Readers read a log from its last checkpoint: at most so many small files.
LOG_CHECKPOINT_VERSIONS = 50
# What fails is mostly storage that is unreachable, which the pipelines wait for too.
FIRST_DELAY_SECONDS = 5.0
MAX_DELAY_SECONDS = 600.0
# A merge looks for the sign between two files, of which one may be on its way to storage.
ABANDON_SECONDS = 10.0

_LOG = logging.getLogger("headrace.sinks")


@dataclass(frozen=True)
class TableCommit:
    """What a commit added.

    Attributes:
        version: of the table, after it.
        files: all of them.
        late: partitions among theirs that ended before the watermark.
    """

    version: int
    files: Sequence[WrittenFile]
    late: frozenset[Partition] = frozenset()


@dataclass(frozen=True)
class MaintenanceProgress:
    """What the maintenance of a table has done since it began; ``reason``: why it failed last."""

    files_merged: int = 0
    failures: int = 0
    reason: str = ""


class Upkeep(Protocol):
    """What keeps a table of one format fast to read."""

    def shorten_log(self, version: int) -> None:
        """Shortens what readers must read first, where ``version`` of the table makes it due."""

    def small_files(self) -> tuple[int, dict[Partition, int]]:
        """Returns the table's version (-1: no table), and how many small files partitions have."""

    def run(
        self, threshold: Threshold, abandoned: threading.Event | None = None
    ) -> CompactionResult:
        """Merges the small files of each partition that has as many as its ``threshold``."""


class DeltaUpkeep(Compaction):
    """Keeps a Delta table fast to read."""

    def __init__(self, spec: WriteSpec) -> None:
        super().__init__(spec.root, spec.storage_options, spec.layout.compression)
        self._spec = spec

    def shorten_log(self, version: int) -> None:
        """Adds a checkpoint to the log, and removes what is older than its retention."""
        root, options = self._spec.root, self._spec.storage_options
        newest = last_checkpoint(storage.join(root, "_delta_log"), options) or 0
        if version - newest >= LOG_CHECKPOINT_VERSIONS:
            table = DeltaTable(root, storage_options=dict(options))
            table.create_checkpoint()
            table.cleanup_metadata()


class Maintenance:
    """The maintenance of one table. :class:`MaintenanceHold` is how writers come by it.

    ``committed`` and ``progress`` may be called on any thread; they neither wait nor raise.
    """

    def __init__(self, spec: WriteSpec, upkeep: Upkeep | None = None) -> None:
        self._spec = spec
        self._upkeep = upkeep or DeltaUpkeep(spec)
        self._commits: deque[TableCommit] = deque()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._abandoned = threading.Event()
        self._version = -1
        self._small: Counter[Partition] | None = None
        self._counted_version = -1
        self._late: set[Partition] = set()
        self._delays = exponential_backoff(FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS)
        self._thread = threading.Thread(
            # A daemon: a process that ends does not wait for storage that hangs.
            target=self._run,
            name=f"maintenance of {spec.root}",
            daemon=True,
        )
        self.progress = MaintenanceProgress()

    def start(self) -> None:
        """Starts the thread, which waits for commits."""
        self._thread.start()

    def committed(self, commit: TableCommit) -> None:
        """Takes note of a commit; the rest happens on the thread."""
        self._commits.append(commit)
        self._wake.set()

    def close(self, patience_seconds: float) -> None:
        """Ends the thread: what is due gets ``patience_seconds``, then it is abandoned.

        Abandoned merges delete the files that they have written.
        """
        self._closing.set()
        self._wake.set()
        self._thread.join(patience_seconds)
        self._abandoned.set()
        self._thread.join(ABANDON_SECONDS)

    def _run(self) -> None:
        delay, closing = 0.0, False
        while not closing and not self._abandoned.is_set():
            # Commits that came during the last attempt are due too, also when it is closed.
            closing = self._closing.is_set()
            if delay:
                self._closing.wait(delay)
            elif not closing:
                self._wake.wait()
                self._wake.clear()
            delay = self._attempt()

    def _attempt(self) -> float:
        """Does what is due; seconds to wait before it is retried, 0 when it succeeded."""
        while self._commits:
            commit = self._commits.popleft()
            self._version = max(self._version, commit.version)
            self._late |= commit.late
            if self._small is not None and commit.version > self._counted_version:
                self._small.update(file.partition for file in commit.files if is_small(file.size))
        # Both are tried: a merge that fails each time must not let the log grow without end.
        due = (lambda: self._upkeep.shorten_log(self._version), self._merge)
        failures = map(_failure_of, due)
        failed = [error for error in failures if error is not None]
        if not failed or self._abandoned.is_set():
            self.progress = replace(self.progress, reason="")
            self._delays = exponential_backoff(FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS)
            return 0.0
        delay = next(self._delays)
        reason = "; ".join(map(str, failed))
        self.progress = replace(self.progress, failures=self.progress.failures + 1, reason=reason)
        _LOG.warning(
            "Maintenance of table %s failed, retrying in %.0f s while its pipelines continue: %s",
            self._spec.root,
            delay,
            reason,
        )
        return delay

    def _merge(self) -> None:
        if not self._spec.layout.compact_files or self._version < 0:
            return
        if self._small is None:
            self._counted_version, small = self._upkeep.small_files()
            self._small = Counter(small)
            self._late.intersection_update(self._small)
        due = {p for p, files in self._small.items() if files >= self._threshold(p)}
        if not due:
            return
        merged = self._upkeep.run(self._threshold, self._abandoned).merged
        self.progress = replace(self.progress, files_merged=self.progress.files_merged + merged)
        if not merged:
            self._small = None  # others have merged them: count again
            return
        # Merged partitions start from zero; what was committed meanwhile is in `_commits`.
        for partition in due:
            del self._small[partition]

    def _threshold(self, partition: Partition) -> int:
        declared = self._spec.layout.compact_files
        return min(declared, LATE_FILES) if partition in self._late else declared


def _failure_of(do: Callable[[], None]) -> Exception | None:
    try:
        do()
    except Exception as error:  # noqa: BLE001  whatever it was, writers and the rest continue
        return error
    return None


class MaintenanceHold:
    """A writer's share in the maintenance of its table, from when it is made until released.

    Args:
        spec: the table.
        upkeep: of its format; None: Delta's.
    """

    _guard = threading.Lock()
    _running: ClassVar[dict[str, Maintenance]] = {}
    _holders: ClassVar[Counter[str]] = Counter()

    def __init__(self, spec: WriteSpec, upkeep: Upkeep | None = None) -> None:
        self._root = spec.root
        with self._guard:
            self._holders[self._root] += 1
            if self._holders[self._root] == 1:
                self._running[self._root] = Maintenance(spec, upkeep)
                self._running[self._root].start()
            self._maintenance = self._running[self._root]

    @property
    def progress(self) -> MaintenanceProgress:
        """What was done to the table, whichever pipeline wrote it."""
        return self._maintenance.progress

    def committed(self, commit: TableCommit) -> None:
        """See :meth:`Maintenance.committed`."""
        self._maintenance.committed(commit)

    def release(self, patience_seconds: float) -> None:
        """Call it once; the last holder of a table waits for its maintenance to end."""
        with self._guard:
            self._holders[self._root] -= 1
            last = not self._holders[self._root]
            if last:
                del self._running[self._root]
        if last:
            self._maintenance.close(patience_seconds)
