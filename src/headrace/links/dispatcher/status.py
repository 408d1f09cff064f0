"""The status of an instance of a dispatcher, and of its targets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.events.times import TimeMs
from headrace.links.status import LinkStatus
from headrace.metrics import Metric
from headrace.service.figures import Measured, counter, derived_gauge
from headrace.service.status import State

if TYPE_CHECKING:
    from headrace.runtime.prometheus import Sample

_PARTITION_METRICS = (
    Metric(
        "lag_records",
        "records",
        "offsets from the committed position to the end of the source's partition, by target",
        "one far above the others: most records go to that partition",
    ),
    Metric(
        "refused",
        "1 or 0",
        "it can't continue to that target",
        "1: `headrace dispatcher list` says why, and what to do",
    ),
)


@dataclass(frozen=True)
class RouteStatus(Measured):
    """The figures of one target since the start of the instance, and its state.

    Attributes:
        site: the target.
        state: RUNNING: records are sent. WAITING: a site does not respond, or the query failed and
            is started again. REFUSED: no partition can continue; that is checked every 30 seconds.
        reason: why it waits, is refused or failed.
        read: records that were read.
        restarts: how often its query was started again.
        committed_ms: when its positions were committed last; ``None``: not yet.
        lags: offsets from the committed position to the end of each ``topic/partition``.
        refused: why partitions can't continue, as ``topic/partition``.
    """

    site: str
    state: State = State.WAITING
    reason: str = ""
    read: int = 0
    records: int = counter(
        "records",
        "records that were sent to the target",
        "standing still while those of other targets rise: it is down, or nothing is for it",
    )
    restarts: int = 0
    committed_ms: TimeMs | None = None
    lags: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @derived_gauge(
        "records",
        "offsets from the committed positions to the end of the source",
        "above what comes in during `commit_every`: it is down, or more arrives than is sent",
    )
    def lag_records(self) -> int:
        """Returns the offsets from the committed positions to the end of all partitions."""
        return sum(self.lags.values())

    @derived_gauge("1 or 0", "it gets nothing now", "1: `headrace status` says why")
    def waiting(self) -> int:
        """Returns 1 where records are not sent now."""
        return 0 if self.state in {State.RUNNING, State.STOPPED} else 1

    @derived_gauge(
        "s",
        "age of the last commit of the target's position",
        "above twice `commit_every`: the site does not respond, or the query stands still",
    )
    def commit_age_seconds(self) -> float | None:
        """Returns how long ago its position was committed; ``None``: it was not yet."""
        return None if self.committed_ms is None else time.time() - self.committed_ms / 1000


@dataclass(frozen=True)
class DispatcherStatus(LinkStatus):
    """The status of an instance of a dispatcher.

    Attributes:
        sites: the status of each target.
    """

    records: int = counter(
        "records",
        "records that were sent, over all targets; they are at the target",
        "standing still while `read` rises: nothing is routed to the targets",
    )
    read: int = counter(
        "records",
        "records that were read, once for each target",
        "standing still with a lag: the source's site does not respond",
    )
    restarts: int = counter(
        "restarts",
        "times that the query of a target was started again",
        "rising: the log says why; one for each outage of a site is normal",
    )
    sites: Mapping[str, RouteStatus] = field(default_factory=dict)

    kind: ClassVar[str] = "dispatcher"
    folder: ClassVar[str] = "dispatchers"
    part_metrics: ClassVar = {"partition": _PARTITION_METRICS, "site": RouteStatus.metrics}

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

    @derived_gauge("sites", "targets that get nothing now", "above 0: `headrace status` says why")
    def waiting_sites(self) -> int:
        """Returns how many targets get nothing now."""
        return sum(route.waiting for route in self.sites.values())

    refused_partitions = LinkStatus.refused_partitions.gauge(
        "partitions",
        "partitions that can't continue, counted at each target",
        "above 0: `headrace dispatcher list` says why, and what to do",
    )
    lag_records = LinkStatus.lag_records.gauge(
        "records",
        "offsets from the committed positions to the end of the source, over all targets",
        "above what comes in during `commit_every`: a target is down, or more arrives than is sent",
    )

    def samples(self, part: str, metric: str) -> Iterator[Sample]:
        """Returns the values of a metric of partitions or targets that are known."""
        if part == "partition":
            yield from super().samples(part, metric)
            return
        for site, route in sorted(self.sites.items()):
            value = getattr(route, metric)
            if value is not None:
                yield {"site": site}, value
