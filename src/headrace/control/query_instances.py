"""Which instances have which partitions of standing queries, as their leases say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.control.project import LoadedProject
from headrace.control.query_registry import declared_queries
from headrace.control.services import broker_config
from headrace.kafka.client import (
    ClientConfig,
    describe,
    earliest_offsets,
    high_watermarks,
)
from headrace.kafka.range_reader import Record, read_records
from headrace.model import OffsetRange
from headrace.queries.declaration import StandingQueries
from headrace.queries.instance.leases import LEASE_MS, Lease, LeaseTable, read_claim, slots_of

# A lease that was not renewed for so long is lost; spares take it after half of that time.
UNCOVERED_MS = 2 * LEASE_MS


@dataclass(frozen=True)
class InstanceSlot:
    """Partitions that one instance has, or that wait for one.

    Attributes:
        slot: number of the slot.
        partitions: numbers of its partitions.
        holder: id of the instance that had it last; empty: none had it, or it was given back.
        host: where that instance runs.
        renewal_age_seconds: since it renewed the lease, by the broker's time of the renewal and the
            clock of this host; None: no instance has it.
        is_covered: whether an instance has it.
    """

    slot: int
    partitions: tuple[int, ...]
    holder: str = ""
    host: str = ""
    renewal_age_seconds: float | None = None
    is_covered: bool = False


def query_instances(project: LoadedProject, *, queries: str | None = None) -> list[InstanceSlot]:
    """Returns the slots of standing queries, in order, with the instances that have them.

    A spare has no slot, and is not known.

    Raises:
        NotDeclaredError: if there are no such standing queries.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    declared = declared_queries(project, queries)
    return instance_slots(broker_config(project.settings), declared, _now_ms())


def instance_slots(
    config: ClientConfig, queries: StandingQueries, now_ms: int
) -> list[InstanceSlot]:
    """Returns the slots at a time. Raises as :func:`query_instances`.

    Args:
        config: librdkafka's settings of the cluster.
        queries: whose slots these are.
        now_ms: milliseconds since 1970.
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
    live = describe(config, [topic]).get(topic)
    if live is None:
        return table
    starts = earliest_offsets(config, live.all_partitions)
    ends = high_watermarks(config, live.all_partitions)
    ranges = [OffsetRange(partition, starts[partition], end) for partition, end in ends.items()]
    for record in read_records(config, "headrace.leases", ranges):
        _take(table, record)
    return table


def _take(table: LeaseTable, record: Record) -> None:
    try:
        slot, claim = read_claim(record.key(), record.value())
    except ValueError:
        return  # written by another program; instances leave it out, too
    table.take(slot, claim, record.timestamp()[1], now=0.0)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
