"""Lanes, commits, pauses, rebalances, failures and crashes against a small reference.

Everything but Kafka is the real thing: records come from lists, commits go to a dict, and what is
in process ends when the machine says so.
"""

import asyncio
from collections import Counter, defaultdict
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.kafka.group.start_positions import StartPosition
from headrace.model import Topic, TopicPartition
from headrace.workers import KeyHash, Retry, Skip, Worker, WorkerRecord, WorkerTask
from headrace.workers.failures.failure_log import FailureLog
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.offsets import read_metadata
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.threads import TaskThreads
from headrace.workers.tasks.record import ConsumedRecord

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
GAPS = {4, 5, 11, 30}
LOG = [offset for offset in range(60) if offset not in GAPS]
LANES = 3
SETTLE = 12  # turns of the loop within which everything that can happen has happened


class Failures:
    def __init__(self):
        self.ended = []
        self.log = FailureLog("w")

    def attempt_failed(self, record, error):
        self.log.failed(record, error)

    def read(self, assigned, offset, *, is_new):
        pass

    def succeeded(self, attempt):
        pass

    def on_rebalance(self, here):
        pass

    async def end(self, attempt, error):
        self.ended.append((attempt.record.topic_partition, attempt.record.offset))
        return "skipped"


class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.threads = TaskThreads(1, "t")
        self.broker = dict.fromkeys(PARTITIONS, (0, ""))
        self.done = defaultdict(set)
        self.begun_since = defaultdict(list)
        self.kept = defaultdict(set)
        self.broken = []
        self.begin_instance()
        self.assign()

    # -- the instance and its surroundings --------------------------------------------------------

    def begin_instance(self):
        machine = self
        self.position, self.in_process = {}, {}
        self.failures = Failures()

        class Task(WorkerTask):
            async def process(self, record):
                await machine.process(record)

        self.worker = Worker(
            "w",
            Topic("t"),
            Task,
            partitioner=KeyHash(LANES),
            on_failure=Retry(attempts=2, first_delay=timedelta(0), then=Skip()),
            queue_bytes=5_000,
        )
        on_fatal = self.broken.append
        context = LaneContext(
            self.worker, Task, self.threads, send, self.failures, Counter(), on_fatal
        )
        self.assignments = self.run(self.make(context))

    async def make(self, context):
        return PartitionSet(context)

    async def process(self, record):
        partition = record.topic_partition
        lane = (partition, KeyHash(LANES).subpartition(record))
        assert lane not in self.in_process, "two records of a lane at once"
        answer = self.loop.create_future()
        self.in_process[lane] = (record, answer)
        assert record.offset not in self.kept[partition], "the commit says that it is done"
        if record.attempt == 1:
            self.begun_since[lane].append(record.offset)
        try:
            await answer
        finally:
            if self.in_process.get(lane, (None, None))[1] is answer:
                del self.in_process[lane]
        self.done[partition].add(record.offset)

    def run(self, coroutine):
        async def settled():
            result = await coroutine
            for _ in range(SETTLE):
                await asyncio.sleep(0)
            return result

        return self.loop.run_until_complete(settled())

    def keep(self, commits):
        for one in commits:
            self.broker[one.partition] = (one.offset, one.metadata)

    # -- what may happen --------------------------------------------------------------------------

    @rule()
    def assign(self):
        """Whatever is not assigned comes, from where the broker has it."""
        starts = []
        for partition in set(PARTITIONS) - set(self.assignments):
            offset, metadata = self.broker[partition]
            self.position[partition] = offset
            ranges = [(0, offset), *read_metadata(offset, metadata).done]
            self.kept[partition] = {one for start, end in ranges for one in range(start, end)}
            for lane in range(LANES):
                self.begun_since[partition, lane].clear()
            starts.append(StartPosition(partition, offset, metadata, "id"))
        self.run(self.assign_now(starts))

    async def assign_now(self, starts):
        self.assignments.assign("group", starts)

    @rule(data=st.data(), reads=st.lists(st.integers(1, 12), min_size=1, max_size=4))
    def work(self, data, reads):
        """Some records are read, some end."""
        for most in reads:
            self.read(data.draw(st.sampled_from(PARTITIONS)), most)
        for _ in range(data.draw(st.integers(0, 10))):
            if self.in_process:
                lane = data.draw(st.sampled_from(sorted(self.in_process)))
                self.run(self.answer(lane, data.draw(st.booleans())))

    def read(self, partition, most):
        if partition in self.assignments and partition not in self.assignments.pauses.partitions:
            offsets = [one for one in LOG if one >= self.position[partition]][:most]
            self.run(self.deliver(partition, offsets))

    async def deliver(self, partition, offsets):
        for offset in offsets:
            key = str(offset % 7).encode() if offset % 5 else None
            record = WorkerRecord(partition.topic, partition.partition, offset, key, b"v" * offset)
            self.assignments.put(ConsumedRecord(record, partition, offset))
            self.position[partition] = offset + 1

    async def answer(self, lane, fails):
        record, answer = self.in_process.pop(lane)
        if not fails:
            answer.set_result(None)
            return
        answer.set_exception(ValueError("bad"))
        if record.attempt == 2:
            self.done[record.topic_partition].add(record.offset)

    @rule()
    def commit(self):
        self.keep(filter(None, (one.commit() for one in self.assignments.values())))

    @rule(partition=st.sampled_from(PARTITIONS), lost=st.booleans())
    def revoke(self, partition, lost):
        if partition not in self.assignments:
            return
        commits = self.run(self.assignments.revoke([partition], 0.0))
        if not lost:
            self.keep(commits)

    @rule(partitions=st.sets(st.sampled_from(PARTITIONS)))
    def set_requested(self, partitions):
        self.run(self.intend_now(partitions))

    async def intend_now(self, partitions):
        self.assignments.backpressure.set_requested(partitions)

    @rule()
    def crash(self):
        self.run(self.assignments.revoke(list(self.assignments), 0.0))
        self.begin_instance()

    # -- what always holds ------------------------------------------------------------------------

    @invariant()
    def a_commit_never_passes_a_record_that_is_not_done(self):
        for partition, (offset, _) in self.broker.items():
            assert {one for one in LOG if one < offset} <= self.done[partition]

    @invariant()
    def lanes_begin_in_the_order_of_offsets(self):
        for begun in self.begun_since.values():
            assert begun == sorted(set(begun))

    @invariant()
    def bytes_are_those_of_what_is_held(self):
        used = sum(lane.bytes for lane in self.assignments.lanes)
        assert self.assignments.budget.used == used
        assert used == sum(one.bytes for one in self.assignments.values())

    @invariant()
    def a_partition_is_paused_for_a_reason(self):
        for partition, one in self.assignments.items():
            assert (partition in self.assignments.pauses.partitions) == bool(one.paused_for)

    @invariant()
    def nothing_broke(self):
        assert self.broken == []

    def teardown(self):
        """Whatever happened, all of it is done in the end, and committed."""
        self.run(self.intend_now(set()))
        self.assign()
        while self.in_process or any(self.position[one] <= LOG[-1] for one in PARTITIONS):
            for partition in PARTITIONS:
                self.read(partition, 12)
            for lane in list(self.in_process):
                self.run(self.answer(lane, fails=False))
        self.commit()
        for partition, (offset, _) in self.broker.items():
            assert (offset, self.done[partition]) == (LOG[-1] + 1, set(LOG))
        self.run(self.assignments.revoke(list(self.assignments), 0.0))
        self.threads.shutdown()
        self.loop.close()


async def send(*_, **__):
    """No task of the machine sends."""


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=40, stateful_step_count=40)
