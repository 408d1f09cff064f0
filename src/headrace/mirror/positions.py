"""Where a partition goes on, and whether the source still has what comes next.

The position is committed at the target, in the transaction that holds the records before it. Its
metadata names the topic id of the source, and the epoch of the leader that gave the last record
(KIP-320). Where no offset is committed, as after a week without an instance, the last record of the
copy says by its origin where it came from.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.errors import (
    BrokerUnreachableError,
    MirrorGapError,
    MirrorRecreatedError,
    MirrorRefusedError,
    MirrorTruncatedError,
    TopicMissingError,
)
from headrace.kafka.broker_errors import Meaning, meaning
from headrace.kafka.client import (
    ClientConfig,
    LiveTopic,
    committed,
    consumer,
    describe,
    earliest_offsets,
    latest_offsets,
)
from headrace.kafka.headers import headers_of
from headrace.kafka.log_cuts import Seen, find_cuts
from headrace.mirror.link import Link
from headrace.mirror.origin import Origin, origins
from headrace.model import TopicPartition

_POLL_SECONDS = 0.2
_SILENCE_SECONDS = 30.0
_FIRST_LOOK_OFFSETS = 16  # a record, and markers of transactions behind it
_LOOK_FACTOR = 16


@dataclass(frozen=True, slots=True)
class Position:
    """The next record to copy of a partition of the source.

    Attributes:
        offset: of the record.
        topic_id: of the topic that the offset is one of; empty: not known.
        epoch: of the leader that gave the record before it; -1: not known.
        is_committed: whether the target knows it; if not, nothing tells a topic that is made again
            from this one.
    """

    offset: int
    topic_id: str = ""
    epoch: int = -1
    is_committed: bool = False

    @property
    def metadata(self) -> str:
        """What is committed beside the offset."""
        return f"{self.topic_id} {self.epoch}"


@dataclass(frozen=True, slots=True)
class Starts:
    """The positions at which partitions of the source go on, and why some can't."""

    positions: Mapping[TopicPartition, Position]
    refused: Mapping[TopicPartition, MirrorRefusedError]


def positions_of(
    offsets: Iterable[confluent_kafka.TopicPartition],
) -> dict[TopicPartition, Position | None]:
    """Returns what instances committed, by partitions of the target; ``None``: nothing."""
    return {TopicPartition(offset.topic, offset.partition): _position(offset) for offset in offsets}


def _position(offset: confluent_kafka.TopicPartition) -> Position | None:
    if offset.offset < 0:
        return None
    topic_id, _, epoch = (offset.metadata or "").partition(" ")
    known = epoch.lstrip("-").isdecimal()
    return Position(offset.offset, topic_id, int(epoch) if known else -1, is_committed=True)


def committed_positions(
    link: Link, copies: Collection[TopicPartition]
) -> dict[TopicPartition, Position | None]:
    """Returns the committed positions of partitions of the target, as one who is no member asks.

    Raises:
        BrokerUnreachableError: if the target's brokers do not answer.
    """
    return dict.fromkeys(copies) | positions_of(committed(link.target, link.group, copies))


@dataclass(frozen=True, slots=True)
class _Held:
    """What the source has of a partition: its topic's id, its first offset, and its end."""

    topic_id: str
    first: int
    end: int


def find_starts(link: Link, known: Mapping[TopicPartition, Position | None]) -> Starts:
    """Returns where partitions go on.

    Args:
        link: the mirror and its clusters.
        known: partitions of the *target*, with what is committed for them.

    Raises:
        TopicMissingError: if a topic of the source does not exist.
        BrokerUnreachableError: if the brokers of a site do not answer.
    """
    held = _held(link, known)
    new = [copy for copy in held if known[copy] is None]
    tails = last_origins(link, new)
    starts = {
        copy: known[copy] or Position(tails[copy].offset + 1 if copy in tails else held[copy].first)
        for copy in held
    }
    cuts = _cuts(link, {c: at for c, at in starts.items() if at.topic_id == held[c].topic_id})
    positions: dict[TopicPartition, Position] = {}
    refused: dict[TopicPartition, MirrorRefusedError] = {}
    for copy, start in starts.items():
        source = link.source_of(copy)
        refusal = _refusal(link, source, start, held[copy], cuts.get(copy))
        if refusal is None:
            positions[source] = replace(start, topic_id=held[copy].topic_id)
        else:
            refused[source] = refusal
    return Starts(positions, refused)


