"""Mergers of a project: how far they are, and how to continue after a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from headrace.errors import LinkNotRefusedError, TopicMissingError
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.offsets import commit, committed, earliest_offsets, latest_offsets
from headrace.kafka.group.groups import describe_group
from headrace.links.accepted import (
    AcceptedLoss,
    AcceptedRange,
    accept,
    accepted_folder,
    refuse_running,
)
from headrace.links.merger.declaration import Merger
from headrace.links.merger.plan import ClockSource, MergerPlan
from headrace.links.merger.positions.last_records import last_times
from headrace.links.merger.positions.position import InputPosition, committed_offset, positions_of
from headrace.links.merger.positions.starts import MergerStarts, find_loss, find_starts
from headrace.links.merger.status import MergerStatus
from headrace.links.standing import LinkedPartition, Standing
from headrace.links.status import refused_now
from headrace.model import TopicPartition
from headrace.project.loaded import LoadedProject
from headrace.project.site_clusters import own_cluster
from headrace.service.status import StatusFolder

_MILLISECOND = timedelta(milliseconds=1)
_MAX_READS = 5  # of the positions, while an instance commits


def plan_of(project: LoadedProject, merger: Merger) -> MergerPlan:
    """Returns a merger with its cluster.

    Raises:
        BrokerUnreachableError: if the embedded broker was never started.
    """
    settings = project.settings.of("mergers", merger.name)
    elsewhere = {topic.name for topic in merger.mirrored_elsewhere}
    return MergerPlan(
        merger.name,
        merger.consumer_group,
        own_cluster(settings).client_config(may_be_down=True),
        {
            topic.name: (
                ClockSource.RECORDS
                if topic.name in elsewhere
                else ClockSource.MIRROR
                if any(kind.reports_times for kind, _ in project.writers(topic.name))
                else ClockSource.WALL
            )
            for topic in merger.sources
        },
        merger.target.name,
        merger.late.name,
        merger.allowed_lateness // _MILLISECOND,
        merger.idle_timeout.total_seconds(),
        merger.commit_every.total_seconds(),
    )


def merger_standing(project: LoadedProject, merger: Merger) -> Standing:
    """Returns how far a merger has come, and which partitions can't continue.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
        TopicMissingError: if the target does not exist.
    """
    plan = plan_of(project, merger)
    live = describe(plan.config, (*plan.topics, plan.target))
    if plan.target not in live:
        raise TopicMissingError(plan.target)
    outputs = live[plan.target].all_partitions
    sources = [source for output in outputs for source in plan.inputs_of(output)]
    led = [
        source
        for source in sources
        if (topic := live.get(source.topic)) is not None
        and source.partition < topic.partitions
        and source.partition not in topic.leaderless
    ]
    known, starts = _positions_and_starts(plan, outputs, led)
    ends = {source: end for source, (end, _) in latest_offsets(plan.config, led).items()}
    firsts = earliest_offsets(plan.config, led)
    reasons = refused_now(StatusFolder(project.settings.state, MergerStatus), merger.name)
    reasons |= {output.path: str(refusal) for output, refusal in starts.refused.items()}
    # An input that has lost nothing shows what holds up its partition.
    reasons |= {source.path: str(loss.error(plan)) for source, loss in starts.losses.items()}
    partitions = tuple(
        _merged(
            source,
            known.get(source),
            (firsts.get(source, 0), ends.get(source)),
            reasons.get(source.path) or reasons.get(output.path, ""),
        )
        for output in outputs
        for source in plan.inputs_of(output)
    )
    group = describe_group(plan.config, plan.group)
    return Standing("merger", merger.name, {"target": plan.target}, partitions, group)


def _positions_and_starts(
    plan: MergerPlan, outputs: Sequence[TopicPartition], sources: Sequence[TopicPartition]
) -> tuple[Mapping[TopicPartition, InputPosition | None], MergerStarts]:
    """Returns the committed positions, and where a merger would start from them.

    Records that an instance writes meanwhile are beyond the positions before its commit, and look
    like foreign ones. So where an output is refused, positions that have changed are read again,
    until they stay or were read ``_MAX_READS`` times.
    """
    offsets = committed(plan.config, plan.group, sources)
    for _ in range(_MAX_READS):
        known, starts = positions_of(offsets), find_starts(plan, outputs, offsets)
        if not starts.refused:
            break
        offsets = committed(plan.config, plan.group, sources)
        if positions_of(offsets) == known:
            break
    return known, starts


def _merged(
    source: TopicPartition,
    position: InputPosition | None,
    log: tuple[int, int | None],
    refused: str,
) -> LinkedPartition:
    first, end = log
    if position is None:
        at, time_ms = LinkedPartition.of(source, None, first, end, refused), -1
    else:
        at = LinkedPartition.of(source, position.offset, position.offset, end, refused)
        time_ms = position.written.time_ms
    return replace(at, details={"sorted_to_ms": None if time_ms < 0 else time_ms})


def accept_loss(project: LoadedProject, merger: Merger, partition: TopicPartition) -> AcceptedLoss:
    """Continues a partition of a source after records that it has lost; the ledger keeps that.

    Raises:
        LinkRunningError: if an instance runs.
        LinkNotRefusedError: if no loss must be accepted.
        LinkNoPartitionError, LinkNoLeaderError: if the partition can't be read or written.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
        SinkError: if the ledger can't be written; nothing is accepted then.
    """
    plan = plan_of(project, merger)
    refuse_running("merger", merger.name, plan.config, plan.group)
    output = TopicPartition(plan.target, partition.partition)
    offsets = committed(plan.config, plan.group, plan.inputs_of(output))
    loss = find_loss(plan, partition, offsets)
    if loss is None:
        raise LinkNotRefusedError(*plan.named(partition))
    live = describe(plan.config, [partition.topic, plan.target])
    range_ = AcceptedRange(
        partition.topic,
        live[partition.topic].topic_id,
        live[plan.target].topic_id,
        partition.partition,
        loss.next_offset,
        loss.accepted.offset,
        datetime.now(UTC),
        loss.reason,
        time_ms=last_times(plan.config, [output]).get(output, 0),
    )
    offset = committed_offset(partition, loss.accepted)
    folder = accepted_folder(project.settings, plan.group)
    return accept("merger", folder, range_, lambda: commit(plan.config, plan.group, [offset]))
