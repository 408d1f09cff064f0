"""A broker that is behind leads a partition while pipelines and a worker run, as processes.

They had read what the partition has lost. Each refuses what is at those offsets now, and says where
the log was cut. After the reset that it names, what is in the topic arrives once, and what was lost
stays where it had arrived.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.acceptance.project import Project, kill_session
from tests.integration.test_cut_log import SOON_OUT_OF_SYNC, UncleanElection
from tests.waiting import wait_for_drill

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client.offsets import group_offsets
from headrace.model import TopicPartition

END = 150
REFUSED, REFUSAL = ("pipelines", "worker"), 3
CUTS = (
    "checkpoint offset 150, cut offset 100, pipeline 'fused'",
    "checkpoint offset 150, cut offset 100, pipeline 'stepped'",
    "topic 'events', partition 0, cut offset 100. ",
)
DECLARED = """partitions=1, replication=2, config={
    "unclean.leader.election.enable": "true", "min.insync.replicas": "1"})"""
WORKER = """

from pathlib import Path

from headrace import Worker, WorkerTask


class Note(WorkerTask):
    async def process(self, record):
        with Path({notes!r}).open("a") as notes:
            notes.write(f"{{record.value.decode()}}\\n")


note = Worker("note", events, Note)
"""


def _events(first: int, count: int) -> list[bytes]:
    now = int(time.time() * 1000)
    return [
        json.dumps({"event_id": f"e{n}", "event_time": now, "category": "c", "n": n}).encode()
        for n in range(first, first + count)
    ]


@pytest.mark.drill
@pytest.mark.timeout(1500)
def test_pipelines_and_a_worker_that_run_refuse_what_replaced_the_records_that_were_lost(
    start_cluster, tmp_path, drill_run
):
    three = start_cluster(brokers=3, config=SOON_OUT_OF_SYNC)
    election = UncleanElection(three, "events")
    project, notes = _project(tmp_path, three.bootstrap_servers)
    runs = [project.start("run"), project.start("workers", "run", "note")]
    try:
        election.write_before(_events(0, END))
        before = Counter(f"e{n}" for n in range(END))
        wait_for_drill(lambda: _arrived(project, notes) == [before] * 3, "all records")
        wait_for_drill(lambda: _committed(project) == END, "the worker's commit")
        began = time.monotonic()
        election.elect(_events(1_000, 80))
        seconds = {}
        for name, run in zip(REFUSED, runs, strict=True):
            wait_for_drill(lambda: run.poll() is not None, f"the end of {name}")  # noqa: B023
            seconds[name] = f"refused after {time.monotonic() - began:.0f} s"
        drill_run.report(**seconds)
        assert [run.returncode for run in runs] == [REFUSAL, REFUSAL], project.output()
        assert _arrived(project, notes) == [before] * 3
        for what in CUTS:
            assert what in (project.folder / "output.txt").read_text()
        three.cluster.resume(1)
        for pipeline in ("fused", "stepped"):
            project.call("checkpoint", "reset", pipeline, "--to", "committed")
        project.call("workers", "reset", "note", "--to", "committed")
        runs += [project.start("run"), project.start("workers", "run", "note")]
        after = before + Counter(f"e{n}" for n in range(1_000, 1_080))
        wait_for_drill(lambda: _arrived(project, notes) == [after] * 3, "what follows the cut")
        assert [run.poll() for run in runs[2:]] == [None, None], project.output()
    finally:
        for run in runs:
            kill_session(run)
        three.cluster.resume(1)
        three.cluster.stop()


def _project(folder: Path, bootstrap: str) -> tuple[Project, Path]:
    project, notes = Project(folder / "drill", bootstrap), folder / "notes"
    notes.touch()
    flow = project.folder / "flow.py"
    declared = flow.read_text().replace("partitions=4)", DECLARED)
    flow.write_text(declared + WORKER.format(notes=str(notes)))
    project.call("apply")
    return project, notes


def _committed(project: Project) -> int | None:
    """The offset that the worker has committed; ``None``: no broker answers that."""
    place = TopicPartition("events", 0)
    try:
        return group_offsets(project.client, "headrace.note", [place]).get(place)
    except BrokerUnreachableError:
        return None


def _arrived(project: Project, notes: Path) -> list[Counter[str]]:
    """How often each event is in both tables, and at the worker."""
    tables = [
        project.ids(table) if project.offsets(table) else Counter()
        for table in ("fused", "stepped")
    ]
    processed = [json.loads(line)["event_id"] for line in notes.read_text().splitlines()]
    return [*tables, Counter(processed)]
