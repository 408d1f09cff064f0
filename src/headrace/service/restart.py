"""What follows a failure of a service: it waits, starts again, is refused, or ends."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import RefusedError

if TYPE_CHECKING:
    from headrace.settings import RestartSettings

_BUDGET_WINDOW_SECONDS = 3600.0  # as `restart.budget` is documented: restarts an hour
MAX_BUSY_STARTS = 20
"""How many starts an hour may meet a busy machine.

With the default delays and the longest of Spark's own waits, they fit into the hour.
"""


class FailureKind(enum.Enum):
    """What another start would meet, and so what follows a failure.

    PERMANENT: the same failure: an operator or a developer has to act first. No start follows.
    UNAVAILABLE: perhaps a server that answers again. The service waits for it, without a restart of
    the budget, unless the run has an end. BUSY: perhaps a machine that has time: a process of
    Spark's did not answer another one on the
        same machine soon enough. A start follows, without a restart of the budget.
    TRANSIENT: any other failure. A start follows, and uses up a restart of the budget.
    """

    PERMANENT = enum.auto()
    UNAVAILABLE = enum.auto()
    BUSY = enum.auto()
    TRANSIENT = enum.auto()


@dataclass(frozen=True)
class Wait:
    """The next start follows after some seconds, and uses up no restart."""

    seconds: float


@dataclass(frozen=True)
class Restart:
    """The next start follows after some seconds, and has used up a restart."""

    seconds: float


@dataclass(frozen=True)
class Refuse:
    """Every start would be refused until an operator acts."""


@dataclass(frozen=True)
class Fail:
    """No start follows.

    Attributes:
        spent: which starts did not help; empty: another one would meet the same failure.
    """

    spent: str = ""


Outcome: TypeAlias = Wait | Restart | Refuse | Fail


class RestartPolicy:
    """Decides what follows failures of a service, of which an hour may have a limited number.

    Args:
        settings: how often it may start again, and after how long.
        kind_of: returns the kind of a failure.
        has_end: whether the service ends by itself: then a server that does not answer uses up
            restarts, too.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        settings: RestartSettings,
        kind_of: Callable[[Any], FailureKind],
        *,
        has_end: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._kind_of = settings, kind_of
        self._has_end, self._clock = has_end, clock
        self._restarts: list[float] = []
        self._busy: list[float] = []

    def after(self, failure: object) -> Outcome:
        """Returns what follows a failure, which counts as the newest one."""
        kind = self._kind_of(failure)
        if kind is FailureKind.PERMANENT:
            is_refused = isinstance(failure, RefusedError) and not failure.runs_elsewhere
            return Refuse() if is_refused else Fail()
        if kind is FailureKind.UNAVAILABLE and not self._has_end:
            return Wait(self._settings.first_delay_seconds)
        if kind is FailureKind.BUSY:
            delay = self._next_delay(self._busy, MAX_BUSY_STARTS)
            spent = f"{MAX_BUSY_STARTS} starts within an hour met a busy machine"
            return Fail(spent) if delay is None else Wait(delay)
        budget = self._settings.budget
        delay = self._next_delay(self._restarts, budget)
        spent = f"{budget} restarts within an hour did not help"
        return Fail(spent) if delay is None else Restart(delay)

    def _next_delay(self, spent: list[float], budget: int) -> float | None:
        now = self._clock()
        spent[:] = [at for at in spent if now - at < _BUDGET_WINDOW_SECONDS]
        if len(spent) >= budget:
            return None
        # 64: from 1,024 on, the power is no float; any delay is at its maximum long before.
        delay = self._settings.first_delay_seconds * 2.0 ** min(len(spent), 64)
        spent.append(now)
        return min(delay, self._settings.max_delay_seconds)
