"""Moves a consumer group to the offsets of the new topic where it is in the old one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import TopicChangeRefusedError
from headrace.kafka.client.offsets import commit_offsets, committed, latest_offsets
from headrace.kafka.client.partitions import partition_of
from headrace.kafka.group.groups import describe_group
from headrace.kafka.read.range_reader import read_records
from headrace.links.change.plan import ChangePlan, live_topic, ranges_of
from headrace.links.change.standing import copied_partitions
from headrace.model import TopicPartition
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


def move_group(plan: ChangePlan, group: str, *, dry_run: bool) -> GroupMove:
    """Finds where a group starts in the new topic, and commits it unless ``dry_run`` is set.

    Before these offsets are all records that it has read of the old topic, and no others.

    Raises:
        TopicChangeRefusedError: if there are no such offsets, the group has members, has read
            what is not copied, or nothing of the old topic.
        TopicMissingError: if a topic is not in Kafka.
        BrokerUnreachableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """

    def refused(reason: str) -> TopicChangeRefusedError:
        return TopicChangeRefusedError(plan.old, plan.new, f"group {group}: {reason}")

    if members := describe_group(plan.source, group).members:
        names = ", ".join(member.name for member in members)
        raise refused(f"stop its members first: {names}")
    read = _read(plan, group)
    if not read:
        raise refused(f"it has committed no offset of {plan.old}")
    beyond = [
        at.partition
        for at in copied_partitions(plan)
        if read.get(at.partition, 0) > max(at.copied or 0, at.first)
    ]
    if beyond:
        raise refused("it has read what is not copied yet: copy to the end first (--copy)")
    starts, unread, repeated = _starts(plan, read)
    if repeated:
        raise refused(
            f"{repeated:,} records that it has read lie behind others that it has not: let it read "
            f"{plan.old} to the end, and stop it"
        )
    if not dry_run:
        epochs = {place: epoch for place, (_, epoch) in latest_offsets(plan.target, starts).items()}
        commit_offsets(plan.target, group, starts, epochs)
    return GroupMove(
        group,
        plan.old,
        plan.new,
        {TopicPartition(plan.old, number).path: at for number, at in sorted(read.items())},
        {place.path: at for place, at in sorted(starts.items())},
        unread,
        not dry_run,
    )


def _read(plan: ChangePlan, group: str) -> dict[int, int]:
    """Returns the committed offsets of the old topic, by partition."""
    places = live_topic(plan.source, plan.old).all_partitions
    read: dict[int, int] = {}
    for at in committed(plan.source, group, places):
        if read_metadata(at.offset, at.metadata or "").done:
            reason = (
                f"group {group}: it has done records of {partition_of(at).path} behind its "
                f"committed offset {at.offset:,}: let it read {plan.old} to the end, and stop it"
            )
            raise TopicChangeRefusedError(plan.old, plan.new, reason)
        read[at.partition] = at.offset
    return read


def _starts(
    plan: ChangePlan, read: Mapping[int, int]
) -> tuple[dict[TopicPartition, int], int, int]:
    """Returns where the group starts; records from there on, and those that it has read of them."""
    ranges = ranges_of(plan.target, plan.new)
    starts: dict[TopicPartition, int] = {}
    unread = repeated = 0
    for record in read_records(plan.target, plan.group, ranges):
        place = TopicPartition.of(record)
        origin = plan.origin_of(record)
        is_read = origin is not None and origin.offset < read.get(origin.partition, 0)
        if not is_read:
            starts.setdefault(place, record.offset())
            unread += 1
        elif place in starts:
            repeated += 1
    return {at.partition: at.end for at in ranges} | starts, unread, repeated
