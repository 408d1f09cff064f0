"""How far a link has copied, and how it continues after a loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from headrace.errors import (
    BrokerUnreachableError,
    LinkLossError,
    LinkNotRefusedError,
    PartitionMissingError,
)
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.offsets import commit, latest_offsets, watermarks
from headrace.kafka.client.partitions import client_partition
from headrace.kafka.group.groups import ConsumerGroup, describe_group
from headrace.kafka.read.resume import Position
from headrace.links.accepted import (
    AcceptedLoss,
    AcceptedRange,
    accept,
    accepted_folder,
    refuse_running,
)
from headrace.links.copying.kind import Link, copy_kind_of
from headrace.links.copying.plan import CopyPlan
from headrace.links.copying.positions import committed_positions, find_starts
from headrace.links.standing import LinkedPartition, Standing
from headrace.links.starts import Starts
from headrace.links.status import refused_now
from headrace.links.target import naming_site
from headrace.model import TopicPartition
from headrace.service.status import StatusFolder
from headrace.settings import Settings


def copy_standing(settings: Settings, link: Link) -> Standing:
    """Returns how far a link has come. A site that does not respond is reported as such.

    Raises:
        AuthorizationError: if an ACL is missing at a site.
    """
    kind = copy_kind_of(link)
    records = refused_now(StatusFolder(settings.state, kind.status_type), link.name)
    group, partitions, why = ConsumerGroup("unknown", ()), tuple[LinkedPartition, ...](), ""
    try:
        plan = kind.plan(settings, link)
        partitions = _partitions(plan, records)
        with naming_site(plan.target_site):
            group = describe_group(plan.target, plan.group)
    except BrokerUnreachableError as error:
        why = str(error)
    source = {"source": kind.source_site(link, settings.site)}
    return Standing(kind.label, link.name, source, partitions, group, {"unreachable": why})


def _partitions(plan: CopyPlan, records: Mapping[str, str]) -> tuple[LinkedPartition, ...]:
    with naming_site(plan.source_site):
        live = describe(plan.source, plan.copies)
    with naming_site(plan.target_site):
        copied = describe(plan.target, plan.copies.values())
    copies = [copy for topic in copied.values() for copy in topic.all_partitions]
    sources = {source for topic in live.values() for source in topic.all_partitions}
    # Also those whose topic was deleted: it is their refusal that an operator looks for.
    sources |= {plan.source_of(copy) for copy in copies if plan.source_of(copy).topic not in live}
    known = dict.fromkeys(map(plan.copy_of, sources)) | committed_positions(plan, copies)
    starts = find_starts(plan, known)
    led = {s for s in sources if s.topic in live and s.partition not in live[s.topic].leaderless}
    with naming_site(plan.source_site):
        ends = {source: end for source, (end, _) in latest_offsets(plan.source, led).items()}
    return tuple(
        _copied(plan, source, known[plan.copy_of(source)], starts, ends.get(source), records)
        for source in sorted(sources)
    )


def _copied(
    plan: CopyPlan,
    source: TopicPartition,
    position: Position | None,
    starts: Starts[Position],
    end: int | None,
    records: Mapping[str, str],
) -> LinkedPartition:
    refusal = starts.refused.get(source)
    start = position or starts.positions.get(source)
    begin = 0 if start is None else start.offset
    if isinstance(refusal, LinkLossError):
        begin = refusal.next_offset
    why = refusal or records.get(source.path, "")
    at = LinkedPartition.of(source, position.offset if position else None, begin, end, why)
    return replace(at, details={"copy": plan.copy_of(source).path})


def accept_loss(
    settings: Settings, plan: CopyPlan, partition: TopicPartition, to: int | None = None
) -> AcceptedLoss:
    """Continues a partition after records that are not copied; the ledger keeps that.

    Args:
        settings: the project's deployment.
        plan: of the link, of which no instance runs.
        partition: of the source.
        to: the next offset to copy; by default, the first that the source has.

    Raises:
        LinkRunningError: if an instance runs.
        LinkNotRefusedError: if no loss must be accepted, and ``to`` leaves out no record.
        LinkOffsetError: if the source's log has no offset ``to``, or was truncated after it, so
            that records would be repeated.
        LinkNoPartitionError, LinkNoLeaderError: if the partition can't be read or written.
        PartitionMissingError: if the source's topic has no such partition.
        AuthorizationError: if an ACL is missing at a site.
        BrokerUnreachableError: if the brokers of a site do not answer.
        SinkError: if the ledger can't be written; nothing is accepted then.
    """
    with naming_site(plan.target_site):
        refuse_running(plan.status.kind, plan.name, plan.target, plan.group)
    _check_partition(plan, partition)
    copy = plan.copy_of(partition)
    # Read after the members were checked: an instance that has ended has committed its last one.
    starts = find_starts(plan, committed_positions(plan, [copy]))
    loss, before, after = _left_out(plan, starts, partition, to)
    topic_id = describe(plan.source, [partition.topic])[partition.topic].topic_id
    with naming_site(plan.target_site):
        end, _ = latest_offsets(plan.target, [copy])[copy]
        target_id = describe(plan.target, [copy.topic])[copy.topic].topic_id
    # After a recreated or truncated log, its offsets mean other records: the ledger then compares
    # from the end of the copy on.
    has_same_offsets = loss is None or loss.loss == "gap"
    range_ = AcceptedRange(
        partition.topic,
        topic_id,
        target_id,
        partition.partition,
        before,
        after,
        datetime.now(UTC),
        "they were left out" if loss is None else str(loss),
        None if has_same_offsets else end,
    )
    return _accept(settings, plan, range_)


def _accept(settings: Settings, plan: CopyPlan, range_: AcceptedRange) -> AcceptedLoss:
    position = Position(range_.end, range_.topic_id, target_id=range_.target_id)
    offset = client_partition(plan.copy_of(range_.source), range_.end, position.metadata)
    folder = accepted_folder(settings, plan.group)

    def commit_it() -> None:
        commit(plan.target, plan.group, [offset])

    with naming_site(plan.target_site):
        return accept(plan.status.kind, folder, range_, commit_it, counts_lost=True)


def _left_out(
    plan: CopyPlan,
    starts: Starts[Position],
    partition: TopicPartition,
    to: int | None,
) -> tuple[LinkLossError | None, int, int]:
    """Returns the loss, if there is one, and the offsets from and before which records are left."""
    refusal, start = starts.refused.get(partition), starts.positions.get(partition)
    if refusal is not None and not isinstance(refusal, LinkLossError):
        raise refusal
    if to is not None:
        # What a truncated log has before the cut was copied.
        _check_offset(plan, partition, to, 0 if refusal is None else refusal.accepted_offset)
    if refusal is not None:
        return refusal, refusal.next_offset, refusal.accepted_offset if to is None else to
    if start is not None and to is not None and to > start.offset:
        return None, start.offset, to
    raise LinkNotRefusedError(plan.status.kind, plan.name, "", partition.path)


def _check_partition(plan: CopyPlan, partition: TopicPartition) -> None:
    with naming_site(plan.source_site):
        topic = describe(plan.source, [partition.topic]).get(partition.topic)
    if topic is not None and partition.partition >= topic.partitions:
        raise PartitionMissingError(partition.topic, partition.partition, topic.partitions)


def _check_offset(plan: CopyPlan, partition: TopicPartition, offset: int, min_offset: int) -> None:
    with naming_site(plan.source_site):
        first, end = watermarks(plan.source, [partition])[partition]
    first = max(first, min_offset)
    if not first <= offset <= end:
        name = partition.path
        raise plan.offset_error(*plan.source_names, name, offset, first, end)
