"""A claim that is waited for warm, and reported."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from headrace.pipelines.standby.claim import SharedClaim
from headrace.pipelines.standby.rehearsal import Rehearsal
from headrace.pipelines.standby.status import DriverStatus
from headrace.runtime.clock import now_in_ms
from headrace.service.status import State, StatusFolder

_PUBLISH_SECONDS = 1.0


class WarmClaim:
    """The claim of a driver with ``--standby``. Used as :class:`~.claim.DriverClaim`.

    Args:
        name: of the pipeline.
        claim: the lease.
        rehearse: starts the rehearsals of a standby.
        folder: of the statuses of drivers.
    """

    def __init__(
        self,
        name: str,
        claim: SharedClaim,
        rehearse: Callable[[], Rehearsal],
        folder: StatusFolder[DriverStatus],
    ) -> None:
        self._claim, self._rehearse, self._folder = claim, rehearse, folder
        self._rehearsal: Rehearsal | None = None
        self._status = DriverStatus(name, state=State.WAITING)
        self._published_at = -_PUBLISH_SECONDS
        folder.forget(name)

    @property
    def waiting(self) -> str:
        """Why the driver does not run the pipeline."""
        return self._claim.waiting

    def try_acquire(self) -> bool:
        """Takes the claim, or rehearses. Raises as :meth:`SharedClaim.try_acquire`."""
        if not self._claim.try_acquire():
            if self._rehearsal is None and self._claim.has_active:
                self._rehearsal = self._rehearse()
            if self._rehearsal is not None:
                self._claim.wait_as_standby(self._rehearsal.age_seconds)
            self._publish(State.WAITING, self._claim.waiting)
            return False
        if self._rehearsal is not None:
            self._rehearsal.cancel()
            self._rehearsal = None
            self._status = replace(self._status, takeovers=self._status.takeovers + 1)
        self._publish(State.RUNNING)
        return True

    def keep(self) -> bool:
        """Keeps the claim; False if another driver may have it."""
        if not self._claim.keep():
            return False
        self._publish(State.RUNNING)
        return True

    @property
    def is_asked(self) -> bool:
        """Whether a handover was requested."""
        return self._claim.is_asked

    def hand_over(self) -> None:
        """Releases the claim, and becomes a standby."""
        self._claim.hand_over()

    def check(self) -> None:
        """Raises ClaimLostError as :meth:`SharedClaim.check`."""
        self._claim.check()

    def step_down(self) -> None:
        """Becomes a standby."""
        self._claim.step_down()

    def release(self) -> None:
        """Releases the claim, and ends the rehearsals."""
        self._claim.release()
        if self._rehearsal is not None:
            self._rehearsal.close()
            self._rehearsal = None
        self._publish(State.STOPPED)

    def _publish(self, state: State, reason: str = "") -> None:
        now = time.monotonic()
        if state is self._status.state and now - self._published_at < _PUBLISH_SECONDS:
            return
        self._published_at = now
        age = None if self._rehearsal is None else self._rehearsal.age_seconds
        self._status = replace(
            self._status,
            state=state,
            reason=reason,
            warm_age_seconds=None if age is None else round(age, 1),
            updated_ms=now_in_ms(),
        )
        self._folder.write(self._status)
