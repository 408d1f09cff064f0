"""One topic on one broker, and the systems that write it in turn."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.cluster import Broker, jars
from bench.driver import Driver, Open, SystemFailedError
from bench.peers.figures import Run
from bench.peers.systems import SYSTEMS
from bench.setup import Setup
from bench.usage import Watch, processes
from bench.writer import OutputWrongError, check, in_turn
from headrace.runtime.java import Java

TOPIC = "impressions"
PARTITIONS = 4
HEAP_MB = 1024
# Of the topic: speed is measured between the first commits that hold this much of it.
FROM, UNTIL = 0.2, 0.7
BATCHES = 5
# Who commits by time: as many messages a commit as the others at 100,000 a second.
MESSAGES_A_MS = 500
_LOG_TAIL = 3_000


@dataclass(frozen=True)
class Bench:
    """One topic on one broker."""

    broker: Broker
    java: Java
    messages: int
    work: Path

    def setup(self, threads: int) -> Setup:
        """What every system is given, with a folder of its own for what it says."""
        logs = self.work / f"{threads}-threads"
        logs.mkdir()
        return Setup(
            bootstrap=self.broker.bootstrap,
            topic=TOPIC,
            messages=self.messages,
            partitions=PARTITIONS,
            threads=threads,
            batch_records=self.messages // BATCHES,
            commit_every_ms=self.messages // MESSAGES_A_MS,
            heap_mb=HEAP_MB,
            java=self.java.environ(),
            connector=tuple(jars("spark-kafka", self.java)),
            logs=logs,
        )

    def measure(self, driver: Driver, label: str) -> Run:
        """One run of one warm system, checked, its output removed.

        Raises:
            SystemFailedError: it did not do its work.
            OutputWrongError: its files do not hold every event once.
        """
        out = self.work / f"{driver.name}-{label}"
        # Nobody pays for pages that another one's run left to be written.
        os.sync()
        driver.begin(out)
        first = driver.await_committed(int(self.messages * FROM))
        if first > self.messages * UNTIL:
            raise SystemFailedError(f"{driver.name}: its first commit had {first}: too many")
        began, broker_before = time.monotonic(), self._broker_cpu_seconds()
        with Watch(driver.pid) as watch:
            last = driver.await_committed(int(self.messages * UNTIL))
            ended = time.monotonic()
        broker_cpu = self._broker_cpu_seconds() - broker_before
        driver.finish()
        files = SYSTEMS[driver.name].files(out)
        check(files, self.messages)
        shutil.rmtree(out)
        return Run(last - first, ended - began, watch.usage, broker_cpu, len(files))

    def _broker_cpu_seconds(self) -> float:
        return processes([self.broker.pid])[self.broker.pid].cpu_seconds


@dataclass
class Findings:
    """What was measured, by (system, threads); and why the others were not."""

    runs: dict[tuple[str, int], list[Run]]
    failed: dict[tuple[str, int], str]
    missing: dict[str, str]


class Contest:
    """The systems at one number of threads, each a warm process until it fails."""

    def __init__(self, bench: Bench, threads: int, findings: Findings, console: Console) -> None:
        self._bench = bench
        self._threads = threads
        self._setup = bench.setup(threads)
        self._findings = findings
        self._console = console

    def hold(self, systems: Mapping[str, Open], rounds: int) -> None:
        """A run of each to warm up, then the rounds."""
        with ExitStack() as stack:
            drivers = {
                name: stack.enter_context(
                    Driver(name, start, self._setup, self._setup.logs / f"{name}.log")
                )
                for name, start in systems.items()
            }
            for driver in drivers.values():
                self._guarded(driver, lambda driver: driver.await_ready())
            for driver in drivers.values():
                self._run(driver, "warm-up")
            for number, name in in_turn(list(drivers), rounds):
                if (found := self._run(drivers[name], f"round-{number + 1}")) is not None:
                    self._findings.runs.setdefault((name, self._threads), []).append(found)

    def _run(self, driver: Driver, label: str) -> Run | None:
        label = f"{self._threads}-threads-{label}"
        found = self._guarded(driver, lambda driver: self._bench.measure(driver, label))
        if found is not None:
            self._console.print(f"{driver.name}, {label}: {found}")
        return found

    def _guarded(self, driver: Driver, work: Callable[[Driver], Run | None]) -> Run | None:
        """Does ``work`` unless the system has failed before."""
        key = driver.name, self._threads
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
