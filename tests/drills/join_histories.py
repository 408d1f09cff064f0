"""Random histories of two topics, and what a join of them gives: a reference without state."""

from __future__ import annotations

import shutil
import weakref
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa

from headrace.events.event_hash import hash_positions
from headrace.ledger.sums import Fate, Hop
from headrace.ledger.windows import WindowState
from headrace.model import TopicPartition
from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import DecodedEvents, KeyedEvent, KeyedEvents
from headrace.pipelines.join.index.earlier_index import EarlierIndex
from headrace.pipelines.join.index.slices import slice_length_us
from headrace.pipelines.join.index.state import StateFolder
from headrace.pipelines.join.matching import JoinWindow
from headrace.pipelines.join.offsets import JoinPosition
from headrace.pipelines.join.partition import JoinedBatch, JoinPartition
from headrace.pipelines.join.tally import EarlierTally, LaterTally, event_hashes, event_offsets
from headrace.pipelines.ledger.comparison import HopComparison
from headrace.pipelines.ledger.completeness import CompletenessBounds
from headrace.pipelines.ledger.counting.tally import (
    LedgerColumns,
    LedgerRule,
    RangeTally,
    event_windows,
    value_bytes,
)
from headrace.pipelines.ledger.entry import LedgerEntry

MEMORY = Path("/dev/shm")
MINUTE = 60_000_000
WINDOW = JoinWindow(within_us=30 * MINUTE, wait_us=5 * MINUTE)
SLICE = slice_length_us(WINDOW.within_us)
BEGIN = 1_764_000_000_000_000
EARLIER, LATER = TopicPartition("earlier", 0), TopicPartition("later", 0)
RULE = LedgerRule(300, "at", None)


def is_within(earlier_us: int, later_us: int) -> bool:
    """Returns whether the times go together, as docs/join.md says it of ``Match.ID``."""
    return later_us - 30 * MINUTE <= earlier_us <= later_us + 5 * MINUTE


class CrashError(Exception):
    """The machine fails here."""


