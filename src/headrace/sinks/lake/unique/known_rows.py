"""The keys of the rows that a table has, by slice of event time, in files where they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.events.event_hash import Hashes
from headrace.sinks.lake.unique.row_keys import RowKeys

# A run is merged into the one before it unless that one is so much larger: few runs, few copies.
_GROWTH = 4

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class _Run:
    """Keys in ascending order, and the hashes of the other columns of their rows."""

    keys: Hashes
    values: Hashes

    def __len__(self) -> int:
        return len(self.keys)


class KnownRows:
    """Keys of rows by slice. Used on one thread.

    16 bytes a row. The rows of a slice that come together are a run in memory until it is merged
    with others; a larger merged run is in files that are deleted with the process. Memory holds
    their pages as long as nothing else needs it.

    Args:
        rows_in_memory: the rows of a merged run that is not in a file. Merging takes some times
            this much memory.
    """

    def __init__(self, rows_in_memory: int = 1 << 18) -> None:
        self._rows_in_memory = rows_in_memory
        self._slices: dict[int, list[_Run]] = {}

    @property
    def slices(self) -> frozenset[int]:
        """The slices whose rows it knows."""
        return frozenset(self._slices)

    def begin(self, slices: Iterable[int]) -> None:
        """Starts slices that have no rows yet, and marks them as the last ones that were used."""
        for number in slices:
            self._slices[number] = self._slices.pop(number, [])

    def add(self, keys: RowKeys) -> None:
        """Adds the rows of slices that it knows; others, and those without a key, are left out."""
        for number in np.unique(keys["slice"]).tolist():
            if number in self._slices:
                rows = keys[(keys["slice"] == number) & (keys["key"] != 0)]
                order = np.argsort(rows["key"], kind="stable")
                self._add_run(self._slices[number], _Run(rows["key"][order], rows["values"][order]))

    def keep_last(self, count: int) -> None:
        """Forgets all but the ``count`` slices that were used last."""
        for number in list(self._slices)[: max(0, len(self._slices) - count)]:
            del self._slices[number]

    def forget(self) -> None:
        """Forgets all slices."""
        self._slices.clear()

    def find(self, keys: RowKeys, max_distance: int) -> tuple[Flags, Flags]:
        """Returns for each of ``keys`` whether its row is known, and whether with the same values.

        Args:
            keys: in ascending order of their hashes, which is many times faster than another.
            max_distance: how far the slice of a known row may be from the row's own.
        """
        known, same = np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.bool_)
        for number, runs in self._slices.items():
            near = np.flatnonzero(np.abs(keys["slice"].astype(np.int64) - number) <= max_distance)
            hashes = keys["key"][near]
            for run in runs if len(near) else ():
                places = np.minimum(np.searchsorted(run.keys, hashes), len(run) - 1)
                hits = np.flatnonzero(run.keys[places] == hashes)
                known[near[hits]] = True
                same[near[hits]] |= run.values[places[hits]] == keys["values"][near[hits]]
        return known, same

    def _add_run(self, runs: list[_Run], run: _Run) -> None:
        if not len(run):
            return
        runs.append(run)
        while len(runs) > 1 and len(runs[-2]) < _GROWTH * len(runs[-1]):
            runs[-2:] = [_merged(runs[-2:], self._rows_in_memory)]


def _merged(runs: Sequence[_Run], rows_in_memory: int) -> _Run:
    parts = _merged_parts(runs, rows_in_memory)
    if sum(map(len, runs)) <= rows_in_memory:
        [part] = parts
        return part
    # Without a name from the start: a process that is killed leaves nothing.
    with tempfile.TemporaryFile() as keys, tempfile.TemporaryFile() as values:
        for part in parts:
            keys.write(part.keys.tobytes())
            values.write(part.values.tobytes())
        keys.flush()
        values.flush()
        return _Run(np.memmap(keys, np.uint64, "r"), np.memmap(values, np.uint64, "r"))


def _merged_parts(runs: Sequence[_Run], rows: int) -> Iterator[_Run]:
    """The runs as one, by ranges of keys, so that one part after the other is in memory."""
    longest = max(runs, key=len)
    bounds = longest.keys[rows::rows]
    cuts = [np.searchsorted(run.keys, bounds) for run in runs]
    begins = [np.concatenate([[0], cut]) for cut in cuts]
    ends = [np.concatenate([cut, [len(run)]]) for cut, run in zip(cuts, runs, strict=True)]
    for part in range(len(bounds) + 1):
        spans = [slice(b[part], e[part]) for b, e in zip(begins, ends, strict=True)]
        keys = np.concatenate([run.keys[span] for run, span in zip(runs, spans, strict=True)])
        values = np.concatenate([run.values[span] for run, span in zip(runs, spans, strict=True)])
        order = np.argsort(keys, kind="stable")
        yield _Run(keys[order], values[order])
