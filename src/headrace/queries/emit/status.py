"""The status of a process that sends matched events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.service.figures import counter, gauge
from headrace.service.reader_status import ReaderStatus


@dataclass(frozen=True)
class EmitterStatus(ReaderStatus):
    """The state of the process, and counts of what it has committed since it began.

    Attributes:
        registry_offset: the offset of the topic of queries before which queries were read.
        rules: hash of the live queries.
    """

    records: int = counter(
        "records",
        "matched events that were sent, as far as their positions are committed",
        "standing still while `read` rises: no event matches",
    )
    read: int = counter(
        "events",
        "offsets of events that were looked at; counted where positions are committed: "
        "every five minutes, and up to the last event that was sent where queries change "
        "or the process ends",
        "standing still while events come: see the state and its reason",
    )
    restarts: int = counter(
        "restarts",
        "times that the query of Spark failed and was started again",
        "rising: the log says why",
    )
    queries: int = gauge(
        "queries",
        "live queries with `MATCHED EVENTS EMIT`",
        "not as many as you have registered: `headrace query list` says which are live",
    )
    lag_records = ReaderStatus.lag_records.gauge(
        "records",
        "offsets from the committed positions to the end of the topic: `since commit` in `status`",
        "above what comes in ten minutes: it is too slow, or stands still",
    )
    registry_offset: int = 0
    rules: str = ""

    kind: ClassVar[str] = "matched_events"
    folder: ClassVar[str] = "matched-events"
