"""What became of events, counted by topic, by reason and by account."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ingest.events.validation import Accepted
from headrace.ingest.figures.counters import Counters
from headrace.ingest.figures.service_metrics import (
    ACCOUNT_BYTES,
    ACCOUNT_EVENTS,
    BYTES,
    EVENTS,
    REJECTIONS,
    UNAVAILABLE,
    count_latency,
    known_code,
)
from headrace.ingest.http.problem import ProblemDetails


class EventFigures:
    """Counts the events of one topic and account; the figures are seen by all workers."""

    def __init__(self, counters: Counters, topic: str, account_slot: str) -> None:
        self._counters, self._topic, self._account = counters, topic, account_slot
        self._add_accepted = counters.adder(
            (EVENTS, topic, "accepted"), (ACCOUNT_EVENTS, account_slot, "accepted")
        )
        self._add_bytes = counters.adder((BYTES, topic), (ACCOUNT_BYTES, account_slot))

    def outcome(self, outcome: str, events: int) -> None:
        """Counts events with this outcome."""
        self._counters.add((EVENTS, self._topic, outcome), events)
        self._counters.add((ACCOUNT_EVENTS, self._account, outcome), events)

    def accepted(self, outcome: str, events: Sequence[Accepted]) -> None:
        """Counts events that are in Kafka or in the spool, and their bytes."""
        if outcome == "accepted":
            self._add_accepted(len(events))
        else:
            self.outcome(outcome, len(events))
        self._add_bytes(sum([len(event.value) for event in events]))

    def rejected(self, problems: Sequence[ProblemDetails]) -> None:
        """Counts events that are not taken, each with its reason."""
        self.outcome("rejected", len(problems))
        for problem in problems:
            self._counters.add((REJECTIONS, self._topic, known_code(problem.code)))

    def unavailable(self, outcome: str, code: str, events: int) -> None:
        """Counts a request that is answered with 503, and its events."""
        self.outcome(outcome, events)
        self._counters.add((UNAVAILABLE, self._topic, code))

    def latency(self, seconds: float) -> None:
        """Counts the time from the last byte of a body to its 202."""
        count_latency(self._counters, seconds)
