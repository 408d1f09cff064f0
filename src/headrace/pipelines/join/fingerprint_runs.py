"""The fingerprints of the keys of a range of an index (``Match.ID``): sorted runs on its disk.

Most earlier events are new, and an index would look for each of them in all ranges. Fingerprints
say of nearly all keys that a range does not hold them.

============ =======================================================================================
part         of a run; numbers are little-endian
============ =======================================================================================
blocks       of 4,096 fingerprints in order, 4 bytes each; the last one is filled up with its last
firsts       the first fingerprint of each block, 4 bytes
sums         of the fingerprints of each block, 8 bytes
checksum     CRC-32 of firsts and sums, 4 bytes
============ =======================================================================================

A lookup reads the blocks in which its keys would be: all of a run where a batch is large, and few
of a large run where a batch is small. A new run is merged with the one before it unless that is
more than twice as large. So runs are few, and a fingerprint is written again as often as the
number of keys has doubled since.

Runs may hold more keys than the range: what is there too much costs a lookup, what is missing would
lose an event. So a run is written before its events are ingested, and deleted after them.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.pipelines.join.events import FINGERPRINT, Fingerprints
from headrace.runtime.durable_files import replace_file

_BLOCK = 4096
_SUM = np.dtype("<u8")
_CHECKSUM_BYTES = 4
_BYTES_OF_BLOCK = _BLOCK * FINGERPRINT.itemsize
_BYTES_FOR_BLOCK = _BYTES_OF_BLOCK + FINGERPRINT.itemsize + _SUM.itemsize
_MAX_TIMES_LARGER = 2


class DamagedRunError(Exception):
    """A run is not as it was written."""


class FingerprintRuns:
    """The runs of one range.

    Args:
        folder: their own; it is there once there is a run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def files(self) -> list[Path]:
        """The runs, from the oldest one on."""
        return sorted(self._folder.glob("*.run"))

    def add(self, prints: Fingerprints) -> None:
        """Adds fingerprints, which are on the disk then.

        Raises:
            DamagedRunError: if one that they are merged with is damaged.
        """
        runs, merged = self.files, [prints]
        number = int(runs[-1].stem) + 1 if runs else 0
        size = -(-len(prints) // _BLOCK) * _BYTES_FOR_BLOCK
        while runs and runs[-1].stat().st_size <= _MAX_TIMES_LARGER * size:
            older = runs.pop()
            size += older.stat().st_size
            merged.append(_Run(older).prints())
        replaced = self.files[len(runs) :]
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._folder / f"{number:012d}.run", _content(merged_prints(merged)))
        for file in replaced:
            file.unlink()

    def hold(self, prints: Fingerprints) -> NDArray[np.bool_]:
        """Returns which of ``prints``, which are in order, there are.

        Raises:
            DamagedRunError: if what is read is damaged.
        """
        held = np.zeros(len(prints), np.bool_)
        for file in self.files:
            held |= _Run(file).hold(prints)
        return held

    def delete(self) -> None:
        """Deletes all of them."""
        shutil.rmtree(self._folder, ignore_errors=True)


class _Run:
    def __init__(self, file: Path) -> None:
        self._file = file
        count, rest = divmod(file.stat().st_size - _CHECKSUM_BYTES, _BYTES_FOR_BLOCK)
        self._check(count > 0 and rest == 0)
        content = np.asarray(np.memmap(file, np.uint8, "r"))
        self._blocks = content[: count * _BYTES_OF_BLOCK].view(FINGERPRINT).reshape(count, _BLOCK)
        tail = content[count * _BYTES_OF_BLOCK :].tobytes()
        entries, checksum = tail[:-_CHECKSUM_BYTES], tail[-_CHECKSUM_BYTES:]
        self._check(zlib.crc32(entries) == int.from_bytes(checksum, "little"))
        self._firsts = np.frombuffer(entries, FINGERPRINT, count)
        self._sums = np.frombuffer(entries, _SUM, count, count * FINGERPRINT.itemsize)

    def prints(self) -> Fingerprints:
        return self._read(np.arange(len(self._blocks)))

    def hold(self, prints: Fingerprints) -> NDArray[np.bool_]:
        blocks = np.searchsorted(self._firsts, prints, side="right") - 1
        is_asked = np.zeros(len(self._blocks) + 1, np.bool_)
        is_asked[blocks] = True  # the last one of these is for those before the first block
        known = self._read(np.flatnonzero(is_asked[:-1]))
        if not len(known):
            return np.zeros(len(prints), np.bool_)
        places = np.searchsorted(known, prints)
        places[places == len(known)] = 0
        return np.equal(known[places], prints)

    def _read(self, blocks: NDArray[np.int64]) -> Fingerprints:
        is_all = len(blocks) == len(self._blocks)
        content = self._blocks if is_all else self._blocks[blocks]
        self._check(np.array_equal(content.sum(axis=1, dtype=_SUM), self._sums[blocks]))
        return content.ravel()

    def _check(self, is_whole: bool) -> None:
        if not is_whole:
            raise DamagedRunError(f"{self._file} is damaged")


def merged_prints(parts: Sequence[Fingerprints]) -> Fingerprints:
    """Returns the fingerprints of sorted parts in order, each once."""
    prints = np.concatenate(parts)
    prints.sort(kind="stable")  # of parts that are sorted: np.unique takes a hundred times as long
    return prints[np.append(True, prints[1:] != prints[:-1])] if len(prints) else prints


def packed(prints: Fingerprints) -> bytes:
    """Returns sorted fingerprints in about half their bytes: their distances, compressed.

    First come the highest bytes of all of them, which are nearly all 0.
    """
    distances = np.diff(prints, prepend=FINGERPRINT.type(0)).astype(">u4")
    planes = distances.view(np.uint8).reshape(-1, FINGERPRINT.itemsize).T
    return zlib.compress(planes.tobytes(), 1)


def unpacked(content: bytes) -> Fingerprints:
    """Returns the fingerprints of what :func:`packed` has returned; none for nothing."""
    if not content:
        return np.empty(0, FINGERPRINT)
    planes = np.frombuffer(zlib.decompress(content), np.uint8).reshape(FINGERPRINT.itemsize, -1)
    distances = np.ascontiguousarray(planes.T).view(">u4").ravel()
    return np.cumsum(distances, dtype=FINGERPRINT)


def _content(prints: Fingerprints) -> bytes:
    filled: Fingerprints = np.pad(prints, (0, -len(prints) % _BLOCK), mode="edge")
    blocks = filled.reshape(-1, _BLOCK)
    sums = blocks.sum(axis=1, dtype=_SUM)
    tail: bytes = blocks[:, 0].tobytes() + sums.tobytes()
    return filled.tobytes() + tail + zlib.crc32(tail).to_bytes(_CHECKSUM_BYTES, "little")
