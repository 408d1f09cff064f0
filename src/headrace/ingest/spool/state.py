"""What all processes of the host know of the spool, in memory that they share."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from google_crc32c import value as crc32c

_WORD_BYTES = 8
_BYTES = 4096  # one page, of which the words are the beginning


class _Word:
    """A word of 64 bits: read without a lock, written under the spool's lock only."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __get__(self, state: SpoolState, _: object = None) -> int:
        return state.words[self._place]

    def __set__(self, state: SpoolState, value: int) -> None:
        state.words[self._place] = value


class SpoolState:
    """Figures in a mapped file, which processes read without a system call.

    It is meaningless after a power failure: the first process that locks the spool rebuilds it from
    the files.

    Attributes:
        settled: 1 between two appends; a process killed inside one leaves 0.
        written: counter of the next record to append.
        loaded: counter of the next record to replay.
        number: number of the segment that is appended to; 0 if the next append creates one.
        first: counter of that segment's first record.
        marker: marker of that segment's frames.
        end: bytes of that segment that were acknowledged.
        created_ms: when that segment was created.
        disk_bytes: size of all segments and quarantined files.
    """

    settled = _Word(0)
    written = _Word(1)
    _written_checksum = _Word(2)
    loaded = _Word(3)
    number = _Word(4)
    first = _Word(5)
    marker = _Word(6)
    end = _Word(7)
    created_ms = _Word(8)
    disk_bytes = _Word(9)

    def __init__(self, path: Path) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(file, 0, _BYTES)  # or a full disk kills with SIGBUS
            self._map = mmap.mmap(file, _BYTES)
        finally:
            os.close(file)
        self.words = memoryview(self._map).cast("Q")

    @property
    def pending(self) -> bool:
        """Records wait to be replayed."""
        words = self.words
        return words[1] != words[3]

    def advance(self, written: int) -> None:
        """Sets ``written`` so that it can be verified later."""
        self.written = written
        self._written_checksum = _checksum(written)

    @property
    def verified_end_counter(self) -> int:
        """``written`` if :meth:`advance` left the file so; 0 if a power failure tore it."""
        return self.written if self._written_checksum == _checksum(self.written) else 0

    def close(self) -> None:
        """Ends the mapping."""
        self.words.release()
        self._map.close()


def _checksum(word: int) -> int:
    return int(crc32c(word.to_bytes(_WORD_BYTES, "little")))
