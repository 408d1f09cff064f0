"""A sink cannot take rows."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import FactsError


@dataclass(eq=False)
class SinkError(FactsError):
    """The sink can't take the batch."""

    sink: str
    reason: str


@dataclass(eq=False)
class RecordRejectedError(SinkError):
    """Kafka cannot take the record as it is."""


@dataclass(eq=False)
class ReplayedRecordError(SinkError):
    """Kafka refuses the record of a dead letter that is replayed.

    ``record`` is where it came from, ``dead_letter`` where its letter lies, both as
    ``topic/partition:offset``.
    """

    record: str
    dead_letter: str
    sent: int
    refused: int

    @property
    def remedy(self) -> str:
        return (
            "What was sent is remembered: another replay sends the rest only. A record that is too "
            "large needs a larger max.message.bytes of its topic, by some 1,000 bytes for the "
            "headers of a replay; the others can be replayed by --record, --reason or --pipeline."
        )


@dataclass(eq=False)
class SinkUnavailableError(SinkError):
    """The sink can't take the batch now."""
