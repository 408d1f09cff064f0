"""Instances of a merger are killed and frozen; the output is sorted, complete, and has all once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka
import pytest
from tests.integration.merger_instance import arguments
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, wait_for_drill

from headrace.kafka.client.clients import client_config, consumer, producer
from headrace.kafka.client.offsets import high_watermarks
from headrace.kafka.group.group_member import SESSION_SECONDS
from headrace.links.merger.plan import ClockSource, MergerPlan
from headrace.model import TopicPartition
from headrace.settings.model import KafkaSettings

PARTITIONS = 4
INSTANCES = 2
KILLED, FROZEN = signal.SIGKILL, signal.SIGSTOP
BEGAN_MS = int(time.time() * 1000) - 3_600_000
MAX_MEMORY_BYTES = 700_000_000
pytestmark = pytest.mark.drill


@pytest.fixture
def plan(broker, topic):
    """A merger of two topics; only their records say how far they are."""
    name, config = topic("events"), client_config(KafkaSettings(), broker.bootstrap_servers)
    sources = {f"waw.{name}": ClockSource.RECORDS, f"par.{name}": ClockSource.RECORDS}
    for made in (*sources, name, f"{name}.late"):
        make_topic(config, made, PARTITIONS)
    group = f"headrace.merger.{name}"
    return MergerPlan(name, group, config, sources, name, f"{name}.late", 0, 3600.0)


class Writer:
    """Two streams of one clock, in which equal times are frequent; one of them may stand still."""

    def __init__(self, plan, random, rate=3):
        self._plan, self._random, self._rate = plan, random, rate
        self._sender = producer(plan.config)
        self._time_ms = BEGAN_MS
        self._held = []
        self.count = 0

    def write(self, records, *, standing=False):
        """``standing``: the second stream sends nothing, and all of it later."""
        for _ in range(records):
            self._time_ms += self._random.random() < 1 / self._rate
            place, partition = self._random.randrange(2), self._random.randrange(PARTITIONS)
            record = (self._plan.topics[place], partition, self._time_ms)
            if place == 1 and (standing or self._held):
                self._held.append(record)
            else:
                self._send(*record)
        if not standing:
            for record in self._held:
                self._send(*record)
            self._held.clear()
        assert self._sender.flush(FLUSH_SECONDS) == 0

    def end(self):
        """A last record of each partition, behind which all others can be written."""
        self._time_ms += 1
        for topic in self._plan.topics:
            for partition in range(PARTITIONS):
                self._send(topic, partition, self._time_ms)
        assert self._sender.flush(FLUSH_SECONDS) == 0
        self.count -= 2 * PARTITIONS

    def _send(self, topic, partition, time_ms):
        self.count += 1
        value = b"%d" % self.count
        while True:
            try:
                self._sender.produce(topic, value, partition=partition, timestamp=time_ms)
                break
            except BufferError:
                self._sender.poll(0.1)


class Read:
    """Committed records of a topic: time and value, by partition."""

    def __init__(self, config, topic):
        self.records = [[] for _ in range(PARTITIONS)]
        self._reader = consumer(config, tuning={"enable.partition.eof": "false"})
        self._reader.assign(
            [confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)]
        )

    def until(self, count):
        def have_come():
            self.some(1.0)
            return sum(map(len, self.records)) >= count

        wait_for_drill(have_come, lambda: [len(each) for each in self.records])

    def some(self, seconds):
        for message in self._reader.consume(10_000, seconds):
            assert message.error() is None, message.error()
            row = (message.timestamp()[1], message.value())
            self.records[message.partition()].append(row)


def start(plan):
    return subprocess.Popen([sys.executable, *arguments(plan)])


def memory(process):
    """The most that a process has had, in bytes."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(peak) * 1024


def test_kills_and_freezes_of_instances_leave_the_output_sorted_and_whole(plan, drill_run):
    records = drill_run.size(short=60_000, long=1_000_000)
    faults = drill_run.size(short=3, long=10)
    chosen = [drill_run.random.choice([KILLED, KILLED, FROZEN]) for _ in range(faults)]
    chosen[-1] = FROZEN  # one at least
    writer, merged = Writer(plan, drill_run.random), Read(plan.config, plan.target)
    running = [start(plan) for _ in range(INSTANCES)]
    frozen, peaks = [], []
    step = records // (faults + 1)
    standing = drill_run.random.randrange(faults)
    try:
        for number, fault in enumerate(chosen):
            writer.write(step, standing=number == standing)
            merged.some(drill_run.random.uniform(0.5, 4))
            victim = running.pop(drill_run.random.randrange(INSTANCES))
            peaks.append(memory(victim))
            victim.send_signal(fault)
            running.append(start(plan))
            if fault is KILLED:
                victim.wait()
            else:
                frozen.append(victim)
                time.sleep(SESSION_SECONDS + drill_run.random.uniform(1, 5))
                victim.send_signal(signal.SIGCONT)
        writer.write(records - faults * step)
        writer.end()
        merged.until(writer.count)
        time.sleep(1)
        merged.some(5.0)  # nothing more, but last records
        peaks += map(memory, running)
    finally:
        for process in (*running, *frozen):
            process.kill()
            process.wait()
    expected = in_order(plan, writer.count + 2 * PARTITIONS)
    for partition, found in enumerate(merged.records):
        assert found == expected[partition][: len(found)]
        assert len(found) >= len(expected[partition]) - len(plan.topics)
    late = [TopicPartition(plan.late, partition) for partition in range(PARTITIONS)]
    assert set(high_watermarks(plan.config, late).values()) == {0}
    assert max(peaks) < MAX_MEMORY_BYTES
    drill_run.report(
        records=records,
        kills=chosen.count(KILLED),
        freezes=chosen.count(FROZEN),
        peak_memory_bytes=max(peaks),
    )


def in_order(plan, count):
    """All records of the sources by time, place of the topic and offset, by partition."""
    sources = [Read(plan.config, topic) for topic in plan.topics]
    while sum(len(each) for source in sources for each in source.records) < count:
        for source in sources:
            source.some(1.0)
    return [
        [
            (time_ms, value)
            for time_ms, _, _, value in sorted(
                (time_ms, place, offset, value)
                for place, source in enumerate(sources)
                for offset, (time_ms, value) in enumerate(source.records[partition])
            )
        ]
        for partition in range(PARTITIONS)
    ]
