"""How far the change of a topic has come: what is copied, and who still uses the old one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.offsets import (
    earliest_offsets,
    group_offsets,
    high_watermarks,
    latest_offsets,
)
from headrace.kafka.group.groups import describe_group
from headrace.kafka.read.range_reader import read_backwards
from headrace.links.change.plan import ChangePlan
from headrace.links.change.topics import live_topic
from headrace.links.change.waiting import waiting_records
from headrace.links.copying.positions import committed_positions
from headrace.model import ByKey, Topic
from headrace.project.loaded import LoadedProject
from headrace.workers.declaration import Worker

_LAST_OFFSETS = 10_000  # a record, and markers of transactions after it


@dataclass(frozen=True)
class ChangedPartition:
    """A partition of the topic that is copied.

    Attributes:
        partition: its number.
        first: its first offset.
        copied: the next offset to copy; None: none was copied yet.
        end: its end, records of open transactions included.
    """

    partition: int
    first: int
    copied: int | None
    end: int

    @property
    def behind(self) -> int:
        """The offsets that are not copied yet."""
        return self.end - max(self.first, self.copied or 0)


@dataclass(frozen=True)
class TopicReader:
    """What the project declares to read the topic that is copied.

    Attributes:
        kind: of the declaration.
        name: of it.
        group: its consumer group.
        members: how many the group has.
        behind: offsets of the old topic that it has not read; None: it has committed none.
        is_moved: whether it has offsets in the new topic.
        waiting: records of the old topic in retry topics of a worker, which do not move.
    """

    kind: str
    name: str
    group: str
    members: int
    behind: int | None
    is_moved: bool
    waiting: int = 0


@dataclass(frozen=True)
class ChangeStanding:
    """How far a change has come.

    Attributes:
        topic: that is copied.
        to: its copy.
        partitions: of both, in Kafka.
        keys: fields that both declare as keys; empty: none.
        keeps_order: whether the declarations say that events of a key keep their order: one
            partition of each has all of them. Not known: whether the old one has got partitions.
        copied: the partitions.
        behind: offsets that are not copied yet.
        has_own_records: whether the new topic ends with records that are no copies.
        writers: what the project declares to write the old topic.
        readers: what it declares to read the old topic.
    """

    topic: str
    to: str
    partitions: tuple[int, int]
    keys: tuple[str, str]
    keeps_order: bool
    copied: tuple[ChangedPartition, ...]
    behind: int
    has_own_records: bool
    writers: tuple[str, ...]
    readers: tuple[TopicReader, ...]


def change_standing(
    project: LoadedProject, plan: ChangePlan, old: Topic, new: Topic
) -> ChangeStanding:
    """Returns how far a change has come. Changes nothing.

    Raises:
        TopicMissingError: if a topic is not in Kafka.
        BrokerUnreachableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """
    copied = copied_partitions(plan)
    return ChangeStanding(
        old.name,
        new.name,
        (len(copied), live_topic(plan.target, new.name).partitions),
        (old.key or "", new.key or ""),
        keeps_order(old, new),
        copied,
        sum(partition.behind for partition in copied),
        has_own_records(plan),
        tuple(f"{kind.label} {value.name}" for kind, value in project.writers(old.name)),
        tuple(_readers(project, plan, old)),
    )


def keeps_order(old: Topic, new: Topic) -> bool:
    """Returns whether, as declared, one partition of each topic has all events of a key."""
    return old.key == new.key and all(isinstance(at.partitioning, ByKey) for at in (old, new))


def copied_partitions(plan: ChangePlan) -> tuple[ChangedPartition, ...]:
    """Returns how far each partition is copied. Raises as :func:`change_standing`."""
    places = live_topic(plan.source, plan.old).all_partitions
    # Before the ends: what is copied meanwhile is never beyond them.
    positions = committed_positions(plan, places)
    firsts = earliest_offsets(plan.source, places)
    # With open transactions: what is committed behind one is not copied before that has ended.
    ends = high_watermarks(plan.source, places)
    return tuple(
        ChangedPartition(
            place.partition,
            firsts[place],
            None if (position := positions[place]) is None else position.offset,
            ends[place],
        )
        for place in sorted(places)
    )


def has_own_records(plan: ChangePlan) -> bool:
    """Returns whether a partition of the new topic ends with a record that is no copy.

    What is copied now would be behind it.
    """
    for place in live_topic(plan.target, plan.new).all_partitions:
        for record in read_backwards(plan.target, plan.group, place, _LAST_OFFSETS, 16):
            if plan.origin_of(record) is None:
                return True
            break
    return False


def _readers(project: LoadedProject, plan: ChangePlan, old: Topic) -> Iterator[TopicReader]:
    live = describe(plan.source, [plan.old, plan.new])
    places = live[plan.old].all_partitions
    ends = {place: end for place, (end, _) in latest_offsets(plan.source, places).items()}
    for kind, value in project.by_kind:
        if kind.consumer_group is None or old.name not in {at.name for at in kind.reads(value)}:
            continue
        group = kind.consumer_group(value)
        read = group_offsets(plan.source, group, places)
        moved = group_offsets(plan.source, group, live[plan.new].all_partitions)
        members = describe_group(plan.source, group).members
        left = (max(end - read.get(place, 0), 0) for place, end in ends.items())
        behind = sum(left) if read else None
        waiting = waiting_records(plan, value) if isinstance(value, Worker) else 0
        label, name = kind.label, value.name
        yield TopicReader(label, name, group, len(members), behind, bool(moved), waiting)
