"""The lease of an instance on partitions of standing queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from headrace.kafka.client.clients import ClientConfig
from headrace.queries.declaration import StandingQueries
from headrace.service.leases import LeaseTiming
from headrace.service.slot_lease import SlotLease

# Partitions that no instance has had for this time are uncovered: two leases, since a spare takes
# a free slot within one.
_UNCOVERED_SECONDS = 10.0


class LeaseHolder(SlotLease):
    """Holds a slot of partitions for this instance, or waits for a free slot.

    Args:
        config: librdkafka's settings of the cluster.
        queries: the standing queries whose partitions are leased.
        timing: how long a lease lasts; all instances must agree on it.
        on_change: called on another thread when :attr:`partitions` may have changed.
    """

    resting: ClassVar = "it has failed several times, and leaves its partitions to others"
    claiming: ClassVar = "partitions are being claimed"
    taken: ClassVar = "other instances have all partitions"

    def __init__(
        self,
        config: ClientConfig,
        queries: StandingQueries,
        timing: LeaseTiming = LeaseTiming(),
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._partitions = slots_of(queries.partitions, queries.partitions_per_instance)
        super().__init__(config, queries.leases_topic, len(self._partitions), timing, on_change)

    @property
    def partitions(self) -> range | None:
        """The partitions of this instance; ``None`` if it has no valid lease now."""
        slot = self.slot
        return None if slot is None else self._partitions[slot]

    @property
    def uncovered(self) -> tuple[int, ...]:
        """The partitions that no instance has had for ten seconds: there are too few instances."""
        return tuple(
            partition
            for slot, partitions in enumerate(self._partitions)
            if self.vacant_seconds(slot) > _UNCOVERED_SECONDS
            for partition in partitions
        )


def slots_of(partitions: int, per_instance: int | None) -> list[range]:
    """Returns the partitions of each slot.

    Args:
        partitions: the number of partitions.
        per_instance: the number of partitions in a slot; ``None`` if a slot has all of them.
    """
    size = per_instance or partitions
    return [range(at, min(at + size, partitions)) for at in range(0, partitions, size)]
