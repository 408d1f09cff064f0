"""One topic on one broker, and the systems that read it in turn."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.console import Console

from bench.cluster import WORK, Broker, jars
from bench.command import in_turn
from bench.driver import Driver, Open, OutputWrongError, SystemFailedError
from bench.peers.figures import Run
from bench.peers.programs import PeerMissingError
from bench.setup import Setup
from headrace.errors import JarError
from headrace.runtime.java.installation import Java
from headrace.runtime.process_tree import Watch, processes, tree

Start = TypeVar("Start")

# Of the topic: speed is measured between the first commits that hold this much of it.
FROM, UNTIL = 0.2, 0.7
PARTITIONS = 4
THREADS = 2
HEAP_MB = 1024
# Kafka's default. Without it a group's first member begins alone, and its work is thrown away as
# soon as the second one joins.
BROKER = {"group.initial.rebalance.delay.ms": "3000"}
_LOG_TAIL = 3_000


def run_once(
    driver: Driver, out: Path, messages: int, broker: Broker, database_pid: int | None = None
) -> Run:
    """One run of one warm system from the topic's start to its end, measured in its middle.

    ``database_pid`` is the first process of the database that it writes to, if there is one.

    Raises:
        SystemFailedError: it did not do its work.
    """
    [run] = run_in_stretches(driver, out, messages, broker, (FROM, UNTIL), database_pid)
    return run


def run_in_stretches(
    driver: Driver,
    out: Path,
    messages: int,
    broker: Broker,
    marks: Sequence[float],
    database_pid: int | None = None,
) -> list[Run]:
    """One run of one warm system: what lay between the first commits that reached each mark.

    ``marks`` are shares of the messages. Raises as :func:`run_once`.
    """
    # Nobody pays for pages that another one's run left to be written.
    os.sync()
    driver.begin(out)
    last = driver.await_committed(int(messages * marks[0]))
    if last > messages * marks[1]:
        raise SystemFailedError(f"{driver.name}: its first commit had {last}: too many")
    found = []
    for mark in marks[1:]:
        first, began, before = last, time.monotonic(), cpu_seconds(broker.pid, database_pid)
        with Watch(driver.pid, counts_root=not driver.only_looks) as watch:
            last = driver.await_committed(int(messages * mark))
            ended = time.monotonic()
        after = cpu_seconds(broker.pid, database_pid)
        servers = [now - then for then, now in zip(before, after, strict=True)]
        found.append(Run(last - first, ended - began, watch.usage, *servers))
    driver.finish()
    return found


def setup_for(broker: Broker, java: Java, name: str, **fields: Any) -> Setup:
    """What every system of a contest is given, with a new folder for what it says.

    ``fields`` are those of :class:`Setup` that it has of its own.
    """
    logs = WORK / name
    logs.mkdir()
    alike = {
        "bootstrap": broker.bootstrap,
        "partitions": PARTITIONS,
        "threads": THREADS,
        "heap_mb": HEAP_MB,
        "java": java.environ(),
        "connector": tuple(jars("spark-kafka", java)),
        "logs": logs,
    }
    return Setup(**{**alike, **fields})


def cpu_seconds(*roots: int | None) -> list[float]:
    """Of each tree so far. A server waits for its processes, so those that ended count."""
    machine = processes()
    found = (tree(root, machine) if root is not None else () for root in roots)
    return [sum(process.cpu_seconds for process in members) for members in found]


def prepared(
    systems: Mapping[str, Callable[[Java], Start]], java: Java, console: Console
) -> tuple[dict[str, Start], dict[str, str]]:
    """How to start each system, and of those that can't be had what is missing; told, too."""
    found: dict[str, Start] = {}
    missing: dict[str, str] = {}
    for system, prepare in systems.items():
        try:
            found[system] = prepare(java)
        except (PeerMissingError, JarError) as error:
            missing[system] = str(error)
            console.print(f"without {system}: {error}", style="yellow", markup=False)
    return found, missing


class Measured(Protocol):
    """One run of one system; as text, a line for who waits."""

    def figures(self) -> dict[str, float]:
        """By metric."""


@dataclass
class Findings:
    """What was measured, by (system, size); and why the others were not."""

    runs: dict[tuple[str, int], list[dict[str, float]]] = field(default_factory=dict)
    failed: dict[tuple[str, int], str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def without_figures(self, kind: str) -> dict[str, str]:
        """Why, by who it is; ``kind`` is what the sizes count."""
        failed = {
            f"{system} with {size} {kind}": reason.splitlines()[-1]
            for (system, size), reason in self.failed.items()
        }
        return self.missing | failed


class Contest:
    """The systems at one size, each a warm process until it fails.

    Args:
        setup: what each is given.
        size: how many threads or lanes that is.
        measure: one run of one system into a folder, which is removed after it.
        findings: where the figures go.
        console: where it is told.
    """

    def __init__(
        self,
        setup: Setup,
        size: int,
        measure: Callable[[Driver, Path], Measured],
        findings: Findings,
        console: Console,
    ) -> None:
        self._setup, self._size, self._measure = setup, size, measure
        self._findings = findings
        self._console = console

    def run(self, systems: Mapping[str, Open], rounds: int, *, warm_ups: int = 1) -> None:
        """Runs of each to warm up, then the rounds."""
        with ExitStack() as stack:
            drivers = {
                name: stack.enter_context(
                    Driver(name, start, self._setup, self._setup.logs / f"{name}.log")
                )
                for name, start in systems.items()
            }
            for driver in drivers.values():
                self._guarded(driver, lambda driver: driver.await_ready())
            for number in range(warm_ups):
                for driver in drivers.values():
                    self._run(driver, f"warm-up-{number + 1}")
            for number, name in in_turn(list(drivers), rounds):
                if (found := self._run(drivers[name], f"round-{number + 1}")) is not None:
                    known = self._findings.runs.setdefault((name, self._size), [])
                    known.append(found.figures())

    def _run(self, driver: Driver, label: str) -> Measured | None:
        label = f"{self._setup.logs.name}-{label}"
        out = WORK / f"{driver.name}-{label}"
        found = self._guarded(driver, lambda driver: self._measure(driver, out))
        shutil.rmtree(out, ignore_errors=True)
        if found is not None:
            self._console.print(f"{driver.name}, {label}: {found}")
        return found

    def _guarded(
        self, driver: Driver, work: Callable[[Driver], Measured | None]
    ) -> Measured | None:
        """Does ``work`` unless the system has failed before."""
        key = driver.name, self._size
        if key in self._findings.failed:
            return None
        try:
            return work(driver)
        except (SystemFailedError, OutputWrongError) as error:
            self._findings.failed[key] = str(error)
            self._findings.runs.pop(key, None)
            self._tell(f"{driver.name} failed: {error}\nIts log ends:\n{self._log(driver)}")
            # Whatever it may still do, it does not do while others are measured.
            driver.end()
            return None

    def _log(self, driver: Driver) -> str:
        return (self._setup.logs / f"{driver.name}.log").read_text(errors="replace")[-_LOG_TAIL:]

    def _tell(self, trouble: str) -> None:
        self._console.print(trouble, style="red", markup=False, highlight=False)
