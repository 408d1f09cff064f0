"""Reads from leases which instances have which partitions of standing queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.topic_table import table_records
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.queries.declaration import StandingQueries
from headrace.queries.registry.registrations import declared_queries
from headrace.queries.windows.instance.lease_holder import slots_of
from headrace.runtime.clock import now_in_ms
from headrace.service.leases import LEASE_MS, Lease, LeaseTable, read_claim

# Partitions are shown as uncovered if their lease was not renewed for twice the time after which
# spares take it.
UNCOVERED_MS = 2 * LEASE_MS


@dataclass(frozen=True)
class InstanceSlot:
    """Partitions that one instance has, or that wait for an instance.

    Attributes:
        slot: number of the slot.
        partitions: numbers of its partitions.
        holder: id of the last instance with the slot; empty if there was none or it was given back.
        host: host of that instance.
        renewal_age_seconds: time since the last renewal of the lease, from the broker's timestamp
            to the clock of this host; ``None`` if there is no lease.
        is_covered: whether an instance has the slot.
    """

    slot: int
    partitions: tuple[int, ...]
    holder: str = ""
    host: str = ""
    renewal_age_seconds: float | None = None
    is_covered: bool = False


def query_instances(project: LoadedProject, *, queries: str | None = None) -> list[InstanceSlot]:
    """Returns the slots of standing queries, in order, with the instances that have them.

    Spares have no slot and are not returned.

    Raises:
        NotDeclaredError: if there are no such standing queries.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    declared = declared_queries(project, queries)
    return instance_slots(broker_config(project.settings), declared, now_in_ms())


def instance_slots(
    config: ClientConfig, queries: StandingQueries, now_ms: int
) -> list[InstanceSlot]:
    """Returns the slots of standing queries at a time. Raises as :func:`query_instances`.

    Args:
        config: librdkafka's settings of the cluster.
        queries: the standing queries.
        now_ms: the time, in milliseconds since 1970.
    """
    slots = slots_of(queries.partitions, queries.partitions_per_instance)
    table = _leases(config, queries.leases_topic, len(slots))
    return [
        _slot(number, partitions, table.lease(number), now_ms)
        for number, partitions in enumerate(slots)
    ]


def uncovered_partitions(slots: Sequence[InstanceSlot]) -> tuple[int, ...]:
    """Returns the numbers of the partitions that no instance has."""
    return tuple(
        partition for slot in slots if not slot.is_covered for partition in slot.partitions
    )


def _slot(number: int, partitions: range, lease: Lease | None, now_ms: int) -> InstanceSlot:
    if lease is None:
        return InstanceSlot(number, tuple(partitions))
    age_ms = max(now_ms - lease.renewed_ms, 0)
    return InstanceSlot(
        number,
        tuple(partitions),
        lease.holder,
        lease.host,
        age_ms / 1000,
        age_ms <= UNCOVERED_MS,
    )


def _leases(config: ClientConfig, topic: str, slots: int) -> LeaseTable:
    table = LeaseTable(slots)
    for record in table_records(config, topic, "headrace.leases"):
        try:
            slot, claim = read_claim(record.key(), record.value())
        except ValueError:
            continue  # written by another program; instances leave it out, too
        table.take(slot, claim, record.timestamp()[1], now=0.0)
    return table
