"""Workers that note which records their processes have had, and what is checked of them."""

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

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

BATCH = 100


class NotedWorker:
    """The worker ``note`` of a project: its instances, and the records that they have noted.

    Args:
        project: whose ``flow.py`` is written, and whose topics are made.
        flow: ``WORKER`` or ``ONCE``.
    """

    def __init__(self, project: Project, flow: str) -> None:
        self.project, self.total = project, 0
        self._notes = project.folder / "notes"
        self._notes.mkdir()
        text = flow.format(topic=project.topic, notes=str(self._notes))
        (project.folder / "flow.py").write_text(text)
        project.call("apply")
        if flow == ONCE:
            plan = json.dumps({"name": "gold"}).encode()
            write_changelog(project.client, f"{project.topic}-plans", {b"p": plan})

    def instances(self) -> set[int]:
        """Pids of those that have noted something."""
        return {int(file.stem) for file in self._notes.iterdir()}

    def noted(self) -> set[str]:
        return {line for file in self._notes.iterdir() for line in file.read_text().splitlines()}

    def copied(self) -> Counter[str]:
        """What readers of committed records see of the worker ``ONCE``."""
        records = table_records(self.project.client, f"{self.project.topic}-copies", settled=True)
        return Counter(record.value().decode() for record in records)

    def copies_of_noted(self) -> dict[str, int]:
        """What they see when each record was processed once."""
        return dict.fromkeys([f"{place} gold" for place in self.noted()], 1)

    def work(self) -> int:
        """Sends more records; returns how many instances have noted some."""
        self.project.send(self.total, BATCH)
        self.total += BATCH
        return len(self.instances())

    def kill_one(self) -> int:
        """Kills one of two instances; returns its pid, once there is another in its place."""
        killed = self.instances().pop()
        os.kill(killed, signal.SIGKILL)
        wait_for_drill(lambda: self.work() == 3, "another in the place of the killed one")
        return killed

    @contextlib.contextmanager
    def running(
        self, *arguments: str, stop: Callable[[subprocess.Popen], None], python: Path | None = None
    ) -> Iterator[None]:
        """Starts `workers run note`; within, two instances work. At the end, it is stopped.

        Args:
            arguments: further ones of the command.
            stop: asks it to end.
            python: as of ``Project.start``.
        """
        process = self.project.start("workers", "run", "note", *arguments, python=python)
        try:
            wait_for_drill(lambda: self.work() == 2, "both instances")
            yield
            stop(process)
            assert process.wait(DRILL_LIMIT_SECONDS) == 0, self.project.output()
        finally:
            kill_session(process)
