"""Brokers fail and are restarted under a pipeline and a worker, which lose and skip nothing.

Three brokers, three copies, two of which must be in sync. What the brokers acknowledged is in the
lake once, on both paths, and was processed by the worker. The report says for each kind of fault
how long writing, the worker and the pipeline stood still.
"""

from __future__ import annotations

import itertools
import json
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.acceptance.project import Project, kill_session
from tests.waiting import DRILL_LIMIT_SECONDS, FLUSH_SECONDS, LIMIT_SECONDS, wait_for_drill

from headrace.kafka.client.admin_requests import admin, describe
from headrace.kafka.client.clients import producer

BATCH_EVENTS = 500
RATE = 2_000
NODES = (1, 2, 3)
WORKER = """

import time
from pathlib import Path

from headrace import KeyHash, Worker, WorkerTask

NOTES = Path({notes!r})


class Note(WorkerTask):
    async def init(self, subpartition, config):
        self.notes = (NOTES / f"{{subpartition.partition}}-{{subpartition.index}}").open("a", 1)

    async def process(self, record):
        self.notes.write(f"{{record.partition}} {{record.offset}} {{time.time():.3f}}\\n")

    async def close(self):
        self.notes.close()


note = Worker("note", events, Note, partitioner=KeyHash(4))
"""


class Sender(threading.Thread):
    """Sends events at a rate until it is stopped; keeps where and when each was acknowledged."""

    def __init__(self, project: Project) -> None:
        super().__init__(name="sender")
        self.positions: dict[str, tuple[int, int]] = {}
        self.times: dict[int, list[float]] = defaultdict(list)
        self.failed: list[str] = []
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

    def _send(self, number: int) -> None:
        name, now = f"e{number}", int(time.time() * 1000)
        event = {"event_id": name, "event_time": now, "category": f"c{number % 8}", "n": number}

        def answered(error, message) -> None:
            if error is None:
                self.positions[name] = (message.partition(), message.offset())
                self.times[message.partition()].append(time.time())
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
    """Kills, freezes and restarts brokers and the worker, each kind as often as the others."""

    def __init__(self, three, project: Project, rng) -> None:
        self._cluster, self._folder = three.cluster, three.folder
        self._project, self._random = project, rng
        self.worker = project.start("workers", "run", "note")
        self.happened: list[tuple[str, float, float]] = []
        """The kind of each fault, when it began and when every copy was in sync again."""
        self._kinds: dict[str, Callable[[], None]] = {
            "leader killed": self._leader_killed,
            "leader killed, back soon": self._leader_back_soon,
            "leader frozen": self._leader_frozen,
            "controller killed": self._controller_killed,
            "brokers restarted in order": self._brokers_restarted,
            "worker restarted": self._worker_restarted,
        }

    def happen(self, count: int) -> None:
        kinds = list(self._kinds)
        while len(self.happened) < count:
            if len(self.happened) % len(kinds) == 0:
                self._random.shuffle(kinds)
            kind = kinds[len(self.happened) % len(kinds)]
            began = time.time()
            self._kinds[kind]()
            # With two away, brokers refuse writes: no harm, and nothing that this drill is about.
            wait_for_drill(self._all_in_sync, "every copy in sync")
            time.sleep(self._random.uniform(2.0, 4.0))
            self.happened.append((kind, began, time.time()))

    def _leader_killed(self) -> None:
        self._killed(self._leader())

    def _controller_killed(self) -> None:
        self._killed(_active_controller(self._folder))

    def _killed(self, node: int) -> None:
        self._cluster.kill(node)
        wait_for_drill(lambda: node not in self._leaders(), f"others that lead what {node} led")
        self._cluster.start_broker(node)

    def _leader_back_soon(self) -> None:
        node = self._leader()
        self._cluster.kill(node)
        time.sleep(self._random.uniform(0.0, 5.0))
        self._cluster.start_broker(node)

    def _leader_frozen(self) -> None:
        node = self._leader()
        self._cluster.pause(node)
        time.sleep(self._random.uniform(1.0, 9.0))
        self._cluster.resume(node)

    def _brokers_restarted(self) -> None:
        for node in NODES:
            self._cluster.stop_broker(node)
            self._cluster.start_broker(node)
            wait_for_drill(self._all_in_sync, "every copy in sync")

    def _worker_restarted(self) -> None:
        before, self.worker = self.worker, self._project.start("workers", "run", "note")
        before.terminate()
        assert before.wait(DRILL_LIMIT_SECONDS) == 0, self._project.output()

    def _leader(self) -> int:
        return max(1, self._random.choice(self._leaders()))

    def _leaders(self) -> list[int]:
        return [partition.leader for partition in self._partitions()]

    def _all_in_sync(self) -> bool:
        return all(set(one.isrs) == set(NODES) for one in self._partitions())

    def _partitions(self) -> list:
        metadata = admin(self._project.client).list_topics("events", timeout=LIMIT_SECONDS)
        return list(metadata.topics["events"].partitions.values())


