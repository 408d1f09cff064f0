"""A partition that is this instance's, from its assignment until it is revoked."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Hashable

import msgspec

from headrace.errors import (
    CommittedOffsetError,
    InvalidRecordError,
    ProcessingFailedError,
    WorkerTruncatedError,
)
from headrace.kafka.dead_letters.replayed import PartitionId
from headrace.kafka.group.commits import OffsetCommit
from headrace.kafka.group.start_positions import StartPosition
from headrace.kafka.read.log_cuts import Seen
from headrace.runtime.error_text import bounded_text, error_text
from headrace.workers.lanes.held import CallSends, Cut, HeldSends
from headrace.workers.lanes.lane import Lane
from headrace.workers.lanes.offsets import (
    METADATA_BYTES,
    PartitionOffsets,
    TimestampIndex,
    read_metadata,
)
from headrace.workers.state.values import PartitionState
from headrace.workers.states import LaneState, PauseReason
from headrace.workers.tasks.partitioner import WorkerPartitioner
from headrace.workers.tasks.record import ConsumedRecord


class AssignedPartition:
    """The lanes of one partition, and its offsets.

    Attributes:
        partition: of a topic.
        topic_id: of that topic.
        place: the partition of the topic of that id.
        is_resumed: whether the group committed where it starts: the record there was not done.
        lanes: one for each subpartition.
        bytes: of its records that wait or are in process.
        full_lanes: those that hold too much.
        paused_for: why its records wait in Kafka; empty: they do not.
        times: of the records read.
        committed: the offset that was committed last.
        held: what was sent for records that are done, and waits for a transaction.
        state: what the worker keeps for the keys of its records; ``None``: it keeps none.
        seen: an offset, and the epoch of a leader that had all before it: the last record's, or
            later the end's; until all is read that was done before a restart, the committed one.
    """

    def __init__(self, start: StartPosition, partitioner: WorkerPartitioner) -> None:
        self.partition = start.partition
        self.lanes: list[Lane] = []
        self.bytes = 0
        self.full_lanes: set[Lane] = set()
        self.paused_for: set[str] = set()
        self.held = HeldSends()
        self.state: PartitionState | None = None
        self.times = TimestampIndex()
        self.committed = start.position
        self.is_resumed = bool(start.metadata)
        self.topic_id = start.topic_id
        self.place = PartitionId(start.partition, start.topic_id)
        self._partitioner = partitioner
        done = read_metadata(start.position, start.metadata).done
        self._offsets = PartitionOffsets(start.position, done)
        self.seen = Seen(start.position, start.epoch)
        self._written = done  # beyond the committed offset, with all that was sent for it
        self._done_before = Seen(max((end for _, end in done), default=0), start.epoch)
        self._changed = False

    @property
    def position(self) -> int:
        """The next record to read."""
        return self._offsets.position

    @property
    def committable(self) -> int:
        """The first record that is not done, or the next to read."""
        return self._offsets.committable

    @property
    def is_done_ahead(self) -> bool:
        """Whether records were done before a restart that were not read since."""
        return self.position < self._done_before.offset

    @property
    def uncommitted(self) -> int:
        """Records that are done, beyond the offset that can be committed."""
        return self._offsets.done_beyond

    def note_read(self, record: ConsumedRecord) -> bool:
        """Returns whether a record is new: neither read before, nor done before a restart.

        Raises:
            WorkerTruncatedError: if it stands where another one was done before a restart.
        """
        self._changed = True
        # Of the log as it was then, no record before that offset is of a later leader.
        if record.offset < self._done_before.offset and (
            record.epoch > self._done_before.epoch >= 0
        ):
            topic, number = self.partition.topic, self.partition.partition
            raise WorkerTruncatedError(topic, number, record.offset)
        if record.offset >= self.position:
            self._see(record.offset + 1, record.epoch)
        self.times.read(record.offset, record.record.timestamp_ms)
        if self.state is not None:
            self.state.read(record.offset, record.record.timestamp_ms)
            self.check_timers()
        return self._offsets.consume(record.offset)

    def check_timers(self) -> None:
        """Wakes the lanes that have a timer whose time has come."""
        if self.state is not None:
            for index in self.state.due_lanes():
                self.lanes[index].check_timers()

    def put(self, record: ConsumedRecord) -> tuple[Lane, int]:
        """Puts a record into its lane; returns which one, and what the record weighs there.

        One that the partitioner has no subpartition for comes into the first lane as a failed one,
        so that its policy decides.

        Raises:
            ProcessingFailedError: if the partitioner raises an error that would end a program.
        """
        index = 0
        try:
            if record.error is None:
                index = operator.index(self._partitioner.subpartition(record.record))
            is_there = 0 <= index < len(self.lanes)
        except (KeyboardInterrupt, SystemExit) as error:
            message = f"the partitioner raised {error_text(error)} at {record.record}"
            raise ProcessingFailedError(message) from error
        # A cancellation would silently end the task that reads.
        except BaseException as error:  # noqa: BLE001 - whatever the user's code raises
            return self._unplaced(record, error_text(error))
        if not is_there:
            return self._unplaced(record, f"gave subpartition {index} of {len(self.lanes)}")
        lane = self.lanes[index]
        return lane, lane.put(record)

    def _unplaced(self, record: ConsumedRecord, detail: str) -> tuple[Lane, int]:
        name = bounded_text(self._partitioner, lambda: repr(self._partitioner))
        error = InvalidRecordError("partitioner-failed", f"{name}: {detail}")
        lane = self.lanes[0]
        return lane, lane.put(msgspec.structs.replace(record, error=error))

    def finish(self, offset: int) -> None:
        """Counts a record as done."""
        self._changed = True
        self._offsets.finish(offset)

    @property
    def is_changed(self) -> bool:
        """Whether something is done that no commit contains yet.

        Not while its state is restored: that is compared with what was committed before.
        """
        return self._changed and PauseReason.RESTORING not in self.paused_for

    def reach(self, offset: int) -> None:
        """Notes that the end was reached: no record before ``offset`` will come."""
        if self._offsets.reach(offset):
            self._changed = True

    def commit(self, max_bytes: int = METADATA_BYTES) -> OffsetCommit | None:
        """Returns what to commit, with metadata of ``max_bytes``; ``None``: nothing has changed."""
        if not self.is_changed:
            return None
        # Cleared before the commit is sent, so that what is done meanwhile counts as a new change;
        # a commit that fails sets it again.
        self.times.forget(self._offsets.committable)
        self._changed = False
        return self._commit_of(self._offsets, max_bytes)

    def _commit_of(self, offsets: PartitionOffsets, max_bytes: int) -> OffsetCommit:
        metadata, offset = offsets.metadata(self.topic_id, max_bytes), offsets.committable
        epoch = self.seen.epoch if offset <= self.seen.offset else -1
        return OffsetCommit(self.partition, offset, metadata, epoch)

    def commit_held(self, max_bytes: int, metadata_bytes: int) -> tuple[OffsetCommit, Cut] | None:
        """Returns what to commit with about ``max_bytes`` of what is held, and which of it.

        More is taken of it where ``metadata_bytes`` can't say what is done of so little: a crash
        would repeat records whose sends are written. ``None``: they can't say what is done of all,
        and :attr:`is_changed` stays true, or nothing has changed. It stays true with a rest.
        """
        if not self.is_changed:
            return None
        while True:
            cut = self.held.cut(max_bytes)
            offsets = self._offsets
            if cut.end is not None:
                # A call of a task's own may hold sends behind which nothing is.
                offsets = offsets.cut(max(cut.end, self.committed), cut.undone, self._written)
            commit = self._commit_of(offsets, metadata_bytes)
            is_whole = offsets.is_whole(commit.metadata)
            if is_whole or cut.end is None:
                break
            max_bytes = 2 * max(max_bytes, cut.bytes)
        if not is_whole:
            return None
        self.times.forget(commit.offset)
        self._changed = cut.end is not None
        return commit, cut

    def hold(self, lane: Hashable, offset: int, sent: CallSends) -> None:
        """Keeps what was sent for a record of ``lane`` that is done; see :class:`HeldSends`."""
        self.held.add(lane, offset, sent)
        self._changed = True

    def release(self, commit: OffsetCommit, cut: Cut, over: tuple[bytes, ...] = ()) -> None:
        """Notes that a transaction has written a part of what is held, and its offset.

        And that keys have no value any longer, which is over.
        """
        self.committed = commit.offset
        self._written = read_metadata(commit.offset, commit.metadata).done
        self.held.release(cut)
        if self.state is not None and self.state.release(commit.offset, over):
            self._changed = True

    def see_end(self, end: Seen) -> None:
        """Notes the end of the log, as its leader reports it.

        The last record does not say which leader wrote the markers of transactions after it.
        """
        if end.offset >= self.position and end.epoch >= 0:
            self._see(self.position, end.epoch)
            self._changed = True

    def _see(self, offset: int, epoch: int) -> None:
        # A commit keeps what was done before beyond it, or reaches it without a second read: its
        # epoch is of a leader that had that.
        is_behind = offset < self._done_before.offset
        self.seen = self._done_before if is_behind else Seen(offset, epoch)

    def not_committed(self) -> None:
        """Notes that the last commit failed, so that it is repeated."""
        self._changed = True

    def begin_drain(self) -> None:
        """Starts no record of its lanes from now on."""
        for lane in self.lanes:
            lane.begin_drain()

    async def drained(self, seconds: float) -> None:
        """Returns when nothing of it is in process, after ``seconds`` at most.

        What an earlier drain has abandoned is not waited for.
        """
        open_lanes = [lane for lane in self.lanes if lane.state is not LaneState.CLOSED]
        await asyncio.gather(*(lane.drained(seconds) for lane in open_lanes))


def check_topic(group: str, start: StartPosition, seen_id: str) -> None:
    """The topic is the one that was seen before, and that ``group`` committed an offset of.

    Raises:
        CommittedOffsetError: if the topic was deleted and recreated since.
    """
    committed_id = read_metadata(start.position, start.metadata).topic_id
    for known_id in (seen_id, committed_id):
        if known_id and known_id != start.topic_id:
            changed = f"its id was {known_id}, and is {start.topic_id}"
            topic, number = start.partition.topic, start.partition.partition
            raise CommittedOffsetError(
                group,
                topic,
                number,
                start.position,
                f"the topic was deleted and recreated: {changed}",
            )
