"""64-bit hashes of event ids, of a whole column at once.

The hash is part of the ledger's format, and distinguishes rows in unique tables. It is made of
integer arithmetic modulo 2^64 on the UTF-8 bytes of an id, so it is the same in every version
and on every machine. No library has a hash of columns that promises as much: polars and pandas
reserve the right to change theirs. With ``GAMMA``, ``M1`` and ``M2`` the constants of SplitMix64
(Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014)::

    hash = length * GAMMA
    for word in the 8-byte words of the id, little-endian, the last one filled up with zero bytes:
        hash = (hash ^ word) * M1
        hash = hash ^ (hash >> 32)
    hash = (hash ^ (hash >> 30)) * M1
    hash = (hash ^ (hash >> 27)) * M2
    hash = hash ^ (hash >> 31)

An id of more than 256 bytes is replaced by its BLAKE2b digest of 32 bytes. Each step is a bijection
of the words before it, so two ids of one length that differ in a single word never have one hash.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

MAX_WORDS_BYTES = 256
_WORD = 8
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)

Hashes = NDArray[np.uint64]


def hash_texts(texts: pa.Array | pa.ChunkedArray) -> Hashes:
    """Returns the hash of each text; 0 for null.

    Args:
        texts: of an Arrow type of text or binary.
    """
    import pyarrow as pa

    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    hashes = [_hash_array(chunk) for chunk in chunks if len(chunk)]
    return np.concatenate(hashes) if hashes else np.empty(0, np.uint64)


def hash_positions(topic: str, partition: int, offsets: NDArray[np.int64]) -> Hashes:
    """Returns the hash of each record's place in its topic, for events without an id."""
    import pyarrow as pa

    place = hash_texts(pa.array([f"{topic}/{partition}"]))
    return _finalized((place + offsets.view(np.uint64)) * _GAMMA)


def hash_integers(values: Hashes) -> Hashes:
    """Returns the hash of each number; it is a bijection."""
    return _finalized(values * _GAMMA + _M1)


def _hash_array(texts: pa.Array) -> Hashes:
    import pyarrow as pa

    array = texts.cast(pa.large_binary())
    _, ends, content = array.buffers()
    offsets = np.frombuffer(ends, np.int64, len(array) + 1, array.offset * _WORD)
    held = content[int(offsets[0]) : int(offsets[-1])] if content is not None else b""
    # Zero bytes after the last text, so that a word can be read at each of its bytes.
    bytes_ = np.concatenate([np.frombuffer(held, np.uint8), np.zeros(_WORD, np.uint8)])
    hashes = _hash_words(bytes_, offsets[:-1] - offsets[0], np.diff(offsets))
    for index in np.flatnonzero(np.diff(offsets) > MAX_WORDS_BYTES):
        digest = hashlib.blake2b(array[int(index)].as_py(), digest_size=32).digest()
        hashes[index] = _hash_array(pa.array([digest], pa.large_binary()))[0]
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes


def _hash_words(
    bytes_: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Hashes:
    hashes = lengths.astype(np.uint64) * _GAMMA
    shortest, longest = int(lengths.min()), min(int(lengths.max()), MAX_WORDS_BYTES)
    if shortest == longest:  # ids mostly have one length: their words need not be gathered
        for place in range(0, longest, _WORD):
            words = _every_word(bytes_, len(lengths), place, longest)
            _mix(hashes, words & _mask(np.uint64(min(longest - place, _WORD))))
        return _finalized(hashes)
    words = _every_word(bytes_, len(bytes_) - _WORD + 1, 0, 1)
    for place in range(0, longest, _WORD):
        if shortest >= place + _WORD:
            _mix(hashes, words[starts + place])
            continue
        rows = np.flatnonzero(lengths > place)
        left = np.minimum(lengths[rows] - place, _WORD).astype(np.uint64)
        mixed = hashes[rows]
        _mix(mixed, words[starts[rows] + place] & _mask(left))
        hashes[rows] = mixed
    return _finalized(hashes)


def _every_word(bytes_: NDArray[np.uint8], count: int, begin: int, stride: int) -> Hashes:
    """A view of ``count`` words: the first one at byte ``begin``, others ``stride`` bytes on."""
    return np.ndarray((count,), np.dtype("<u8"), bytes_, begin, (stride,))


def _mask(left: np.uint64 | Hashes) -> np.uint64 | Hashes:
    """The bits of a word that are of an id with ``left`` bytes in it, 1 to 8."""
    return _ALL_BITS >> (np.uint64(64) - np.uint64(8) * left)


def _mix(hashes: Hashes, words: Hashes) -> None:
    """Takes a word of each id into the hashes, in place."""
    hashes ^= words
    hashes *= _M1
    hashes ^= hashes >> np.uint64(32)


def _finalized(hashes: Hashes) -> Hashes:
    mixed = (hashes ^ (hashes >> np.uint64(30))) * _M1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _M2
    return mixed ^ (mixed >> np.uint64(31))
