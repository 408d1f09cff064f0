"""How far event time has come in a partition, as the events of its batches say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

# Of the events of a batch, so many must have reached a time; :mod:`headrace.pipelines.late_data`.
_SHARE = 0.01
_SHARES = (_SHARE, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0)
_MIN_EVENTS = 2
_SAMPLED_AT_ONCE = 10_000  # quantiles of fewer cost more for each event, and make longer reports

Sample: TypeAlias = tuple[int, int]
"""An event time in microseconds since 1970, and how many events it stands for."""


@dataclass(frozen=True)
class EventClock:
    """The event clock of one partition.

    Attributes:
        event_us: event time that was reached, microseconds since 1970; None: not known yet.
        last_us: what the batch before said, with which a single event is compared.
    """

    event_us: int | None = None
    last_us: int | None = None

    def after(self, samples: Sequence[Sample], planned_us: int) -> EventClock:
        """Returns the clock after a batch that was planned at ``planned_us``."""
        if not samples:
            return self
        # A producer whose clock is ahead in all its events moves the clock to now, and no further.
        batch_us = min(reached(samples), planned_us)
        # A single event may come from a wrong clock, so it counts no further than the batch before
        # it.
        is_alone = sum(events for _, events in samples) < _MIN_EVENTS
        if is_alone and self.last_us is None:
            return EventClock(self.event_us, batch_us)
        confirmed = (
            min(batch_us, self.last_us) if is_alone and self.last_us is not None else batch_us
        )
        newest = confirmed if self.event_us is None else max(self.event_us, confirmed)
        return EventClock(newest, batch_us)


class EventTimeSamples:
    """Collects the event times of a range, chunk by chunk, as few samples."""

    def __init__(self, column: str | None) -> None:
        self._column = column
        self._times: list[pa.ChunkedArray] = []
        self._samples: list[Sample] = []

    def add(self, rows: pa.Table) -> None:
        """Takes the accepted rows of a chunk."""
        if self._column is None or not rows.num_rows:
            return
        import pyarrow as pa

        self._times.append(rows.column(self._column).drop_null().cast(pa.int64()))
        if sum(map(len, self._times)) >= _SAMPLED_AT_ONCE:
            self._sample()

    def samples(self) -> tuple[Sample, ...]:
        """Returns samples that stand for all events of the range.

        A range does not know how many events its batch has of the partition, so it does not know
        which of its times a hundredth of them has reached. The samples are times that a hundredth
        of some events has reached, two hundredths, four, and so on to all. What :func:`reached`
        finds in the samples of a batch, a hundredth has certainly reached, and no more than about
        three hundredths.
        """
        if any(map(len, self._times)):
            self._sample()
        return tuple(self._samples)

    def _sample(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        times = pa.chunked_array([chunk for times in self._times for chunk in times.chunks])
        self._times = []
        total = len(times)
        least = min(total, _MIN_EVENTS)
        counts = sorted({max(least, math.ceil(share * total)) for share in _SHARES})
        # Of sorted times, the place of the one that ``count`` events have reached; "nearest" takes
        # that place and no other, where the division has made it a little less.
        places = [(total - count) / max(1, total - 1) for count in counts]
        reached_by = pc.quantile(times, q=places, interpolation="nearest").to_pylist()
        newer = (0, *counts)
        self._samples += [
            (int(time), count - before)
            for time, count, before in zip(reached_by, counts, newer, strict=False)
        ]


def reached(samples: Iterable[Sample]) -> int:
    """Returns the newest sample that a hundredth of the events has reached, and two at least.

    Args:
        samples: not empty.
    """
    newest_first = sorted(samples, reverse=True)
    total = sum(events for _, events in newest_first)
    needed = min(total, max(_MIN_EVENTS, _SHARE * total))
    seen = 0
    for time, events in newest_first:
        seen += events
        if seen >= needed:
            return time
    raise ValueError("no samples")
