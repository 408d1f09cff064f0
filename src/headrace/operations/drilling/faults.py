"""Makes faults happen, and heals them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.operations.drilling.cluster import NODES, DrilledCluster
from headrace.operations.drilling.instances import Instance
from headrace.operations.drilling.schedule import FaultKind, ScheduledFault


class Until(Protocol):
    """Waits for a condition, which may raise that a server does not answer."""

    def __call__(self, condition: Callable[[], bool], what: str) -> None:
        """Returns once it holds; raises if it does not in time."""


class Faults:
    """Faults of brokers and instances. Each returns when its cause is over.

    Args:
        cluster: of the drill.
        instances: all of them.
        until: waits.
        is_working: whether the workers and pipelines of these names have processed records since a
            time.
        wait: waits for so many seconds.
    """

    def __init__(
        self,
        cluster: DrilledCluster,
        instances: Sequence[Instance],
        until: Until,
        is_working: Callable[[Sequence[str], float], bool],
        wait: Callable[[float], None],
    ) -> None:
        self._cluster, self._instances = cluster, instances
        self._until, self._is_working, self._wait = until, is_working, wait
        self._kinds: dict[FaultKind, Callable[[ScheduledFault], str]] = {
            FaultKind.LEADER: self._leader,
            FaultKind.CONTROLLER: self._controller,
            FaultKind.BROKERS: self._brokers,
            FaultKind.KILL: self._kill,
            FaultKind.RESTART: self._restart,
            FaultKind.CUT: self._cut_off,
        }

    def happen(self, fault: ScheduledFault) -> str:
        """Makes a fault, and returns what has failed."""
        return self._kinds[fault.kind](fault)

    def _leader(self, fault: ScheduledFault) -> str:
        return self._killed(fault.choose(sorted(self._cluster.leaders() & set(NODES))))

    def _controller(self, _fault: ScheduledFault) -> str:
        return self._killed(self._cluster.active_controller())

    def _killed(self, node: int) -> str:
        self._cluster.brokers.kill(node)
        # Else it might be back before anyone has noticed.
        self._until(
            lambda: not self._cluster.leaders() & {node, -1}, f"other leaders than broker {node}"
        )
        self._cluster.brokers.start_broker(node)
        return f"broker {node}"

    def _brokers(self, _fault: ScheduledFault) -> str:
        for node in NODES:
            self._cluster.brokers.stop_broker(node)
            self._cluster.brokers.start_broker(node)
            self._until(self._cluster.is_in_sync, f"all copies in sync after broker {node}")
        return f"brokers {', '.join(map(str, NODES))}"

    def _kill(self, fault: ScheduledFault) -> str:
        instance = fault.choose(self._instances)
        instance.kill()
        instance.start()
        return instance.name

    def _restart(self, _fault: ScheduledFault) -> str:
        for instance in self._instances:
            instance.stop()
            instance.start()
            since, names = time.time(), instance.names
            self._until(
                lambda since=since, names=names: self._is_working(names, since),  # type: ignore[misc]
                f"records processed after the restart of {instance.name}",
            )
        return ", ".join(instance.name for instance in self._instances)

    def _cut_off(self, fault: ScheduledFault) -> str:
        link = self._cluster.link
        resets = fault.choose((True, False))
        connections = link.cut(resets=resets)
        try:
            self._wait(fault.cut_seconds)
        finally:
            link.restore()
        how = "reset" if resets else "silent"
        return f"{connections} connections {how} for {fault.cut_seconds:.1f} s"
