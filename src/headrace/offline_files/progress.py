"""Which counters of a source are done: ranges that merge, so the order of files does not matter."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.errors import CounterReusedError, OfflineFilesError

MAX_RANGES = 10_000


@dataclass(frozen=True, slots=True)
class CounterRange:
    """Counters from ``start`` (included) to ``end`` (excluded), and what their lines looked like.

    ``first`` and ``last`` are digests of the lines at both ends: a line with one of these
    counters and another digest is from somewhere else.
    """

    start: int
    end: int
    first: str
    last: str


@dataclass(frozen=True)
class LoadProgress:
    """What of a source is done.

    Attributes:
        source: its name.
        ranges: counters, ascending, neither overlapping nor touching.
        uncounted: digests of lines without a counter.
    """

    source: str
    ranges: tuple[CounterRange, ...] = ()
    uncounted: frozenset[str] = frozenset()

    def covers(self, counter: int) -> CounterRange | None:
        """The range that ``counter`` is in."""
        at = bisect.bisect_right(self.ranges, counter, key=lambda one: one.start) - 1
        found = self.ranges[at] if at >= 0 else None
        return found if found is not None and counter < found.end else None

    def is_done(self, counter: int, digest: str) -> bool:
        """It is done.

        Raises:
            CounterReusedError: another line with this counter is.
        """
        found = self.covers(counter)
        if found is None:
            return False
        known = {found.start: found.first, found.end - 1: found.last}
        if known.get(counter, digest) != digest:
            raise CounterReusedError(self.source, counter)
        return True

    def adding(self, done: Iterable[tuple[int | None, str]]) -> LoadProgress:
        """With further lines: the counter, if there is one, and the digest of each."""
        found = list(done)
        counted = [CounterRange(one, one + 1, text, text) for one, text in found if one is not None]
        uncounted = self.uncounted | {text for one, text in found if one is None}
        return LoadProgress(self.source, tuple(_merged([*self.ranges, *counted])), uncounted)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Counters between the first and the last that are not done: start and end (excluded)."""
        return [
            (before.end, after.start)
            for before, after in zip(self.ranges, self.ranges[1:], strict=False)
        ]

    def to_json(self) -> str:
        """The ranges.

        Raises:
            OfflineFilesError: there are too many to be kept in a record.
        """
        if len(self.ranges) > MAX_RANGES:
            reason = f"its counters have more than {MAX_RANGES} holes"
            raise OfflineFilesError(self.source, reason)
        return json.dumps([[one.start, one.end, one.first, one.last] for one in self.ranges])

    @classmethod
    def from_json(cls, source: str, text: str, uncounted: Iterable[str] = ()) -> LoadProgress:
        """What :meth:`to_json` wrote."""
        ranges = tuple(CounterRange(*one) for one in json.loads(text))
        return cls(source, ranges, frozenset(uncounted))


def _merged(ranges: list[CounterRange]) -> Iterator[CounterRange]:
    ranges.sort(key=lambda one: one.start)
    last: CounterRange | None = None
    for one in ranges:
        if last is not None and one.start <= last.end:
            last = _joined(last, one)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def _joined(one: CounterRange, other: CounterRange) -> CounterRange:
    if other.end <= one.end:
        return one
    return CounterRange(one.start, other.end, one.first, other.last)
