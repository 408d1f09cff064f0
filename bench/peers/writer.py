"""Kafka to Parquet by hour and category: headrace beside Kafka Workers, Kafka Connect and Flink.

Every system writes the same topic from its start into an empty folder, once to warm up and then
once a round, in turn, with 1, 2 and 4 threads; each run's output is read back and must hold every
event once, otherwise the system has no figures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from bench import headrace_writer, plain_spark, report, results
from bench.cluster import Broker, fill, jars, running_broker
from bench.driver import Driver, Open, SystemFailedError
from bench.events import events
from bench.machine import machine, versions
from bench.peers import flink_sql, kafka_connect, kafka_workers
from bench.peers.figures import BENCHMARK, Run, rows
from bench.peers.java_program import PeerMissingError
from bench.setup import Setup
from bench.usage import Watch, processes
from bench.writer import OutputWrongError, check, in_turn
from headrace.errors import JarError
from headrace.runtime.java import Java, find_java

TOPIC = "impressions"
PARTITIONS = 4
MESSAGES = 2_000_000
QUICK_MESSAGES = 200_000
ROUNDS = 3
THREADS = (1, 2, 4)
HEAP_MB = 1024
WORK = Path(__file__).resolve().parents[1] / ".work"
# Of the topic: speed is measured between the first commits that hold this much of it.
FROM, UNTIL = 0.2, 0.7
_BATCHES = 5
# Who commits by time: as many messages a commit as the others at 100,000 a second.
MESSAGES_A_MS = 500
LOG_TAIL = 3_000


@dataclass(frozen=True)
class System:
    """One way to write the topic.

    Attributes:
        prepare: fetches and compiles what it needs; what it gives starts the system. Raises
            PeerMissingError where something can't be had.
        files: where its files are after a run.
        guarantee: of delivery, with the settings measured.
        settings: what is not its default.
    """

    prepare: Callable[[Java], Open]
    files: Callable[[Path], list[Path]]
    guarantee: str
    settings: Mapping[str, str]


def _headrace(*, with_step: bool) -> System:
    start = partial(headrace_writer.open_headrace, with_step=with_step)
    return System(lambda _: start, headrace_writer.table_files, "exactly once", {})


SYSTEMS = {
    "headrace-fused": _headrace(with_step=False),
    "headrace-spark-step": _headrace(with_step=True),
    "plain-spark": System(
        lambda _: plain_spark.open_plain_spark,
        plain_spark.table_files,
        "exactly once, for readers of its log",
        plain_spark.SETTINGS,
    ),
    "kafka-workers": System(
        lambda java: partial(kafka_workers.open_kafka_workers, program=kafka_workers.prepare(java)),
        kafka_workers.table_files,
        "at least once",
        kafka_workers.SETTINGS,
    ),
    "kafka-connect": System(
        lambda java: partial(kafka_connect.open_kafka_connect, connect=kafka_connect.prepare(java)),
        kafka_connect.table_files,
        "exactly once",
        kafka_connect.WORKER | kafka_connect.SETTINGS,
    ),
    "flink-sql": System(
        lambda java: partial(flink_sql.open_flink, program=flink_sql.prepare(java)),
        flink_sql.table_files,
        "exactly once",
        flink_sql.SETTINGS,
    ),
}


@dataclass(frozen=True)
class Bench:
    """One topic on one broker."""

    broker: Broker
    java: Java
    messages: int
    work: Path

    def setup(self, threads: int) -> Setup:
        """What every system is given."""
        return Setup(
            bootstrap=self.broker.bootstrap,
            topic=TOPIC,
            messages=self.messages,
            partitions=PARTITIONS,
            threads=threads,
            batch_records=self.messages // _BATCHES,
            commit_every_ms=self.messages // MESSAGES_A_MS,
            heap_mb=HEAP_MB,
            java=self.java.environ(),
            connector=tuple(jars("spark-kafka", self.java)),
            logs=self.work,
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


def prepared(systems: Sequence[str], java: Java) -> tuple[dict[str, Open], dict[str, str]]:
    """How to start each system, and of those that can't be had what is missing."""
    found: dict[str, Open] = {}
    missing: dict[str, str] = {}
    for system in systems:
        try:
            found[system] = SYSTEMS[system].prepare(java)
        except (PeerMissingError, JarError) as error:
            missing[system] = str(error)
    return found, missing


