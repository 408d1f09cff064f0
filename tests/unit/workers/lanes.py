"""Lanes with their surroundings in memory: records are put in, sends are confirmed by hand."""

import asyncio
from collections import Counter
from types import SimpleNamespace

from headrace.kafka.group.start_positions import StartPosition
from headrace.model import Topic, TopicPartition
from headrace.workers import Worker, WorkerRecord
from headrace.workers.failures.failure_log import FailureLog
from headrace.workers.lanes.attempt import CURRENT
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.sender import Sent
from headrace.workers.lanes.threads import TaskThreads
from headrace.workers.tasks.record import ConsumedRecord
from headrace.workers.timing import WorkerTiming

LONG_AGO = float("-inf")
FAR_FUTURE = 1e18


class Failures:
    """Skips every record that is given up, and keeps what it failed with."""

    def __init__(self):
        self.ended, self.log = [], FailureLog("w")

    def attempt_failed(self, record, error):
        self.log.failed(record, error)

    def read(self, assigned, offset, *, is_new):
        pass

    def succeeded(self, attempt):
        pass

    def on_rebalance(self, here):
        pass

    async def end(self, attempt, error):
        self.ended.append((attempt.record.offset, error))
        return "skipped"

    @property
    def errors(self):
        return {offset: type(error) for offset, error in self.ended}


class LaneBench:
    """The lanes of partition 0 of a topic. To be made on an event loop."""

    def __init__(self, task, *, threads=2, failures=None, timing=WorkerTiming(), **declared):
        self.worker = Worker("w", Topic("t"), task, **declared)
        self.broken, self.sent = [], []
        self.failures = failures or Failures()
        self.counts, self.threads = Counter(), TaskThreads(threads, "t")
        context = LaneContext(
            self.worker,
            task,
            self.threads,
            self._send,
            self.failures,
            self.counts,
            self.broken.append,
            timing=timing,
        )
        self.assignments = PartitionSet(context)
        self.assign(0)

    def assign(self, partition):
        place = TopicPartition("t", partition)
        self.assignments.assign("group", [StartPosition(place, 0, "", "id")])

    def put(self, *offsets, partition=0, due_ms=0):
        place = TopicPartition("t", partition)
        for offset in offsets:
            record = WorkerRecord("t", partition, offset, None, b"v")
            self.assignments.put(ConsumedRecord(record, place, offset, due_ms))

    def expire(self, before=FAR_FUTURE):
        for lane in self.assignments.lanes:
            lane.expire(before)

    def begin_drain(self):
        self.assignments[TopicPartition("t", 0)].begin_drain()

    async def revoke(self, seconds=0.0):
        return await self.assignments.revoke([TopicPartition("t", 0)], seconds)

    @property
    def lane(self):
        return self.assignments.lanes[0]

    @property
    def committable(self):
        return self.assignments[TopicPartition("t", 0)].committable

    def confirm(self, *values, error=None):
        for one in self.sent:
            if one.value in values:
                one.confirmation.end(error)

    def _send(self, topic, value, **_):
        sends = CURRENT.get().sending()
        sends.add()
        confirmation = Sent(asyncio.get_running_loop(), sends)
        self.sent.append(SimpleNamespace(value=value, confirmation=confirmation))
        return confirmation


async def settled():
    """Everything that can happen without anything else has happened."""
    for _ in range(50):
        await asyncio.sleep(0)
