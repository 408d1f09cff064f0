"""Where the outputs of a merger go on, and why some can't."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import confluent_kafka

from headrace.errors import (
    MergerLossError,
    MergerNoLeaderError,
    MergerNoPartitionError,
    MergerRefusedError,
)
from headrace.kafka.client import LiveTopic, describe, earliest_offsets, latest_offsets
from headrace.merger.losses import Log, find_losses
from headrace.merger.order import NOTHING_REACHED
from headrace.merger.plan import MergePlan
from headrace.merger.position import (
    InputPosition,
    OutputPosition,
    committed_offset,
    position_of,
)
from headrace.model import TopicPartition
from headrace.transfer.instance import Starts


def find_starts(
    plan: MergePlan,
    outputs: Collection[TopicPartition],
    committed: Iterable[confluent_kafka.TopicPartition],
) -> Starts[OutputPosition]:
    """Returns where outputs go on.

    Args:
        plan: of the merger.
        outputs: partitions of the target.
        committed: offsets of the inputs of ``outputs``; negative where nothing is committed.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    topics = describe(plan.config, {*plan.topics, plan.target, plan.late})
    refused: dict[TopicPartition, MergerRefusedError] = {}
    for output in outputs:
        for partition in (*plan.inputs_of(output), output):
            refusal = _unready(plan, partition, topics.get(partition.topic))
            if refusal is not None:
                refused[output] = refusal
                break
    ready = [output for output in outputs if output not in refused]
    known = {TopicPartition(at.topic, at.partition): position_of(at) for at in committed}
    inputs = [source for output in ready for source in plan.inputs_of(output)]
    firsts, ends = earliest_offsets(plan.config, inputs), latest_offsets(plan.config, inputs)
    logs = {
        source: Log(topics[source.topic].topic_id, firsts[source], ends[source][0])
        for source in inputs
    }
    positions = {output: _positions(plan, output, known, logs) for output in ready}
    losses = find_losses(plan, positions, known, logs)
    return Starts(
        {output: at for output, at in positions.items() if output not in losses},
        {**refused, **losses},
        frozenset(),
    )


def _positions(
    plan: MergePlan,
    output: TopicPartition,
    known: Mapping[TopicPartition, InputPosition | None],
    logs: Mapping[TopicPartition, Log],
) -> OutputPosition:
    """Returns where inputs of an output go on; one of which nothing is committed begins anew."""
    inputs = plan.inputs_of(output)
    topics = {source.topic: logs[source].topic_id for source in inputs}
    reached = max((at.reached for s in inputs if (at := known.get(s))), default=NOTHING_REACHED)
    return tuple(
        replace(
            known.get(source) or InputPosition(logs[source].first, logs[source].first),
            reached=reached,
            topics=topics,
        )
        for source in inputs
    )


def _unready(
    plan: MergePlan, partition: TopicPartition, topic: LiveTopic | None
) -> MergerRefusedError | None:
    name = f"{partition.topic}/{partition.partition}"
    if topic is None or partition.partition >= topic.partitions:
        return MergerNoPartitionError(plan.name, name)
    if partition.partition in topic.leaderless:
        return MergerNoLeaderError(plan.name, name)
    return None


def accepted_offset(
    plan: MergePlan,
    source: TopicPartition,
    loss: MergerLossError,
    committed: Iterable[confluent_kafka.TopicPartition],
) -> confluent_kafka.TopicPartition:
    """Returns the offset to commit so that an input goes on behind what it has lost.

    Args:
        plan: of the merger.
        source: the input.
        loss: that is accepted.
        committed: offsets of the inputs of the same output. What the output has passed stays so.
    """
    inputs = plan.inputs_of(TopicPartition(plan.target, source.partition))
    topics = {name: topic.topic_id for name, topic in describe(plan.config, plan.topics).items()}
    known = {TopicPartition(at.topic, at.partition): position_of(at) for at in committed}
    reached = max((at.reached for s in inputs if (at := known.get(s))), default=NOTHING_REACHED)
    offset = loss.accepted_offset
    return committed_offset(source, InputPosition(offset, offset, reached=reached, topics=topics))
