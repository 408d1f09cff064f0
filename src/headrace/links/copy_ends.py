"""The end of a copy: the origins of its last records say where a mirror or a dispatcher continues.

Records of other writers may be among those of the source, and markers of transactions after them,
so that more and more of the end is read until a record of the source is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.headers import headers_of
from headrace.kafka.client.offsets import earliest_offsets, high_watermarks, latest_offsets
from headrace.kafka.origin import Origin, origins
from headrace.kafka.read.range_reader import Record, read_records
from headrace.links.target import naming_site
from headrace.model import OffsetRange, TopicPartition

_FIRST_LOOK_OFFSETS = 16  # a record, and markers of transactions after it
_LOOK_FACTOR = 16


@dataclass(frozen=True)
class Copies:
    """Partitions of a cluster, and where their records come from.

    Attributes:
        config: librdkafka's settings of the cluster.
        group: of the consumer that reads them; it joins none.
        site: of the cluster.
        origin_site: the site that the records name as the one they come from.
        sources: the partitions there, by those of the cluster.
    """

    config: ClientConfig
    group: str
    site: str
    origin_site: str
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


def copied_since(
    copies: Copies, floors: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[int]]:
    """Returns the source's offsets of all records that came from there, by copies.

    Records of transactions that are open or were aborted, and those after them, are included: a
    dispatcher writes without transactions.

    Args:
        copies: where to look.
        floors: the first offsets of copies to read.

    Raises:
        AuthorizationError: if an ACL is missing at the cluster.
        BrokerUnreachableError: if its brokers do not answer for 30 s.
    """
    offsets: dict[TopicPartition, list[int]] = {}
    with naming_site(copies.site):
        ends = high_watermarks(copies.config, copies.sources)
        firsts = earliest_offsets(copies.config, ends)
        begins = {copy: max(firsts[copy], floors[copy]) for copy in ends}
        for copy, origin in _origins_between(copies, begins, ends, with_uncommitted=True):
            offsets.setdefault(copy, []).append(origin.offset)
    return offsets


def _origins_between(
    copies: Copies,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    with_uncommitted: bool = False,
) -> Iterator[tuple[TopicPartition, Origin]]:
    """Yields the origins of records that came from the sources, in their order."""
    ranges = [OffsetRange(copy, begin, ends[copy]) for copy, begin in begins.items()]
    for record in read_records(
        copies.config, copies.group, ranges, with_uncommitted=with_uncommitted
    ):
        copy = TopicPartition.of(record)
        if origin := _origin(copies, copy, record):
            yield copy, origin


def _origin(copies: Copies, copy: TopicPartition, record: Record) -> Origin | None:
    """Returns the last origin of a record, if that is the source."""
    known = origins(headers_of(record) or ())
    source = copies.sources[copy]
    is_ours = known and (known[-1].site, known[-1].topic, known[-1].partition) == (
        copies.origin_site,
        source.topic,
        source.partition,
    )
    return known[-1] if is_ours else None