def _held(link: Link, copies: Collection[TopicPartition]) -> dict[TopicPartition, _Held]:
    """What the source has; a partition that the source lacks has nothing to copy, and no entry."""
    topics = _described(link.source, {link.source_of(copy).topic for copy in copies})
    sources = {
        source: copy
        for copy in copies
        if (source := link.source_of(copy)).partition < topics[source.topic].partitions
    }
    firsts = earliest_offsets(link.source, sources)
    ends = latest_offsets(link.source, sources)
    return {
        copy: _Held(topics[source.topic].topic_id, firsts[source], ends[source][0])
        for source, copy in sources.items()
    }


def _cuts(link: Link, starts: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int]:
    """Returns the offsets at which logs were truncated before the positions, as leaders say."""
    seen: dict[str, dict[int, Seen]] = {}
    for copy, start in starts.items():
        source = link.source_of(copy)
        seen.setdefault(source.topic, {})[source.partition] = Seen(start.offset, start.epoch)
    return {
        link.copy_of(TopicPartition(topic, partition)): cut
        for topic, positions in seen.items()
        for partition, cut in find_cuts(link.source, topic, positions).items()
    }


def _refusal(
    link: Link, source: TopicPartition, start: Position, held: _Held, cut: int | None
) -> MirrorRefusedError | None:
    partition = f"{source.topic}/{source.partition}"
    where = (link.name, link.source_site, partition, start.offset)
    if start.topic_id not in {"", held.topic_id}:
        return MirrorRecreatedError(*where, start.topic_id, held.topic_id, held.first)
    if start.offset < held.first:
        return MirrorGapError(*where, held.first - 1)
    if cut is not None or start.offset > held.end:
        return MirrorTruncatedError(*where, held.end if cut is None else cut)
    return None


def _described(config: ClientConfig, names: Iterable[str]) -> dict[str, LiveTopic]:
    declared = set(names)
    live = describe(config, declared)
    for name in declared - live.keys():
        raise TopicMissingError(name)
    return live


def last_origins(link: Link, copies: Collection[TopicPartition]) -> dict[TopicPartition, Origin]:
    """Returns the origins of the last records that this link brought to partitions of the target.

    Partitions without such a record are left out.

    Raises:
        BrokerUnreachableError: if the target's brokers do not answer for 30 s.
    """
    ends = {copy: end for copy, (end, _) in latest_offsets(link.target, copies).items()}
    firsts = earliest_offsets(link.target, ends)
    origins_: dict[TopicPartition, Origin] = {}
    begins = ends
    look = _FIRST_LOOK_OFFSETS
    while begins := {
        copy: max(firsts[copy], ends[copy] - look)
        for copy, begin in begins.items()
        if copy not in origins_ and begin > firsts[copy]
    }:
        origins_ |= _last_between(link, begins, ends)
        look *= _LOOK_FACTOR
    return origins_


def _last_between(
    link: Link, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Origin]:
    last: dict[TopicPartition, Origin] = {}
    reader = consumer(link.target, link.group)
    reader.assign(
        [confluent_kafka.TopicPartition(c.topic, c.partition, at) for c, at in begins.items()]
    )
    open_ = set(begins)
    deadline = time.monotonic() + _SILENCE_SECONDS
    try:
        while open_:
            message = reader.poll(_POLL_SECONDS)
            if message is None or message.topic() is None:
                if time.monotonic() > deadline:
                    servers = link.target["bootstrap.servers"]
                    raise BrokerUnreachableError(servers, "the ends of its topics can't be read")
                continue
            deadline = time.monotonic() + _SILENCE_SECONDS
            copy = TopicPartition(message.topic(), message.partition())
            if _is_end(message, ends[copy]):
                open_.discard(copy)
            elif message.error() is None and (origin := _origin(link, copy, message)):
                last[copy] = origin
    finally:
        reader.close()
    return last


def _origin(link: Link, copy: TopicPartition, message: Any) -> Origin | None:
    """The origin of a record, if this link brought it: the last one it has."""
    known = origins(headers_of(message) or ())
    source = link.source_of(copy)
    is_ours = known and (known[-1].site, known[-1].topic, known[-1].partition) == (
        link.source_site,
        source.topic,
        source.partition,
    )
    return known[-1] if is_ours else None


def _is_end(message: Any, end: int) -> bool:
    error = message.error()
    if error is None:
        return bool(message.offset() >= end)
    means = meaning(error)
    if means not in {Meaning.END, Meaning.UNREACHABLE, Meaning.TRANSIENT}:
        raise KafkaException(error)
    return means is Meaning.END
