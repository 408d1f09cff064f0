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

Runs may hold more keys than the range: a surplus one costs a lookup, a missing one would
lose an event. So a run is written before its events are ingested, and deleted after them; and the
runs are listed once, so that one that disappears is noticed.
"""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.pipelines.join.events import FINGERPRINT, Fingerprints
from headrace.runtime.files.durable_files import replace_file

_SUM = np.dtype("<u8")
_CHECKSUM_BYTES = 4
_BYTES_BESIDE_BLOCK = FINGERPRINT.itemsize + _SUM.itemsize
_MAX_TIMES_LARGER = 2
_NAME = re.compile(r"\d{12}\.run")


class DamagedRunError(Exception):
    """A run is not as it was written, or is missing."""


class FingerprintRuns:
    """The runs of one range.

    Args:
        folder: their own; it is there once there is a run.
        block: the fingerprints of a block, which is read as a whole.

    Attributes:
        files: the runs, from the oldest one on: those that were there, and those added since.
    """

    def __init__(self, folder: Path, block: int = 4096) -> None:
        self._folder, self._block = folder, block
        files = folder.iterdir() if folder.is_dir() else []
        self.files = sorted(file for file in files if _NAME.fullmatch(file.name))
        self._replaced: list[Path] = []

    def add(self, prints: Fingerprints) -> None:
        """Adds fingerprints, which are on the disk then.

        The files of runs that they are merged with are left, for :meth:`delete_replaced`.

        Raises:
            DamagedRunError: if one that they are merged with is damaged.
        """
        kept, merged = [*self.files], [prints]
        number = int(kept[-1].stem) + 1 if kept else 0
        block_bytes = self._block * FINGERPRINT.itemsize + _BYTES_BESIDE_BLOCK
        size = -(-len(prints) // self._block) * block_bytes
        while kept:
            with _opened(kept[-1], self._block) as run:
                if run.size > _MAX_TIMES_LARGER * size:
                    break
                size += run.size
                merged.append(run.prints())
            self._replaced.append(kept.pop())
        file = self._folder / f"{number:012d}.run"
        replace_file(file, _content(merged_prints(merged), self._block))
        self.files = [*kept, file]

    def delete_replaced(self) -> None:
        """Deletes the files of runs that were merged into others."""
        for file in self._replaced:
            file.unlink(missing_ok=True)
        self._replaced.clear()

    def hold(self, prints: Fingerprints) -> NDArray[np.bool_]:
        """Returns which of ``prints``, which are in order, there are.

        Raises:
            DamagedRunError: if what is read is damaged.
        """
        held = np.zeros(len(prints), np.bool_)
        for file in self.files:
            with _opened(file, self._block) as run:
                held |= run.hold(prints)
        return held

    def delete(self) -> None:
        """Deletes all of them."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self.files = []


@contextmanager
def _opened(file: Path, block: int) -> Iterator[_Run]:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise DamagedRunError(f"{file} is missing") from None
    try:
        yield _Run(file, descriptor, block)
    finally:
        os.close(descriptor)


class _Run:
    """An open run, which is read, not mapped: a file that is cut off would end the process."""

    def __init__(self, file: Path, descriptor: int, block: int) -> None:
        self._file, self._block = file, block
        self._block_bytes = block * FINGERPRINT.itemsize
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._count, rest = divmod(
            self.size - _CHECKSUM_BYTES, self._block_bytes + _BYTES_BESIDE_BLOCK
        )
        self._check(self._count > 0 and rest == 0)
        begin = self._count * self._block_bytes
        tail = os.pread(descriptor, self.size - begin, begin)
        entries, checksum = tail[:-_CHECKSUM_BYTES], tail[-_CHECKSUM_BYTES:]
        self._check(zlib.crc32(entries) == int.from_bytes(checksum, "little"))
        self._firsts = np.frombuffer(entries, FINGERPRINT, self._count)
        self._sums = np.frombuffer(entries, _SUM, self._count, self._firsts.nbytes)

    def prints(self) -> Fingerprints:
        return self._read(np.arange(self._count))

    def hold(self, prints: Fingerprints) -> NDArray[np.bool_]:
        blocks = np.searchsorted(self._firsts, prints, side="right") - 1
        is_asked = np.zeros(self._count + 1, np.bool_)
        is_asked[blocks] = True  # the last one of these is for those before the first block
        known = self._read(np.flatnonzero(is_asked[:-1]))
        if not len(known):
            return np.zeros(len(prints), np.bool_)
        places = np.searchsorted(known, prints)
        places[places == len(known)] = 0
        return np.equal(known[places], prints)

    def _read(self, blocks: NDArray[np.int64]) -> Fingerprints:
        content = np.empty((len(blocks), self._block), FINGERPRINT)
        starts = [0, *(np.flatnonzero(np.diff(blocks) > 1) + 1).tolist()]
        for begin, end in pairwise([*starts, len(blocks)] if len(blocks) else []):
            part = content[begin:end].data
            at = int(blocks[begin]) * self._block_bytes
            self._check(os.preadv(self._descriptor, [part], at) == part.nbytes)
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


def _content(prints: Fingerprints, block: int) -> bytes:
    filled: Fingerprints = np.pad(prints, (0, -len(prints) % block), mode="edge")
    blocks = filled.reshape(-1, block)
    sums = blocks.sum(axis=1, dtype=_SUM)
    tail: bytes = blocks[:, 0].tobytes() + sums.tobytes()
    return filled.tobytes() + tail + zlib.crc32(tail).to_bytes(_CHECKSUM_BYTES, "little")
