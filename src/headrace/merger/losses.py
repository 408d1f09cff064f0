"""Whether the sources of a merger still have what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from headrace.errors import MergerLossError
from headrace.events.times import time_of
from headrace.kafka.client import offsets_since
from headrace.kafka.log_cuts import Seen, find_cuts
from headrace.merger.plan import MergePlan
from headrace.merger.position import InputPosition, OutputPosition
from headrace.model import TopicPartition


class Log(NamedTuple):
    """What the broker has of a partition: its topic's id, its first offset, and its end."""

    topic_id: str
    first: int
    end: int


class SourceLoss(NamedTuple):
    """What a source lacks of the records that are next.

    Attributes:
        source: the partition.
        next_offset: of the first record that is not written.
        accepted: where it could go on.
        reason: what happened.
    """

    source: TopicPartition
    next_offset: int
    accepted: InputPosition
    reason: str

    def error(self, plan: MergePlan) -> MergerLossError:
        """Returns why its output is refused."""
        names = plan.named(self.source)
        return MergerLossError(*names, self.next_offset, self.accepted.offset, self.reason)


def find_losses(
    plan: MergePlan,
    positions: Mapping[TopicPartition, OutputPosition],
    known: Mapping[TopicPartition, InputPosition | None],
    logs: Mapping[TopicPartition, Log],
    written_to: Mapping[TopicPartition, int],
) -> dict[TopicPartition, SourceLoss]:
    """Returns, by output, what its first input that has lost records has lost.

    Args:
        plan: of the merger.
        positions: where the inputs of outputs would go on.
        known: what is committed of inputs.
        logs: what the broker has of them.
        written_to: the newest times of outputs with an input of which no position is committed.
    """
    cuts = _cuts(plan, known, logs)
    losses: dict[TopicPartition, SourceLoss] = {}
    for output, starts in positions.items():
        inputs = plan.inputs_of(output)
        committed = [known.get(source) for source in inputs]
        for source, start in zip(inputs, starts, strict=True):
            topic_id = _known_id(source.topic, known.get(source), committed)
            is_new = topic_id is None and any(committed)
            is_recreated = topic_id not in {None, logs[source].topic_id}
            if known.get(source) or is_new or is_recreated:
                loss = _loss(source, start, logs[source], topic_id, cuts.get(source))
            else:
                loss = _without_position(plan, source, start, logs[source], written_to.get(output))
            if loss is not None:
                losses.setdefault(output, loss)
    return losses


def _known_id(
    topic: str, own: InputPosition | None, others: Iterable[InputPosition | None]
) -> str | None:
    """Returns the id of a topic that an input had committed; ``None``: none had."""
    positions = [own] if own is not None and topic in own.topics else others
    ids = (at.topics[topic] for at in positions if at is not None and topic in at.topics)
    return next(ids, None)


def _without_position(
    plan: MergePlan,
    source: TopicPartition,
    start: InputPosition,
    log: Log,
    written_to_ms: int | None,
) -> SourceLoss | None:
    """Returns the loss of an input whose position is gone; an empty output is started over."""
    if written_to_ms is None:
        return None
    offset = offsets_since(plan.config, [source], written_to_ms).get(source, log.end)
    time = time_of(written_to_ms * 1000).isoformat(timespec="milliseconds")
    reason = (
        f"no position is committed, and {plan.target} has records up to {time}: the group had no "
        "instance for longer than brokers keep offsets, its offsets were deleted, or the topic was "
        "recreated. What the source has of that time, and later, would be merged"
    )
    return SourceLoss(source, log.first, InputPosition(offset, offset, topics=start.topics), reason)


def _loss(
    source: TopicPartition,
    start: InputPosition,
    log: Log,
    topic_id: str | None,
    cut: int | None,
) -> SourceLoss | None:
    """Returns what a source has lost; ``None``: nothing.

    ``topic_id`` is that of its topic as it was committed; ``None``: it is new to the merger.
    """
    if topic_id not in {None, log.topic_id}:
        anew = InputPosition(log.first, log.first, topics=start.topics)
        return SourceLoss(source, start.offset, anew, "the topic was deleted and recreated")
    if cut is not None or start.read_to > log.end:
        at = log.end if cut is None else min(cut, log.end)
        # What was read before the cut, and waits, is there; what is after it is new.
        rest = replace(start, offset=max(min(start.offset, at), log.first), read_to=at, epoch=-1)
        reason = f"its log was truncated at offset {at}: records that were merged are gone from it"
        return SourceLoss(source, start.offset, rest, reason)
    if start.offset < log.first:
        gone = f"{log.first - start.offset} offsets are gone, {start.offset} to {log.first - 1}"
        # What was written of those that are left is not written again.
        rest = replace(start, offset=log.first, read_to=max(log.first, start.read_to))
        reason = f"{gone}: retention or an operator deleted them"
        return SourceLoss(source, start.offset, rest, reason)
    return None


def _cuts(
    plan: MergePlan,
    known: Mapping[TopicPartition, InputPosition | None],
    logs: Mapping[TopicPartition, Log],
) -> dict[TopicPartition, int]:
    """Returns the offsets at which logs were truncated before the positions, as leaders say."""
    seen: dict[str, dict[int, Seen]] = {}
    for source, at in known.items():
        log = logs.get(source)
        # Retention may have removed the markers after the last record: then no log can be compared
        # there. An offset of another topic says nothing.
        if at is None or log is None or at.read_to < log.first:
            continue
        if at.topics.get(source.topic) == log.topic_id:
            seen.setdefault(source.topic, {})[source.partition] = Seen(at.read_to, at.epoch)
    return {
        TopicPartition(topic, partition): cut
        for topic, offsets in seen.items()
        for partition, cut in find_cuts(plan.config, topic, offsets).items()
    }
