"""How far event time has come in a partition, as the events of its batches say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

_SHARE = 0.01
_MIN_EVENTS = 2

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
        said = min(reached(samples), planned_us)
        is_alone = sum(events for _, events in samples) < _MIN_EVENTS
        if is_alone and self.last_us is None:
            return EventClock(self.event_us, said)
        confirmed = min(said, self.last_us) if is_alone and self.last_us is not None else said
        newest = confirmed if self.event_us is None else max(self.event_us, confirmed)
        return EventClock(newest, said)


class EventTimeSamples:
    """Collects the event times of a range, chunk by chunk."""

    def __init__(self, column: str | None) -> None:
        self._column = column
        self._samples: list[Sample] = []

    def add(self, rows: pa.Table) -> None:
        """Takes the accepted rows of a chunk."""
        if self._column is None or not rows.num_rows:
            return
        import pyarrow as pa
        import pyarrow.compute as pc

        times = rows.column(self._column).drop_null().cast(pa.int64()).combine_chunks()
        if len(times):
            newer = min(len(times) - 1, max(1, int(_SHARE * len(times))))
            place = len(times) - 1 - newer
            time = times[pc.partition_nth_indices(times, pivot=place)[place].as_py()].as_py()
            self._samples.append((time, len(times)))

    @property
    def sample(self) -> Sample | None:
        """What all of them together say; None without any event time."""
        if not self._samples:
            return None
        return reached(self._samples), sum(events for _, events in self._samples)


def reached(samples: Iterable[Sample]) -> int:
    """Returns the newest time that a hundredth of the events has reached, and two at least.

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
