"""What a topic and those who read or write it need, by a measurement of the project's own code.

Exact arithmetic on measured and assumed figures. All needs are proportional to the rate; whole
things, such as partitions, are rounded up and at least one.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from headrace.operations.measuring.result import MeasuredDeclaration
from headrace.operations.sizing.sizes import Size, TopicLoad, size

MILLION = 1_000_000
PAGE_CACHE_SECONDS = 30
"""Of writes that readers without a lag find in memory: the estimate of Kafka's documentation."""


class Basis(enum.StrEnum):
    """What a figure is made of.

    GIVEN: options alone. MEASURED: at least one measured figure, and options. ASSUMED: at least one
    value that was neither given nor measured.
    """

    GIVEN = "given"
    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class Need:
    """One figure.

    Attributes:
        name: in JSON.
        amount: in ``unit``.
        unit: bytes, bytes/s, cores, partitions or processes.
        basis: what it is made of.
        assumed: what was assumed, as a phrase; empty: nothing.
    """

    name: str
    amount: Fraction
    unit: str
    basis: Basis
    assumed: str = ""


@dataclass(frozen=True)
class Origins:
    """What the values of a load are from.

    Attributes:
        defaults: of the load, those that are neither given nor measured: names of options.
        is_size_measured: whether the size of an event is that of the measurement.
        is_rate_measured: whether the rate of a consumer is that of the measurement.
    """

    defaults: frozenset[str] = frozenset()
    is_size_measured: bool = True
    is_rate_measured: bool = True

    def need(self, name: str, amount: Fraction, unit: str, *options: str, more: str = "") -> Need:
        """Returns a figure that is made of the size of an event and of ``options``."""
        return _need(
            name,
            amount,
            unit,
            is_measured=self.is_size_measured,
            assumed=self._assumed(options, more),
        )

    def rate_need(self, name: str, amount: Fraction, unit: str) -> Need:
        """Returns a figure that is made of the rate of a consumer."""
        return _need(name, amount, unit, is_measured=self.is_rate_measured)

    def _assumed(self, options: tuple[str, ...], more: str) -> str:
        phrases = [f"--{option}" for option in options if option in self.defaults]
        return ", ".join([*phrases, more] if more else phrases)


def needs_of(load: TopicLoad, measured: MeasuredDeclaration, origins: Origins) -> tuple[Need, ...]:
    """Returns all figures, for the higher of the present and the planned rate.

    Args:
        load: of the topic.
        measured: what runs with it.
        origins: what the values of the load are from.
    """
    load = replace(load, events_per_second=load.highest_rate)
    return (
        *_disk(size(load), origins),
        *_network(load, measured, origins),
        *_computers(load, measured),
    )


def _disk(sized: Size, origins: Origins) -> Iterator[Need]:
    kept = ("retention", "compression")
    yield origins.need("bytes_per_second", sized.bytes_per_second, "bytes/s")
    yield origins.need("retained_bytes", sized.retained_bytes, "bytes", *kept)
    copies = (*kept, "replication")
    yield origins.need("replicated_bytes", sized.replicated_bytes, "bytes", *copies)
    shares = (*copies, "brokers")
    yield origins.need("bytes_per_broker", sized.bytes_per_broker, "bytes", *shares)
    partitions = sized.planned_partitions
    if partitions is not None:
        yield origins.rate_need("partitions", Fraction(partitions), "partitions")
    # Kafka's setting is that of one partition, in whole bytes.
    limit = Fraction(math.ceil(sized.retained_bytes / (partitions or 1)))
    more = "" if partitions else "one partition"
    yield origins.need("retention_bytes", limit, "bytes", *kept, more=more)


def _network(load: TopicLoad, measured: MeasuredDeclaration, origins: Origins) -> Iterator[Need]:
    written = load.events_per_second * load.event_bytes / load.compression
    copied = written * (load.replication - 1)
    yield origins.need("network_in_bytes_per_second", written, "bytes/s", "compression")
    both = ("compression", "replication")
    yield origins.need("network_copies_bytes_per_second", copied, "bytes/s", *both)
    more = "one group reads it"
    yield origins.need("network_out_bytes_per_second", written, "bytes/s", "compression", more=more)
    if measured.kind == "worker" and measured.sent_bytes_per_record:
        sent = load.events_per_second * Fraction(measured.sent_bytes_per_record) / load.compression
        assumed = "--compression" if "compression" in origins.defaults else ""
        name = "network_sent_bytes_per_second"
        yield _need(name, sent, "bytes/s", is_measured=True, assumed=assumed)
    options = (*both, "brokers")
    total = (written * 2 + copied) / load.brokers
    yield origins.need("network_per_broker_bytes_per_second", total, "bytes/s", *options, more=more)
    cached = (written + copied) / load.brokers * PAGE_CACHE_SECONDS
    more = f"{PAGE_CACHE_SECONDS} s of writes"
    yield origins.need("page_cache_bytes_per_broker", cached, "bytes", *options, more=more)


def _computers(load: TopicLoad, measured: MeasuredDeclaration) -> Iterator[Need]:
    cores = load.events_per_second * Fraction(measured.cpu_seconds_per_million.median) / MILLION
    yield Need("cores", cores, "cores", Basis.MEASURED)
    whole = max(1, math.ceil(cores))
    if measured.kind == "pipeline":
        memory = measured.peak_memory_bytes + (whole - 1) * Fraction(measured.peak_worker_bytes)
        more = "a Python worker more for each further core"
        yield _need("memory_bytes", memory, "bytes", is_measured=True, assumed=more)
        return
    alone = "a process uses one core"
    yield _need("processes", Fraction(whole), "processes", is_measured=True, assumed=alone)
    memory = Fraction(whole * measured.peak_memory_bytes)
    yield _need("memory_bytes", memory, "bytes", is_measured=True, assumed=alone)


def _need(name: str, amount: Fraction, unit: str, *, is_measured: bool, assumed: str = "") -> Need:
    basis = Basis.MEASURED if is_measured else Basis.GIVEN
    return Need(name, amount, unit, Basis.ASSUMED if assumed else basis, assumed)
