"""Whether the sources of a merger still have what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.errors import MergerLossError
from headrace.kafka.log_cuts import Seen, find_cuts
from headrace.merger.plan import MergePlan
from headrace.merger.position import InputPosition, OutputPosition
from headrace.model import TopicPartition


class Log(NamedTuple):
    """What the broker has of a partition: its topic's id, its first offset, and its end."""

    topic_id: str
    first: int
    end: int


def find_losses(
    plan: MergePlan,
    positions: Mapping[TopicPartition, OutputPosition],
    known: Mapping[TopicPartition, InputPosition | None],
    logs: Mapping[TopicPartition, Log],
) -> dict[TopicPartition, MergerLossError]:
    """Returns, by output, what its first input that has lost records has lost."""
    cuts = _cuts(plan, known, logs)
    losses: dict[TopicPartition, MergerLossError] = {}
    for output, starts in positions.items():
        inputs = plan.inputs_of(output)
        for source, start in zip(inputs, starts, strict=True):
            committed = known.get(source)
            topic_id = _known_id(source.topic, committed, [known.get(each) for each in inputs])
            loss = _loss(start, logs[source], topic_id, committed, cuts.get(source))
            if loss is not None:
                name = f"{source.topic}/{source.partition}"
                losses.setdefault(output, MergerLossError(plan.name, name, *loss))
    return losses


def _known_id(
    topic: str, own: InputPosition | None, others: Iterable[InputPosition | None]
) -> str | None:
    """Returns the id of a topic that an input had committed; ``None``: none had."""
    positions = [own] if own is not None and topic in own.topics else others
    ids = (at.topics[topic] for at in positions if at is not None and topic in at.topics)
    return next(ids, None)


def _loss(
    start: InputPosition,
    log: Log,
    topic_id: str | None,
    committed: InputPosition | None,
    cut: int | None,
) -> tuple[int, int, str] | None:
    """Returns the next offset, the one where it could go on, and what happened."""
    if topic_id not in {None, log.topic_id}:
        return start.offset, log.first, "the topic was deleted and made again"
    if topic_id is not None and committed is None:
        return start.offset, log.first, "its committed offset was deleted"
    if start.offset < log.first:
        gone = f"{log.first - start.offset} offsets are gone, {start.offset} to {log.first - 1}"
        return start.offset, log.first, f"{gone}: retention or an operator deleted them"
    if cut is not None or start.read_to > log.end:
        at = log.end if cut is None else min(cut, log.end)
        return start.offset, at, f"its log was truncated at offset {at}"
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
        # Retention may have removed the markers behind the last record: then no log can be compared
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
