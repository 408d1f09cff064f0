"""CPU and memory of commands in projects of 50, 500 and 5,000 partitions, and of 800 components.

The commands run one after another against a real broker with small segments, by a project whose
topics (85, or 50 of 50 partitions) each have a worker and a pipeline into a lake. Figures are those
of the command's process: user and system time, which load on the machine changes little, and the
most resident memory. The broker's own memory is read when its topics are there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.cluster import WORK, opened
from bench.command import exit_code, show
from bench.driver import SystemFailedError
from bench.results import Row, row
from headrace.runtime.java.installation import find_java
from headrace.settings import environment

BENCHMARK = "scale"
PARTITIONS = (50, 500, 5000)
TOPICS = 85
COMPONENTS = 800
COMMANDS = ("check", "plan", "apply", "plan again", "status", "reconcile")
BROKER = {"log.index.size.max.bytes": "4096", "log.segment.bytes": "1048576"}
"""Settings of the broker, which would otherwise reserve 20 MiB of indexes for a partition."""
_SETTINGS = """
[project]
name = "bench"
modules = ["flow"]
lake = ".headrace/lake"

[kafka]
bootstrap_servers = "{bootstrap}"
"""
_COMMAND = """
import atexit, pathlib, runpy, sys

status, sys.argv[1:] = sys.argv[1], sys.argv[2:]
own = pathlib.Path("/proc/self/status")
atexit.register(lambda: pathlib.Path(status).write_text(own.read_text()))
runpy.run_module("headrace.cli", run_name="__main__")
"""
"""A command that leaves its status: the memory that `wait` reports may be that of its parent."""
_FLOW = """
from headrace import EpochMillis, Lake, Pipeline, Topic, worker


class Event:
    event_id: str
    event_time: EpochMillis


def topic(number, partitions):
    name = f"events-{{number}}"
    return Topic(name, event=Event, key="event_id", event_time="event_time", partitions=partitions)


def counted(number, topic):
    async def count(record):
        pass

    return worker(topic=topic, name=f"count-{{number}}")(count)


topics = [
    topic(n, {partitions} // {topics} + (n < {partitions} % {topics})) for n in range({topics})
]
workers = [counted(n, topics[n % {topics}]) for n in range({components} // 2)]
pipelines = [
    Pipeline(f"keep-{{n}}", topics[n % {topics}], Lake(f"events_{{n}}"))
    for n in range({components} // 2)
]
"""


@dataclass(frozen=True)
class Used:
    """What the process of a command has used."""

    cpu_seconds: float
    memory_mib: float


class ScaledProject:
    """A project with so many partitions of topics, workers and pipelines, in a folder."""

    def __init__(self, folder: Path, bootstrap: str, partitions: int, components: int) -> None:
        self._folder, self._status = folder, folder / "status.txt"
        folder.mkdir(parents=True)
        topics = min(TOPICS, partitions)
        flow = _FLOW.format(partitions=partitions, topics=topics, components=components)
        (folder / "headrace.toml").write_text(_SETTINGS.format(bootstrap=bootstrap))
        (folder / "flow.py").write_text(flow)

    def call(self, command: str) -> Used:
        """Runs a command to its end.

        Raises:
            SystemFailedError: if it fails.
        """
        name = command.partition(" ")[0]
        with (self._folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, self._status, name, "--project", self._folder],
                stdout=output,
                stderr=output,
            )
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in {0, 2 if name == "plan" else 0}:
            raise SystemFailedError(f"`headrace {name}`: {self.output()}")
        return Used(usage.ru_utime + usage.ru_stime, _most_memory(self._status))

    def output(self) -> str:
        """Returns what the last command printed."""
        return (self._folder / "output.txt").read_text()[-2000:]


def run(sizes: Sequence[int], console: Console) -> list[Row]:
    """Returns the figures of each command for each number of partitions."""
    rows = []
    for partitions in sizes:
        with opened(find_java(environment()), console, BROKER) as broker:
            project = ScaledProject(
                WORK / "project", broker.bootstrap, partitions, 2 * min(TOPICS, partitions)
            )
            system = f"{partitions} partitions"
            for command in COMMANDS:
                rows += _used(system, command, project.call(command), console)
            memory = _most_memory(Path(f"/proc/{broker.pid}/status"))
            rows.append(row(BENCHMARK, system, "broker_memory_mib", "MiB", [memory]))
    WORK.mkdir(exist_ok=True)
    project = ScaledProject(WORK / "components", "127.0.0.1:1", TOPICS, COMPONENTS)
    return rows + _used(f"{COMPONENTS} components", "check", project.call("check"), console)


def _used(system: str, command: str, used: Used, console: Console) -> list[Row]:
    name = command.replace(" ", "_")
    console.print(f"{system}, {command}: {used.cpu_seconds:.2f} s, {used.memory_mib:.0f} MiB")
    return [
        row(BENCHMARK, system, f"{name}_cpu_seconds", "s", [used.cpu_seconds]),
        row(BENCHMARK, system, f"{name}_memory_mib", "MiB", [used.memory_mib]),
    ]


def _most_memory(status: Path) -> float:
    """Returns the most resident memory of a process, in MiB, by its status of Linux."""
    [peak] = (line.split()[1] for line in status.read_text().splitlines() if "VmHWM" in line)
    return int(peak) / 1024


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS)
    parser.add_argument("--quick", action="store_true", help="50 partitions, nothing kept")
    parser.add_argument("--discard", action="store_true", help="nothing is kept")
    chosen = parser.parse_args(given)
    sizes = PARTITIONS[:1] if chosen.quick else chosen.partitions

    def work(console: Console) -> int:
        rows = run(sizes, console)
        is_kept = not chosen.quick and not chosen.discard
        show(console, BENCHMARK, rows, {"topics": TOPICS, "brokers": 1} if is_kept else None)
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
