"""The status of a driver that was started with ``--standby``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from headrace.runtime.instance_name import process_name
from headrace.service.figures import counter, derived_gauge, gauge
from headrace.service.status import InstanceStatus, State, StatusFolder


@dataclass(frozen=True)
class DriverStatus(InstanceStatus):
    """Which part a driver has in a pipeline.

    Attributes:
        state: running: it is the active one; waiting: it is a standby.
    """

    takeovers: int = counter(
        "takeovers",
        "how often it became the active driver after it had waited",
        "rising without deploys: active drivers die, or freeze for seconds; see their logs",
    )
    warm_age_seconds: float | None = gauge(
        "s",
        "how long ago the last rehearsal of a standby has ended; unknown before the first",
        "above 120: a takeover would be slow; the log says why rehearsals fail",
        default=None,
    )

    kind: ClassVar[str] = "driver"
    folder: ClassVar[str] = "drivers"
    states: ClassVar = (State.WAITING, State.RUNNING, State.STOPPED, State.FAILED)

    @derived_gauge(
        "1 or 0",
        "whether it is the active driver",
        "0 of all drivers of a pipeline: nothing runs it",
    )
    def is_active(self) -> int:
        """Returns 1 while it runs the pipeline."""
        return int(self.state is State.RUNNING)

    @property
    def role(self) -> str:
        """Returns what people call its part: active or standby."""
        return {State.RUNNING: "active", State.WAITING: "standby"}.get(self.state, str(self.state))


def own_statuses(state: Path, pipelines: Collection[str]) -> list[DriverStatus]:
    """Returns those that this process wrote; none without ``--standby``."""
    own = process_name()
    return [
        status
        for status in StatusFolder(state, DriverStatus).read()
        if status.instance == own and status.name in pipelines
    ]
