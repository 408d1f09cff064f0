"""What a drill watches while faults happen: when each made progress, and how long it paused."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka import TopicPartition
from deltalake import DeltaTable
from tests.acceptance.project import Project
from tests.waiting import FLUSH_SECONDS

from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import consumer, producer

BATCH_EVENTS = 500
RATE = 2_000


class Watched(Protocol):
    """What makes progress; times are in seconds since 1970."""

    def times(self) -> Iterable[Sequence[float]]:
        """Of each partition, or table, when there was progress."""

    def latest(self) -> float:
        """When there was some last."""


class Sender(threading.Thread):
    """Sends events at a rate until it is stopped; keeps where and when each was acknowledged."""

    def __init__(self, project: Project) -> None:
        super().__init__(name="sender")
        self.positions: dict[str, tuple[int, int]] = {}
        self.failed: list[str] = []
        self._times: dict[int, list[float]] = defaultdict(list)
        self._latest = 0.0
        self._is_enough = threading.Event()
        self._producer = producer(project.client)

    def run(self) -> None:
        began = time.monotonic()
        for first in itertools.count(0, BATCH_EVENTS):
            if self._is_enough.is_set():
                break
            for number in range(first, first + BATCH_EVENTS):
                self._send(number)
            while (seconds := began + first / RATE - time.monotonic()) > 0:
                self._producer.poll(seconds)
        self._producer.flush(FLUSH_SECONDS)

    def stop(self) -> None:
        self._is_enough.set()
        self.join()

    def times(self) -> Collection[list[float]]:
        return self._times.values()

    def latest(self) -> float:
        return self._latest

    def _send(self, number: int) -> None:
        name, now = f"e{number}", int(time.time() * 1000)
        event = {"event_id": name, "event_time": now, "category": f"c{number % 8}", "n": number}

        def answered(error, message) -> None:
            if error is None:
                self.positions[name] = (message.partition(), message.offset())
                self._latest = time.time()
                self._times[message.partition()].append(self._latest)
            else:
                self.failed.append(f"{name}: {error}")

        while True:
            try:
                return self._producer.produce(
                    "events", json.dumps(event).encode(), name, on_delivery=answered
                )
            except BufferError:
                self._producer.poll(0.1)


class Arrivals(threading.Thread):
    """Reads a topic on another cluster until it is stopped; keeps the keys that came, in order."""

    def __init__(self, client: dict[str, str], topic: str) -> None:
        super().__init__(name=f"arrivals-{topic}")
        self.keys: dict[int, list[str]] = defaultdict(list)
        self._times: dict[int, list[float]] = defaultdict(list)
        self._latest = 0.0
        self._is_enough = threading.Event()
        self._reader = consumer(client, tuning={"enable.partition.eof": "false"})
        places = describe(client, [topic])[topic].all_partitions
        self._reader.assign([TopicPartition(topic, place.partition, 0) for place in places])

    def run(self) -> None:
        while not self._is_enough.is_set():
            for message in self._reader.consume(10_000, 0.1):
                if message.error() is None:
                    self._latest = time.time()
                    self.keys[message.partition()].append(message.key().decode())
                    self._times[message.partition()].append(self._latest)
        self._reader.close()

    def count(self) -> int:
        """How many records came."""
        return sum(map(len, list(self.keys.values())))

    def stop(self) -> None:
        self._is_enough.set()
        self.join()

    def times(self) -> Collection[list[float]]:
        return self._times.values()

    def latest(self) -> float:
        return self._latest


class Notes:
    """Lines that a worker writes, ``PARTITION OFFSET SECONDS``: a file for each subpartition."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def processed(self) -> dict[tuple[int, int], float]:
        """When it processed each position last; a line that a kill cut off is none."""
        lines = itertools.chain.from_iterable(
            file.read_text().split("\n")[:-1] for file in self._folder.iterdir()
        )
        fields = (line.split() for line in lines)
        return {(int(partition), int(at)): float(when) for partition, at, when in fields}

    def times(self) -> Collection[list[float]]:
        times: dict[int, list[float]] = defaultdict(list)
        for (partition, _), when in self.processed().items():
            times[partition].append(when)
        return times.values()

    def latest(self) -> float:
        return max(file.stat().st_mtime for file in self._folder.iterdir())


class Tables:
    """Tables of a lake that pipelines write."""

    def __init__(self, project: Project, *names: str) -> None:
        self._project, self._folders = project, [Path(project.lake) / name for name in names]

    def rows(self) -> int:
        """How many the table has that has fewest."""
        tables = (self._project.offsets(folder.name) for folder in self._folders)
        return min(sum(map(len, offsets.values())) for offsets in tables)

    def times(self) -> list[list[float]]:
        histories = (DeltaTable(str(folder)).history() for folder in self._folders)
        return [[commit["timestamp"] / 1000 for commit in history] for history in histories]

    def latest(self) -> float:
        """Of the table that waits longest."""
        return min((folder / "_delta_log").stat().st_mtime for folder in self._folders)


def longest_pause(watched: Watched, since: float, until: float) -> float:
    """For how many seconds one partition or table made no progress between two moments."""
    return max(_longest_gap(times, since, until) for times in watched.times())


def _longest_gap(times: Sequence[float], since: float, until: float) -> float:
    inside = sorted(when for when in times if since <= when <= until)
    return max(after - before for before, after in itertools.pairwise([since, *inside, until]))
