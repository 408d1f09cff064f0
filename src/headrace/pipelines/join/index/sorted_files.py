"""Sorted files of events of the earlier side, each of a range of slices of event time.

A batch writes the events it has read as such files, which are SST files of RocksDB. They are the
durable state of the join, and the index on a machine
(:class:`~headrace.pipelines.join.index.earlier_index.EarlierIndex`) ingests them as they are.

================= ==================================================================================
entry             bytes; numbers are big-endian
================= ==================================================================================
``Match.ID``      ``1 (1) | key``
``Match.LAST``    ``1 (1) | length of the key (4) | key | time (8) | offset (8)``: the events of a
                  key in order of time
value             ``milliseconds (8) | microseconds (2) | offset (8) | place (2) | value``: the
                  value of the record, of which the first occurrence of the key is left out;
                  it belongs at the place, which is 65,535 where nothing is left out
================= ==================================================================================

A slice is as long as :func:`~headrace.pipelines.join.index.slices.slice_length_us` says. A range is
one slice, where a batch does not span many: then it is as many as are needed, a power of two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents
from headrace.pipelines.join.index.fingerprint_runs import packed
from headrace.pipelines.join.index.slices import CACHE_BYTES, LAST_SLICE, MAX_RANGES

if TYPE_CHECKING:
    from rocksdict import Options

_ENTRY = b"\x01"
_HEAD = struct.Struct(">qHqH")
_HEADS = np.dtype([("ms", ">i8"), ("us", ">u2"), ("offset", ">i8"), ("place", ">u2")])
_WHOLE = 0xFFFF
_LENGTH = struct.Struct(">I")
_TIME_OFFSET = struct.Struct(">QQ")
_MIDDLE = 2**63  # times before 1970 sort before those after it
_MAX_OFFSET = 2**63 - 1
# Records of JSON take a tenth less room than in 16 KiB, and a third less than in RocksDB's 4 KiB.
_BLOCK_BYTES = 64 * 1024
_OPEN_FILES = 128


class SortedFile(NamedTuple):
    """Events of a range of slices, as an index ingests them.

    Attributes:
        first: number of the first slice.
        last: number of the last one.
        newest: number of the slice of the newest event.
        entries: a file of RocksDB.
        fingerprints: of the keys of ``Match.ID``, packed
            (:func:`~headrace.pipelines.join.index.fingerprint_runs.packed`); empty for
            ``Match.LAST``.
    """

    first: int
    last: int
    newest: int
    entries: bytes
    fingerprints: bytes


def sorted_files(events: KeyedEvents, slice_us: int, match: Match) -> list[SortedFile]:
    """Returns the files of events, in order of time; of ``Match.ID`` with different keys."""
    slices = np.clip(events.times_us // slice_us, 0, LAST_SLICE)
    shift = 0
    while len(numbers := np.unique(slices >> shift)) > MAX_RANGES:
        shift += 1
    return [
        SortedFile(
            number << shift,
            ((number + 1) << shift) - 1,
            int(slices[slices >> shift == number].max()),
            *_contents(events.where(slices >> shift == number), match),
        )
        for number in numbers.tolist()
    ]


def _contents(events: KeyedEvents, match: Match) -> tuple[bytes, bytes]:
    """Returns a file of RocksDB with the events, and the fingerprints of their keys."""
    if match is Match.ID:
        prints = packed(np.sort(events.fingerprints))
        return sst_file(_entries(events, [*map(entry_key, events.keys)])), prints
    names = [
        key_prefix(event.key) + _TIME_OFFSET.pack(event.time_us + _MIDDLE, event.offset)
        for event in events
    ]
    return sst_file(_entries(events, names)), b""


def _entries(events: KeyedEvents, names: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Returns the entries of events, whose own keys are ``names``, in order of these."""
    positions = [value.find(key) for key, value in zip(events.keys, events.values, strict=True)]
    places = [place if 0 <= place < _WHOLE else _WHOLE for place in positions]
    heads = np.empty(len(events), _HEADS)
    heads["ms"], heads["us"] = np.divmod(events.times_us, 1000)
    heads["offset"], heads["place"] = events.offsets, places
    content = heads.tobytes()
    for i in sorted(range(len(events)), key=names.__getitem__):
        place, value = places[i], events.values[i]
        if place != _WHOLE:
            value = value[:place] + value[place + len(events.keys[i]) :]
        yield names[i], content[_HEAD.size * i : _HEAD.size * (i + 1)] + value


def sst_file(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns a file of RocksDB with entries that are in order."""
    from rocksdict import SstFileWriter

    with TemporaryDirectory() as folder:
        path = Path(folder) / "entries.sst"
        writer = SstFileWriter(index_options())
        writer.open(str(path))
        for key, value in entries:
            writer[key] = value
        writer.finish()
        return path.read_bytes()


def entry_key(key: bytes) -> bytes:
    """Returns the key of the entry of an event of ``Match.ID``."""
    return _ENTRY + key


def key_prefix(key: bytes) -> bytes:
    """Returns what the keys of the entries of ``Match.LAST`` with one key begin with."""
    return _ENTRY + _LENGTH.pack(len(key)) + key


def last_entry_key(prefix: bytes, time_us: int) -> bytes:
    """Returns the greatest key that an entry with a prefix and not after a time can have."""
    return prefix + _TIME_OFFSET.pack(time_us + _MIDDLE, _MAX_OFFSET)


def event_of(key: bytes, value: bytes) -> KeyedEvent:
    """Returns the event of an entry's value."""
    ms, us, offset, place = _HEAD.unpack_from(value)
    record = value[_HEAD.size :]
    if place != _WHOLE:
        record = record[:place] + key + record[place:]
    return KeyedEvent(key, ms * 1000 + us, offset, record)


def index_options() -> Options:
    """Returns the options of RocksDB, of its files as of an index."""
    from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options

    blocks = BlockBasedOptions()
    # Indexes and filters count in the cache, so that memory does not grow with the index.
    blocks.set_block_cache(Cache(CACHE_BYTES))
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_bloom_filter(10, False)
    blocks.set_block_size(_BLOCK_BYTES)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.zstd())
    options.set_max_open_files(_OPEN_FILES)
    options.set_max_file_opening_threads(1)  # a batch opens a few ranges, and few files of each
    options.set_keep_log_file_num(1)  # each opening begins one
    # A range is open for a moment: a compaction beside it would be cut off when it closes.
    options.set_disable_auto_compactions(True)
    return options
