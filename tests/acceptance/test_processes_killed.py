"""`workers run --processes`: one is killed, Ctrl-C drains all; also of one that is exactly once."""

import itertools
import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.acceptance.project import Project, kill_session
from tests.waiting import DRILL_LIMIT_SECONDS, wait_for_drill

from headrace.kafka.table.changelog import write_changelog
from headrace.kafka.table.topic_table import table_records

WORKER = """
from datetime import timedelta
from pathlib import Path

from headrace import KeyHash, Topic, Worker, WorkerTask

events = Topic("{topic}", partitions=4)
NOTES = Path({notes!r})


class Note(WorkerTask):
    async def process(self, record):
        import os

        with (NOTES / f"{{os.getpid()}}.txt").open("a") as notes:
            notes.write(f"{{record.partition}} {{record.offset}}\\n")


note = Worker(
    "note", events, Note, partitioner=KeyHash(8), commit_every=timedelta(milliseconds=200)
)
"""

ONCE = """
import os
from dataclasses import dataclass
from pathlib import Path

from headrace import Guarantee, KeyHash, References, Send, Topic, worker

NOTES = Path({notes!r})


@dataclass
class Plan:
    name: str


events, copies = Topic("{topic}", partitions=4), Topic("{topic}-copies", partitions=2)
plans = Topic("{topic}-plans", event=Plan, compaction=True)


@worker(
    topic=events,
    name="note",
    references={{"plans": plans}},
    partitioner=KeyHash(8),
    guarantee=Guarantee.EXACTLY_ONCE,
)
async def copy(record, send: Send, plans: References[Plan]):
    with (NOTES / f"{{os.getpid()}}.txt").open("a") as notes:
        notes.write(f"{{record.partition}} {{record.offset}}\\n")
    send("{topic}-copies", f"{{record.partition}} {{record.offset}} {{plans[b'p'].name}}".encode())
"""


def write_plan(project: Project) -> None:
    """What the worker ``ONCE`` looks up."""
    plan = json.dumps({"name": "gold"}).encode()
    write_changelog(project.client, f"{project.topic}-plans", {b"p": plan})


def copied(project: Project) -> Counter[str]:
    """What readers of committed records see of the worker ``ONCE``."""
    records = table_records(project.client, f"{project.topic}-copies", settled=True)
    return Counter(record.value().decode() for record in records)


def instances(notes: Path) -> set[int]:
    """Pids of those that have noted something."""
    return {int(one.stem) for one in notes.iterdir()}


def noted(notes: Path) -> set[str]:
    return {line for one in notes.iterdir() for line in one.read_text().splitlines()}


@pytest.mark.timeout(600)
def test_a_process_that_is_killed_is_replaced_and_ctrl_c_drains_all(broker, topic, tmp_path):
    notes = tmp_path / "notes"
    notes.mkdir()
    project = Project(tmp_path / "drill", broker.bootstrap_servers, topic=topic())
    (project.folder / "flow.py").write_text(WORKER.format(topic=project.topic, notes=str(notes)))
    project.call("apply")
    sent = itertools.count()
    process = project.start("workers", "run", "note", "--processes", "2")

    def work() -> int:
        """More records; how many processes have noted some."""
        project.send(100 * next(sent), 100)
        return len(instances(notes))

    try:
        wait_for_drill(lambda: work() == 2, "both processes")
        os.kill(instances(notes).pop(), signal.SIGKILL)
        wait_for_drill(lambda: work() == 3, "another in the place of the killed one")
        total = next(sent)
        wait_for_drill(lambda: len(noted(notes)) == 100 * total, "all records")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
        assert process.wait(DRILL_LIMIT_SECONDS) == 0, project.output()
    finally:
        kill_session(process)
    assert sum(project.committed("note").values()) == 100 * total


@pytest.mark.timeout(600)
def test_processes_that_are_exactly_once_and_look_up_references_write_each_record_once(
    broker, topic, tmp_path
):
    notes = tmp_path / "notes"
    notes.mkdir()
    project = Project(tmp_path / "drill", broker.bootstrap_servers, topic=topic())
    (project.folder / "flow.py").write_text(ONCE.format(topic=project.topic, notes=str(notes)))
    project.call("apply")
    write_plan(project)
    sent = itertools.count()
    process = project.start("workers", "run", "note", "--processes", "2")

    def work() -> int:
        """More records; how many processes have noted some."""
        project.send(100 * next(sent), 100)
        return len(instances(notes))

    try:
        wait_for_drill(lambda: work() == 2, "both processes")
        os.kill(instances(notes).pop(), signal.SIGKILL)
        wait_for_drill(lambda: work() == 3, "another in the place of the killed one")
        total = next(sent)
        wait_for_drill(lambda: len(copied(project)) == 100 * total, "all records")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(DRILL_LIMIT_SECONDS) == 0, project.output()
    finally:
        kill_session(process)
    assert copied(project) == dict.fromkeys([f"{place} gold" for place in noted(notes)], 1)
    assert sum(project.committed("note").values()) == 100 * total
