"""How large a topic and its cluster must be: exact arithmetic, every unit named.

The questions are those of Rollbar's "Sizing the Kafka Cluster" and "Choosing Number of Partitions";
the time to catch up is that of RTB House's benchmark of Kafka Workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from headrace.model.durations import microseconds
from headrace.pipelines.join.index.slices import CACHE_BYTES, FINGERPRINT_BYTES, slice_length_us

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4
# Recommended in RTB House's article on Kafka Workers; here of replicas. No bound of Kafka's.
MAX_PARTITIONS_PER_BROKER = 4_000
MAX_PARTITIONS = 200_000
JOIN_COMPRESSION = Fraction(3)
"""Bytes of record values for each byte on disk that a join needs for them, with their keys.

Measured by ``python -m bench.join_state``: see docs/join.md.
"""


@dataclass(frozen=True)
class TopicLoad:
    """The load of a topic.

    Attributes:
        events_per_second: events that producers send in a second.
        event_bytes: mean size of a record, before compression.
        retention: how long records are kept.
        replication: copies of each record.
        brokers: number of brokers, which share the copies equally.
        compression: bytes in for a byte on disk; 1 for none.
        planned_events_per_second: rate that is expected later; ``None``: the present one.
        consumed_per_second: events that one consumer processes in a second, measured.
    """

    events_per_second: Fraction
    event_bytes: Fraction
    retention: timedelta
    replication: int = 3
    brokers: int = 3
    compression: Fraction = Fraction(1)
    planned_events_per_second: Fraction | None = None
    consumed_per_second: Fraction | None = None

    @property
    def highest_rate(self) -> Fraction:
        """Returns the higher of the present and the planned rate."""
        return max(self.events_per_second, self.planned_events_per_second or Fraction(0))


@dataclass(frozen=True)
class Size:
    """What a topic needs.

    Attributes:
        bytes_per_second: bytes that producers send in a second.
        retained_bytes: disk of one copy.
        replicated_bytes: disk of all copies.
        bytes_per_broker: disk of each broker.
        partitions: number with which a consumer for each keeps up with the present rate; ``None``
            without a consumer's rate.
        planned_partitions: number for the planned rate; partitions can't be removed later.
        warnings: sentences about contradictions in the numbers.
    """

    bytes_per_second: Fraction
    retained_bytes: Fraction
    replicated_bytes: Fraction
    bytes_per_broker: Fraction
    partitions: int | None
    planned_partitions: int | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class CatchUp:
    """How long consumers take to catch up with a lag.

    Attributes:
        lag: the time in which the lag arrived.
        needs: time until the lag is 0; ``None``: never, or the throughput is not known.
        within: the time that it may take; ``None`` when there is no limit.
        rate_needed: events a second that consumers must process for that.
    """

    lag: timedelta
    needs: timedelta | None
    within: timedelta | None
    rate_needed: Fraction | None


@dataclass(frozen=True)
class JoinLoad:
    """The events of a join, all partitions together.

    Attributes:
        earlier_per_second: events of the earlier topic in a second.
        earlier_bytes: mean size of their record values.
        within: ``Join.within``.
        wait: ``Join.wait``.
        later_per_second: events of the later topic in a second.
        later_bytes: mean size of their record values.
        compression: bytes of record values for a byte on disk.
    """

    earlier_per_second: Fraction
    earlier_bytes: Fraction
    within: timedelta
    wait: timedelta
    later_per_second: Fraction
    later_bytes: Fraction
    compression: Fraction = JOIN_COMPRESSION


@dataclass(frozen=True)
class JoinSize:
    """What a join keeps, all partitions together, at most.

    Attributes:
        kept_events: earlier events that it remembers.
        checkpoint_bytes: durable files of these events, in the checkpoint.
        index_bytes: indexes of them in the temporary folders of the machines that run its tasks.
        waiting_events: later events that wait at the same time if none has found its match.
        waiting_bytes: of these, which each batch reads from the checkpoint and writes to it.
        cache_bytes: memory of the index of each partition, while a task has it open.
        fingerprint_bytes: memory for the fingerprints of a slice (``Match.ID``), over all
            partitions.
    """

    kept_events: Fraction
    checkpoint_bytes: Fraction
    index_bytes: Fraction
    waiting_events: Fraction
    waiting_bytes: Fraction
    cache_bytes: int
    fingerprint_bytes: Fraction


def join_size(load: JoinLoad) -> JoinSize:
    """Computes what a join keeps: for ``within`` and two times ``wait``, in whole slices."""
    slice_us = slice_length_us(microseconds(load.within))
    slice_seconds = Fraction(slice_us, 1_000_000)
    # Slices are deleted as a whole, so up to one more than needed is kept.
    seconds = _seconds(load.within + 2 * load.wait) + slice_seconds
    kept = load.earlier_per_second * seconds
    on_disk = kept * load.earlier_bytes / load.compression
    waiting = load.later_per_second * _seconds(load.wait)
    return JoinSize(
        kept_events=kept,
        checkpoint_bytes=on_disk,
        index_bytes=on_disk,
        waiting_events=waiting,
        waiting_bytes=waiting * load.later_bytes,
        cache_bytes=CACHE_BYTES,
        # Those that are read, and both copies of a merge.
        fingerprint_bytes=3 * FINGERPRINT_BYTES * load.earlier_per_second * slice_seconds,
    )


def size(load: TopicLoad) -> Size:
    """Computes the size of a topic as Rollbar's article does, without its rounding."""
    bytes_per_second = load.events_per_second * load.event_bytes
    retained = bytes_per_second * _seconds(load.retention) / load.compression
    replicated = retained * load.replication
    partitions = _consumers(load, load.events_per_second)
    planned = _consumers(load, load.highest_rate)
    return Size(
        bytes_per_second=bytes_per_second,
        retained_bytes=retained,
        replicated_bytes=replicated,
        bytes_per_broker=replicated / load.brokers,
        partitions=partitions,
        planned_partitions=planned,
        warnings=tuple(_warnings(load, planned)),
    )


