"""The partitions of an instance: they come, their records go to lanes and are done, they go."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.errors import SubpartitionError
from headrace.kafka.commits import Commit
from headrace.kafka.replayed import is_for
from headrace.kafka.starts import Start
from headrace.model import TopicPartition
from headrace.workers.assignment import Assignment, check_topic
from headrace.workers.batch_lane import BatchLane
from headrace.workers.budget import Budget
from headrace.workers.clock import Clock, system_clock
from headrace.workers.failures import Failures
from headrace.workers.flow import Flow, Switch
from headrace.workers.handling import Handling
from headrace.workers.held import Held
from headrace.workers.lane import Lane
from headrace.workers.observed_lane import ObservedLane
from headrace.workers.offsets import METADATA_BYTES
from headrace.workers.placement import place
from headrace.workers.progress import Counts
from headrace.workers.received import Received, retry_topics
from headrace.workers.task import Send, WorkerSubpartition, WorkerTask
from headrace.workers.threads import TaskThreads
from headrace.workers.worker import Worker


@dataclass(frozen=True)
class Surroundings:
    """What lanes use of the instance they are in.

    Attributes:
        make: makes a task.
        threads: for tasks of ordinary functions.
        send: writes to Kafka.
        failures: ends records for which no attempt is left.
        counts: of the instance.
        broke: called with what makes it impossible to go on.
        clock: tells the time of day.
    """

    make: Callable[[], WorkerTask]
    threads: TaskThreads
    send: Send
    failures: Failures
    counts: Counts
    broke: Callable[[BaseException], None]
    clock: Clock = system_clock


class Assignments(Mapping[TopicPartition, Assignment]):
    """All on the event loop.

    Attributes:
        metadata_bytes: that brokers take with a commit.

    Args:
        worker: whose they are.
        around: what lanes use.
        pause: stops records of partitions from coming.
        resume: the contrary.
    """

    def __init__(self, worker: Worker, around: Surroundings, pause: Switch, resume: Switch) -> None:
        self._worker, self._around = worker, around
        self._by_partition: dict[TopicPartition, Assignment] = {}
        self._topic_ids: dict[str, str] = {}
        self._origins = retry_topics(worker)
        self.metadata_bytes = METADATA_BYTES
        self.held = Held(around.clock)
        self.budget = Budget(worker.queue_bytes)
        self.flow = Flow(self.budget, self._by_partition, pause, resume)

    def __getitem__(self, partition: TopicPartition) -> Assignment:
        return self._by_partition[partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._by_partition)

    def __len__(self) -> int:
        return len(self._by_partition)

    @property
    def lanes(self) -> list[Lane]:
        """Of all partitions."""
        return [lane for one in self.values() for lane in one.lanes]

    @property
    def paused(self) -> list[TopicPartition]:
        """Partitions whose records wait in Kafka."""
        return [one.partition for one in list(self._by_partition.values()) if one.paused_for]

    def assign(self, group: str, starts: list[Start]) -> None:
        """Partitions came, of a topic that ``group`` reads.

        Raises:
            SubpartitionError: the partitioner counts less than one.
            CommittedOffsetError: the topic is another one of that name.
        """
        self._around.counts.one_more("rebalances")
        self._around.failures.moved(self)
        for start in starts:
            seen_id = self._topic_ids.setdefault(start.partition.topic, start.topic_id)
            check_topic(group, start, seen_id)
            assignment = Assignment(start, self._worker.partitioner)
            assignment.lanes = self._new_lanes(assignment)
            self._by_partition[start.partition] = assignment
            self.flow.assigned(assignment)

    async def drain(self, seconds: float) -> None:
        """Ends all lanes. The partitions stay, for what is to be committed."""
        await _drain(self.values(), seconds)

    async def revoke(self, partitions: list[TopicPartition], seconds: float) -> list[Commit]:
        """Partitions go: what to commit of them, once nothing of them is in process."""
        gone = [self[one] for one in partitions if one in self]
        await _drain(gone, seconds)
        for one in gone:
            del self._by_partition[one.partition]
            self.flow.revoked(one)
        self._around.failures.moved(self)
        commits = (one.commit(self.metadata_bytes) for one in gone)
        return [commit for commit in commits if commit is not None]

    def deliver(self, received: Received) -> None:
        """A record was read."""
        assignment = self._by_partition.get(received.partition)
        if assignment is None:
            return  # revoked meanwhile
        if not assignment.consume(received):
            return
        if is_for(self._worker.name, assignment.place, received.replay):
            self.flow.took(assignment, *assignment.put(received))
            self.held.ask()
        else:
            assignment.finish(received.offset)
            self._around.counts.one_more("replays_skipped")

    def reach(self, partition: TopicPartition, offset: int) -> None:
        """The end of a partition was reached: there is no record before ``offset`` to come."""
        assignment = self._by_partition.get(partition)
        if assignment is not None:
            assignment.reach(offset)

    def finished(self, assignment: Assignment, lane: Lane, handling: Handling) -> None:
        """A record is done; not heard when its partition is gone."""
        if self._by_partition.get(assignment.partition) is not assignment:
            return
        assignment.finish(handling.offset)
        self.flow.gave_back(assignment, lane, handling.weight)
        self._around.counts.one_more("processed")
        if not handling.is_given_up:
            self._around.failures.succeeded(handling)
        self.held.ask()

    def _new_lanes(self, assignment: Assignment) -> list[Lane]:
        read, partitioner = assignment.partition, self._worker.partitioner
        partition = TopicPartition(self._origins.get(read.topic, read.topic), read.partition)
        count = partitioner.count(partition)
        if count < 1:
            raise SubpartitionError(f"{partitioner!r} counts {count} subpartitions of {partition}")
        return [self._new_lane(assignment, index) for index in range(count)]

    def _new_lane(self, assignment: Assignment, index: int) -> Lane:
        task = self._around.make()
        task.send = self._around.send
        placed = place(task, self._around.threads)
        kind: Callable[..., Lane] = ObservedLane if placed.is_observed else Lane
        if placed.process_batch is not None:
            kind = functools.partial(
                BatchLane, process_batch=placed.process_batch, most=self._worker.batch_records
            )
        partition = assignment.partition
        return kind(
            WorkerSubpartition(partition.topic, partition.partition, index),
            placed,
            _Host(self, self._around, assignment),
            self._worker.on_failure,
            self._worker.config,
        )


@dataclass(frozen=True, slots=True)
class _Host:
    """What a lane tells, with the assignment that it belongs to."""

    assignments: Assignments
    around: Surroundings
    assignment: Assignment

    def finished(self, lane: Lane, handling: Handling) -> None:
        self.assignments.finished(self.assignment, lane, handling)

    def failed(self, handling: Handling, error: BaseException) -> None:
        self.count("failed")
        self.around.failures.log.failed(handling.record, error)

    async def give_up(self, handling: Handling, error: BaseException) -> None:
        self.count(await self.around.failures.end(handling, error))
        handling.is_given_up = True

    def broke(self, error: BaseException) -> None:
        self.around.broke(error)

    def held(self, lane: Lane) -> None:
        self.assignments.held.refused(lane)

    def due_at(self, lane: Lane, due_ms: int) -> None:
        self.assignments.held.due_at(lane, due_ms)

    def count(self, name: str) -> None:
        self.around.counts.one_more(name)

    def now_ms(self) -> int:
        return self.around.clock()


async def _drain(assignments: Iterable[Assignment], seconds: float) -> None:
    wanted = list(assignments)
    for one in wanted:
        one.begin_drain()
    await asyncio.gather(*(one.drained(seconds) for one in wanted))
