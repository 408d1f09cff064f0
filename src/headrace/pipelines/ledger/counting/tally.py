"""Counts the events of one range for the ledger, in the task that reads it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.events.event_hash import Hashes, hash_positions, hash_texts
from headrace.ledger.sums import Fate, Hop, Sums
from headrace.model import Metadata, TopicPartition
from headrace.pipelines.ledger.sums import LedgerKey, LedgerLine, lines_of
from headrace.pipelines.source.record_columns import record_offsets

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.kafka.read.range_reader import Record

POSITION = (Metadata.TOPIC.value, Metadata.PARTITION.value, Metadata.OFFSET.value)
_MICROSECONDS = 1_000_000
_NO_WINDOW = np.iinfo(np.int64).min

Integers = NDArray[np.int64]
CountableT = TypeVar("CountableT", bound="Countable")
_Added_contra = TypeVar("_Added_contra", contravariant=True)


@dataclass(frozen=True)
class LedgerRule:
    """What the events of a topic are counted by; picklable, as it travels to the tasks.

    Attributes:
        window_seconds: length of a window.
        event_time: field of the event time; None: the topic declares none.
        event_id: path of the field with the event's id; None: its record's position is its id.
    """

    window_seconds: int
    event_time: str | None
    event_id: str | None

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns of a table with ids: of the event's id, or of its record's position."""
        return POSITION if self.event_id is None else (self.event_id.partition(".")[0],)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a table that decide windows and ids."""
        return (*self.id_columns, *([self.event_time] if self.event_time else []))


@dataclass(frozen=True)
class LedgerColumns:
    """What the ledger counts of some events: an element of each array for each of them.

    Attributes:
        windows: starts of their windows, int64, in seconds since 1970; the smallest int64 of an
            event without an event time.
        bytes: of their record values, int64.
        hashes: of their ids, uint64.
    """

    windows: Integers
    bytes: Integers
    hashes: Hashes

    def __len__(self) -> int:
        return len(self.windows)

    def take(self, indices: Integers) -> LedgerColumns:
        """Returns those of the events at ``indices``."""
        return LedgerColumns(self.windows[indices], self.bytes[indices], self.hashes[indices])

    @cached_property
    def sums(self) -> Mapping[int | None, Sums]:
        """The sums by start of the window, in seconds since 1970; None: no event time."""
        if not len(self.windows):
            return {}
        if self.windows.min() == self.windows.max():  # nearly every chunk: no sort
            return {_window(self.windows[0]): _sums(self.bytes, self.hashes)}
        order = np.argsort(self.windows, kind="stable")
        windows, starts = np.unique(self.windows[order], return_index=True)
        ends = [*starts[1:], len(order)]
        return {
            _window(window): _sums(self.bytes[order[low:high]], self.hashes[order[low:high]])
            for window, low, high in zip(windows, starts, ends, strict=True)
        }


def id_hashes(path: str, rows: pa.Table) -> Hashes:
    """Returns the hash of the id of each row, which is at a path such as ``meta.id``."""
    import pyarrow.compute as pc

    name, *inner = path.split(".")
    column = rows.column(name)
    return hash_texts(pc.struct_field(column, inner) if inner else column)


def event_windows(rule: LedgerRule, rows: pa.Table) -> Integers:
    """Returns the start of the window of each row; the smallest integer where it has no time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if rule.event_time is None:
        return np.full(rows.num_rows, _NO_WINDOW)
    times = rows.column(rule.event_time).cast(pa.int64())
    length = rule.window_seconds * _MICROSECONDS
    bounds = pc.min_max(times).as_py()
    if bounds["min"] is None:
        return np.full(rows.num_rows, _NO_WINDOW)
    first, last = bounds["min"] // length, bounds["max"] // length
    if not times.null_count and first == last:  # nearly every chunk: a division for each row costs
        return np.full(rows.num_rows, first * rule.window_seconds)
    is_null = times.is_null().to_numpy()
    windows = times.fill_null(0).to_numpy() // length * rule.window_seconds
    return np.where(is_null, _NO_WINDOW, windows)


def _window(start: np.int64) -> int | None:
    return None if start == _NO_WINDOW else int(start)


