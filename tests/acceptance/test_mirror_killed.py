"""Instances of a mirror are killed and frozen; each record is in the copy once, in order."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time

import confluent_kafka
import pytest
from tests.integration.mirror_instance import arguments
from tests.kafka_topics import make_topic

from headrace.kafka.client import client_config, consumer, producer
from headrace.kafka.group_member import SESSION_SECONDS
from headrace.mirror.link import Link
from headrace.settings.model import KafkaSettings
from headrace.transfer.origin import origins

PARTITIONS = 4
INSTANCES = 2
KILLED, FROZEN = signal.SIGKILL, signal.SIGSTOP
WAIT_SECONDS = 300
BEGAN_MS = int(time.time() * 1000)  # what is older than a topic's retention, brokers delete
pytestmark = pytest.mark.drill


@pytest.fixture
def link(start_cluster, broker, topic):
    """A mirror of one topic, from a cluster of its own to the shared one."""
    name = topic("events")
    source = client_config(KafkaSettings(), start_cluster().bootstrap_servers)
    target = client_config(KafkaSettings(), broker.bootstrap_servers)
    for client, made in ((source, name), (target, f"far.{name}")):
        make_topic(client, made, PARTITIONS)
    group = f"headrace.mirror.{name}"
    return Link(name, group, "far", "central", source, target, {name: f"far.{name}"})


def write(link: Link, first: int, last: int) -> None:
    [name] = link.copies
    sender = producer(link.source)
    for n in range(first, last):
        value = None if n % 101 == 0 else b"%d" % n
        while True:
            try:
                sender.produce(name, value, b"k%d" % n, n % PARTITIONS, timestamp=BEGAN_MS + n)
                break
            except BufferError:
                sender.poll(0.1)
    assert sender.flush(60) == 0


class Copied:
    """What the copy holds, as those see it who read committed records."""

    def __init__(self, config: dict[str, str], topic: str) -> None:
        self.counts = [0] * PARTITIONS
        self.digests = [hashlib.sha256() for _ in range(PARTITIONS)]
        self.origins: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._reader = consumer(config, tuning={"enable.partition.eof": "false"})
        self._reader.assign(
            [confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)]
        )

    def read(self, until: int) -> None:
        """Reads on to a number of records."""
        deadline = time.monotonic() + WAIT_SECONDS
        while sum(self.counts) < until:
            assert time.monotonic() < deadline, self.counts
            self.read_some(1.0)

    def read_some(self, seconds: float) -> None:
        for message in self._reader.consume(10_000, seconds):
            assert message.error() is None, message.error()
            partition = message.partition()
            row = (message.key(), message.value(), message.timestamp()[1])
            self.digests[partition].update(repr(row).encode())
            self.counts[partition] += 1
            self.origins[partition] += [at.offset for at in origins(message.headers() or ())]


def start(link: Link) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *arguments(link)])


def test_kills_and_freezes_of_instances_lose_and_repeat_nothing(link, drill_run):
    records = drill_run.size(short=60_000, long=1_000_000)
    faults = drill_run.size(short=3, long=10)
    [(name, copy)] = link.copies.items()
    chosen = [drill_run.random.choice([KILLED, KILLED, FROZEN]) for _ in range(faults)]
    chosen[-1] = FROZEN  # one at least
    copied = Copied(link.target, copy)
    running = [start(link) for _ in range(INSTANCES)]
    frozen: list[subprocess.Popen[bytes]] = []
    step = records // (faults + 1)
    try:
        for number, fault in enumerate(chosen):
            write(link, number * step, (number + 1) * step)
            copied.read(number * step + drill_run.random.randrange(1, step))
            victim = running.pop(drill_run.random.randrange(INSTANCES))
            victim.send_signal(fault)
            running.append(start(link))
            if fault is KILLED:
                victim.wait()
            else:
                frozen.append(victim)
                time.sleep(SESSION_SECONDS + drill_run.random.uniform(1, 5))
                victim.send_signal(signal.SIGCONT)
        write(link, faults * step, records)
        copied.read(records)
        time.sleep(1)
        copied.read_some(5.0)  # nothing more
    finally:
        for process in (*running, *frozen):
            process.kill()
            process.wait()
    original = Copied(link.source, name)
    original.read(records)
    assert copied.counts == original.counts
    assert [d.hexdigest() for d in copied.digests] == [d.hexdigest() for d in original.digests]
    assert copied.origins == [list(range(count)) for count in original.counts]
    drill_run.report(records=records, kills=chosen.count(KILLED), freezes=chosen.count(FROZEN))
