"""Brokers fail one after the other under a pipeline and a worker, which lose and skip nothing.

Three brokers, three copies, two of which must be in sync. Every few seconds the leader of a
partition is killed or frozen, and comes back. What the brokers acknowledged is in the lake once,
on both paths, and was processed by the worker.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from pathlib import Path

import pytest
from tests.acceptance.project import Project, kill_session
from tests.waiting import DRILL_LIMIT_SECONDS, FLUSH_SECONDS, LIMIT_SECONDS, wait_for_drill

from headrace.kafka.client.admin_requests import admin, describe
from headrace.kafka.client.clients import producer

BATCH_EVENTS = 500
NODES = (1, 2, 3)
WORKER = """

from pathlib import Path

from headrace import KeyHash, Worker, WorkerTask

NOTES = Path({notes!r})


class Note(WorkerTask):
    async def init(self, subpartition, config):
        self.notes = (NOTES / f"{{subpartition.partition}}-{{subpartition.index}}").open("a", 1)

    async def process(self, record):
        self.notes.write(f"{{record.partition}} {{record.offset}}\\n")

    async def close(self):
        self.notes.close()


note = Worker("note", events, Note, partitioner=KeyHash(4))
"""


class Sender(threading.Thread):
    """Sends events at a rate until it has sent them all; keeps where each was acknowledged."""

    def __init__(self, project: Project, count: int, rate: int) -> None:
        super().__init__(name="sender")
        self.positions: dict[str, tuple[int, int]] = {}
        self.failed: list[str] = []
        self._count, self._rate = count, rate
        self._producer = producer(project.client)

    def run(self) -> None:
        began = time.monotonic()
        for first in range(0, self._count, BATCH_EVENTS):
            for number in range(first, min(first + BATCH_EVENTS, self._count)):
                self._send(number)
            self._producer.poll(max(0.0, began + first / self._rate - time.monotonic()))
        self._producer.flush(FLUSH_SECONDS)

    def _send(self, number: int) -> None:
        name, now = f"e{number}", int(time.time() * 1000)
        event = {"event_id": name, "event_time": now, "category": f"c{number % 8}", "n": number}

        def answered(error, message) -> None:
            if error is None:
                self.positions[name] = (message.partition(), message.offset())
            else:
                self.failed.append(f"{name}: {error}")

        while True:
            try:
                return self._producer.produce(
                    "events", json.dumps(event).encode(), name, on_delivery=answered
                )
            except BufferError:
                self._producer.poll(0.1)


class Faults:
    """Kills and freezes leaders of partitions in turn, and lets them come back."""

    def __init__(self, cluster, client: dict[str, str], rng) -> None:
        self._cluster, self._client, self._random = cluster, client, rng
        self._kills_at = rng.randrange(2)
        self.done: list[str] = []

    def happen(self) -> None:
        leader = self._leader(self._random.randrange(4))
        away_seconds = self._random.uniform(1.0, 9.0)
        if len(self.done) % 2 == self._kills_at:
            self._cluster.kill(leader)
            time.sleep(away_seconds)
            self._cluster.start_broker(leader)
            self.done.append(f"kill {leader}")
        else:
            self._cluster.pause(leader)
            time.sleep(away_seconds)
            self._cluster.resume(leader)
            self.done.append(f"freeze {leader}")
        # With two away, brokers refuse writes: no harm, and nothing that this drill is about.
        wait_for_drill(self._all_in_sync, "every copy in sync")
        time.sleep(self._random.uniform(0.0, 2.0))

    def _leader(self, partition: int) -> int:
        metadata = admin(self._client).list_topics("events", timeout=LIMIT_SECONDS)
        return max(1, metadata.topics["events"].partitions[partition].leader)

    def _all_in_sync(self) -> bool:
        metadata = admin(self._client).list_topics("events", timeout=LIMIT_SECONDS)
        partitions = metadata.topics["events"].partitions.values()
        return all(set(one.isrs) == set(NODES) for one in partitions)


@pytest.mark.drill
@pytest.mark.timeout(3000)
def test_failing_leaders_lose_and_skip_nothing(start_cluster, tmp_path, drill_run):
    events = drill_run.size(short=30_000, long=1_000_000)
    rate = drill_run.size(short=2_000, long=4_000)
    least_faults = drill_run.size(short=2, long=20)
    three = start_cluster(brokers=3)
    project, notes = _project(tmp_path, three.bootstrap_servers)
    sender = Sender(project, events, rate)
    faults = Faults(three.cluster, project.client, drill_run.random)
    runs = [project.start("run"), project.start("workers", "run", "note")]
    try:
        sender.start()
        wait_for_drill(lambda: _landed(project) and _noted(notes), "the first rows and records")
        while sender.is_alive() or len(faults.done) < least_faults:
            faults.happen()
        sender.join()
        assert sender.failed == []
        acknowledged = set(sender.positions.values())
        wait_for_drill(lambda: _landed(project) >= events, "all rows")
        wait_for_drill(lambda: acknowledged <= _noted(notes), "all records processed")
        for run in runs:
            assert run.poll() is None, project.output()
            run.terminate()
        for run in runs:
            assert run.wait(DRILL_LIMIT_SECONDS) == 0, project.output()
        committed = project.committed("note")
    finally:
        for run in runs:
            kill_session(run)
        drill_run.report(events=len(sender.positions), faults=", ".join(faults.done))
        three.cluster.stop()
    expected = {f"e{number}": 1 for number in range(events)}
    assert project.ids("fused") == expected
    assert project.ids("stepped") == expected
    assert committed == {partition: last + 1 for partition, last in sorted(acknowledged)}


def _project(folder: Path, bootstrap: str) -> tuple[Project, Path]:
    project = Project(folder / "drill", bootstrap, batch=20_000)
    notes = folder / "notes"
    notes.mkdir()
    flow = project.folder / "flow.py"
    replicated = flow.read_text().replace("partitions=4)", "partitions=4, replication=3)")
    flow.write_text(replicated + WORKER.format(notes=str(notes)))
    project.call("apply")
    topic = describe(project.client, ["events"])["events"]
    assert (topic.partitions, topic.replication) == (4, len(NODES))
    return project, notes


def _landed(project: Project) -> int:
    """Rows in the table that has fewest."""
    return min(sum(map(len, project.offsets(table).values())) for table in ("fused", "stepped"))


def _noted(notes: Path) -> set[tuple[int, int]]:
    """Positions that the worker processed; a line that a kill cut off is none."""
    lines = itertools.chain.from_iterable(
        one.read_text().split("\n")[:-1] for one in notes.iterdir()
    )
    return {tuple(map(int, line.split())) for line in lines}