def _sums(bytes_: Integers, hashes: Hashes) -> Sums:
    return Sums(len(bytes_), int(bytes_.sum()), int(hashes.sum(dtype=np.uint64)))


class RangeTally:
    """The sums of one range. Used on one thread, for one attempt of a task."""

    def __init__(self, rule: LedgerRule, partition: TopicPartition) -> None:
        self._rule = rule
        self._partition = partition
        self._totals: dict[LedgerKey, Sums] = {}

    def columns(self, rows: pa.Table, records: Sequence[Record], bytes_: Integers) -> LedgerColumns:
        """Returns what is counted of rows that were decoded from ``records``, in their order."""
        if self._rule.event_id is not None:
            hashes = id_hashes(self._rule.event_id, rows)
        else:
            partition = self._partition
            hashes = hash_positions(partition.topic, partition.partition, record_offsets(records))
        return LedgerColumns(event_windows(self._rule, rows), bytes_, hashes)

    def rejected(self, fate: Fate, bytes_: Integers) -> None:
        """Counts records that came in and are no events: they have no id and no event time."""
        hashes = np.zeros(len(bytes_), np.uint64)
        columns = LedgerColumns(np.full(len(bytes_), _NO_WINDOW), bytes_, hashes)
        self.add(Hop.READ, Fate.IN, columns)
        self.add(Hop.READ, fate, columns)

    def add(self, hop: Hop, fate: Fate, columns: LedgerColumns) -> None:
        """Counts events with a fate at a hop."""
        topic, partition = self._partition.topic, self._partition.partition
        for window, sums in columns.sums.items():
            key = LedgerKey(hop, fate, window, topic, partition)
            self._totals[key] = self._totals.get(key, Sums()) + sums

    def lines(self) -> tuple[LedgerLine, ...]:
        """Returns what was counted."""
        return lines_of(self._totals)


class Countable(Protocol):
    """What a tally adds up: :class:`LedgerColumns`, of one partition or of several."""

    def __len__(self) -> int: ...

    def take(self, indices: Integers) -> Self:
        """Returns those of the rows at ``indices``."""


class Tally(Protocol[_Added_contra]):
    """Adds up what the ledger counts."""

    def add(self, hop: Hop, fate: Fate, columns: _Added_contra) -> None:
        """Counts rows with a fate at a hop."""


class ReadListener(Protocol):
    """Gets what was counted of events that were read and are passed on, chunk by chunk."""

    def expect(self, tally: Tally[LedgerColumns], columns: LedgerColumns) -> None:
        """Takes the columns of the next chunk, which ``tally`` has counted."""


class SinkTally(Generic[CountableT]):
    """Counts the rows of a task where they are handed to the sink.

    Tables are written whole and in the order in which they were read, several at once.
    """

    def __init__(self) -> None:
        self._read: deque[tuple[Tally[CountableT], CountableT]] = deque()

    def expect(self, tally: Tally[CountableT], columns: CountableT) -> None:
        """Notes a table that goes to the sink next."""
        self._read.append((tally, columns))

    def written(self, rows: int, rejected: Collection[int]) -> None:
        """Counts the next ``rows`` rows, of which the sink rejects those at some indices."""
        begin = 0
        while begin < rows and self._read:
            tally, columns = self._read.popleft()
            if len(columns) > rows - begin:  # rows were lost on the way here
                columns = columns.take(np.arange(rows - begin))
            tally.add(Hop.SINK, Fate.IN, columns)
            dead = [index - begin for index in rejected if begin <= index < begin + len(columns)]
            if dead:
                tally.add(Hop.SINK, Fate.DEAD, columns.take(np.array(dead, np.int64)))
                forwarded = columns.take(np.delete(np.arange(len(columns)), dead))
            else:
                forwarded = columns
            tally.add(Hop.SINK, Fate.OUT, forwarded)
            begin += len(columns)


def value_bytes(values: Sequence[bytes | None]) -> Integers:
    """Returns the bytes of each value; 0 for a tombstone."""
    try:
        return np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
    except TypeError:  # a tombstone has no length, and few topics have any
        return np.fromiter((len(value or b"") for value in values), np.int64, len(values))
