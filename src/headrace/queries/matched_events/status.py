"""The status of a process that sends matched events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.links.status import TransferStatus
from headrace.metrics import MATCHED_EVENTS_METRICS


@dataclass(frozen=True)
class EmitterStatus(TransferStatus):
    """The state of the process, and counts of what it has committed since it began.

    Attributes:
        read: number of events that were matched.
        queries: number of queries that are matched.
        registry_offset: the offset of the topic of queries before which queries were read.
        rules: hash of the live queries.
    """

    read: int = 0
    queries: int = 0
    registry_offset: int = 0
    rules: str = ""

    kind: ClassVar[str] = "matched_events"
    folder: ClassVar[str] = "matched-events"
    metrics = MATCHED_EVENTS_METRICS
