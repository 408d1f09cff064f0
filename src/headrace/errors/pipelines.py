"""A pipeline can't continue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from headrace.errors.base import FactsError


@dataclass(eq=False)
class StepError(FactsError):
    """A step failed."""

    step: str
    problem: str
    at: str

    @property
    def remedy(self) -> str:
        return "It would fail again, so it is not retried: correct it and run again."


@dataclass(eq=False)
class ReferenceTooLargeError(FactsError):
    """A reference table needs more memory than its step allows."""

    pipeline: str
    topic: str
    keys: int
    needed_bytes: int
    max_bytes: int

    @property
    def remedy(self) -> str:
        return "Raise `max_bytes` of `enrich`, keep fewer columns, or delete keys from the topic."


@dataclass(eq=False)
class UnreadRangesError(FactsError):
    """The reports of a batch do not cover what it was to read."""

    pipeline: str
    ranges: str


@dataclass(eq=False)
class DeadLetterLimitError(FactsError):
    """Too many bad records: it stops before it empties the topic into dead letters.

    Attributes:
        pipeline: name of the pipeline or worker.
        advice: what helps instead of a correction of the records; empty: nothing else does.
        kind: which of them stops.
    """

    # Its own: the records have to be corrected, and a restart would meet them again.
    exit_code = 4
    code: ClassVar[str] = "DEAD_LETTER_LIMIT"
    pipeline: str
    reason: str
    advice: str = field(default="", repr=False)
    kind: str = field(default="pipeline", repr=False)

    def facts(self) -> dict[str, object]:
        return {self.kind: self.pipeline, "reason": self.reason}

    @property
    def remedy(self) -> str:
        limit = "its `dead_letter_limit`. The batch was not written"
        if self.kind == "worker":
            limit = "its `DeadLetters(limit=...)`"
        return self.advice or (
            f"Correct what makes or reads the records and run again, or raise the limit: {limit}."
        )
