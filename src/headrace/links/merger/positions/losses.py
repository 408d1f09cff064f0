"""Whether the sources of a merger still have what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from headrace.errors import LinkLossError
from headrace.events.times import time_of
from headrace.kafka.client.offsets import offsets_since
from headrace.kafka.read.resume import (
    UNKNOWN_EPOCH,
    Gap,
    LogState,
    Position,
    Recreated,
    Truncated,
    verdict,
    with_cuts,
)
from headrace.links.merger.plan import MergerPlan
from headrace.links.merger.positions.position import InputPosition, OutputPosition, WrittenTo
from headrace.model import TopicPartition


class SourceLoss(NamedTuple):
    """What a source lacks of the records that are next.

    Attributes:
        source: the partition.
        next_offset: of the first record that is not written.
        accepted: where it continues if the loss is accepted.
        reason: what happened.
    """

    source: TopicPartition
    next_offset: int
    accepted: InputPosition
    reason: str

    def error(self, plan: MergerPlan) -> LinkLossError:
        """Returns why its output is refused."""
        names = plan.named(self.source)
        return LinkLossError(*names, self.next_offset, self.accepted.offset, self.reason)


def find_losses(
    plan: MergerPlan,
    positions: Mapping[TopicPartition, OutputPosition],
    known: Mapping[TopicPartition, InputPosition | None],
    logs: Mapping[TopicPartition, LogState],
    written_to: Mapping[TopicPartition, int],
) -> dict[TopicPartition, SourceLoss]:
    """Returns what each input that has lost records has lost, in the order of ``positions``.

    Args:
        plan: of the merger.
        positions: where the inputs of outputs would continue.
        known: what is committed of inputs.
        logs: what the broker has of them.
        written_to: the newest times of outputs with an input of which no position is committed.
    """
    reached = _reached(plan, positions, known)
    logs = with_cuts(plan.config, logs, reached)
    losses: dict[TopicPartition, SourceLoss] = {}
    for output, starts in positions.items():
        inputs = plan.inputs_of(output)
        has_positions = any(known.get(source) for source in inputs)
        for source, start in zip(inputs, starts, strict=True):
            at, log = reached[source], logs[source]
            is_new = not at.topic_id and has_positions
            is_recreated = at.topic_id not in {"", log.topic_id}
            if known.get(source) or is_new or is_recreated:
                # What its recreated topic has, and the output has passed, is late.
                written = WrittenTo(max(of.written.time_ms for of in starts), 0)
                loss = _loss(source, start, at, log, written)
            else:
                loss = _without_position(plan, source, start, log, written_to.get(output))
            if loss is not None:
                losses[source] = loss
    return losses


def _reached(
    plan: MergerPlan,
    positions: Mapping[TopicPartition, OutputPosition],
    known: Mapping[TopicPartition, InputPosition | None],
) -> dict[TopicPartition, Position]:
    """Returns the positions of inputs with the ids of their topics; empty: none is committed."""
    return {
        source: Position(
            start.offset,
            _known_id(source.topic, known.get(source), map(known.get, plan.inputs_of(output))),
            start.read_to,
            start.epoch,
        )
        for output, starts in positions.items()
        for source, start in zip(plan.inputs_of(output), starts, strict=True)
    }


def _known_id(topic: str, own: InputPosition | None, others: Iterable[InputPosition | None]) -> str:
    """Returns the id of a topic that an input had committed; empty: none had."""
    return known_id(topic, [own] if own is not None and topic in own.topics else others)


def known_id(topic: str, positions: Iterable[InputPosition | None]) -> str:
    """Returns the id of a topic by the first position that names it; empty: none does."""
    ids = (at.topics[topic] for at in positions if at is not None and topic in at.topics)
    return next(ids, "")


def _without_position(
    plan: MergerPlan,
    source: TopicPartition,
    start: InputPosition,
    log: LogState,
    written_to_ms: int | None,
) -> SourceLoss | None:
    """Returns the loss of an input without a position; one of an empty output starts over."""
    if written_to_ms is None:
        return None
    offset = offsets_since(plan.config, [source], written_to_ms).get(source, log.end)
    time = time_of(written_to_ms * 1000).isoformat(timespec="milliseconds")
    reason = (
        f"no position is committed, and {plan.target} has records up to {time}: the group had no "
        "instance for longer than brokers keep offsets, its offsets were deleted, or the topic was "
        "recreated. What the source has of that time, and later, would be merged"
    )
    # Records of earlier times may follow that offset; they are late, and not put in order again.
    written = WrittenTo(written_to_ms, 0)
    accepted = InputPosition(offset, offset, written=written, topics=start.topics)
    return SourceLoss(source, log.first, accepted, reason)


def _loss(
    source: TopicPartition, start: InputPosition, at: Position, log: LogState, written: WrittenTo
) -> SourceLoss | None:
    now = verdict(at, log)
    match now:
        case Recreated(first):
            rest = InputPosition(first, first, written=written, topics=start.topics)
        case Truncated(offset):
            cut = min(offset, log.end)
            # What was read before the cut, and waits, is there; what is after it is new.
            first = max(min(start.offset, cut), log.first)
            rest = replace(start, offset=first, read_to=cut, epoch=UNKNOWN_EPOCH)
        case Gap(first):
            # What was written of those that are left is not written again.
            rest = replace(start, offset=first, read_to=max(first, start.read_to))
        case _:
            return None
    return SourceLoss(source, start.offset, rest, now.reason(start.offset))
