"""What the tasks of a source do with late events; frozen and picklable, as it travels to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headrace.model import Metadata
from headrace.sinks.api import WriterFactory

LATE_EVENT = "late-event"


@dataclass(frozen=True)
class LateRule:
    """How late is late, and where late events go.

    Attributes:
        allowed_us: ``Pipeline.allowed_lateness`` in microseconds.
        to_dead_letters: whether their records become dead letters.
        writers: of the side table; None: there is none.
        metadata: columns of the Kafka record that the side table gets.
    """

    allowed_us: int = 3_600_000_000
    to_dead_letters: bool = False
    writers: WriterFactory | None = None
    metadata: tuple[Metadata, ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether late events stay among the others."""
        return not self.to_dead_letters and self.writers is None

    def watermark_us(self, event_us: int | None) -> int | None:
        """Returns the event time before which events are late; None: none is."""
        return None if event_us is None else event_us - self.allowed_us

    def detail(self, column: str, time_us: int, watermark_us: int) -> str:
        """Returns the sentence in the dead letter of an event."""
        reached = _text(watermark_us + self.allowed_us)
        allowed = timedelta(microseconds=self.allowed_us)
        return (
            f"field {column!r} is {_text(time_us)}; the partition had reached {reached}, and the "
            f"allowed lateness is {allowed}"
        )


def _text(time_us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()
