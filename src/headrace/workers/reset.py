"""Offsets of a worker, reset: it starts with other records than the next ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from headrace.errors import WorkerRunningError
from headrace.events.times import milliseconds_since_1970
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import (
    commit_offsets,
    committed,
    latest_offsets,
    leader_epoch,
    offsets_since,
    watermarks,
)
from headrace.kafka.client.partitions import partition_of
from headrace.kafka.group.groups import describe_group
from headrace.kafka.read.log_cuts import Seen, find_cuts
from headrace.model import TopicPartition
from headrace.settings import Settings
from headrace.workers import Worker
from headrace.workers.lanes.offsets import read_metadata
from headrace.workers.run import committed_offsets, selected_partitions, source_config, str_of
from headrace.workers.state.clearing import clear_state
from headrace.workers.tasks.retry_topics import consumed_topics, topics_read

ResetTo: TypeAlias = Literal["earliest", "latest", "committed"] | datetime
"""The earliest records that exist; those that come from now on; those that follow the committed
offsets, or the cut of a log that was truncated before them; the first one since a time."""

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True)
class Reset:
    """What a reset changes.

    Attributes:
        worker: its name.
        group: its consumer group.
        committed: offsets that it had committed, by partition, its retry topics included.
        begins: offsets at which it starts now.
        repeated: records between the two that will be processed a second time.
        skipped: records between the two that will not be processed.
        state: the topic whose values of these partitions are deleted; empty: the worker keeps none.
    """

    worker: str
    group: str
    committed: Mapping[str, int]
    begins: Mapping[str, int]
    repeated: int
    skipped: int
    state: str = ""


@dataclass(frozen=True)
class PartitionSelection:
    """Partitions of a worker that a reset is for.

    Attributes:
        topics: their topics; empty: all that the worker reads, its retry topics included.
        numbers: of the partitions; empty: all that exist.
    """

    topics: Collection[str] = ()
    numbers: Collection[int] = ()


EVERYTHING = PartitionSelection()


def reset(
    settings: Settings,
    worker: Worker,
    *,
    to: ResetTo = "earliest",
    only: PartitionSelection = EVERYTHING,
    dry_run: bool,
) -> Reset:
    """Sets where ``worker`` starts in the partitions that ``only`` names, and deletes their state.

    To the earliest, its retry topics are reset too, unless ``only`` leaves them out. To what
    is committed, only those partitions move whose log was cut before it. To another place, what
    waits in retry topics stays as it is. Partitions that are left out keep their committed offsets.

    Raises:
        BrokerUnreachableError: if the broker does not answer.
        TopicMissingError: if a topic of ``only`` does not exist.
        PartitionMissingError: if a topic has no partition of a number in ``only``.
        WorkerRunningError: if it has members, in the group of its topics or of its retry topics.
    """
    config, group = source_config(settings, worker), worker.consumer_group
    # Numbers without topics are of the worker's topics alone: retry topics may have fewer
    # partitions, and other records at their numbers.
    required = only.topics or ([topic.name for topic in worker.topics] if only.numbers else ())
    names = required or topics_read(worker)
    partitions = selected_partitions(config, names, required, only.numbers)
    before = committed_offsets(config, worker, partitions)
    marks = watermarks(config, partitions)
    starts = _start_offsets(config, worker, to, marks)
    # Last before the change, and still no guarantee: a member that joins now makes the commit fail,
    # as Kafka takes no offsets from outside of a group that has members.
    _refuse_running(config, worker)
    if not dry_run:
        _move(config, worker, starts)
    moves = [
        (before.get(partition, marks[partition][0]), marks[partition][0], at)
        for partition, at in starts.items()
    ]
    return Reset(
        worker.name,
        group,
        {str_of(partition): at for partition, at in before.items()},
        {str_of(partition): at for partition, at in starts.items()},
        # From the earliest record on: what retention has removed is not repeated.
        sum(max(0, before - max(after, earliest)) for before, earliest, after in moves),
        sum(max(0, after - max(before, earliest)) for before, earliest, after in moves),
        worker.state_topic if worker.state is not None and starts else "",
    )


def _start_offsets(
    config: ClientConfig,
    worker: Worker,
    to: ResetTo,
    marks: Mapping[TopicPartition, tuple[int, int]],
) -> Offsets:
    if to == "earliest":
        return {partition: earliest for partition, (earliest, _) in marks.items()}
    if to == "committed":
        return _cuts(config, worker, marks)
    own = {topic.name for topic in worker.topics}
    ends = {partition: latest for partition, (_, latest) in marks.items() if partition.topic in own}
    if not isinstance(to, datetime):
        return ends
    return ends | offsets_since(config, ends, milliseconds_since_1970(to))


def _cuts(config: ClientConfig, worker: Worker, partitions: Collection[TopicPartition]) -> Offsets:
    """Returns where logs were cut before what is done; other partitions keep their commits."""
    cuts: Offsets = {}
    for group, topics in consumed_topics(worker).items():
        own = [partition for partition in partitions if partition.topic in topics]
        for at in committed(config, group, own):
            done = read_metadata(at.offset, at.metadata or "").done
            read_to = max((end for _, end in done), default=at.offset)
            seen = {at.partition: Seen(read_to, leader_epoch(at))}
            for cut in find_cuts(config, at.topic, seen).values():
                # A cut beyond the committed offset concerns only records that were done out of
                # order.
                cuts[partition_of(at)] = min(cut, at.offset)
    return cuts


def _refuse_running(config: ClientConfig, worker: Worker) -> None:
    for group in consumed_topics(worker):
        members = describe_group(config, group).members
        if members:
            names = ", ".join(member.name for member in members)
            raise WorkerRunningError(worker.name, group, names)


def _move(config: ClientConfig, worker: Worker, starts: Offsets) -> None:
    """Commits the offset at which each partition starts, with an empty state.

    Of a group without commits, a worker with ``start=Start.LATEST`` would take the ends.
    """
    if worker.state is not None:
        clear_state(config, worker.state_topic, (partition.partition for partition in starts))
    for group, topics in consumed_topics(worker).items():
        own = {partition: at for partition, at in starts.items() if partition.topic in topics}
        if own:
            epochs = {p: epoch for p, (_, epoch) in latest_offsets(config, own).items()}
            commit_offsets(config, group, own, epochs)
