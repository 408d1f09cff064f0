"""What a failure means: its reason in one sentence, whether and when to start again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.errors import (
    AuthenticationError,
    AuthorizationError,
    DeadLetterLimitError,
    HeadraceError,
    ProfileStoreError,
    ReferenceTooLargeError,
    RefusedError,
    StepError,
    StorageError,
)
from headrace.pipelines.remote_errors import original_error
from headrace.pipelines.steps import raised_in_step

if TYPE_CHECKING:
    from headrace.settings import RestartSettings

BUDGET_WINDOW_SECONDS = 3600.0
# A restart meets the same: an operator or a developer has to act first.
NEVER_RETRIED = (
    RefusedError,
    DeadLetterLimitError,
    AuthenticationError,
    AuthorizationError,
    ReferenceTooLargeError,
    StepError,
    StorageError,
    ProfileStoreError,
)


class RestartBudget:
    """How often a failed pipeline may start again within an hour, and after how long."""

    def __init__(self, settings: RestartSettings) -> None:
        self._settings = settings
        self._spent: list[float] = []

    def next_delay(self, now: float) -> float | None:
        """Seconds to wait before the next start; ``None`` when the budget is spent."""
        self._spent = [at for at in self._spent if now - at < BUDGET_WINDOW_SECONDS]
        if len(self._spent) >= self._settings.budget:
            return None
        delay = self._settings.first_delay_seconds * 2.0 ** len(self._spent)
        self._spent.append(now)
        return min(delay, self._settings.max_delay_seconds)


def cause(*errors: Exception | None) -> Exception | None:
    """What is behind errors that came through Spark: an error of ours, or of a step, or the first.

    Args:
        errors: of one failure, those that know more first.
    """
    raised = [error for error in errors if error is not None]
    # An error that did not cross Spark has its facts; of others only the text is left.
    for error in raised:
        if isinstance(error, HeadraceError):
            return error
    for text in map(str, raised):
        for original in (original_error(text), raised_in_step(text)):
            if original is not None:
                return original
    return next(iter(raised), None)


def used_twice(text: str) -> bool:
    """Whether Spark's offset log says that another driver plans batches of this checkpoint."""
    return "CONCURRENT_STREAM_LOG_UPDATE" in text


def headline(error: BaseException) -> str:
    """The sentence that says what went wrong; Spark's errors go on with plans and traces."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    headline = lines[0] if lines else type(error).__name__
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return f"{headline} ({raised[-1]})" if raised and raised[-1] not in headline else headline
