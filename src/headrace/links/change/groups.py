"""Moves a consumer group to the offsets of the new topic where it is in the old one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException

from headrace.errors import HeadraceError, TopicChangeRefusedError
from headrace.kafka.client.offsets import commit_offsets, committed, latest_offsets
from headrace.kafka.client.partitions import partition_of
from headrace.kafka.group.groups import describe_group
from headrace.kafka.read.range_reader import read_records
from headrace.links.change.plan import ChangePlan
from headrace.links.change.standing import copied_partitions
from headrace.links.change.topics import live_topic, ranges_of
from headrace.links.change.waiting import waiting_records
from headrace.model import TopicPartition
from headrace.workers.declaration import Worker
from headrace.workers.lanes.offsets import read_metadata


@dataclass(frozen=True)
class GroupMove:
    """The offsets of the new topic at which a group starts.

    Attributes:
        group: its name.
        topic: that it has read.
        to: that it reads next.
        was_at: offsets that it has committed of the old topic, by partition.
        starts: offsets of the new topic, by partition.
        unread: records of the new topic from there on.
        is_moved: whether they were committed.
    """

    group: str
    topic: str
    to: str
    was_at: Mapping[str, int]
    starts: Mapping[str, int]
    unread: int
    is_moved: bool


@dataclass(frozen=True)
class _Start:
    """The offsets at which a group starts in the new topic.

    Attributes:
        offsets: by partition.
        unread: records from there on.
        repeated: those that it has read of them.
    """

    offsets: Mapping[TopicPartition, int]
    unread: int
    repeated: int


def move_groups(
    plan: ChangePlan, workers: Iterable[Worker], groups: Sequence[str], *, dry_run: bool
) -> tuple[GroupMove, ...]:
    """Finds where groups start in the new topic, and commits it unless ``dry_run`` is set.

    Before these offsets are all records that a group has read of the old topic, and no others. What
    all of them get is decided before the first one is committed; the new topic is read once.

    Args:
        plan: what is copied.
        workers: of the project, whose retry topics may have records.
        groups: which of them move.
        dry_run: only find the offsets.

    Raises:
        TopicChangeRefusedError: if there are no such offsets, a group has members, has read what
            is not copied, or nothing of the old topic, records wait in its retry topics, or its
            worker keeps a state.
        TopicMissingError: if a topic is not in Kafka.
        BrokerUnreachableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """
    names = list(dict.fromkeys(groups))
    by_group = {worker.consumer_group: worker for worker in workers}
    for group in names:
        _require_stopped(plan, group, by_group.get(group))
    read = {group: _read(plan, group) for group in names}
    _require_copied(plan, read)
    starts = _starts(plan, read)
    for group, start in starts.items():
        if start.repeated:
            raise _refused(
                plan,
                group,
                f"{start.repeated:,} records that it has read lie behind others that it has not: "
                f"let it read {plan.old} to the end, and stop it",
            )
    if not dry_run:
        _commit(plan, starts)
    return tuple(_move(plan, group, read[group], starts[group], dry_run) for group in names)


def _refused(plan: ChangePlan, group: str, reason: str) -> TopicChangeRefusedError:
    return TopicChangeRefusedError(plan.old, plan.new, f"group {group}: {reason}")


def _require_stopped(plan: ChangePlan, group: str, worker: Worker | None) -> None:
    if worker is not None and worker.state is not None:
        reason = (
            f"worker {worker.name} keeps a state, by partitions of {plan.old}: a worker of another "
            f"name that reads {plan.new} builds its state from the first record on"
        )
        raise _refused(plan, group, reason)
    if members := describe_group(plan.source, group).members:
        names = ", ".join(member.name for member in members)
        raise _refused(plan, group, f"stop its members first: {names}")
    if worker is not None and (count := waiting_records(plan, worker)):
        reason = (
            f"{count:,} records wait in the retry topics of worker {worker.name}, which one that "
            f"reads {plan.new} does not read: let it run until `headrace topics change {plan.old} "
            f"{plan.new}` shows none there, and stop it"
        )
        raise _refused(plan, group, reason)


def _read(plan: ChangePlan, group: str) -> dict[int, int]:
    """Returns the committed offsets of the old topic, by partition."""
    places = live_topic(plan.source, plan.old).all_partitions
    read: dict[int, int] = {}
    for at in committed(plan.source, group, places):
        if read_metadata(at.offset, at.metadata or "").done:
            reason = (
                f"it has done records of {partition_of(at).path} behind its committed offset "
                f"{at.offset:,}: let it read {plan.old} to the end, and stop it"
            )
            raise _refused(plan, group, reason)
        read[at.partition] = at.offset
    if not read:
        raise _refused(plan, group, f"it has committed no offset of {plan.old}")
    return read


def _require_copied(plan: ChangePlan, read: Mapping[str, Mapping[int, int]]) -> None:
    copied = {at.partition: max(at.copied or 0, at.first) for at in copied_partitions(plan)}
    for group, offsets in read.items():
        if any(offsets.get(number, 0) > end for number, end in copied.items()):
            reason = "it has read what is not copied yet: copy to the end first (--copy)"
            raise _refused(plan, group, reason)


def _starts(plan: ChangePlan, read: Mapping[str, Mapping[int, int]]) -> dict[str, _Start]:
    """Returns where groups start, with one read of the new topic."""
    ranges = ranges_of(plan.target, plan.new)
    starts: dict[str, dict[TopicPartition, int]] = {group: {} for group in read}
    unread, repeated = Counter[str](), Counter[str]()
    for record in read_records(plan.target, plan.group, ranges):
        place = TopicPartition.of(record)
        origin = plan.origin_of(record)
        for group, offsets in read.items():
            if origin is None or origin.offset >= offsets.get(origin.partition, 0):
                starts[group].setdefault(place, record.offset())
                unread[group] += 1
            elif place in starts[group]:
                repeated[group] += 1
    ends = {at.partition: at.end for at in ranges}
    return {
        group: _Start(ends | first, unread[group], repeated[group])
        for group, first in starts.items()
    }


def _commit(plan: ChangePlan, starts: Mapping[str, _Start]) -> None:
    places = {place for start in starts.values() for place in start.offsets}
    epochs = {place: epoch for place, (_, epoch) in latest_offsets(plan.target, places).items()}
    moved: list[str] = []
    for group, start in starts.items():
        try:
            commit_offsets(plan.target, group, start.offsets, epochs)
        except (HeadraceError, KafkaException) as error:
            done = f"moved: {', '.join(moved) or 'none'}; not moved: {group} and those after it"
            raise _refused(plan, group, f"{error} ({done})") from error
        moved.append(group)


def _move(
    plan: ChangePlan, group: str, read: Mapping[int, int], start: _Start, dry_run: bool
) -> GroupMove:
    return GroupMove(
        group,
        plan.old,
        plan.new,
        {TopicPartition(plan.old, number).path: at for number, at in sorted(read.items())},
        {place.path: at for place, at in sorted(start.offsets.items())},
        start.unread,
        not dry_run,
    )
