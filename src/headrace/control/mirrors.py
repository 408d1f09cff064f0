"""Mirrors of a project: run, and looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition as ConsumerOffset

from headrace.control.site_clusters import cluster_of, own_cluster
from headrace.errors import MirrorGapError, MirrorNotRefusedError, MirrorRunningError
from headrace.kafka.client import ClientConfig, commit, describe, latest_offsets
from headrace.kafka.groups import ConsumerGroup, describe_group
from headrace.mirror.declaration import Mirror
from headrace.mirror.instance import MirrorInstance, MirrorProgress
from headrace.mirror.link import Link
from headrace.mirror.positions import Position, Starts, committed_positions, find_starts
from headrace.model import TopicPartition
from headrace.settings import Settings

Observe = Callable[[MirrorProgress], None]
_OBSERVE_SECONDS = 1.0


def link_of(settings: Settings, mirror: Mirror) -> Link:
    """Returns a mirror with the clusters of its sites.

    Raises:
        NotDeclaredError: if headrace.toml has no such site.
        BrokerUnreachableError: if an embedded broker was never started.
    """
    source, target = cluster_of(settings, mirror.source), own_cluster(settings)
    return Link(
        mirror.name,
        mirror.consumer_group,
        source.site,
        target.site,
        source.client_config(may_be_down=True),
        target.client_config(may_be_down=True),
        {name: topic.name for name, topic in mirror.topics.items()},
        mirror.commit_every.total_seconds(),
    )


class MirrorRun:
    """One instance of a mirror in this process. Used once. Raises as :func:`link_of`."""

    def __init__(self, settings: Settings, mirror: Mirror) -> None:
        self._instance = MirrorInstance(link_of(settings, mirror))

    def stop(self) -> None:
        """Ends it: what is in its transaction is committed. From any thread."""
        self._instance.stop()

    def run(self, observe: Observe) -> None:
        """Runs it until it is stopped; ``observe`` is called every second and at the end.

        Raises as :meth:`MirrorInstance.run`.
        """
        seen_at = 0.0

        def seen(progress: MirrorProgress) -> None:
            nonlocal seen_at
            if time.monotonic() - seen_at >= _OBSERVE_SECONDS:
                seen_at = time.monotonic()
                observe(progress)

        self._instance.run(seen)
        observe(self._instance.progress)


@dataclass(frozen=True)
class MirroredPartition:
    """How far one partition of the source is mirrored.

    Attributes:
        partition: as ``topic/partition``.
        copy: the one it is copied to.
        next_offset: the next to copy; ``None``: it was never begun.
        end_offset: behind the last record of the source.
        lag: offsets that are to be copied; fewer records, where there are markers or gaps.
        refused: why it can't be copied on; empty: it can.
    """

    partition: str
    copy: str
    next_offset: int | None
    end_offset: int
    lag: int
    refused: str = ""


@dataclass(frozen=True)
class MirrorStanding:
    """How far a mirror has come.

    Attributes:
        mirror: its name.
        source: the site that the records come from.
        group: the consumer group at the target, with its members.
        partitions: of the source's topics.
    """

    mirror: str
    source: str
    group: ConsumerGroup
    partitions: tuple[MirroredPartition, ...]

    @property
    def refused(self) -> tuple[MirroredPartition, ...]:
        """The partitions that can't be copied on."""
        return tuple(partition for partition in self.partitions if partition.refused)

    @property
    def lag(self) -> int:
        """Offsets of all partitions that are to be copied."""
        return sum(partition.lag for partition in self.partitions)


def mirror_standing(settings: Settings, mirror: Mirror) -> MirrorStanding:
    """Returns how far a mirror has come, and which partitions can't be copied on.

    Raises:
        BrokerUnreachableError: if the brokers of a site do not answer.
        TopicMissingError: if a topic of the source does not exist.
    """
    link = link_of(settings, mirror)
    copies = _partitions(link.target, link.copies.values())
    positions = committed_positions(link, copies)
    starts = find_starts(link, positions)
    sources = _partitions(link.source, link.copies)
    ends = latest_offsets(link.source, sources)
    partitions = (_mirrored(link, source, positions, starts, ends[source][0]) for source in sources)
    group = describe_group(link.target, link.group)
    return MirrorStanding(mirror.name, mirror.source, group, tuple(partitions))


def _partitions(config: ClientConfig, topics: Iterable[str]) -> list[TopicPartition]:
    live = describe(config, topics).values()
    return sorted(partition for topic in live for partition in topic.all_partitions)


def _mirrored(
    link: Link,
    source: TopicPartition,
    positions: Mapping[TopicPartition, Position | None],
    starts: Starts,
    end: int,
) -> MirroredPartition:
    copy, refusal = link.copy_of(source), starts.refused.get(source)
    names = (f"{source.topic}/{source.partition}", f"{copy.topic}/{copy.partition}")
    if copy not in positions:
        refused = f"{names[0]} is not mirrored: there is no {names[1]}. Give {copy.topic} as many"
        return MirroredPartition(*names, None, end, end, f"{refused} partitions: `headrace apply`.")
    position = positions[copy]
    begin = refusal.next_offset if refusal else starts.positions[source].offset
    return MirroredPartition(
        *names,
        position.offset if position else None,
        end,
        max(end - begin, 0),
        str(refusal) if refusal else "",
    )


@dataclass(frozen=True)
class AcceptedLoss:
    """A partition that goes on behind records that are not mirrored.

    Attributes:
        partition: of the source, as ``topic/partition``.
        next_offset: the next one to mirror, before.
        accepted_offset: the next one to mirror now.
        lost: offsets that are left out; ``None``: it is not known, since the topic was made again.
    """

    partition: str
    next_offset: int
    accepted_offset: int
    lost: int | None


def accept_loss(
    settings: Settings, mirror: Mirror, partition: TopicPartition, to: int | None = None
) -> AcceptedLoss:
    """Lets a partition go on behind records that are not mirrored.

    Args:
        settings: the project's deployment.
        mirror: of which no instance runs.
        partition: of the source.
        to: the next offset to mirror; by default, where the source's records begin.

    Raises:
        MirrorRunningError: if an instance runs.
        MirrorNotRefusedError: if no loss is to be accepted, or ``to`` would repeat records.
        PartitionMissingError: if the mirror has no such partition.
        BrokerUnreachableError: if the brokers of a site do not answer.
    """
    link = link_of(settings, mirror)
    members = describe_group(link.target, link.group).members
    if members:
        raise MirrorRunningError(mirror.name, len(members))
    copy = link.copy_of(partition)
    starts = find_starts(link, committed_positions(link, [copy]))
    refusal, start = starts.refused.get(partition), starts.positions.get(partition)
    name = f"{partition.topic}/{partition.partition}"
    if refusal is not None:
        before, after = refusal.next_offset, refusal.accepted_offset if to is None else to
    elif start is not None and to is not None and to > start.offset:
        before, after = start.offset, to
    else:
        raise MirrorNotRefusedError(mirror.name, name)
    topic_id = describe(link.source, [partition.topic])[partition.topic].topic_id
    offset = ConsumerOffset(copy.topic, copy.partition, after, Position(after, topic_id).metadata)
    commit(link.target, link.group, [offset])
    is_known = isinstance(refusal, MirrorGapError) or refusal is None
    return AcceptedLoss(name, before, after, after - before if is_known else None)
