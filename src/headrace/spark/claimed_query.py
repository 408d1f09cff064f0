"""A Spark query from a topic to another one, whose positions are claimed in commit metadata.

An engine starts such a query, watches it, and starts another one where that has to read from other
positions: those that are committed in a consumer group. Spark's checkpoint is of no use to another
query, so each starts with an empty one. Records that are sent name their places in the source.

Contract:

- **What is committed.** For each partition of the source, the offset before which all that has to
  be sent is at the target; the id of the topic, and the epoch of a leader that had what is before
  the offset (KIP-320); ``scan_from``, an offset of the target: what is sent from the position on is
  after it; the instance that committed; and the id of the target's topic, since brokers may keep
  the offsets of one that is deleted.
- **When.** Before a query starts, and when batches have ended: Spark reports a batch when the
  target has acknowledged its last record. Where no batch ends, positions are committed again after
  a while: brokers forget old ones.
- **What a crash repeats.** Nothing. The next start scans the target from ``scan_from`` on, and
  leaves out what it finds. A commit moves ``scan_from`` to the end that the target had before Spark
  was asked for ended batches. It stays where it is until the query has passed all that its start
  found: that is not sent again, so it is before the end. What a stopped query has in flight needs a
  moment to arrive: engines wait before the next start.
- **A lost batch.** A batch that fails ends the query. One whose commit fails, or whose report Spark
  has dropped, is committed with the next one. The next start finds the records of both.
- **A second instance.** On one machine, a lock refuses it. On another one it commits its name when
  it starts, and has taken over. The first one looks for its own name before each commit and every
  ten seconds, and ends where it finds another. What it has sent since the other one scanned the
  target is sent twice.
- **Changed topics.** Before each commit and every ten seconds, the query looks whether a topic was
  recreated; before each commit, whether a log was truncated before a position; and every ten
  seconds, whether there are further partitions. The engine then starts another query.
- **Unreachable brokers.** Nothing is committed, and the query continues as long as the engine keeps
  watching it: its own clients wait for brokers.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Self, TypeVar

import confluent_kafka

from headrace.errors import BrokerUnreachableError, RefusedError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import high_watermarks, latest_offsets, leader_epoch
from headrace.kafka.read.log_cuts import Seen, whole_ends
from headrace.kafka.read.resume import Position, SourceChangedError
from headrace.model import TopicPartition
from headrace.spark.topic_query import DoneBatches, KafkaQuery

_CHECK_SECONDS = 10.0  # so long a recreated topic, or a second instance, may go unnoticed


@dataclass(frozen=True, slots=True)
class CommittedPosition:
    """What is committed of a partition of the source; engines may commit more.

    Attributes:
        offset: of the next record.
        topic_id: of the topic that it is an offset of; empty: not known.
        scan_from: offset at the target; records from ``offset`` on are sent after it.
        instance: that committed it; empty: none did.
        epoch: of a leader of the partition that had what is before the offset; -1: not known.
        target_id: of the topic that is written; empty: not known.
    """

    offset: int
    topic_id: str = ""
    scan_from: int = 0
    instance: str = ""
    epoch: int = -1
    target_id: str = ""

    @property
    def reached(self) -> Position:
        """How far the source was read."""
        return Position(
            self.offset, self.topic_id, self.offset, self.epoch, target_id=self.target_id
        )

    @property
    def metadata(self) -> str:
        """What is committed beside the offset."""
        known = f"{self.topic_id} {self.scan_from} {self.instance}"
        return f"{known} {self.target_id}" if self.target_id else known

    @classmethod
    def of(cls, committed: confluent_kafka.TopicPartition) -> Self:
        """Returns the position that a committed offset and its metadata hold."""
        match (committed.metadata or "").split(" ", 2):
            case [topic_id, scan_from, rest] if scan_from.isdecimal():
                instance, _, target_id = rest.partition(" ")  # earlier releases have no target
                epoch, scanned = leader_epoch(committed), int(scan_from)
                return cls(committed.offset, topic_id, scanned, instance, epoch, target_id)
        return cls(committed.offset)  # another program has committed it


Claimed = TypeVar("Claimed", bound=CommittedPosition)


@dataclass(frozen=True)
class Claims(Generic[Claimed]):
    """The policy of an engine: two topics, and how positions between them are kept.

    Attributes:
        source: librdkafka's settings of the source's cluster, secrets revealed.
        target: those of the target's cluster.
        copy_of: returns the partition of the target that one of the source is sent to.
        live: returns the topics of source and target as they are now.
        readable: returns the partitions that another query could read; asked of a source that has
            more than this one reads.
        committed: returns the committed positions of partitions; those without one are left out.
        commit: commits positions.
        commit_seconds: without an ended batch for this time, positions are committed again.
        taken_by: returns the error of an instance whose positions another one has committed.
        at_source: a context whose errors name the site of the source; ``at_target``: of the target.
    """

    source: ClientConfig = field(repr=False)
    target: ClientConfig = field(repr=False)
    copy_of: Callable[[TopicPartition], TopicPartition]
    live: Callable[[], Sequence[LiveTopic]]
    readable: Callable[[LiveTopic], Collection[TopicPartition]]
    committed: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Claimed]]
    commit: Callable[[Mapping[TopicPartition, Claimed]], None]
    commit_seconds: float
    taken_by: Callable[[str], RefusedError]
    at_source: Callable[[], AbstractContextManager[None]] = nullcontext
    at_target: Callable[[], AbstractContextManager[None]] = nullcontext


class ClaimedQuery(Generic[Claimed]):
    """A running query, and the commits of its batches. Used once, on one thread.

    Args:
        claims: the policy of its engine.
        positions: where it starts, as its instance has committed them.
        target_id: the id of the target's topic.
        sent_to: the offset after the last record that the target has of a partition; partitions
            without one are left out.
        run: starts it, with a folder for its checkpoint.
        checkpoint: that folder, on the driver's machine.

    Attributes:
        positions: that are committed.
        query: that runs.
        started_at: monotonic seconds.
        has_ended_batches: whether positions of ended batches were committed.
    """

    def __init__(
        self,
        claims: Claims[Claimed],
        positions: Mapping[TopicPartition, Claimed],
        target_id: str,
        sent_to: Mapping[TopicPartition, int],
        run: Callable[[Path], KafkaQuery],
        checkpoint: Path,
    ) -> None:
        self._claims, self._checkpoint = claims, checkpoint
        self._target_id, self._sent_to = target_id, sent_to
        self.positions, self.has_ended_batches = positions, False
        self._target_ends = self._read_target_ends()
        shutil.rmtree(checkpoint, ignore_errors=True)  # a killed process may have left it
        checkpoint.mkdir(parents=True)
        self.query = run(checkpoint)
        self.started_at = self._committed_at = self._checked_at = time.monotonic()

    def watch(
        self,
        stop: threading.Event,
        poll_seconds: float,
        committed: Callable[[DoneBatches | None], None],
    ) -> Iterator[Mapping[str, int] | BrokerUnreachableError]:
        """Commits what it has done, until it has ended or ``stop`` is set.

        Args:
            stop: ends the wait for the next look.
            poll_seconds: the interval of looks.
            committed: called after a commit with the ended batches; ``None``: it was for none.

        Yields:
            the lags of the committed positions, by ``topic/partition``; or why brokers can't be
            asked.

        Raises:
            SourceChangedError: if another query has to start from what is committed.
            RefusedError: that of :class:`Claims`, if another instance has committed.
            BrokerUnreachableError: if the query has ended without a failure, and its last batches
                can't be committed.
        """
        while True:
            is_active = self.query.is_active
            try:
                self._look(committed)
                lags = lags_of(self.positions, self.source_ends())
            except BrokerUnreachableError as error:
                if not is_active and self.query.failure is None:
                    raise
                yield error
            else:
                yield lags
            if not is_active or stop.is_set():
                return
            stop.wait(poll_seconds)

    def check_claim(self) -> Collection[TopicPartition]:
        """Returns the partitions that have a committed position.

        Raises:
            RefusedError: that of :class:`Claims`, if another instance has committed.
        """
        committed = self._claims.committed(self.positions.keys())
        for source, at in committed.items():
            if at.instance != self.positions[source].instance:
                raise self._claims.taken_by(at.instance)
        return committed.keys()

    def check(self) -> LiveTopic:
        """Returns the source, if positions may still be committed.

        Raises:
            SourceChangedError: if a topic was recreated, or its positions were deleted with it.
            RefusedError: that of :class:`Claims`, if another instance has committed.
        """
        source, target = self._claims.live()
        topic_ids = {at.topic_id for at in self.positions.values()}
        for topic, ids in (source, topic_ids), (target, {self._target_id}):
            if ids != {topic.topic_id}:
                raise SourceChangedError(f"topic {topic.name} was deleted and recreated")
        if self.check_claim() != self.positions.keys():
            raise SourceChangedError("a topic was deleted, and committed positions with it")
        return source

    def source_ends(self) -> dict[TopicPartition, int]:
        """Returns the ends of the partitions that it reads."""
        with self._claims.at_source():
            ends = latest_offsets(self._claims.source, self.positions)
        return {source: end for source, (end, _) in ends.items()}

    def stop(self) -> None:
        """Ends it at once: what it has in flight may still reach the target."""
        self.query.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _look(self, committed: Callable[[DoneBatches | None], None]) -> None:
        ends = self._read_target_ends()  # before progress: see `scan_from` in the contract
        done = self.query.progress()
        if done is not None or time.monotonic() - self._committed_at > self._claims.commit_seconds:
            self._commit(done)
            committed(done)
        self._target_ends = ends
        if time.monotonic() - self._checked_at > _CHECK_SECONDS:
            self._checked_at = time.monotonic()
            source = self.check()
            has_more = source.partitions > len(self.positions)
            if has_more and set(self._claims.readable(source)) - self.positions.keys():
                raise SourceChangedError(f"topic {source.name} has further partitions to read")

    def _commit(self, done: DoneBatches | None) -> None:
        """Commits the positions after ended batches; ``None``: those of before."""
        self.check()
        positions = self.positions
        # After progress: the logs of these leaders have what the query has read. Where another one
        # leads, Spark's reader has compared its log.
        with self._claims.at_source():
            seen = {source: Seen(at.offset, at.epoch) for source, at in positions.items()}
            ends = whole_ends(self._claims.source, seen)
        for source in sorted(positions.keys() - ends.keys()):
            raise SourceChangedError(f"the log of {source.path} was truncated")
        if done is not None:
            positions = {
                source: self._position(source, offset, ends[source].epoch)
                for source, offset in done.positions.items()
            }
        self._claims.commit(positions)
        self.positions, self._committed_at = positions, time.monotonic()
        if done is not None:
            self.query.acknowledge(done)
            self.has_ended_batches = True

    def _position(self, source: TopicPartition, offset: int, epoch: int) -> Claimed:
        at, scan_from = self.positions[source], self._target_ends[self._claims.copy_of(source)]
        if offset < self._sent_to.get(source, 0):
            scan_from = at.scan_from  # what follows has been sent already, before these ends
        return replace(at, offset=offset, scan_from=scan_from, epoch=epoch)

    def _read_target_ends(self) -> Mapping[TopicPartition, int]:
        with self._claims.at_target():
            copies = set(map(self._claims.copy_of, self.positions))
            return high_watermarks(self._claims.target, copies)


def lags_of(
    positions: Mapping[TopicPartition, CommittedPosition], offsets: Mapping[TopicPartition, int]
) -> dict[str, int]:
    """Returns how many offsets lie between positions and later offsets, by ``topic/partition``."""
    return {
        source.path: max(offsets.get(source, 0) - at.offset, 0) for source, at in positions.items()
    }
