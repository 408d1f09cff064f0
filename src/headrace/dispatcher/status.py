"""How instances of dispatchers are doing."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.events.times import TimeMs
from headrace.transfer.status import TransferState, TransferStatus


class RouteState(enum.StrEnum):
    """The state of one target.

    RUNNING: records are sent.
    WAITING: a site does not respond, or the query failed; it is started again.
    REFUSED: no partition can be gone on with; it is looked for every 30 seconds.
    FAILED: it has ended; the reason says why.
    STOPPED: it has ended, as it was asked to.
    """

    RUNNING = "running"
    WAITING = "waiting"
    REFUSED = "refused"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True)
class RouteStatus:
    """Counts of one target since the instance began, and how things stand.

    Attributes:
        site: the target.
        state: of its query.
        reason: why it waits, is refused or failed.
        read: records that were read.
        records: that were sent, and are at the target.
        restarts: how often its query was started again.
        committed_ms: when its positions were committed last; ``None``: not yet.
        lags: offsets from the committed position to the end of each ``topic/partition``.
        refused: why partitions can't be gone on with, as ``topic/partition``.
    """

    site: str
    state: RouteState = RouteState.WAITING
    reason: str = ""
    read: int = 0
    records: int = 0
    restarts: int = 0
    committed_ms: TimeMs | None = None
    lags: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def lag_records(self) -> int:
        """Returns the offsets from the committed positions to the end of all partitions."""
        return sum(self.lags.values())

    @property
    def commit_age_seconds(self) -> float | None:
        """Returns how long ago its position was committed; ``None``: it was not yet."""
        return None if self.committed_ms is None else time.time() - self.committed_ms / 1000

    @property
    def waiting(self) -> int:
        """Returns 1 where records are not sent now."""
        return 0 if self.state in {RouteState.RUNNING, RouteState.STOPPED} else 1


@dataclass(frozen=True)
class DispatcherStatus(TransferStatus):
    """The status of an instance of a dispatcher.

    Attributes:
        read: records that were read, once a target.
        sites: the status of each target.
    """

    read: int = 0
    sites: Mapping[str, RouteStatus] = field(default_factory=dict)

    kind: ClassVar[str] = "dispatcher"
    figures: ClassVar[tuple[str, ...]] = (*TransferStatus.figures, "waiting_sites")

    @classmethod
    def of(cls, name: str, routes: Mapping[str, RouteStatus]) -> DispatcherStatus:
        """Returns the status of an instance with these targets."""
        serves = any(not route.waiting for route in routes.values())
        return cls(
            name,
            state=TransferState.RUNNING if serves else TransferState.WAITING,
            records=sum(route.records for route in routes.values()),
            read=sum(route.read for route in routes.values()),
            restarts=sum(route.restarts for route in routes.values()),
            lags={
                f"{site}/{partition}": lag
                for site, route in routes.items()
                for partition, lag in route.lags.items()
            },
            refused={
                f"{site}/{partition}": why
                for site, route in routes.items()
                for partition, why in route.refused.items()
            },
            sites=routes,
        )

    @property
    def waiting_sites(self) -> int:
        """Returns how many targets get nothing now."""
        return sum(route.waiting for route in self.sites.values())

    @property
    def site_samples(self) -> dict[str, dict[str, float | None]]:
        """Returns the values of the metrics of targets, by metric and site."""
        names = ("records", "lag_records", "waiting", "commit_age_seconds")
        return {
            name: {site: getattr(route, name) for site, route in self.sites.items()}
            for name in names
        }
