"""Whether a reader may continue from an offset that it kept.

An offset alone is not enough later. The topic may have been recreated under its name, retention may
have deleted the next record, and after an unclean leader election the records before the offset may
be others. So a reader keeps beside an offset the id of its topic, and the epoch of the leader that
gave the last record before it (KIP-320): a :class:`Position`. It asks brokers for the
:class:`LogState` of the partition, and :func:`verdict` compares the two:

- :class:`Continue`: the log has all records from the position on, and those before it are the ones
  that were read. Nothing is lost or repeated.
- :class:`Gap`: the next record was deleted, by retention or by an operator. Records are lost.
- :class:`Recreated`: the topic was deleted and created again. Offsets of the position mean other
  records, so none of those that are there was read.
- :class:`Truncated`: the log was cut before the position. What was read after the cut is no longer
  in it, and what it has there now was not read, although its offsets are lower than the position.
- :class:`NoLeader`, :class:`NoPartition`: nothing can be said now. The reader asks again later.

The first offset with an unread record is in each of the three kinds of :class:`Loss`. A reader
must not continue there by itself where it promises not to lose or repeat records: it refuses, and
an operator accepts the loss.

A position that is committed in one transaction with the results of the records before it repeats
nothing after a crash. One that is committed after them repeats the records that were read since the
last commit. It is never committed before them.

Beside the committed offset of a consumer group, a position is the text ``topic_id read_to epoch``,
and, where the offset is committed for a topic that is written, the id of that: ``topic_id read_to
epoch target_id``. Brokers delete the offsets of a topic that is deleted only if the coordinator of
the group is up then. A position whose target was recreated since is none: :meth:`Position.is_of`.
Kafka's own tools leave the text empty when they move an offset: then the offset alone counts. The
first word of any other text is taken for the id of a topic: the offset is refused as one of another
topic, because nothing says what program committed it, and for what.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import confluent_kafka

from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import earliest_offsets, latest_offsets
from headrace.kafka.read.log_cuts import Seen, find_cuts_by_new_leaders
from headrace.model import TopicPartition

UNKNOWN_EPOCH = -1
_NOT_READ = -1


@dataclass(frozen=True, slots=True)
class Position:
    """The next record of a partition, and what says later whether its log is still the same.

    Attributes:
        offset: of the record.
        topic_id: of the topic that it is an offset of; empty: not known.
        read_to: the offset after the last record that was read. Before ``offset``, there are only
            markers of transactions in between; after it, records from ``offset`` on were read, and
            must be read again. -1: not known.
        epoch: of the leader that gave that record; -1: not known.
        is_committed: whether brokers have it.
        target_id: of the topic that has the records before it; empty: not known.
    """

    offset: int
    topic_id: str = ""
    read_to: int = _NOT_READ
    epoch: int = UNKNOWN_EPOCH
    is_committed: bool = False
    target_id: str = ""

    def __str__(self) -> str:
        return f"offset {self.offset}"

    @property
    def metadata(self) -> str:
        """The text that is committed beside the offset."""
        return f"{self.topic_id} {self.read_to} {self.epoch} {self.target_id}".rstrip()

    @classmethod
    def of(cls, committed: confluent_kafka.TopicPartition) -> Position:
        """Returns the position that a committed offset and its metadata hold."""
        topic_id, *rest = (committed.metadata or "").split(" ")
        try:
            read_to, epoch = map(int, rest[:2])
            [target_id] = rest[2:] or [""]
        except ValueError:
            read_to, epoch, target_id = _NOT_READ, UNKNOWN_EPOCH, ""
        return cls(committed.offset, topic_id, read_to, epoch, True, target_id)

    def is_of(self, target_id: str) -> bool:
        """Whether it is a position of this topic, not of one that was there before it.

        One that an earlier release committed does not say, and is.
        """
        return self.target_id in {"", target_id}

    @property
    def seen(self) -> Seen:
        """The last offset that the log must have, and the epoch that it must have before it.

        An epoch is that of a record, so it says nothing of an offset after markers: another leader
        may have written them.
        """
        if self.epoch < 0:
            return Seen(max(self.offset, self.read_to))
        return Seen(self.read_to, self.epoch)


@dataclass(frozen=True, slots=True)
class LogState:
    """What brokers have of a partition now.

    Attributes:
        topic_id: of its topic.
        first: its first offset; 0, if nothing leads it.
        end: its last stable offset; 0, if nothing leads it.
        epoch: of its leader; -1: brokers do not say.
        cut: the offset at which it was truncated before a position; ``None``: it was not, or
            :func:`with_cuts` has not asked.
        has_leader: whether a broker leads it.
    """

    topic_id: str
    first: int = 0
    end: int = 0
    epoch: int = UNKNOWN_EPOCH
    cut: int | None = None
    has_leader: bool = True


@dataclass(frozen=True, slots=True)
class Continue:
    """The log has all records from the position on, after those that were read."""


@dataclass(frozen=True, slots=True)
class NoPartition:
    """The topic does not exist, or has fewer partitions."""


@dataclass(frozen=True, slots=True)
class NoLeader:
    """No broker leads the partition now."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Records are lost. ``offset`` is the first one of the log with a record that was not read."""

    name: ClassVar[str]
    offset: int

    def reason(self, next_offset: int) -> str:
        """Returns what has happened to the log of a reader whose next offset was this."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Gap(Loss):
    """The next record was deleted. ``offset`` is the first one of the log."""

    name = "gap"

    def reason(self, next_offset: int) -> str:
        lost = f"{self.offset - next_offset} offsets are lost, {next_offset} to {self.offset - 1}"
        return f"{lost}: retention or an operator deleted them"


@dataclass(frozen=True, slots=True)
class Recreated(Loss):
    """The topic was deleted and created again. ``offset`` is the first one of the log."""

    name = "recreated"

    def reason(self, next_offset: int) -> str:  # noqa: ARG002 - no offset says anything
        return "the topic was deleted and recreated"


@dataclass(frozen=True, slots=True)
class Truncated(Loss):
    """The log was truncated before the position, at ``offset``."""

    name = "truncated"

    def reason(self, next_offset: int) -> str:  # noqa: ARG002 - it may be before the cut
        return f"its log was truncated at offset {self.offset}: records that were read are lost"


class SourceChangedError(Exception):
    """The next record is not where it was: ask again from where partitions continue."""


Verdict: TypeAlias = Continue | NoPartition | NoLeader | Gap | Recreated | Truncated


def verdict(position: Position, log: LogState | None) -> Verdict:
    """Returns whether a reader may continue from a position.

    Args:
        position: that it kept.
        log: what brokers have of the partition now; ``None``: there is none.
    """
    if log is None:
        return NoPartition()
    if not log.has_leader:
        return NoLeader()
    # Before the offsets, which mean nothing in another topic.
    if position.topic_id not in {"", log.topic_id}:
        return Recreated(log.first)
    # Before a gap: of a log that was cut, records before the position may be others, too.
    if log.cut is not None or position.seen.offset > log.end:
        return Truncated(log.end if log.cut is None else log.cut)
    return Gap(log.first) if position.offset < log.first else Continue()


def log_states(
    config: ClientConfig, topics: Mapping[str, LiveTopic], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LogState]:
    """Returns the states of logs; partitions that do not exist are left out.

    Args:
        config: of the cluster.
        topics: of the partitions, as
            :func:`headrace.kafka.client.admin_requests.describe` returns them.
        partitions: which ones.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
        TopicMissingError: if a topic was deleted since it was described.
    """
    states = {
        partition: LogState(topic.topic_id, has_leader=partition.partition not in topic.leaderless)
        for partition in partitions
        if (topic := topics.get(partition.topic)) and partition.partition < topic.partitions
    }
    # Requests about partitions without a leader would fail the others, too.
    led = [partition for partition, state in states.items() if state.has_leader]
    firsts, ends = earliest_offsets(config, led), latest_offsets(config, led)
    for partition in led:
        end, epoch = ends[partition]
        state = states[partition]
        states[partition] = replace(state, first=firsts[partition], end=end, epoch=epoch)
    return states


def with_cuts(
    config: ClientConfig,
    states: Mapping[TopicPartition, LogState],
    positions: Mapping[TopicPartition, Position],
) -> dict[TopicPartition, LogState]:
    """Returns states of logs with the offsets at which they were truncated before positions.

    Only a new leader truncates a log, so leaders are asked where the epoch has changed. A log can't
    be compared before its first offset, nor with a position in another topic or without a topic id.

    Raises:
        AuthorizationError: if reading a topic is not allowed.
        BrokerUnreachableError: if leaders do not answer.
    """
    seen = {
        partition: position.seen
        for partition, position in positions.items()
        if (state := states.get(partition)) is not None
        and state.has_leader
        and position.topic_id == state.topic_id
        and position.seen.offset >= state.first
    }
    ends = {partition: (states[partition].end, states[partition].epoch) for partition in seen}
    cuts = find_cuts_by_new_leaders(config, seen, ends)
    return {p: replace(state, cut=cuts.get(p)) for p, state in states.items()}
