"""Lines of offline files, and a destination in memory that fails as told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headrace.offline_files.destination import UnknownCommitStateError
from headrace.offline_files.entry import Entry, RejectedEntry
from headrace.offline_files.files import FileOrder, find_files
from headrace.offline_files.loading import LoadPlan, LoadStats, load
from headrace.offline_files.options import LoadOptions
from headrace.offline_files.progress import LoadProgress

MAX_BODY_BYTES = 100_000


class Memory:
    """A destination; ``fails`` says what happens at a call: ``before`` or ``after`` it is done."""

    name = "memory"

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.letters: list[RejectedEntry] = []
        self.progress = LoadProgress("host")
        self.batches: list[int] = []
        self.fails: list[str] = []
        self.closed = 0
        self.retry_delays_seconds: Sequence[float] = (0, 0, 0)
        self.rejects: Callable[[Entry], bool] = lambda _: False

    def open(self) -> LoadProgress:
        return self.progress

    def write(
        self, batch: Sequence[Entry | RejectedEntry], progress: LoadProgress
    ) -> list[RejectedEntry]:
        fails = self.fails.pop(0) if self.fails else ""
        if fails == "before":
            raise UnknownCommitStateError("gone")
        kept = [one for one in batch if isinstance(one, Entry) and not self.rejects(one)]
        rejected = [
            one
            if isinstance(one, RejectedEntry)
            else RejectedEntry(one.line, one.counter, one.table, "no", "")
            for one in batch
            if one not in kept
        ]
        self.entries += kept
        self.letters += rejected
        self.progress = LoadProgress.from_json("host", progress.to_json(), progress.uncounted)
        self.batches.append(len(batch))
        if fails == "after":
            raise UnknownCommitStateError("gone", rejected)
        return rejected

    def close(self) -> None:
        self.closed += 1

    @property
    def counters(self) -> list[int]:
        return [one.counter for one in self.entries]

    def load(
        self, folder: Path, *, batch: int = 3, remove: bool = False, order=FileOrder.NAME
    ) -> LoadStats:
        figures = LoadStats()
        files = find_files(folder, order)
        options = LoadOptions(folder, remove_done=remove)
        plan = LoadPlan(batch, MAX_BODY_BYTES, options.end_file, self.retry_delays_seconds)
        load(files, plan, self, figures, lambda _: None)
        return figures


@pytest.fixture
def memory() -> Memory:
    return Memory()
