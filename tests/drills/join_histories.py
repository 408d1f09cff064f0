"""Random histories of two topics, and what a join of them gives: a reference without state."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent
from headrace.pipelines.join.facts import FactIndex, slice_length_us
from headrace.pipelines.join.matching import JoinWindow
from headrace.pipelines.join.partition import JoinedBatch, JoinPartition
from headrace.pipelines.join.state import JoinPosition, StateFolder

MINUTE = 60_000_000
WINDOW = JoinWindow(within_us=30 * MINUTE, wait_us=5 * MINUTE)
SLICE = slice_length_us(WINDOW.within_us)
BEGIN = 1_764_000_000_000_000


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
            distance = rng.choice([-1, 0, 1, 5, 29, 31, 40]) * MINUTE
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
            distance = rng.choice([-4, -1, 0, 1, 5, 29, 31, 40]) * MINUTE
            key = rng.choice([seen.key, seen.key, seen.key, b"none"])
            later.append(KeyedEvent(key, seen.time_us + distance, offset, b"l%d" % offset))
        later = in_order(later, rng)
        matched, unmatched = set(), set()
        for event in later:
            other = first.get(event.key)
            if other is not None and WINDOW.holds(other.time_us, event.time_us):
                matched.add((event.offset, other.offset))
            else:
                unmatched.add(event.offset)
        return cls(earlier, later, matched, unmatched, conflicting, repeated)

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
    return [event._replace(offset=offset) for offset, event in enumerate(read)]


class Place:
    """The durable folder, and machines with an index of their own."""

    def __init__(self, folder, match):
        self.match = match
        self.folder, self.indexes = folder, folder / "indexes"
        self.durable = folder / "durable"
        self.durable.mkdir()

    def join(self, machine, start, end, history, crash=None):
        initial = JoinPosition(0, 0, 0, 0)
        state = StateFolder(str(self.durable), initial, "p", {})
        index = FactIndex(self.indexes / machine, SLICE)
        if crash is not None:
            crash(state, index)
        try:
            return JoinPartition(state, index, WINDOW, self.match).join(
                start,
                end,
                history.earlier[start.earlier : end.earlier],
                history.later[start.later : end.later],
            )
        finally:
            index.close()

    def lose(self, machine):
        shutil.rmtree(self.indexes / machine, ignore_errors=True)

    def back_up(self):
        shutil.copytree(self.durable, self.folder / "backup", dirs_exist_ok=False)

    def restore(self):
        shutil.rmtree(self.durable)
        shutil.move(self.folder / "backup", self.durable)


def crash_at(rng):
    """Fails before or after one of the writes."""
    name, after = rng.choice(["write", "write_facts", "apply", "expire"]), rng.random() < 0.5

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


def disturbed(place, history, rng, ahead_us=0):
    """Batches between crashes, lost indexes, two machines, and one restore of a backup."""
    committed, backup, restores = [], None, 1
    position = JoinPosition(0, 0, 0, 0)
    ends = history.positions(rng, position, ahead_us)
    while (end := next(ends, None)) is not None:
        machine = rng.choice(["a", "a", "a", "b"])
        if rng.random() < 0.1:
            place.lose(machine)
        while rng.random() < 0.3:
            try:
                place.join(machine, position, end, history, crash_at(rng))
            except CrashError:
                machine = rng.choice(["a", "b"])
        committed.append(Committed(position, end, place.join(machine, position, end, history)))
        position = end
        if backup is None and rng.random() < 0.2:
            place.back_up()
            backup = position, list(committed)
        elif backup is not None and restores and rng.random() < 0.1:
            restores -= 1
            place.restore()
            position, committed = backup
            ends = history.positions(rng, position, ahead_us)  # planned anew: other ends
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
