"""Where a partition goes on, and whether the source still has what comes next.

The position is committed at the target, in the transaction that holds the records before it. Its
metadata names the topic id of the source, and the epoch of the leader that gave the last record,
with the offset after that record (KIP-320). Where no offset is committed, as after a week without
an instance, the last record of the copy says by its origin where it came from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import confluent_kafka

from headrace.errors import (
    MirrorGapError,
    MirrorLossError,
    MirrorNoCopyError,
    MirrorNoLeaderError,
    MirrorRecreatedError,
    MirrorRefusedError,
    MirrorTopicMissingError,
    MirrorTruncatedError,
)
from headrace.kafka.client import (
    LiveTopic,
    committed,
    describe,
    earliest_offsets,
    latest_offsets,
)
from headrace.kafka.log_cuts import Seen, find_cuts
from headrace.mirror.link import Link
from headrace.model import TopicPartition
from headrace.transfer.starts import Starts
from headrace.transfer.tail import Copies, last_origins
from headrace.transfer.target import naming_site

_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Position:
    """The next record to copy of a partition of the source.

    Attributes:
        offset: of the record. After the last one that was copied there may be transaction markers.
        topic_id: of the topic that the offset is one of; empty: not known.
        copied_to: the offset after the last record that was copied; at most ``offset``.
        epoch: of the leader that gave that record; -1: not known.
        is_committed: whether the target knows it; if not, nothing tells a topic that is recreated
            from this one.
    """

    offset: int
    topic_id: str = ""
    copied_to: int = -1
    epoch: int = _NO_EPOCH
    is_committed: bool = False

    def __str__(self) -> str:
        return f"offset {self.offset}"

    @property
    def metadata(self) -> str:
        """What is committed beside the offset."""
        return f"{self.topic_id} {self.copied_to} {self.epoch}"

    @property
    def seen(self) -> Seen:
        """The offset to read on from, and the epoch that the log must have had before it.

        An epoch is that of a record, so it says nothing of an offset after markers: another leader
        may have written them.
        """
        if self.epoch == _NO_EPOCH:
            return Seen(self.offset)
        return Seen(self.copied_to, self.epoch)


def positions_of(
    offsets: Iterable[confluent_kafka.TopicPartition],
) -> dict[TopicPartition, Position | None]:
    """Returns what instances committed, by partitions of the target; ``None``: nothing."""
    return {TopicPartition(offset.topic, offset.partition): _position(offset) for offset in offsets}


def _position(offset: confluent_kafka.TopicPartition) -> Position | None:
    if offset.offset < 0:
        return None
    topic_id, *numbers = (offset.metadata or "").split(" ")
    if len(numbers) == len(Seen._fields) and all(map(str.isdecimal, numbers)):
        copied_to, epoch = map(int, numbers)
        return Position(offset.offset, topic_id, copied_to, epoch, is_committed=True)
    return Position(offset.offset, topic_id, is_committed=True)


def committed_positions(
    link: Link, copies: Collection[TopicPartition]
) -> dict[TopicPartition, Position | None]:
    """Returns the committed positions of partitions of the target, as one who is no member asks.

    Raises:
        AuthorizationError: if an ACL is missing at the target.
        BrokerUnreachableError: if the target's brokers do not answer.
    """
    with naming_site(link.target_site):
        return dict.fromkeys(copies) | positions_of(committed(link.target, link.group, copies))


@dataclass(frozen=True, slots=True)
class _Held:
    """What the source has of a partition: its topic's id, its first offset, and its end."""

    topic_id: str
    first: int
    end: int


