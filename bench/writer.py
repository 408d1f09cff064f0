"""Events from Kafka into a lake partitioned by day, hour and category: headrace and plain Spark.

Every system writes the same topic from its start into an empty folder, once to warm up and then
once a round, in turn; each run's output is read back and must hold every event once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from bench import headrace_writer, plain_spark
from bench.cluster import WORK, Broker, fill, jars
from bench.cluster import opened as opened_broker
from bench.command import exit_code, in_turn, show
from bench.driver import Driver, Open, OutputWrongError
from bench.results import Row, row
from bench.setup import Setup
from headrace.runtime.java.installation import Java, find_java
from headrace.runtime.process_tree import Usage, Watch, processes

BENCHMARK = "writer"
RIVAL = "plain-spark"
TOPIC = "impressions"
PARTITIONS = 4
EVENTS = 2_000_000
QUICK_EVENTS = 400_000
ROUNDS = 3
BATCH_RECORDS = 1_000_000
THREADS = 2
HEAP_MB = 1024


@dataclass(frozen=True)
class System:
    """One way to write the topic: how to start it, and where its files are then."""

    start: Open
    files: Callable[[Path], list[Path]]


SYSTEMS = {
    "headrace-fused": System(
        partial(headrace_writer.open_headrace, with_step=False), headrace_writer.table_files
    ),
    "headrace-spark-step": System(
        partial(headrace_writer.open_headrace, with_step=True), headrace_writer.table_files
    ),
    RIVAL: System(plain_spark.open_plain_spark, plain_spark.table_files),
}


@dataclass(frozen=True)
class Run:
    """One measured run."""

    total: int
    messages: int
    first_batch_seconds: float
    seconds: float
    usage: Usage
    broker_cpu_seconds: float
    files: int
    file_bytes: int

    def figures(self) -> dict[str, float]:
        """By metric; those a message are of the messages after the first batch."""
        count = self.messages
        return {
            "messages_per_second": count / self.seconds,
            "cpu_us_per_message": self.usage.cpu_seconds * 1e6 / count,
            "broker_cpu_us_per_message": self.broker_cpu_seconds * 1e6 / count,
            "peak_memory_mb": self.usage.peak_memory_mb,
            "peak_worker_memory_mb": self.usage.peak_worker_memory_mb,
            "files": self.files,
            "table_mb": self.file_bytes / 1e6,
            "first_batch_seconds": self.first_batch_seconds,
            "whole_run_messages_per_second": self.total / (self.first_batch_seconds + self.seconds),
        }


UNITS = {
    "messages_per_second": "messages/s",
    "cpu_us_per_message": "us",
    "broker_cpu_us_per_message": "us",
    "peak_memory_mb": "MB",
    "peak_worker_memory_mb": "MB",
    "files": "files",
    "table_mb": "MB",
    "first_batch_seconds": "s",
    "whole_run_messages_per_second": "messages/s",
    "times_plain_spark": "x",
    "whole_run_times_plain_spark": "x",
}


RATIOS = {
    "messages_per_second": "times_plain_spark",
    "whole_run_messages_per_second": "whole_run_times_plain_spark",
}


@dataclass(frozen=True)
class Bench:
    """One topic on one broker, and the warm systems that read it in turn."""

    broker: Broker
    drivers: Mapping[str, Driver]
    count: int

    def measure(self, system: str, label: str) -> Run:
        """One run of one system, checked, its output removed.

        Measured from the end of its first batch: until then a query starts processes.
        """
        out = WORK / f"{system}-{label}"
        # Nobody pays for pages that another one's run left to be written.
        os.sync()
        driver = self.drivers[system]
        started = time.monotonic()
        driver.begin(out)
        skipped = driver.await_committed()
        began, broker_before = time.monotonic(), self._broker_cpu_seconds()
        with Watch(driver.pid) as watch:
            driver.finish()
            ended = time.monotonic()
        broker_cpu = self._broker_cpu_seconds() - broker_before
        files = SYSTEMS[system].files(out)
        check(files, self.count)
        file_bytes = sum(file.stat().st_size for file in files)
        shutil.rmtree(out)
        return Run(
            total=self.count,
            messages=self.count - skipped,
            first_batch_seconds=began - started,
            seconds=ended - began,
            usage=watch.usage,
            broker_cpu_seconds=broker_cpu,
            files=len(files),
            file_bytes=file_bytes,
        )

    def _broker_cpu_seconds(self) -> float:
        return processes([self.broker.pid])[self.broker.pid].cpu_seconds


def check(files: Sequence[Path], count: int) -> None:
    """Reads the files back.

    Raises:
        OutputWrongError: they do not hold ``count`` rows with as many event ids.
    """
    if (held := event_ids(files)) != (count, count):
        rows, distinct = held
        raise OutputWrongError(f"{count} events gave {rows} rows with {distinct} event ids")


def event_ids(files: Sequence[Path]) -> tuple[int, int]:
    """How many rows files of Parquet hold, and how many event ids these have."""
    import polars as pl

    ids = pl.concat([pl.read_parquet(file, columns=["event_id"]) for file in files])
    return ids.height, ids["event_id"].n_unique()


def rows(runs: Mapping[str, Sequence[Run]]) -> list[Row]:
    """A row a system and metric; speed beside the rival's is a ratio within each round."""
    found = []
    for system, measured in runs.items():
        figures = [run.figures() for run in measured]
        by_metric = {name: [one[name] for one in figures] for name in figures[0]}
        if RIVAL in runs and system != RIVAL:
            for speed, ratio in RATIOS.items():
                by_metric[ratio] = [
                    ours.figures()[speed] / his.figures()[speed]
                    for his, ours in zip(runs[RIVAL], measured, strict=True)
                ]
        found += [row(BENCHMARK, system, name, UNITS[name], by_metric[name]) for name in by_metric]
    return found