def _active_controller(folder: Path) -> int:
    """The leader of the newest epoch that a node's own file names."""
    states = [
        json.loads(file.read_text())
        for file in folder.glob("kafka/node-*/data/__cluster_metadata-0/quorum-state")
    ]
    return max((state["leaderEpoch"], state["leaderId"]) for state in states)[1]


@pytest.mark.drill
@pytest.mark.timeout(3000)
def test_failing_leaders_lose_and_skip_nothing(start_cluster, tmp_path, drill_run):
    three = start_cluster(brokers=3)
    project, notes = _project(tmp_path, three.bootstrap_servers)
    sender, pipelines = Sender(project), project.start("run")
    faults = Faults(three, project, drill_run.random)
    try:
        sender.start()
        wait_for_drill(lambda: _landed(project) and _noted(notes), "the first rows and records")
        faults.happen(drill_run.size(short=2, long=60))
        sender.stop()
        assert sender.failed == []
        events, acknowledged = len(sender.positions), set(sender.positions.values())
        wait_for_drill(lambda: _landed(project) >= events, "all rows")
        wait_for_drill(lambda: acknowledged <= _noted(notes).keys(), "all records processed")
        for run in (pipelines, faults.worker):
            assert run.poll() is None, project.output()
            run.terminate()
            assert run.wait(DRILL_LIMIT_SECONDS) == 0, project.output()
        committed = project.committed("note")
    finally:
        sender.stop()
        for run in (pipelines, faults.worker):
            kill_session(run)
        happened = ", ".join(kind for kind, _, _ in faults.happened)
        drill_run.report(events=len(sender.positions), faults=happened)
        three.cluster.stop()
    expected = {f"e{number}": 1 for number in range(events)}
    assert project.ids("fused") == expected
    assert project.ids("stepped") == expected
    assert committed == {partition: last + 1 for partition, last in sorted(acknowledged)}
    drill_run.report(**_still(project, sender, notes, faults))


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


def _noted(notes: Path) -> dict[tuple[int, int], float]:
    """When the worker processed each position last; a line that a kill cut off is none."""
    lines = itertools.chain.from_iterable(
        one.read_text().split("\n")[:-1] for one in notes.iterdir()
    )
    processed = (line.split() for line in lines)
    return {(int(partition), int(at)): float(when) for partition, at, when in processed}


def _still(project: Project, sender: Sender, notes: Path, faults: Faults) -> dict[str, str]:
    """For each kind of fault, how long each partition or table stood still at most: seconds.

    The median of the faults, and the longest.
    """
    processed: dict[int, list[float]] = defaultdict(list)
    for (partition, _), when in _noted(notes).items():
        processed[partition].append(when)
    tables = [
        [commit["timestamp"] / 1000 for commit in DeltaTable(f"{project.lake}/{table}").history()]
        for table in ("fused", "stepped")
    ]
    watched = {
        "writing": sender.times.values(),
        "worker": processed.values(),
        "pipeline": tables,
    }
    gaps: dict[str, list[float]] = defaultdict(list)
    for kind, since, until in faults.happened:
        for who, times in watched.items():
            gaps[f"{kind}: {who}"].append(max(_longest_gap(of, since, until) for of in times))
    return {
        name: f"{statistics.median(seconds):.1f} to {max(seconds):.1f} s"
        for name, seconds in sorted(gaps.items())
    }


def _longest_gap(times: Sequence[float], since: float, until: float) -> float:
    inside = sorted(when for when in times if since <= when <= until)
    return max(after - before for before, after in itertools.pairwise([since, *inside, until]))