def catch_up(lag: timedelta, arriving: Fraction, processed: Fraction) -> timedelta | None:
    """Time until nothing is left of a lag: ``lag * r / (R - r)``, for r arriving and R processed.

    ``None`` when R does not exceed r, or by so little that it takes millions of years: never.
    """
    if processed <= arriving:
        return None
    seconds = _seconds(lag) * arriving / (processed - arriving)
    if seconds > timedelta.max // timedelta(seconds=1):
        return None
    return timedelta(microseconds=round(seconds * 1_000_000))


def rate_to_catch_up(lag: timedelta, arriving: Fraction, within: timedelta) -> Fraction:
    """Events a second that must be processed to be done in time: ``r * (lag / T + 1)``."""
    return arriving * (_seconds(lag) / _seconds(within) + 1)


def _consumers(load: TopicLoad, rate: Fraction) -> int | None:
    if load.consumed_per_second is None:
        return None
    # A topic has one partition at least, however low the rate is.
    return max(1, math.ceil(rate / load.consumed_per_second))


def _warnings(load: TopicLoad, partitions: int | None) -> Iterator[str]:
    if load.replication > load.brokers:
        yield (
            f"replication {load.replication} needs {load.replication} brokers, not {load.brokers}: "
            "Kafka would not create the topic"
        )
    elif load.replication == load.brokers and load.brokers > 1:
        yield (
            f"with {load.brokers} brokers for {load.replication} copies, a lost broker's copies "
            "have nowhere to go: one broker more"
        )
    if load.replication == 1:
        yield "with one copy, a lost disk loses its events"
    replicas = (partitions or 0) * load.replication
    if replicas > MAX_PARTITIONS_PER_BROKER * load.brokers:
        yield (
            f"{replicas} replicas on {load.brokers} brokers: more than "
            f"{MAX_PARTITIONS_PER_BROKER} a broker; a faster consumer, or more brokers"
        )
    if replicas > MAX_PARTITIONS:
        yield f"{replicas} replicas: more than {MAX_PARTITIONS} in a cluster"


def _seconds(duration: timedelta) -> Fraction:
    return Fraction(microseconds(duration), 1_000_000)
