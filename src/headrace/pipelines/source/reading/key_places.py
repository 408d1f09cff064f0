"""Checks that no key has records in two partitions, for sinks that keep what is read last.

A key moves when its topic gets partitions, or a producer chooses them in another way: its records
are in no order then. Where a pipeline begins before that, only their places show it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.errors import KeyMovedError
from headrace.kafka.read.range_reader import Record
from headrace.model import TopicPartition
from headrace.model.partitioning import MURMUR2_MULTIPLIER, MURMUR2_SEED

Hashes: TypeAlias = NDArray[np.uint32]


class KeyPlaces:
    """Follows the records of one range, in order.

    A record may be in the partition that Kafka's Java client chooses for its key, or librdkafka by
    its default, or clients in Go (Sarama, kafka-go); all of a range by the same. One that should be
    in a partition without records may be anywhere: there is no other record that it could come
    before.

    Args:
        partition: of the range.
        ends: where each partition of the topic ends.
        pipeline: its name, for the message.
    """

    def __init__(self, partition: TopicPartition, ends: Mapping[int, int], pipeline: str) -> None:
        self._partition, self._pipeline = partition, pipeline
        self._has_records = np.array([ends[p] > 0 for p in sorted(ends)])
        self._hashes: Sequence[Callable[[Sequence[bytes]], Hashes]] = (
            murmur2_hashes,
            _crc_hashes,
            _fnv_hashes,
        )

    def check(self, records: Sequence[Record]) -> None:
        """Raises KeyMovedError if a key may have records in another partition, too."""
        keyed = [(key, record) for record in records if (key := record.key()) is not None]
        if not keyed:
            return
        keys = [key for key, _ in keyed]
        moved = {hash_: self._moved(hash_(keys)) for hash_ in self._hashes}
        self._hashes = [hash_ for hash_ in self._hashes if not moved[hash_].size]
        if not self._hashes:
            first = min(places[0] for places in moved.values())
            offset, count = keyed[first][1].offset(), len(self._has_records)
            raise KeyMovedError(str(self._partition), offset, count, self._pipeline)

    def _moved(self, hashes: Hashes) -> NDArray[np.intp]:
        places = hashes % len(self._has_records)
        elsewhere = places != self._partition.partition
        return np.flatnonzero(elsewhere & self._has_records[places])


def murmur2_hashes(keys: Sequence[bytes]) -> Hashes:
    """Returns the hash of each key by which Kafka's Java client chooses a partition.

    It is that of :func:`headrace.model.partitioning.partition_of_key`, for many keys at once.
    """
    hashes = np.empty(len(keys), np.uint32)
    for length, places in _by_length(keys):
        joined = b"".join(keys[place].ljust(-(-length // 4) * 4, b"\0") for place in places)
        words = np.frombuffer(joined, "<u4").reshape(len(places), -1)
        hashes[places] = _murmur2(words, length)
    return hashes & np.uint32(0x7FFFFFFF)


def _murmur2(words: NDArray[np.uint32], length: int) -> Hashes:
    """Returns the hashes of keys of one length, a row of padded words for each."""
    multiplier = np.uint32(MURMUR2_MULTIPLIER)
    hashes: Hashes = np.full(len(words), MURMUR2_SEED ^ length, np.uint32)
    for at in range(length // 4):
        word = words[:, at] * multiplier
        hashes = hashes * multiplier ^ (word ^ word >> np.uint32(24)) * multiplier
    if length % 4:
        hashes = (hashes ^ words[:, -1]) * multiplier
    hashes = (hashes ^ hashes >> np.uint32(13)) * multiplier
    return hashes ^ hashes >> np.uint32(15)


def _crc_hashes(keys: Sequence[bytes]) -> Hashes:
    """Returns the hash of each key by which librdkafka chooses a partition, by its default."""
    return np.fromiter(map(zlib.crc32, keys), np.uint32, len(keys))


def _fnv_hashes(keys: Sequence[bytes]) -> Hashes:
    """Returns the hash of each key by which clients in Go choose a partition: that of FNV-1a.

    They take it as a signed number, and the partition without its sign.
    """
    hashes: Hashes = np.full(len(keys), 0x811C9DC5, np.uint32)
    for length, places in _by_length(keys):
        joined = b"".join(keys[place] for place in places)
        of_length = np.frombuffer(joined, np.uint8).reshape(len(places), -1)
        for at in range(length):
            hashes[places] = (hashes[places] ^ of_length[:, at]) * np.uint32(0x01000193)
    return np.abs(hashes.view(np.int32).astype(np.int64)).astype(np.uint32)


def _by_length(keys: Sequence[bytes]) -> Iterator[tuple[int, list[int]]]:
    """Yields each length of keys, with the places of the keys that have it."""
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    for length in np.unique(lengths).tolist():
        yield length, np.flatnonzero(lengths == length).tolist()
