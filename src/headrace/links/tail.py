"""The end of a copy: the origins of its last records tell where a mirror or a dispatcher goes on.

Records of other writers may be among those of the source, and markers of transactions after them,
so that more and more of the end is read until a record of the source is there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client.broker_errors import Meaning, forbidden, meaning
from headrace.kafka.client.client import (
    ClientConfig,
    consumer,
    earliest_offsets,
    high_watermarks,
    latest_offsets,
)
from headrace.kafka.client.headers import headers_of
from headrace.kafka.client.partitions import client_partition
from headrace.kafka.origin import Origin, origins
from headrace.links.target import naming_site
from headrace.model import TopicPartition

_POLL_SECONDS = 0.2
_SILENCE_SECONDS = 30.0
_FIRST_LOOK_OFFSETS = 16  # a record, and markers of transactions after it
_LOOK_FACTOR = 16
_UNCOMMITTED = {"isolation.level": "read_uncommitted"}


@dataclass(frozen=True)
class Copies:
    """Partitions of a cluster, and where their records come from.

    Attributes:
        config: librdkafka's settings of the cluster.
        group: of the consumer that reads them; it joins none.
        site: of the cluster.
        source_site: the site that the records come from.
        sources: the partitions there, by those of the cluster.
    """

    config: ClientConfig
    group: str
    site: str
    source_site: str
    sources: Mapping[TopicPartition, TopicPartition]


def last_origins(copies: Copies) -> dict[TopicPartition, Origin]:
    """Returns the origins of the last records that came from the sources, by copies.

    Partitions without such a record are left out.

    Raises:
        AuthorizationError: if an ACL is missing at the cluster.
        BrokerUnreachableError: if its brokers do not answer for 30 s.
    """
    with naming_site(copies.site):
        ends = {at: end for at, (end, _) in latest_offsets(copies.config, copies.sources).items()}
        firsts = earliest_offsets(copies.config, ends)
        last: dict[TopicPartition, Origin] = {}
        begins = ends
        look = _FIRST_LOOK_OFFSETS
        while begins := {
            copy: max(firsts[copy], ends[copy] - look)
            for copy, begin in begins.items()
            if copy not in last and begin > firsts[copy]
        }:
            last |= dict(_origins_between(copies, begins, ends))
            look *= _LOOK_FACTOR
        return last


def offsets_since(
    copies: Copies, floors: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[int]]:
    """Returns the source's offsets of all records that came from there, by copies.

    Records after a transaction that is open, or was given up, are among them: a dispatcher writes
    without transactions.

    Args:
        copies: where to look.
        floors: the offsets of copies to begin at.

    Raises:
        AuthorizationError: if an ACL is missing at the cluster.
        BrokerUnreachableError: if its brokers do not answer for 30 s.
    """
    offsets: dict[TopicPartition, list[int]] = {}
    with naming_site(copies.site):
        ends = high_watermarks(copies.config, copies.sources)
        firsts = earliest_offsets(copies.config, ends)
        begins = {copy: max(firsts[copy], floors[copy]) for copy in ends}
        begins = {copy: begin for copy, begin in begins.items() if begin < ends[copy]}
        for copy, origin in _origins_between(copies, begins, ends, _UNCOMMITTED):
            offsets.setdefault(copy, []).append(origin.offset)
    return offsets


def _origins_between(
    copies: Copies,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    tuning: Mapping[str, str] | None = None,
) -> Iterator[tuple[TopicPartition, Origin]]:
    """Gives the origins of records that came from the sources, in their order."""
    if not begins:
        return
    reader = consumer(copies.config, copies.group, tuning)
    reader.assign([client_partition(copy, begin) for copy, begin in begins.items()])
    open_ = set(begins)
    deadline = time.monotonic() + _SILENCE_SECONDS
    try:
        while open_:
            message = reader.poll(_POLL_SECONDS)
            if message is None or message.topic() is None:
                if time.monotonic() > deadline:
                    servers = copies.config["bootstrap.servers"]
                    raise BrokerUnreachableError(servers, "the ends of its topics can't be read")
                continue
            deadline = time.monotonic() + _SILENCE_SECONDS
            copy = TopicPartition.of(message)
            if _is_gone(copies.config, message):
                if not _begin_again(copies.config, reader, copy, ends[copy]):
                    open_.discard(copy)
            elif _is_end(message, ends[copy]):
                open_.discard(copy)
            elif message.error() is None and (origin := _origin(copies, copy, message)):
                yield copy, origin
    finally:
        reader.close()


def _begin_again(
    config: ClientConfig, reader: confluent_kafka.Consumer, copy: TopicPartition, end: int
) -> bool:
    """Reads a partition from its first record; whether there is one before ``end``."""
    first = earliest_offsets(config, [copy])[copy]
    reader.incremental_unassign([client_partition(copy)])
    if first < end:
        reader.incremental_assign([client_partition(copy, first)])
    return first < end


def _origin(copies: Copies, copy: TopicPartition, message: Any) -> Origin | None:
    """The origin of a record, if it came from the source: the last one it has."""
    known = origins(headers_of(message) or ())
    source = copies.sources[copy]
    is_ours = known and (known[-1].site, known[-1].topic, known[-1].partition) == (
        copies.source_site,
        source.topic,
        source.partition,
    )
    return known[-1] if is_ours else None


def _is_gone(config: ClientConfig, message: Any) -> bool:
    """Whether retention was faster: the record to begin with is there no more.

    Raises:
        AuthorizationError: if an ACL is missing at the cluster.
        KafkaException: if an error is permanent.
    """
    error = message.error()
    if error is None:
        return False
    means = meaning(error)
    if means is Meaning.FORBIDDEN:
        raise forbidden(config, "READ", f"topic {message.topic()}")
    if means not in {Meaning.END, Meaning.UNREACHABLE, Meaning.TRANSIENT, Meaning.NO_RECORD}:
        raise KafkaException(error)
    return means is Meaning.NO_RECORD


def _is_end(message: Any, end: int) -> bool:
    error = message.error()
    if error is None:
        return bool(message.offset() >= end)
    return meaning(error) is Meaning.END
