"""What the tasks of a source do with late events; frozen and picklable, as it travels to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headrace.ledger.sums import Fate
from headrace.model import Metadata
from headrace.sinks.api import WriterFactory

LATE_EVENT = "late-event"
BEHIND_WATERMARK = "behind-watermark"


@dataclass(frozen=True)
class LateRule:
    """How late is late, and where late events go.

    Attributes:
        allowed_us: ``Pipeline.allowed_lateness`` in microseconds.
        to_dead_letters: whether their records become dead letters.
        drops: whether they go nowhere.
        writers: of the side table; None: there is none.
        metadata: columns of the Kafka record that the side table gets.
    """

    allowed_us: int = 3_600_000_000
    to_dead_letters: bool = False
    drops: bool = False
    writers: WriterFactory | None = None
    metadata: tuple[Metadata, ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether late events stay among the others."""
        return not self.to_dead_letters and not self.drops and self.writers is None

    @property
    def fate(self) -> Fate:
        """What the ledger counts of those that do not stay."""
        return Fate.DROPPED if self.drops else Fate.LATE

    def watermark_us(self, event_us: int | None) -> int | None:
        """Returns the event time before which events are late; None: none is."""
        return None if event_us is None else event_us - self.allowed_us

    def detail(self, column: str, time_us: int, watermark_us: int) -> str:
        """Returns the sentence in the dead letter of an event."""
        reached = time_text(watermark_us + self.allowed_us)
        allowed = timedelta(microseconds=self.allowed_us)
        return (
            f"field {column!r} is {time_text(time_us)}; the partition had reached {reached}, and "
            f"the allowed lateness is {allowed}"
        )


def time_text(time_us: int) -> str:
    """Returns a time of microseconds since 1970 as text; as a number beyond Python's range."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()
    except OverflowError:
        return f"{time_us} microseconds since 1970"