@contextmanager
def opened(count: int, systems: Sequence[str], java: Java, console: Console) -> Iterator[Bench]:
    """The broker with its topic, and every system started; all gone when the block ends."""
    with ExitStack() as stack:
        broker = stack.enter_context(opened_broker(java, console))
        fill(broker, TOPIC, PARTITIONS, count, console)
        setup = Setup(
            bootstrap=broker.bootstrap,
            topic=TOPIC,
            messages=count,
            partitions=PARTITIONS,
            threads=THREADS,
            batch_records=min(BATCH_RECORDS, count // 2),
            heap_mb=HEAP_MB,
            java=java.environ(),
            connector=tuple(jars("spark-kafka", java)),
            logs=WORK,
        )
        drivers = {
            name: stack.enter_context(
                Driver(name, SYSTEMS[name].start, setup, WORK / f"{name}.log")
            )
            for name in systems
        }
        for driver in drivers.values():
            driver.await_ready()
        yield Bench(broker, drivers, count)


def run(count: int, rounds: int, systems: Sequence[str], console: Console) -> list[Row]:
    """The whole benchmark."""
    runs: dict[str, list[Run]] = {system: [] for system in systems}
    with opened(count, systems, find_java(os.environ), console) as bench:
        for system in systems:
            _say(console, f"warm-up: {system}", bench.measure(system, "warm-up"))
        for number, system in in_turn(systems, rounds):
            measured = bench.measure(system, f"round-{number}")
            runs[system].append(measured)
            _say(console, f"round {number + 1} of {rounds}: {system}", measured)
    return rows(runs)


def _say(console: Console, what: str, measured: Run) -> None:
    figures = measured.figures()
    console.print(
        f"{what}: {measured.seconds:.1f} s, {figures['messages_per_second']:,.0f} messages/s, "
        f"{figures['cpu_us_per_message']:.2f} CPU us/message"
    )


def settings(count: int, rounds: int) -> dict[str, object]:
    """What the figures were measured with; each rival's own are in docs/benchmarks.md."""
    return {
        "work": f"{count:,} events",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "batch_records": BATCH_RECORDS,
        "spark_master": f"local[{THREADS}]",
        "driver_heap_mb": HEAP_MB,
        "topic_compression": "lz4",
        "parquet_compression": "zstd",
        "plain-spark": plain_spark.SETTINGS,
    }


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.writer", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help=f"default {EVENTS}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all of them"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_EVENTS} events, one round, nothing kept: does it still run?",
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    count, rounds = (QUICK_EVENTS, 1) if chosen.quick else (chosen.events, chosen.rounds)

    def work(console: Console) -> int:
        measured = run(count, rounds, list(dict.fromkeys(chosen.systems)), console)
        show(console, BENCHMARK, measured, None if chosen.quick else settings(count, rounds))
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