def find_starts(link: Link, known: Mapping[TopicPartition, Position | None]) -> Starts[Position]:
    """Returns where partitions go on.

    Args:
        link: the mirror and its clusters.
        known: partitions of the *target*, with what is committed for them.

    Raises:
        AuthorizationError: if an ACL is missing at a site.
        BrokerUnreachableError: if the brokers of a site do not answer.
    """
    with naming_site(link.source_site):
        topics = describe(link.source, {link.source_of(copy).topic for copy in known})
    with naming_site(link.target_site):
        copied = describe(link.target, {copy.topic for copy in known})
    ready: dict[TopicPartition, TopicPartition] = {}
    refused: dict[TopicPartition, MirrorRefusedError] = {}
    awaited: set[TopicPartition] = set()
    for copy in known:
        source = link.source_of(copy)
        topic = topics.get(source.topic)
        refusal = _unready(link, source, topic, copied.get(copy.topic))
        if refusal is not None:
            refused[source] = refusal
        elif topic is not None and source.partition >= topic.partitions:
            awaited.add(source)
        else:
            ready[source] = copy
    held = _held(link, topics, ready)
    starts = _starts(link, {source: known[copy] for source, copy in ready.items()}, held)
    losses = _losses(link, starts, held)
    positions = {
        source: replace(start, topic_id=held[source].topic_id)
        for source, start in starts.items()
        if source not in losses
    }
    return Starts(positions, {**refused, **losses}, frozenset(awaited))


def _unready(
    link: Link, source: TopicPartition, topic: LiveTopic | None, copied: LiveTopic | None
) -> MirrorRefusedError | None:
    """Returns why a partition can't be read or written at all."""
    copy = link.copy_of(source)
    partition, target = source.path, copy.path
    if topic is None:
        return MirrorTopicMissingError(link.name, link.source_site, partition)
    if source.partition in topic.leaderless:
        return MirrorNoLeaderError(link.name, link.source_site, partition)
    if copied is None or copy.partition >= copied.partitions:
        return MirrorNoCopyError(link.name, link.source_site, partition, target)
    if copy.partition in copied.leaderless:
        return MirrorNoLeaderError(link.name, link.target_site, target)
    return None


def _held(
    link: Link, topics: Mapping[str, LiveTopic], sources: Collection[TopicPartition]
) -> dict[TopicPartition, _Held]:
    with naming_site(link.source_site):
        firsts = earliest_offsets(link.source, sources)
        ends = latest_offsets(link.source, sources)
    return {
        source: _Held(topics[source.topic].topic_id, firsts[source], ends[source][0])
        for source in sources
    }


def _starts(
    link: Link,
    known: Mapping[TopicPartition, Position | None],
    held: Mapping[TopicPartition, _Held],
) -> dict[TopicPartition, Position]:
    unknown = {link.copy_of(source): source for source in known if known[source] is None}
    tails = last_origins(
        Copies(link.target, link.group, link.target_site, link.source_site, unknown)
    )
    starts: dict[TopicPartition, Position] = {}
    for source, position in known.items():
        first, origin = held[source].first, tails.get(link.copy_of(source))
        start = position or Position(first if origin is None else origin.offset + 1)
        # Retention has removed the markers after the last record: no log can be compared there.
        is_gone = start.copied_to < first
        starts[source] = replace(start, epoch=_NO_EPOCH) if is_gone else start
    return starts


def _losses(
    link: Link, starts: Mapping[TopicPartition, Position], held: Mapping[TopicPartition, _Held]
) -> dict[TopicPartition, MirrorLossError]:
    cuts = _cuts(link, {s: at for s, at in starts.items() if at.topic_id == held[s].topic_id})
    losses = {
        source: _loss(link, source, start, held[source], cuts.get(source))
        for source, start in starts.items()
    }
    return {source: loss for source, loss in losses.items() if loss is not None}


def _cuts(link: Link, starts: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int]:
    """Returns the offsets at which logs were truncated before the positions, as leaders say."""
    seen: dict[str, dict[int, Seen]] = {}
    for source, start in starts.items():
        seen.setdefault(source.topic, {})[source.partition] = start.seen
    with naming_site(link.source_site):
        return {
            TopicPartition(topic, partition): cut
            for topic, positions in seen.items()
            for partition, cut in find_cuts(link.source, topic, positions).items()
        }


def _loss(
    link: Link, source: TopicPartition, start: Position, held: _Held, cut: int | None
) -> MirrorLossError | None:
    partition = source.path
    where = (link.name, link.source_site, partition, start.offset)
    if start.topic_id not in {"", held.topic_id}:
        return MirrorRecreatedError(*where, start.topic_id, held.topic_id, held.first)
    if start.offset < held.first:
        return MirrorGapError(*where, held.first - 1)
    if cut is not None or start.seen.offset > held.end:
        return MirrorTruncatedError(*where, held.end if cut is None else cut)
    return None
