"""How instances of dispatchers are doing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.events.times import TimeMs
from headrace.links.status import TransferStatus
from headrace.metrics import (
    DISPATCHER_METRICS,
    DISPATCHER_PARTITION_METRICS,
    DISPATCHER_SITE_METRICS,
)
from headrace.service.status import State

if TYPE_CHECKING:
    from headrace.runtime.prometheus import Sample


@dataclass(frozen=True)
class RouteStatus:
    """Counts of one target since the instance began, and how things stand.

    Attributes:
        site: the target.
        state: RUNNING: records are sent. WAITING: a site does not respond, or the query failed and
            is started again. REFUSED: no partition can continue; that is checked every 30 seconds.
        reason: why it waits, is refused or failed.
        read: records that were read.
        records: that were sent, and are at the target.
        restarts: how often its query was started again.
        committed_ms: when its positions were committed last; ``None``: not yet.
        lags: offsets from the committed position to the end of each ``topic/partition``.
        refused: why partitions can't continue, as ``topic/partition``.
    """

    site: str
    state: State = State.WAITING
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
        return 0 if self.state in {State.RUNNING, State.STOPPED} else 1


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
    folder: ClassVar[str] = "dispatchers"
    metrics = DISPATCHER_METRICS
    part_metrics: ClassVar = {
        "partition": DISPATCHER_PARTITION_METRICS,
        "site": DISPATCHER_SITE_METRICS,
    }
    derived: ClassVar[tuple[str, ...]] = (*TransferStatus.derived, "waiting_sites")

    @classmethod
    def of(cls, name: str, routes: Mapping[str, RouteStatus]) -> DispatcherStatus:
        """Returns the status of an instance with these targets."""
        serves = any(not route.waiting for route in routes.values())
        return cls(
            name,
            state=State.RUNNING if serves else State.WAITING,
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

    def samples(self, part: str, metric: str) -> Iterator[Sample]:
        """Returns the values of a metric of partitions or targets that are known."""
        if part == "partition":
            yield from super().samples(part, metric)
            return
        for site, route in sorted(self.sites.items()):
            value = getattr(route, metric)
            if value is not None:
                yield {"site": site}, value
