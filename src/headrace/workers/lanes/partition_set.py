"""The partitions of an instance, from their assignment to their revocation."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

from headrace.errors import SubpartitionError
from headrace.kafka.dead_letters.replayed import is_for
from headrace.kafka.group.commits import OffsetCommit
from headrace.kafka.group.start_positions import StartPosition
from headrace.kafka.group.subscription import Pauses
from headrace.kafka.write.record import weight_of
from headrace.model import TopicPartition
from headrace.runtime.error_text import bounded_text, error_text
from headrace.workers.lanes.assigned_partition import AssignedPartition, check_topic
from headrace.workers.lanes.attempt import Call, RecordAttempt
from headrace.workers.lanes.backpressure import Backpressure, Budget
from headrace.workers.lanes.batch_lane import BatchLane
from headrace.workers.lanes.bound_task import bind
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.held import CallSends, Cut
from headrace.workers.lanes.lane import Lane
from headrace.workers.lanes.observed_lane import ObservedLane
from headrace.workers.lanes.offsets import METADATA_BYTES
from headrace.workers.state.values import PartitionState, WorkerState
from headrace.workers.states import PauseReason
from headrace.workers.tasks.function_task import is_tombstone
from headrace.workers.tasks.record import ConsumedRecord
from headrace.workers.tasks.retry_topics import retry_topics
from headrace.workers.tasks.task import WorkerRecord, WorkerSubpartition
from headrace.workers.tasks.timers import TimerRecord


class PartitionSet(Mapping[TopicPartition, AssignedPartition]):
    """The assigned partitions, by topic and number. All on the event loop.

    Attributes:
        metadata_bytes: that brokers take with a commit.
        pauses: those of them that are not read for now.
        publish: called with a lane, the offset of a record that is done (-1: a call of the task's
            own has ended), and what was sent for it; ``None``: producers have written that already.
        restore: called with a new partition of a worker with state; ``None``: it begins empty.
        state: of all partitions; ``None``: the worker keeps none.
    """

    publish: Callable[[AssignedPartition, Lane, int, CallSends], None] | None = None
    restore: Callable[[AssignedPartition, StartPosition], None] | None = None

    def __init__(self, context: LaneContext) -> None:
        self._worker, self._context = context.worker, context
        self._by_partition: dict[TopicPartition, AssignedPartition] = {}
        self._topic_ids: dict[str, str] = {}
        self._origins = retry_topics(context.worker)
        if context.worker.is_exactly_once:
            self.publish = self.hold
        self.state: WorkerState | None = None
        if context.worker.state is not None:
            self.state = WorkerState(context.worker, context.on_fatal)
        self.metadata_bytes = METADATA_BYTES
        self.blocked = context.blocked
        self.pauses = Pauses()
        self.budget = Budget(context.worker.queue_bytes)
        self.backpressure = Backpressure(self.budget, self._by_partition, self.pauses)

    def __getitem__(self, partition: TopicPartition) -> AssignedPartition:
        return self._by_partition[partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._by_partition)

    def __len__(self) -> int:
        return len(self._by_partition)

    @property
    def lanes(self) -> list[Lane]:
        """The lanes of all partitions."""
        return [lane for assigned in self.values() for lane in assigned.lanes]

    def assign(self, group: str, starts: list[StartPosition]) -> None:
        """Makes lanes for new partitions of topics that ``group`` reads.

        Raises:
            SubpartitionError: if the partitioner counts less than one, or if it, or what makes
                tasks, raises what is no ``Exception``.
            CommittedOffsetError: if the topic is another one of that name.
        """
        self._context.counts["rebalances"] += 1
        self._context.failures.on_rebalance(self)
        for start in starts:
            seen_id = self._topic_ids.setdefault(start.partition.topic, start.topic_id)
            check_topic(group, start, seen_id)
            assignment = AssignedPartition(start, self._worker.partitioner)
            if self.state is not None:
                assignment.state = PartitionState(self.state, start.partition.partition)
            try:
                assignment.lanes = self._new_lanes(assignment)
            except Exception:
                raise
            # Uncaught, it would end the event loop or the task that reads, with no reason shown.
            except BaseException as error:
                message = f"cannot make the tasks of {start.partition}: {error_text(error)}"
                raise SubpartitionError(message) from error
            self._by_partition[start.partition] = assignment
            self.backpressure.assigned(assignment)
            if self.restore is not None:
                self.restore(assignment, start)

    async def drain(self, seconds: float) -> None:
        """Ends all lanes. The partitions stay, until their offsets are committed."""
        await _drain(self.values(), seconds)

    async def revoke(self, partitions: list[TopicPartition], seconds: float) -> list[OffsetCommit]:
        """Drains partitions that are revoked; returns what to commit of them."""
        # Drained before it is taken out: what ends meanwhile is still counted, and committed below.
        revoked = [self[partition] for partition in partitions if partition in self]
        await _drain(revoked, seconds)
        for assigned in revoked:
            del self._by_partition[assigned.partition]
            self.backpressure.revoked(assigned)
            if assigned.state is not None:
                assigned.state.drop()
        self._context.failures.on_rebalance(self)
        commits = (assigned.commit(self.metadata_bytes) for assigned in revoked)
        return [commit for commit in commits if commit is not None]

    def put(self, record: ConsumedRecord) -> None:
        """Puts a record into its lane, unless it is left out or its partition was revoked."""
        assignment = self._by_partition.get(record.partition)
        if assignment is None:
            return
        is_new = assignment.note_read(record)
        if record.replay and not is_for(self._worker.name, assignment.place, record.replay):
            self._leave_out(assignment, record, "replays_skipped", is_new=is_new)
        elif is_tombstone(self._worker.task, record.record):
            self._leave_out(assignment, record, "tombstones", is_new=is_new)
        else:
            self._context.failures.read(assignment, record.offset, is_new=is_new)
            if not is_new:
                return
            self.backpressure.on_enqueued(assignment, *assignment.put(record))
            if self.blocked.lanes:
                self.blocked.recheck()

    def finished(self, assignment: AssignedPartition, lane: Lane, attempt: RecordAttempt) -> None:
        """Counts a record as done; ignored when its partition was revoked."""
        # By identity: the partition may be back here already, with new offsets and lanes.
        if self._by_partition.get(assignment.partition) is not assignment:
            return
        if isinstance(attempt.record, TimerRecord):
            self._timer_finished(assignment, lane, attempt, attempt.record)
            return
        assignment.finish(attempt.offset)
        self.backpressure.on_completed(assignment, lane, attempt.weight)
        self._context.counts["processed"] += 1
        if self.publish is not None:
            sent = attempt.end_sends()
            if assignment.state is not None:
                assignment.state.apply(sent.records)
            self.publish(assignment, lane, attempt.offset, sent)
        if not attempt.is_given_up:
            self._context.failures.succeeded(attempt)
        if self.blocked.lanes:
            self.blocked.recheck()

    def _timer_finished(
        self, assignment: AssignedPartition, lane: Lane, attempt: RecordAttempt, timer: TimerRecord
    ) -> None:
        """Takes what a timer has changed, its removal included, as that of a record."""
        if self.publish is None or assignment.state is None:
            return
        sent = attempt.end_sends()
        if attempt.is_given_up:
            removal = assignment.state.without(timer)
            sent = CallSends([*sent.records, removal], sent.bytes + weight_of(removal))
        assignment.state.apply(sent.records)
        self.publish(assignment, lane, -1, sent)

    def _has_room_for_timers(self, assignment: AssignedPartition) -> bool:
        """Returns whether a partition holds less than its share: a jump of time makes many due.

        Or whether nothing of it can be committed before records are done that wait for timers.
        """
        share = self._worker.queue_bytes // max(1, len(self))
        return assignment.held.bytes <= share or PauseReason.TRANSACTION in assignment.paused_for

    def hold(self, assignment: AssignedPartition, lane: Lane, offset: int, sent: CallSends) -> None:
        """Keeps what was sent for a transaction of its partition."""
        if sent.records:
            assignment.hold(lane, offset, sent)
            self.backpressure.on_held(assignment, sent.bytes)
        else:
            assignment.held.note(lane, offset)

    def release(
        self,
        assignment: AssignedPartition,
        commit: OffsetCommit,
        cut: Cut,
        over: tuple[bytes, ...] = (),
    ) -> None:
        """Forgets what a partition held: a transaction has written it, and the offset.

        And values of the keys that are over: their deletion is written.
        """
        assignment.release(commit, cut, over)
        assignment.check_timers()
        if self._by_partition.get(assignment.partition) is assignment:
            self.backpressure.on_released(assignment, cut.bytes)

    def _leave_out(
        self, assignment: AssignedPartition, record: ConsumedRecord, metric: str, *, is_new: bool
    ) -> None:
        if is_new:
            assignment.finish(record.offset)
            self._context.counts[metric] += 1

    def _new_lanes(self, assignment: AssignedPartition) -> list[Lane]:
        read, partitioner = assignment.partition, self._worker.partitioner
        # Records of a retry topic are divided as those of its first topic.
        partition = TopicPartition(self._origins.get(read.topic, read.topic), read.partition)
        count = partitioner.count(partition)
        if count < 1:
            name = bounded_text(partitioner, lambda: repr(partitioner))
            raise SubpartitionError(f"{name} counts {count} subpartitions of {partition}")
        if assignment.state is not None:
            assignment.state.divide(count, self._lane_of(partition))
        return [self._new_lane(assignment, index) for index in range(count)]

    def _lane_of(self, partition: TopicPartition) -> Callable[[bytes], int]:
        """Returns what returns the lane of a key: of a worker with state, the key decides it."""

        def lane_of(key: bytes) -> int:
            record = WorkerRecord(partition.topic, partition.partition, -1, key)
            return self._worker.partitioner.subpartition(record)

        return lane_of

    def _new_lane(self, assignment: AssignedPartition, index: int) -> Lane:
        task = self._context.make()
        task.send = self._context.send
        bound = bind(task, self._context.threads)
        if assignment.state is not None:
            process = assignment.state.kept_by(task, bound.process)
            on_timer = assignment.state.kept_by(task, bound.on_timer)
            bound = dataclasses.replace(bound, process=process, on_timer=on_timer)
        kind: Callable[..., Lane] = ObservedLane if bound.is_observed else Lane
        if bound.process_batch is not None:
            kind = functools.partial(BatchLane, process_batch=bound.process_batch)
        partition = assignment.partition
        lane = kind(
            WorkerSubpartition(partition.topic, partition.partition, index),
            bound,
            self._context,
            functools.partial(self.finished, assignment),
        )
        if assignment.state is not None:
            lane.max_unconfirmed = 1  # the next record sees what this one has changed
            lane.has_room = functools.partial(self._has_room_for_timers, assignment)
            lane.due_timer = functools.partial(assignment.state.due_timer, partition.topic, index)
        if self.publish is not None:
            lane.on_own_call = functools.partial(self._own_call_ended, assignment, lane)
        return lane

    def _own_call_ended(self, assignment: AssignedPartition, lane: Lane, call: Call) -> None:
        sent = call.sending().take_held()  # also where it sent nothing: it must not send later
        if self.publish is not None and sent.records:
            self.publish(assignment, lane, -1, sent)


async def _drain(assignments: Iterable[AssignedPartition], seconds: float) -> None:
    # A copy: a partition may be revoked while others drain.
    draining = list(assignments)
    for assigned in draining:
        assigned.begin_drain()
    await asyncio.gather(*(assigned.drained(seconds) for assigned in draining))