@dataclass
class History:
    """Both logs of a partition, and what a join of them gives."""

    earlier: list[KeyedEvent]
    later: list[KeyedEvent]
    matched: set[tuple[int, int]]
    unmatched: set[int]
    conflicting: set[int]
    repeated: int

    @classmethod
    def random(cls, rng, match):
        return cls.of_users(rng) if match is Match.LAST else cls.of_ids(rng)

    @classmethod
    def of_users(cls, rng):
        count = rng.randrange(20, 200)
        users = rng.choice([1, 3, 20])
        earlier = []
        for offset in range(count):
            time_us = BEGIN + offset * MINUTE // 4 + rng.randrange(-6, 6) * MINUTE // 6
            earlier.append(KeyedEvent(b"%d" % rng.randrange(users), time_us, offset, b"e"))
        asked = []
        for _ in range(count // 2):
            seen = rng.choice(earlier)
            distance = rng.choice([-1, 0, 1, 5, 29, 30, 31, 40]) * MINUTE
            key = rng.choice([seen.key, seen.key, b"%d" % rng.randrange(users), b"none"])
            asked.append(KeyedEvent(key, seen.time_us + distance, 0, b"l"))
        later = in_order(asked, rng)
        matched, unmatched = set(), set()
        for event in later:
            of_user = [
                (other.time_us, other.offset)
                for other in earlier
                if other.key == event.key
                and event.time_us - WINDOW.within_us <= other.time_us <= event.time_us
            ]
            if of_user:
                matched.add((event.offset, max(of_user)[1]))
            else:
                unmatched.add(event.offset)
        return cls(earlier, later, matched, unmatched, set(), 0)

    @classmethod
    def of_ids(cls, rng):
        count = rng.randrange(20, 200)
        earlier, first, conflicting, repeated = [], {}, set(), 0
        for offset in range(count):
            time_us = BEGIN + offset * MINUTE // 4 + rng.randrange(-MINUTE, MINUTE)
            key = b"%d" % rng.randrange(count)
            value = key + rng.choice([b"", b"", b"", b"other"])
            event = KeyedEvent(key, time_us, offset, value)
            earlier.append(event)
            # Within a few minutes, so that no first one is forgotten meanwhile.
            if key in first and first[key].offset < offset - 40:
                event = KeyedEvent(b"x%d" % offset, time_us, offset, value)
                earlier[-1] = event
            other = first.setdefault(event.key, event)
            if other is not event:
                repeated += other.value == value
                if other.value != value:
                    conflicting.add(offset)
        later = []
        for offset in range(count // 2):
            seen = rng.choice(earlier)
            distance = rng.choice([-6, -5, -4, -1, 0, 1, 5, 29, 30, 31, 40]) * MINUTE
            key = rng.choice([seen.key, seen.key, seen.key, b"none"])
            later.append(KeyedEvent(key, seen.time_us + distance, offset, b"l%d" % offset))
        later = in_order(later, rng)
        matched, unmatched = set(), set()
        for event in later:
            other = first.get(event.key)
            if other is not None and is_within(other.time_us, event.time_us):
                matched.add((event.offset, other.offset))
            else:
                unmatched.add(event.offset)
        return cls(earlier, later, matched, unmatched, conflicting, repeated)

    def changed(self, rng):
        """The same logs with another class: some events are none, or have another key or time."""

        def change(event):
            kind = rng.randrange(8)
            if kind == 0:
                return []
            if kind == 1:
                return [event._replace(key=rng.choice(self.earlier).key)]
            if kind == 2:
                return [event._replace(time_us=event.time_us + rng.randrange(-4, 4) * MINUTE)]
            if kind == 3:  # the log was cut, and grew again
                return [event._replace(value=event.value + b"changed")]
            return [event]

        earlier = [other for event in self.earlier for other in change(event)]
        return replace(self, earlier=earlier)

    def earlier_between(self, start, end):
        """The earlier events of a range of offsets."""
        return [event for event in self.earlier if start <= event.offset < end]

    def positions(self, rng, start, ahead_us):
        """Yields ends of batches after ``start``; the clock is this far ahead of what is unread."""
        earlier, later, clock_us = start.earlier, start.later, start.clock_us
        while earlier < len(self.earlier) or later < len(self.later):
            earlier = min(len(self.earlier), earlier + rng.randrange(12))
            passed = self._clock(earlier)
            later += rng.randrange(8)
            # Readers of both topics keep together: an event is not read long after its time.
            while later < len(self.later) and self.later[later].time_us < passed - 2 * MINUTE:
                later += 1
            later = min(len(self.later), later)
            clock_us = max(clock_us, passed + ahead_us)
            yield JoinPosition(earlier, later, clock_us, WINDOW.horizon_us(clock_us))
        clock_us += 1000 * MINUTE
        yield JoinPosition(earlier, later, clock_us, WINDOW.horizon_us(clock_us))

    def _clock(self, earlier):
        unread = [event.time_us for event in self.earlier[earlier:]]
        return min(unread) - 1 if unread else max(event.time_us for event in self.earlier)


def in_order(later, rng):
    """Events in the order of their times, by and large."""
    read = sorted(later, key=lambda event: event.time_us + rng.randrange(4 * MINUTE))
    hashes = hash_positions(LATER.topic, LATER.partition, np.arange(len(read))).tolist()
    return [event._replace(offset=offset, hash=hashes[offset]) for offset, event in enumerate(read)]


class SimulatedPartition:
    """The durable folder, and machines with an index of their own."""

    def __init__(self, folder, match):
        self.match = match
        self.folder = folder
        # In memory where there is such a folder: RocksDB syncs files that a machine may lose.
        self.indexes = Path(mkdtemp(dir=MEMORY if MEMORY.is_dir() else folder))
        weakref.finalize(self, shutil.rmtree, self.indexes, ignore_errors=True)
        self.durable = folder / "durable"
        self.durable.mkdir()

    def join(self, machine, start, end, history, crash=None):
        state = self._states()
        index = EarlierIndex(self.indexes / machine, SLICE)
        if crash is not None:
            crash(state, index)
        return JoinPartition(state, index, WINDOW, self.match).join(
            start,
            end,
            KeyedEvents.of(history.earlier_between(start.earlier, end.earlier)),
            history.later[start.later : end.later],
        )

    def state(self, position):
        return self._states().read(position)

    def _states(self):
        return StateFolder(str(self.durable), JoinPosition(0, 0, 0, 0), "p", {})

    def lose(self, machine):
        shutil.rmtree(self.indexes / machine, ignore_errors=True)

    def back_up(self, name="backup"):
        shutil.copytree(self.durable, self.folder / name, dirs_exist_ok=False)

    def restore(self, name="backup"):
        shutil.rmtree(self.durable)
        shutil.move(self.folder / name, self.durable)


def crash_at(rng):
    """Fails before or after one of the writes."""
    name = rng.choice(["write", "write_segment", "ingest", "expire", "mark_compacted", "rename"])
    after = rng.random() < 0.5

    def prepare(state, index):
        owner = state if hasattr(state, name) else index
        original = getattr(owner, name)

        def fails(*arguments):
            if after:
                original(*arguments)
            raise CrashError

        setattr(owner, name, fails)

    return prepare


@dataclass
class Committed:
    """A batch that counts, and where it began and ended."""

    start: JoinPosition
    end: JoinPosition
    batch: JoinedBatch


def given_up(partition, history, rng, position, ahead_us):
    """Joins batches of another class from a position on, on any machine; a restore undoes them."""
    partition.back_up("before")
    other = history.changed(rng)
    for end in islice(history.positions(rng, position, ahead_us), rng.randrange(1, 6)):
        partition.join(rng.choice(["a", "b"]), position, end, other)
        position = end
    partition.restore("before")


def disturbed(partition, history, rng, ahead_us=0):
    """Batches between crashes, lost indexes, two machines, restores, and batches given up.

    Those that were given up had another class, and were planned again or repeated.
    """
    committed, backup, restores = [], None, 1
    position = JoinPosition(0, 0, 0, 0)
    ends = history.positions(rng, position, ahead_us)
    while (end := next(ends, None)) is not None:
        machine = rng.choice(["a", "a", "a", "b"])
        if rng.random() < 0.1:
            partition.lose(machine)
        while rng.random() < 0.3:
            try:
                partition.join(machine, position, end, history, crash_at(rng))
            except CrashError:
                machine = rng.choice(["a", "b"])
        if rng.random() < 0.1:
            given_up(partition, history, rng, position, ahead_us)
        if rng.random() < 0.1:  # its sink failed; then it is repeated with the class of now
            partition.join(rng.choice(["a", "b"]), position, end, history.changed(rng))
        committed.append(Committed(position, end, partition.join(machine, position, end, history)))
        position = end
        if backup is None and rng.random() < 0.2:
            partition.back_up()
            backup = position, list(committed)
        elif backup is not None and restores and rng.random() < 0.1:
            restores -= 1
            partition.restore()
            position, committed = backup
            ends = history.positions(rng, position, ahead_us)  # planned again: other ends
    return committed


def assert_is_that_of_the_whole(committed, history):
    """Each later event has exactly one outcome, and it is that of the reference."""
    batches = [each.batch for each in committed]
    matched = Counter(
        (later.offset, earlier.offset) for batch in batches for later, earlier in batch.matched
    )
    unmatched = Counter(event.offset for batch in batches for event in batch.unmatched)
    assert matched == Counter(history.matched)
    assert unmatched == Counter(history.unmatched)
    assert {e.offset for batch in batches for e in batch.conflicting} == history.conflicting
    assert sum(batch.counts.repeated for batch in batches) == history.repeated
    assert batches[-1].counts.waiting == 0
    windows = balance(entries_of(committed, history)).windows()
    assert {window.state for window in windows} == {WindowState.BALANCED}
    fates = Counter()
    for window in windows:
        fates.update(window.fates)
    kept = fates.pop(Fate.KEPT) + fates.pop(Fate.EXPIRED, 0)
    assert kept == len(history.earlier) - history.repeated - len(history.conflicting)
    assert fates == +Counter(
        {
            Fate.OUT: len(history.matched),
            Fate.UNMATCHED: len(history.unmatched),
            Fate.DEDUPLICATED: history.repeated,
            Fate.DEAD: len(history.conflicting),
        }
    )


def rows_of(events):
    """Rows as they would be decoded: their time alone, since their places are their ids."""
    times = pa.array([event.time_us for event in events], pa.timestamp("us", "UTC"))
    return DecodedEvents(pa.table({"at": times}), events, [])


def entries_of(committed, history):
    return [entry_of(number, each, history) for number, each in enumerate(committed)]


def entry_of(number, committed, history, decoded=rows_of):
    """The entry of a batch, with the sums that its task makes.

    Args:
        decoded: makes the rows of events that go to a sink.
    """
    start, end, batch = committed.start, committed.end, committed.batch
    earlier, later = EarlierTally(RULE, EARLIER), LaterTally(RULE, LATER, writes=True)
    lines = [
        *read_lines(EARLIER, history.earlier[start.earlier : end.earlier], earlier),
        *read_lines(LATER, history.later[start.later : end.later]),
    ]
    earlier.joined(batch, KeyedEvents.of(history.earlier[start.earlier : end.earlier]))
    later.joined(batch)
    later.sent_to_side_table(batch.unmatched, decoded(batch.unmatched))
    matched = [event for event, _ in batch.matched]
    rows = decoded(matched)
    later.passed_on(matched, rows)
    later.sink.written(rows.rows.num_rows, [])
    return LedgerEntry(
        *(1, number, number, RULE.window_seconds, ()),
        (*lines, *earlier.lines(), *later.lines()),
        clocks={LATER.topic: {0: end.clock_us}},
        waited={LATER.topic: {0: later.waiting.before}},
        waiting={LATER.topic: {0: later.waiting.after}},
    )


def read_lines(partition, events, taker=None):
    tally, rows = RangeTally(RULE, partition), rows_of(events).rows
    columns = LedgerColumns(
        event_windows(RULE, rows),
        value_bytes([event.value for event in events]),
        event_hashes(None, rows, partition, event_offsets(events)),
    )
    tally.add(Hop.READ, Fate.IN, columns)
    tally.add(Hop.READ, Fate.OUT, columns)
    if taker is not None:
        taker.expect(tally, columns)
    return tally.lines()


def balance(entries):
    return HopComparison(entries, CompletenessBounds(0), has_steps=False, is_join=True)
