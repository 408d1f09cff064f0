"""Which counters of a source are done: ranges that merge, so the order of files does not matter."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from headrace.errors import CounterReusedError, OfflineFilesError

MAX_RANGES = 10_000  # some 600 KB, which a record of Kafka and a row can hold


@dataclass(frozen=True, slots=True)
class CounterRange:
    """Counters from ``start`` (included) to ``end`` (excluded), and what their lines looked like.

    ``first`` and ``last`` are digests of the lines at both ends: a line with one of these
    counters and another digest is of another source.
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
        """Returns the range that ``counter`` is in."""
        at = bisect.bisect_right(self.ranges, counter, key=lambda known: known.start) - 1
        # The last range that starts at or before the counter is the only one that may hold it.
        candidate = self.ranges[at] if at >= 0 else None
        return candidate if candidate is not None and counter < candidate.end else None

    def is_done(self, counter: int | None, digest: str) -> bool:
        """Returns whether the line of this counter, if any, and digest is done.

        Raises:
            CounterReusedError: if another line with this counter is.
        """
        if counter is None:
            return digest in self.uncounted
        covering = self.covers(counter)
        if covering is None:
            return False
        # Digests within a range are not kept: a reused counter is noticed at its ends alone.
        known = {covering.start: covering.first, covering.end - 1: covering.last}
        if known.get(counter, digest) != digest:
            raise CounterReusedError(self.source, counter)
        return True

    def adding(self, done: Iterable[tuple[int | None, str]]) -> LoadProgress:
        """Returns the progress with further lines: their counters, if any, and digests."""
        lines = list(done)
        counted = [CounterRange(at, at + 1, text, text) for at, text in lines if at is not None]
        uncounted = self.uncounted | {text for counter, text in lines if counter is None}
        return LoadProgress(self.source, tuple(_merged([*self.ranges, *counted])), uncounted)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Counters between the first and the last that are not done: start and end (excluded)."""
        return [
            (before.end, after.start)
            for before, after in zip(self.ranges, self.ranges[1:], strict=False)
        ]

    def to_json(self) -> str:
        """Returns the ranges.

        Raises:
            OfflineFilesError: if there are too many to be kept in a record.
        """
        if len(self.ranges) > MAX_RANGES:
            reason = f"its counters have more than {MAX_RANGES} holes"
            raise OfflineFilesError(self.source, reason)
        return json.dumps(
            [[known.start, known.end, known.first, known.last] for known in self.ranges]
        )

    @classmethod
    def from_json(cls, source: str, text: str, uncounted: Iterable[str] = ()) -> LoadProgress:
        """Returns the progress of what :meth:`to_json` wrote."""
        ranges = tuple(CounterRange(*fields) for fields in json.loads(text))
        return cls(source, ranges, frozenset(uncounted))


def _merged(ranges: list[CounterRange]) -> Iterator[CounterRange]:
    ranges.sort(key=lambda known: known.start)
    last: CounterRange | None = None
    for following in ranges:
        if last is not None and following.start <= last.end:
            if following.end > last.end:
                last = replace(last, end=following.end, last=following.last)
            continue
        if last is not None:
            yield last
        last = following
    if last is not None:
        yield last
