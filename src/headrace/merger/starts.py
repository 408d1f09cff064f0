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
from headrace.kafka.client import (
    LiveTopic,
    describe,
    earliest_offsets,
    latest_offsets,
    newest_timestamps,
)
from headrace.merger.losses import Log, find_losses
from headrace.merger.plan import MergePlan
from headrace.merger.position import (
    InputPosition,
    OutputPosition,
    committed_offset,
    positions_of,
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
    known = positions_of(committed)
    inputs = [source for output in ready for source in plan.inputs_of(output)]
    firsts, ends = earliest_offsets(plan.config, inputs), latest_offsets(plan.config, inputs)
    logs = {
        source: Log(topics[source.topic].topic_id, firsts[source], ends[source][0])
        for source in inputs
    }
    positions = {output: _positions(plan, output, known, logs) for output in ready}
    losses = find_losses(plan, positions, known, logs, _written_to(plan, positions, known))
    return Starts(
        {output: at for output, at in positions.items() if output not in losses},
        {**refused, **losses},
        frozenset(),
    )


def _written_to(
    plan: MergePlan,
    outputs: Collection[TopicPartition],
    known: Mapping[TopicPartition, InputPosition | None],
) -> dict[TopicPartition, int]:
    """Returns the newest times of outputs that have records, and inputs without a position."""
    without = [
        output for output in outputs if not all(known.get(s) for s in plan.inputs_of(output))
    ]
    ends = latest_offsets(plan.config, without)
    return newest_timestamps(plan.config, [output for output in without if ends[output][0] > 0])


def _positions(
    plan: MergePlan,
    output: TopicPartition,
    known: Mapping[TopicPartition, InputPosition | None],
    logs: Mapping[TopicPartition, Log],
) -> OutputPosition:
    """Returns where inputs of an output go on; one of which nothing is committed begins anew."""
    inputs = plan.inputs_of(output)
    topics = {source.topic: logs[source].topic_id for source in inputs}
    return tuple(
        replace(
            known.get(source) or InputPosition(logs[source].first, logs[source].first),
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
    plan: MergePlan, source: TopicPartition, loss: MergerLossError
) -> confluent_kafka.TopicPartition:
    """Returns the offset to commit so that an input goes on behind what it has lost."""
    topics = {name: topic.topic_id for name, topic in describe(plan.config, plan.topics).items()}
    offset = loss.accepted_offset
    return committed_offset(source, InputPosition(offset, offset, topics=topics))
