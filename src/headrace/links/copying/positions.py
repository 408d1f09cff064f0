"""Where a partition continues, and whether the source still has what comes next.

A :class:`headrace.kafka.read.resume.Position` is committed at the target, in the transaction that
holds the records before it. Its ``read_to`` is the offset after the last record that was copied,
and its ``target_id`` the id of the copy: brokers may keep the position of one that is deleted.
Where no offset is committed, as after a week without an instance, the last record of the copy says
by its origin where it came from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import confluent_kafka

from headrace.errors import LinkError, LinkLossError, LinkNoLeaderError, LinkNoPartitionError
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.offsets import committed
from headrace.kafka.read.resume import (
    UNKNOWN_EPOCH,
    LogState,
    Loss,
    Position,
    Recreated,
    log_states,
    verdict,
    with_cuts,
)
from headrace.links.copy_ends import Copies, last_origins
from headrace.links.copying.plan import CopyPlan
from headrace.links.starts import Starts
from headrace.links.target import naming_site
from headrace.model import TopicPartition


def positions_of(
    offsets: Iterable[confluent_kafka.TopicPartition],
) -> dict[TopicPartition, Position | None]:
    """Returns what instances committed, by partitions of the target; ``None``: nothing."""
    return {
        TopicPartition(offset.topic, offset.partition): (
            None if offset.offset < 0 else Position.of(offset)
        )
        for offset in offsets
    }


def committed_positions(
    plan: CopyPlan, copies: Collection[TopicPartition]
) -> dict[TopicPartition, Position | None]:
    """Returns the committed positions of partitions of the target, without joining the group.

    Raises:
        AuthorizationError: if an ACL is missing at the target.
        BrokerUnreachableError: if the target's brokers do not answer.
    """
    with naming_site(plan.target_site):
        known = positions_of(committed(plan.target, plan.group, copies))
        live = describe(plan.target, {copy.topic for copy in copies})
    return dict.fromkeys(copies) | _of_live_copies(known, live)


def _of_live_copies(
    known: Mapping[TopicPartition, Position | None], live: Mapping[str, LiveTopic]
) -> dict[TopicPartition, Position | None]:
    """Returns the positions, without those of copies that were deleted and recreated since.

    Brokers keep them if the coordinator of the group was down when its topic was deleted.
    """
    return {
        copy: at
        if at is None or (topic := live.get(copy.topic)) is None or at.is_of(topic.topic_id)
        else None
        for copy, at in known.items()
    }


def find_starts(
    plan: CopyPlan, known: Mapping[TopicPartition, Position | None]
) -> Starts[Position]:
    """Returns where partitions continue.

    Args:
        plan: the link and its clusters.
        known: partitions of the *target*, with what is committed for them.

    Raises:
        AuthorizationError: if an ACL is missing at a site.
        BrokerUnreachableError: if the brokers of a site do not answer.
    """
    with naming_site(plan.source_site):
        topics = describe(plan.source, {plan.source_of(copy).topic for copy in known})
    with naming_site(plan.target_site):
        copied = describe(plan.target, {copy.topic for copy in known})
    known = _of_live_copies(known, copied)
    ready: dict[TopicPartition, TopicPartition] = {}
    refused: dict[TopicPartition, LinkError] = {}
    awaited: set[TopicPartition] = set()
    for copy in known:
        source = plan.source_of(copy)
        topic = topics.get(source.topic)
        refusal = _unready(plan, source, topic, copied.get(copy.topic))
        if refusal is not None:
            refused[source] = refusal
        elif topic is not None and source.partition >= topic.partitions:
            awaited.add(source)
        else:
            ready[source] = copy
    with naming_site(plan.source_site):
        logs = log_states(plan.source, topics, ready)
    starts = _starts(plan, {source: known[copy] for source, copy in ready.items()}, logs)
    with naming_site(plan.source_site):
        logs = with_cuts(plan.source, logs, starts)
    losses = {
        source: loss
        for source, start in starts.items()
        if (loss := _loss(plan, source, start, logs[source])) is not None
    }
    positions = {
        source: _named(start, logs[source].topic_id, copied[plan.copy_of(source).topic].topic_id)
        for source, start in starts.items()
        if source not in losses
    }
    return Starts(positions, {**refused, **losses}, frozenset(awaited))


def _named(start: Position, topic_id: str, target_id: str) -> Position:
    """Returns a start with both topics; one that did not name the copy is committed once more."""
    has_target = start.target_id == target_id
    is_committed = start.is_committed and has_target
    return replace(start, topic_id=topic_id, target_id=target_id, is_committed=is_committed)


def _unready(
    plan: CopyPlan, source: TopicPartition, topic: LiveTopic | None, copied: LiveTopic | None
) -> LinkError | None:
    """Returns why a partition can't be read or written at all."""
    copy = plan.copy_of(source)
    at_source, at_target = (*plan.source_names, source.path), (*plan.target_names, copy.path)
    if topic is None:
        return LinkNoPartitionError(*at_source)
    if source.partition in topic.leaderless:
        return LinkNoLeaderError(*at_source)
    if copied is None or copy.partition >= copied.partitions:
        return LinkNoPartitionError(*at_source, copy.path)
    if copy.partition in copied.leaderless:
        return LinkNoLeaderError(*at_target)
    return None


def _starts(
    plan: CopyPlan,
    known: Mapping[TopicPartition, Position | None],
    logs: Mapping[TopicPartition, LogState],
) -> dict[TopicPartition, Position]:
    unknown = {plan.copy_of(source): source for source in known if known[source] is None}
    copies = Copies(plan.target, plan.group, plan.target_site, plan.origin_site, unknown)
    tails = (plan.last_copies or last_origins)(copies)
    starts: dict[TopicPartition, Position] = {}
    for source, position in known.items():
        first, origin = logs[source].first, tails.get(plan.copy_of(source))
        start = position or Position(first if origin is None else origin.offset + 1)
        # Retention has removed the markers after the last record: no log can be compared there.
        is_comparable = start.read_to >= first
        starts[source] = start if is_comparable else replace(start, epoch=UNKNOWN_EPOCH)
    return starts


def _loss(
    plan: CopyPlan, source: TopicPartition, start: Position, log: LogState
) -> LinkLossError | None:
    now = verdict(start, log)
    if not isinstance(now, Loss):
        return None
    ids = (start.topic_id, log.topic_id) if isinstance(now, Recreated) else ()
    where = (*plan.source_names, source.path, start.offset, now.offset)
    return LinkLossError(*where, "", now.name, *ids)
