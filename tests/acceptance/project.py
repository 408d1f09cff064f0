"""A project as a user has one, and the installed command run on it as a process."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.waiting import DRILL_LIMIT_SECONDS, FLUSH_SECONDS, LIMIT_SECONDS, wait_for_drill

from headrace.kafka.client.clients import connected_producer
from headrace.kafka.client.offsets import group_offsets
from headrace.kafka.dead_letters.letters import scan
from headrace.model import TopicPartition
from headrace.sinks.lake.delta.table import read_table

HEADRACE = Path(sys.executable).with_name("headrace")
PARTITIONS = 4

EVENTS = """
from datetime import timedelta
from headrace import BatchLimits, EpochMillis, Pipeline, Topic


class Event:
    event_id: str
    event_time: EpochMillis
    category: str
    n: int


events = Topic("{topic}", event=Event, key="event_id", event_time="event_time", partitions=4)
limits = BatchLimits(max_records={batch}, max_wait=timedelta(milliseconds=200))


def doubled(rows):
    from pyspark.sql import functions as F

    return rows.withColumn("double", F.col("n") * 2)
"""
LAKE = """
from headrace import Lake, Metadata, Source

source = Source(events, metadata=(Metadata.PARTITION, Metadata.OFFSET))
fused = Pipeline("fused", source, Lake("fused", ("day", "hour", "category")), limits=limits)
stepped = Pipeline(
    "stepped", source, Lake("stepped", ("day", "hour", "category")), steps=[doubled], limits=limits
)
"""
FLOW = EVENTS + LAKE

SETTINGS = """
[project]
name = "drill"
modules = ["flow"]
lake = "{lake}"

[kafka]
bootstrap_servers = "{bootstrap}"

[restart]
budget = 100
first_delay_seconds = 0.5
max_delay_seconds = 2.0
"""


class Project:
    """A project's folder, and what its pipelines and topics hold.

    Args:
        folder: of the project; it may not be there yet.
        bootstrap: the Kafka cluster.
        lake: a URI, or a folder below that of the project.
        topic: of ``EVENTS``; a topic of one's own on a broker that others share.
        batch: ``max_records`` of ``EVENTS``.
        flow: the module ``flow``: ``EVENTS`` and pipelines that read them, or one without it.
        settings: more tables of ``headrace.toml``.
    """

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        *,
        lake=".headrace/lake",
        topic="events",
        batch=10_000,
        flow=FLOW,
        settings="",
    ):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.lake = lake if "://" in lake else str(folder / lake)
        known = SETTINGS.format(lake=lake, bootstrap=bootstrap)
        (folder / "headrace.toml").write_text(known + settings)
        flow = flow.replace("{topic}", topic).replace("{batch}", str(batch))
        (folder / "flow.py").write_text(flow)
        self.topic = topic
        self.client = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
        self.numbers: dict[tuple[int, int], int] = {}  # of events, by partition and offset

    def start(self, *arguments: str, python: Path | None = None) -> subprocess.Popen:
        """A headrace process in a session of its own; its output goes to a file.

        Args:
            arguments: of the command.
            python: of another environment than that of the tests.
        """
        command = [HEADRACE] if python is None else [python, HEADRACE]
        with (self.folder / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [*command, *arguments, "--project", self.folder],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def call(self, *arguments: str, timeout: float = DRILL_LIMIT_SECONDS) -> str:
        process = self.start(*arguments)
        try:
            code = process.wait(timeout)
        finally:
            kill_session(process)
        assert code == 0, self.output()
        return self.output()

    def output(self) -> str:
        return (self.folder / "output.txt").read_text()[-6000:]

    def send(self, first: int, count: int, *, bad: bytes | None = None) -> None:
        now = int(time.time() * 1000) - 1_000_000
        sender = connected_producer(self.client)
        for n in range(first, first + count):
            event = {"event_id": f"e{n}", "event_time": now + n, "category": f"c{n % 8}", "n": n}
            value = bad if bad and n % 1000 == 0 else json.dumps(event).encode()
            while True:
                try:
                    sender.produce(self.topic, value, key=f"e{n}", on_delivery=self._delivered(n))
                    break
                except BufferError:
                    sender.poll(0.1)
        assert sender.flush(FLUSH_SECONDS) == 0

    def _delivered(self, n: int) -> Callable[..., None]:
        def note(error, record):
            assert error is None, error
            self.numbers[record.partition(), record.offset()] = n

        return note

    def statuses(self) -> dict[str, dict]:
        found = {}
        for path in (self.folder / ".headrace" / "status").glob("[!.]*.json"):
            with contextlib.suppress(json.JSONDecodeError, FileNotFoundError):
                found[path.stem] = json.loads(path.read_text())
        return found

    def updates(self) -> dict[str, int]:
        """When each status was written, as :meth:`moved` compares it."""
        return {name: status["updated_ms"] for name, status in self.statuses().items()}

    def moved(self, before: dict[str, int]) -> bool:
        """Whether a pipeline has ended a batch, or all of them, since ``before``."""
        return any(
            status["updated_ms"] != before.get(name)
            and (status["batches"] or status["state"] == "finished")
            for name, status in self.statuses().items()
        )

    def ends(self) -> dict[int, int]:
        """The offset after the last event of each partition."""
        ends: dict[int, int] = {}
        for partition, offset in self.numbers:
            ends[partition] = max(offset + 1, ends.get(partition, 0))
        return ends

    def kill_a_run(self, chosen: random.Random) -> None:
        """SIGKILL to ``run --once`` up to 1.5 seconds after a batch of it has ended.

        Those are two or three batches; more than that must be left.
        """
        before = self.updates()
        process = self.start("run", "--once")
        try:
            wait_for_drill(lambda: self.moved(before), "a batch of the restarted run")
            time.sleep(chosen.uniform(0.0, 1.5))
            assert process.poll() is None, "the run has ended before it was killed"
        finally:
            kill_session(process)

    def ids(self, table: str) -> Counter:
        return Counter(read_table(f"{self.lake}/{table}", ["event_id"])["event_id"].to_pylist())

    def offsets(self, table: str) -> dict[int, set[int]]:
        """Offsets in the lake by partition; none before the first commit."""
        if not (Path(self.lake) / table / "_delta_log").exists():
            return defaultdict(set)
        rows = read_table(f"{self.lake}/{table}", ["_partition", "_offset"])
        found = defaultdict(set)
        for p, at in zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True):
            found[p].add(at)
        return found

    def dead_offsets(self, pipeline: str) -> list[tuple[int, int]]:
        letters = [one for one in scan(self.client, self.topic) if one.pipeline == pipeline]
        return [(one.letter.partition.partition, one.letter.offset) for one in letters]

    def committed(self, pipeline: str) -> dict[int, int]:
        asked = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]
        found = group_offsets(self.client, f"headrace.{pipeline}", asked)
        return {one.partition: at for one, at in found.items()}


def kill_session(process: subprocess.Popen) -> None:
    """SIGKILL to the process and all that it started: driver, JVM, planners, Python workers."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == process.pid:
                os.kill(int(entry.name), signal.SIGKILL)
    process.wait(LIMIT_SECONDS)
