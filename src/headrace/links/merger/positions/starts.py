"""Where the outputs of a merger continue, and why some can't."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import confluent_kafka

from headrace.errors import LinkError, LinkLossError, LinkNoLeaderError, LinkNoPartitionError
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.read.resume import LogState, log_states
from headrace.links.merger.plan import MergerPlan
from headrace.links.merger.positions.last_records import last_times
from headrace.links.merger.positions.losses import SourceLoss, find_losses, known_id
from headrace.links.merger.positions.position import (
    InputPosition,
    OutputPosition,
    positions_of,
)
from headrace.links.starts import Starts
from headrace.model import TopicPartition


@dataclass(frozen=True, slots=True)
class MergerStarts(Starts[OutputPosition]):
    """Positions of outputs; an output is refused with the first loss of its inputs.

    Attributes:
        losses: of each input that has lost records.
    """

    losses: Mapping[TopicPartition, SourceLoss]


def find_starts(
    plan: MergerPlan,
    outputs: Collection[TopicPartition],
    committed: Iterable[confluent_kafka.TopicPartition],
) -> MergerStarts:
    """Returns where outputs continue.

    Positions are those of the sources, so brokers keep them when the target is deleted. One that
    was recreated is filled from the first records of the sources if the topic of late records was
    recreated, too; else what that has would be there twice, and the output is refused.

    Args:
        plan: of the merger.
        outputs: partitions of the target.
        committed: offsets of the inputs of ``outputs``; negative where nothing is committed.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    topics = describe(plan.config, {*plan.topics, plan.target, plan.late})
    known = positions_of(committed)
    unready = {output: _unready(plan, output, topics) for output in outputs}
    for output in [output for output, refusal in unready.items() if refusal is None]:
        written = [known.get(source) for source in plan.inputs_of(output)]
        if _is_recreated(plan.target, written, topics):
            if _is_recreated(plan.late, written, topics):  # nothing that was merged is there
                known |= dict.fromkeys(plan.inputs_of(output))
            else:
                ids = (known_id(plan.target, written), topics[plan.target].topic_id)
                where = (*plan.named(output), 0, 0)
                unready[output] = LinkLossError(*where, "", "target", *ids)
    ready = [output for output, refusal in unready.items() if refusal is None]
    positions, losses = _positions_and_losses(plan, ready, known, topics)
    refused = {output: refusal for output, refusal in unready.items() if refusal is not None}
    for source, loss in losses.items():
        refused.setdefault(TopicPartition(plan.target, source.partition), loss.error(plan))
    return MergerStarts(
        {output: at for output, at in positions.items() if output not in refused},
        refused,
        frozenset(),
        losses,
    )


def find_loss(
    plan: MergerPlan,
    source: TopicPartition,
    committed: Iterable[confluent_kafka.TopicPartition],
) -> SourceLoss | None:
    """Returns what an input has lost; ``None``: nothing.

    Args:
        plan: of the merger.
        source: the input.
        committed: offsets of all inputs of its output; negative where nothing is committed.

    Raises:
        LinkNoPartitionError, LinkNoLeaderError: if the output can't be read or written at all.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    output = TopicPartition(plan.target, source.partition)
    starts = find_starts(plan, [output], committed)
    if output in starts.refused and not starts.losses:
        raise starts.refused[output]
    return starts.losses.get(source)


def _positions_and_losses(
    plan: MergerPlan,
    outputs: Collection[TopicPartition],
    known: Mapping[TopicPartition, InputPosition | None],
    topics: Mapping[str, LiveTopic],
) -> tuple[dict[TopicPartition, OutputPosition], dict[TopicPartition, SourceLoss]]:
    inputs = [source for output in outputs for source in plan.inputs_of(output)]
    logs = log_states(plan.config, topics, inputs)
    positions = {output: _positions(plan, output, known, logs, topics) for output in outputs}
    # An input without a position is lost only if its output has records: else it is new.
    without = [
        output for output in outputs if not all(known.get(s) for s in plan.inputs_of(output))
    ]
    written_to = last_times(plan.config, without)
    return positions, find_losses(plan, positions, known, logs, written_to)


def _positions(
    plan: MergerPlan,
    output: TopicPartition,
    known: Mapping[TopicPartition, InputPosition | None],
    logs: Mapping[TopicPartition, LogState],
    live: Mapping[str, LiveTopic],
) -> OutputPosition:
    """Returns where inputs of an output continue; without a commit, one starts over."""
    inputs = plan.inputs_of(output)
    topics = {source.topic: logs[source].topic_id for source in inputs}
    topics |= {topic: live[topic].topic_id for topic in (plan.target, plan.late)}
    return tuple(
        replace(
            known.get(source) or InputPosition(logs[source].first, logs[source].first),
            topics=topics,
        )
        for source in inputs
    )


def _is_recreated(
    topic: str, written: Iterable[InputPosition | None], live: Mapping[str, LiveTopic]
) -> bool:
    """Returns whether a topic is another one than that which an output was written to."""
    return known_id(topic, written) not in {"", live[topic].topic_id}


def _unready(
    plan: MergerPlan, output: TopicPartition, topics: Mapping[str, LiveTopic]
) -> LinkError | None:
    """Returns why an output can't be read or written at all."""
    late = TopicPartition(plan.late, output.partition)
    for partition in (*plan.inputs_of(output), output, late):
        topic = topics.get(partition.topic)
        if topic is None or partition.partition >= topic.partitions:
            return LinkNoPartitionError(*plan.named(partition))
        if partition.partition in topic.leaderless:
            return LinkNoLeaderError(*plan.named(partition))
    return None
