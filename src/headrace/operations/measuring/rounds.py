"""How often and how long is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 5
WARM_UP_SHARE = 0.2
"""Of the time of all rounds: what is processed before is not counted."""

OnStep = Callable[[int, int, str], None]
"""Called before each step: steps done, steps in all, and what comes now."""


@dataclass(frozen=True)
class MeasureOptions:
    """What to measure with.

    Attributes:
        records: of the sample, for each topic.
        seconds: of all rounds together, warm-up not counted.
        file: with events, in place of the newest records of the topic.
        command: the command line, for the result.
        rounds: how many.
    """

    records: int
    seconds: float
    file: Path | None
    command: str
    rounds: int = ROUNDS

    @property
    def warm_up_seconds(self) -> float:
        """Returns the time that is not counted."""
        return self.seconds * WARM_UP_SHARE

    @property
    def round_seconds(self) -> float:
        """Returns the time of a round."""
        return self.seconds / self.rounds
