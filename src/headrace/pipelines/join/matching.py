"""Which later events of a batch find their earlier one: by its id, or the last one before them."""

from __future__ import annotations

import abc
from bisect import bisect
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents, fingerprints, time_and_offset
from headrace.pipelines.join.index.earlier_index import EarlierIndex


@dataclass(frozen=True)
class JoinWindow:
    """Which times of two events go together, in microseconds.

    Attributes:
        within_us: how long before the later event the earlier one may be.
        wait_us: how long a later event waits, by the clock of the earlier topic.
    """

    within_us: int
    wait_us: int

    def contains(self, earlier_us: int, later_us: int) -> bool:
        """Whether events of these times go together."""
        return later_us - self.within_us <= earlier_us <= later_us + self.wait_us

    def has_expired(self, later_us: int, clock_us: int) -> bool:
        """Whether the watermark has passed the end of the wait of a later event of this time."""
        return clock_us > later_us + self.wait_us

    def horizon_us(self, reached_us: int) -> int:
        """Returns the time before which earlier events are deleted.

        Later events may be late by twice ``wait``: such a one needs those of ``within`` before it.

        Args:
            reached_us: the smaller of the event clocks of both topics, which the planner lets
                diverge no further.
        """
        return max(0, reached_us - self.within_us - 2 * self.wait_us)


@dataclass(frozen=True)
class EarlierSnapshot:
    """The earlier events that a batch begins with.

    Attributes:
        index: which may hold more: events of attempts that were not committed.
        since_us: events before it do not count.
        before_offset: events that were read from here on do not count.
    """

    index: EarlierIndex
    since_us: int
    before_offset: int

    def find(self, events: KeyedEvents, keys: Collection[bytes]) -> dict[bytes, KeyedEvent]:
        """Returns by key the earlier events of the keys of ``events``, and of further keys.

        Each key names one event.
        """
        listed = [*events.keys, *keys]
        prints = np.concatenate([events.fingerprints, fingerprints(keys)])
        return self.index.find(listed, prints, self.since_us, self.before_offset)

    def last(self, later: Sequence[KeyedEvent]) -> list[KeyedEvent | None]:
        """Returns for each event the last one of its key that is not after it."""
        return self.index.last(later, self.since_us, self.before_offset)


@dataclass
class MatchResult:
    """Later events by what becomes of them.

    Attributes:
        matched: pairs of a later event and its earlier one.
        unmatched: those that find none any more.
        waiting: those that may find theirs yet.
    """

    matched: list[tuple[KeyedEvent, KeyedEvent]] = field(default_factory=list)
    unmatched: list[KeyedEvent] = field(default_factory=list)
    waiting: list[KeyedEvent] = field(default_factory=list)


class Matcher(abc.ABC):
    """The matching of one batch.

    Attributes:
        accepted: earlier events of the batch that later ones may refer to.
        conflicting: those whose key was there before with other bytes.
        repeated: those that were there with the same bytes.
    """

    accepted: KeyedEvents
    conflicting: KeyedEvents
    repeated: KeyedEvents

    @abc.abstractmethod
    def match(self, waiting: Sequence[KeyedEvent], clock_us: int) -> MatchResult:
        """Returns what becomes of later events when the earlier topic has passed a time.

        Args:
            waiting: those that the batch before left; those of this batch come after them.
            clock_us: the time that was passed.
        """


def matcher_for(
    match: Match,
    window: JoinWindow,
    known: EarlierSnapshot,
    earlier: KeyedEvents,
    later: Sequence[KeyedEvent],
) -> Matcher:
    """Returns the matcher of a batch with these events, each side in order of offset."""
    match match:
        case Match.ID:
            return IdMatcher(window, known, earlier, later)
        case Match.LAST:
            return LastMatcher(window, known, earlier, later)


class IdMatcher(Matcher):
    """A key names one event: the first that was read."""

    def __init__(
        self,
        window: JoinWindow,
        known: EarlierSnapshot,
        earlier: KeyedEvents,
        later: Sequence[KeyedEvent],
    ) -> None:
        self._window, self._later = window, later
        # What was known before this batch, waiting events have been compared with.
        before = known.find(earlier, {event.key for event in later})
        # By its first event: of those with the same key, the last one that is put in counts.
        first = dict(zip(reversed(earlier.keys), range(len(earlier) - 1, -1, -1), strict=True))
        is_first, is_conflicting = np.ones(len(earlier), np.bool_), np.zeros(len(earlier), np.bool_)
        # Nearly every batch has only new keys, and skips the loop over its events.
        if before.keys() & first.keys() or len(first) < len(earlier):
            for i, key in enumerate(earlier.keys):
                is_first[i] = first[key] == i and key not in before
        for i in np.flatnonzero(~is_first).tolist():
            event = earlier[i]
            # The first event that was read counts: that of an earlier batch, or else of this one.
            other = before.get(event.key) or earlier[first[event.key]]
            is_conflicting[i] = other.value != event.value
        self._earlier, self._first, self._before = earlier, first, before
        self.accepted = earlier.where(is_first)
        self.conflicting = earlier.where(is_conflicting)
        self.repeated = earlier.where(~is_first & ~is_conflicting)

    def match(self, waiting: Sequence[KeyedEvent], clock_us: int) -> MatchResult:
        """Returns what becomes of later events; those that are matched need not wait."""
        result = MatchResult()
        for event in (*waiting, *self._later):
            other = self._before.get(event.key)
            if other is None and (first := self._first.get(event.key)) is not None:
                other = self._earlier[first]
            if other is not None and self._window.contains(other.time_us, event.time_us):
                result.matched.append((event, other))
            elif other is not None or self._window.has_expired(event.time_us, clock_us):
                result.unmatched.append(event)
            else:
                result.waiting.append(event)
        return result


class LastMatcher(Matcher):
    """A key has many events, of which the newest counts that is not after the later one."""

    def __init__(
        self,
        window: JoinWindow,
        known: EarlierSnapshot,
        earlier: KeyedEvents,
        later: Sequence[KeyedEvent],
    ) -> None:
        self._window, self._known, self._later = window, known, later
        self.accepted = earlier
        self.conflicting = self.repeated = KeyedEvents.of([])
        self._by_key: defaultdict[bytes, list[KeyedEvent]] = defaultdict(list)
        for event in sorted(earlier, key=time_and_offset):
            self._by_key[event.key].append(event)

    def match(self, waiting: Sequence[KeyedEvent], clock_us: int) -> MatchResult:
        """Returns what becomes of later events; all wait until their time is over."""
        result = MatchResult()
        due: list[KeyedEvent] = []
        for event in (*waiting, *self._later):
            has_expired = self._window.has_expired(event.time_us, clock_us)
            (due if has_expired else result.waiting).append(event)
        for event, known in zip(due, self._known.last(due), strict=True):
            last = max(
                filter(None, (known, self._last_read(event))), key=time_and_offset, default=None
            )
            if last is not None and self._window.contains(last.time_us, event.time_us):
                result.matched.append((event, last))
            else:
                result.unmatched.append(event)
        return result

    def _last_read(self, later: KeyedEvent) -> KeyedEvent | None:
        events = self._by_key.get(later.key, [])
        place = bisect(events, later.time_us, key=lambda event: event.time_us)
        return events[place - 1] if place else None
