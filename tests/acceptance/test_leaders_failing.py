"""Brokers fail, and clients are cut off from them: pipelines, a worker and a mirror skip nothing.

Three brokers, three copies, two of which must be in sync. What the brokers acknowledged is in the
lake once, on both paths, was processed by the worker, and is once and in order on the cluster to
which the mirror copies it. The report says for each kind of fault how long writing and each of
these stood still. All can be cut off from the three brokers but who writes.
"""

from __future__ import annotations

import json
import statistics
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.acceptance.project import Project, kill_session
from tests.acceptance.watched import Arrivals, Notes, Sender, Tables, Watched, longest_pause
from tests.drills.client_links import ClientLinks
from tests.drills.run import DrillRun
from tests.waiting import DRILL_LIMIT_SECONDS, LIMIT_SECONDS, wait_for_drill

from headrace.kafka.client.admin_requests import admin, describe

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
COPIES = """
from headrace import Mirror, Topic

copies = Topic("{site}.events", partitions=4)
{site} = Mirror("{site}", source="{site}", topics={{"events": copies}})
"""


class Faults:
    """Kills, freezes, restarts and cuts off, each kind as often as the others.

    Args:
        three: the cluster.
        links: over which the project reaches it.
        project: whose worker is restarted.
        watched: what makes progress after each fault, before the next one.
        run: of the drill.
    """

    def __init__(
        self,
        three,
        links: ClientLinks,
        project: Project,
        watched: Mapping[str, Watched],
        run: DrillRun,
    ) -> None:
        self._cluster, self._folder, self._links = three.cluster, three.folder, links
        self._project, self._watched, self._random = project, watched, run.random
        self._max_cut_seconds = run.size(short=5, long=60)  # longer than a session
        self.worker = project.start("workers", "run", "note")
        self.happened: list[tuple[str, float, float]] = []
        """The kind of each fault, when it began and when all was as before."""
        self._kinds: dict[str, Callable[[], None]] = {
            "leader killed": self._leader_killed,
            "leader killed, back soon": self._leader_back_soon,
            "leader frozen": self._leader_frozen,
            "controller killed": self._controller_killed,
            "brokers restarted in order": self._brokers_restarted,
            "worker restarted": self._worker_restarted,
            "clients cut off": self._clients_cut_off,
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
            self._await_progress(kind)
            time.sleep(self._random.uniform(1.0, 3.0))
            self.happened.append((kind, began, time.time()))

    def pauses(self) -> dict[str, str]:
        """For each kind of fault, how long a partition or table stood still at most: seconds.

        The median of the faults, and the longest.
        """
        pauses: dict[str, list[float]] = defaultdict(list)
        for kind, since, until in self.happened:
            for name, watched in self._watched.items():
                pauses[f"{kind}: {name}"].append(longest_pause(watched, since, until))
        return {
            name: f"{statistics.median(seconds):.1f} to {max(seconds):.1f} s"
            for name, seconds in sorted(pauses.items())
        }

    def _await_progress(self, kind: str) -> None:
        healed = time.time()
        for name, watched in self._watched.items():
            wait_for_drill(
                lambda: watched.latest() > healed,  # noqa: B023
                f"progress of {name} after {kind}",
            )

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

    def _clients_cut_off(self) -> None:
        self._links.cut()
        time.sleep(self._random.uniform(1.0, self._max_cut_seconds))
        self._links.mend()

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


@pytest.fixture
def links():
    links = ClientLinks(len(NODES))
    with links.open():
        yield links


@pytest.mark.drill
@pytest.mark.timeout(3000)
def test_failing_leaders_lose_and_skip_nothing(
    links, start_cluster, second_broker, tmp_path, drill_run
):
    three = start_cluster(brokers=len(NODES))
    project = _project(tmp_path, links.bootstrap_servers, three.bootstrap_servers)
    center, site = _center(tmp_path, second_broker.bootstrap_servers, links.bootstrap_servers)
    sender, copies = Sender(project), Arrivals(center.client, f"{site}.events")
    runs = [project.start("run"), center.start("mirror", "run", site)]
    tables, notes = Tables(project, "fused", "stepped"), Notes(tmp_path / "notes")
    watched = {"writing": sender, "worker": notes, "pipeline": tables, "mirror": copies}
    faults = Faults(three, links, project, watched, drill_run)
    try:
        sender.start()
        copies.start()
        wait_for_drill(
            lambda: tables.rows() and notes.processed() and copies.count(),
            "the first rows, records and copies",
        )
        faults.happen(drill_run.size(short=2, long=60))
        sender.stop()
        assert sender.failed == []
        events, acknowledged = len(sender.positions), set(sender.positions.values())
        wait_for_drill(lambda: tables.rows() >= events, "all rows")
        wait_for_drill(lambda: acknowledged <= notes.processed().keys(), "all records processed")
        wait_for_drill(lambda: copies.count() >= events, "all copies")
        for run in (*runs, faults.worker):
            assert run.poll() is None, project.output() + center.output()
            run.terminate()
            assert run.wait(DRILL_LIMIT_SECONDS) == 0, project.output() + center.output()
        committed = project.committed("note")
    finally:
        sender.stop()
        copies.stop()
        for run in (*runs, faults.worker):
            kill_session(run)
        happened = ", ".join(kind for kind, _, _ in faults.happened)
        drill_run.report(events=len(sender.positions), faults=happened)
        three.cluster.stop()
    expected = {f"e{number}": 1 for number in range(events)}
    assert project.ids("fused") == expected
    assert project.ids("stepped") == expected
    assert committed == {partition: last + 1 for partition, last in sorted(acknowledged)}
    assert copies.keys == _in_order(sender.positions)
    drill_run.report(**faults.pauses())


def _in_order(positions: Mapping[str, tuple[int, int]]) -> dict[int, list[str]]:
    """The keys of each partition, in order of offset."""
    keys: dict[int, list[str]] = defaultdict(list)
    for name, (partition, _) in sorted(positions.items(), key=lambda item: item[1]):
        keys[partition].append(name)
    return keys


def _center(folder: Path, bootstrap: str, linked: str) -> tuple[Project, str]:
    """The project of another cluster, and the name that it has for the site of the brokers."""
    site = f"edge{uuid.uuid4().hex[:8]}"
    sites = f'[sites.{site}.kafka]\nbootstrap_servers = "{linked}"\n'
    flow = COPIES.format(site=site)
    center = Project(folder / "center", bootstrap, flow=flow, settings=sites)
    settings = center.folder / "headrace.toml"
    named = settings.read_text().replace("[project]", '[project]\nsite = "central"')
    settings.write_text(named)
    center.call("apply")
    return center, site


def _project(folder: Path, linked: str, direct: str) -> Project:
    """A project that reaches the brokers over links, whose test does directly."""
    project = Project(folder / "drill", linked, batch=20_000)
    project.client["bootstrap.servers"] = direct
    notes = folder / "notes"
    notes.mkdir()
    flow = project.folder / "flow.py"
    replicated = flow.read_text().replace("partitions=4)", "partitions=4, replication=3)")
    flow.write_text(replicated + WORKER.format(notes=str(notes)))
    project.call("apply")
    topic = describe(project.client, ["events"])["events"]
    assert (topic.partitions, topic.replication) == (4, len(NODES))
    return project
