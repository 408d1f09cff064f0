"""What a failure means: its reason in one sentence, whether and when to start again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace import errors
from headrace.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnreachableError,
    DeadLetterLimitError,
    HeadraceError,
    RefusedError,
    StepError,
)
from headrace.pipelines.steps import raised_in_step

if TYPE_CHECKING:
    from headrace.settings import RestartSettings

BUDGET_WINDOW_SECONDS = 3600.0
NEVER_RETRIED = (
    RefusedError,
    DeadLetterLimitError,
    AuthenticationError,
    AuthorizationError,
    StepError,
)
_TOLD_APART = (*NEVER_RETRIED, BrokerUnreachableError)


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
        return min(delay, self._settings.longest_delay_seconds)


def cause(*errors: Exception | None) -> Exception | None:
    """What is behind errors that came through Spark: an error of ours, or of a step, or the first.

    Args:
        errors: of one failure, those that know more first.
    """
    raised = [one for one in errors if one is not None]
    for one in raised:
        if isinstance(one, HeadraceError):
            return one
    for text in map(str, raised):
        if found := named_error(text) or raised_in_step(text):
            return found
    return next(iter(raised), None)


def named_error(text: str) -> Exception | None:
    """Our own error inside a traceback that came through Spark as text; ``None`` without one.

    Spark runs planner and tasks in other processes and passes on what they print.
    """
    found = re.findall(r"headrace\.errors\.(\w+Error): (.+)", text)
    if not found:
        return None
    name, message = found[-1]
    kind = getattr(errors, name, HeadraceError)
    base = next((base for base in _TOLD_APART if issubclass(kind, base)), HeadraceError)
    # Its message is known, its fields are not.
    methods = {"__str__": lambda _: message.strip(), "__init__": lambda _: None}
    remote: Exception = type(name, (base,), methods)()
    return remote


def used_twice(text: str) -> bool:
    """Whether Spark's offset log says that another driver plans batches of this checkpoint."""
    return "CONCURRENT_STREAM_LOG_UPDATE" in text


def headline(error: BaseException) -> str:
    """The sentence that says what went wrong; Spark's errors go on with plans and traces."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    headline = lines[0] if lines else type(error).__name__
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return f"{headline} ({raised[-1]})" if raised and raised[-1] not in headline else headline