@contextmanager
def opened(messages: int, java: Java, console: Console) -> Iterator[Bench]:
    """The broker with its topic; gone when the block ends."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    try:
        console.print("starting the broker")
        with running_broker(WORK, java) as broker:
            _fill(broker, messages, console)
            yield Bench(broker, java, messages, WORK)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)


def _fill(broker: Broker, messages: int, console: Console) -> None:
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(f"{messages:,} events into topic {TOPIC}", total=messages)
        on_progress = partial(_advance, progress, task)
        fill(broker.bootstrap, TOPIC, PARTITIONS, events(messages), on_progress)


def _advance(progress: Progress, task: object, sent: int) -> None:
    progress.update(task, completed=sent)  # type: ignore[arg-type]


class Contest:
    """The systems at one number of threads, each a warm process until it fails."""

    def __init__(self, bench: Bench, threads: int, findings: Findings, console: Console) -> None:
        self._bench = bench
        self._threads = threads
        self._findings = findings
        self._console = console

    def hold(self, systems: Mapping[str, Open], rounds: int) -> None:
        """A run of each to warm up, then the rounds."""
        setup = self._bench.setup(self._threads)
        with ExitStack() as stack:
            drivers = {
                name: stack.enter_context(
                    Driver(name, start, setup, self._bench.work / f"{name}.log")
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
            log = (self._bench.work / f"{driver.name}.log").read_text(errors="replace")
            told = f"{driver.name} failed: {error}\nIts log ends:\n{log[-LOG_TAIL:]}"
            self._console.print(told, style="red", markup=False, highlight=False)
            return None


def run(
    messages: int, rounds: int, threads: Sequence[int], systems: Sequence[str], console: Console
) -> Findings:
    """The whole benchmark."""
    java = find_java(os.environ)
    starts, missing = prepared(systems, java)
    for system, reason in missing.items():
        console.print(f"without {system}: {reason}", style="yellow", markup=False)
    findings = Findings({}, {}, missing)
    if not starts:
        return findings
    with opened(messages, java, console) as bench:
        for number in threads:
            Contest(bench, number, findings, console).hold(starts, rounds)
    return findings


def settings(messages: int, rounds: int, findings: Findings) -> dict[str, object]:
    """What the figures were measured with."""
    measured = dict.fromkeys(system for system, _ in findings.runs)
    return {
        "work": f"{messages:,} events",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "heap_mb": HEAP_MB,
        "topic_compression": "lz4",
        "parquet_compression": "zstd",
        "guarantees": {name: SYSTEMS[name].guarantee for name in measured},
        "peers": {name: dict(SYSTEMS[name].settings) for name in measured},
        "missing": findings.missing,
        "failed": {
            f"{system}, {threads} threads": reason.splitlines()[-1]
            for (system, threads), reason in findings.failed.items()
        },
    }


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.writer", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"default {MESSAGES}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--threads", nargs="+", type=int, default=list(THREADS))
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all of them"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_MESSAGES} events, one round, nothing kept: does it still run?",
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    messages, rounds = (QUICK_MESSAGES, 1) if chosen.quick else (chosen.messages, chosen.rounds)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    systems = list(dict.fromkeys(chosen.systems))
    try:
        findings = run(messages, rounds, list(dict.fromkeys(chosen.threads)), systems, console)
    except KeyboardInterrupt:
        console.print("stopped; nothing was kept")
        return 130
    measured = rows(findings.runs)
    if measured:
        console.print(report.table(BENCHMARK, measured))
    if not chosen.quick and measured:
        _keep(measured, settings(messages, rounds, findings))
    return 1 if findings.failed or not measured else 0


def _keep(measured: Sequence[results.Row], chosen: Mapping[str, object]) -> None:
    context = {
        "machine": machine(),
        "versions": versions(find_java(os.environ)),
        "settings": chosen,
    }
    document = results.merge(results.read(), BENCHMARK, context, measured)
    results.write(document)
    report.write_page(document)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
