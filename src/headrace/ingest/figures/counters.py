"""Counts of all workers of a host, in files that outlive each of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from headrace.errors import IngestStateError
from headrace.ingest.mapped_file import map_file, open_shared
from headrace.runtime.files.file_locks import FileLock

_WORD_BYTES = 8
_MAX_WORKERS = 1024

Labels = tuple[str, ...]
"""Name of the metric, then the values of its labels."""


class Counters:
    """Counts that only grow. Each worker adds in a file of its own, and reads those of all.

    The file of a worker that ended is taken over by the next one, so no count goes back.

    Raises:
        IngestStateError: if the file can't be made, or the disk has no room for it.
    """

    def __init__(self, folder: Path, names: Iterable[Labels]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._folder = folder
        self._file, path = self._own_file()
        self._map = map_file(self._file, path, len(self._places) * _WORD_BYTES)
        self._counts = memoryview(self._map).cast("q")

    def add(self, name: Labels, count: int = 1) -> None:
        """Adds to a count that was named at the start; KeyError for another."""
        self._counts[self._places[name]] += count

    def adder(self, *names: Labels) -> Callable[[int], None]:
        """Returns a function that adds to these counts, for callers that add to them often.

        The names are looked up here, once: hashing them takes longer than the addition.
        """
        counts, places = self._counts, [self._places[name] for name in names]

        def add(count: int) -> None:
            for place in places:
                counts[place] += count

        return add

    def put(self, name: Labels, count: int) -> None:
        """Sets this worker's part of a figure that may also fall."""
        self._counts[self._places[name]] = count

    def totals(self) -> Mapping[Labels, int]:
        """Returns every count, summed over all workers."""
        paths = sorted(self._folder.glob("*.counts"))
        files = [memoryview(path.read_bytes()).cast("q") for path in paths]
        return {
            name: sum(counts[place] for counts in files if place < len(counts))
            for name, place in self._places.items()
        }

    def close(self) -> None:
        """Lets another worker take the file over."""
        self._counts.release()
        self._map.close()
        os.close(self._file)

    def _own_file(self) -> tuple[int, Path]:
        for number in range(_MAX_WORKERS):
            path = self._folder / f"{number}.counts"
            file = open_shared(path)
            if FileLock(file).try_acquire():
                return file, path
            os.close(file)
        raise IngestStateError(str(self._folder), f"more than {_MAX_WORKERS} workers count here")
