"""How long a batch takes at the live edge of a topic of 200 partitions with little traffic.

A pipeline without steps follows the topic while events arrive at a steady, low rate in all of its
partitions. What is measured is Spark's own figure of a whole batch: looking, planning, reading,
writing, committing the table and the offsets. Each round has a table and a checkpoint of its own.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench.cluster import WORK, Broker, fill
from bench.cluster import opened as opened_broker
from bench.command import exit_code, show
from bench.events import events, impressions_topic
from bench.results import Row, row
from headrace import Lake, Pipeline
from headrace.kafka.client.clients import client_config, producer
from headrace.runtime.java.installation import find_java
from headrace.runtime.process_tree import Watch, processes
from headrace.settings.model import KafkaSettings, Settings, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BENCHMARK = "live-edge"
SYSTEM = "headrace-fused"
TOPIC = "edge"
PARTITIONS = 200
EVENTS_PER_SECOND = 2_000
ROUNDS = 3
BATCHES = 20
WARM_UP_BATCHES = 5
THREADS = 2
HEAP_MB = 1024
SEND_SECONDS = 0.1
TIMEOUT_SECONDS = 300.0

UNITS = {
    "batch_ms": "ms",
    "slowest_batch_ms": "ms",
    "cpu_ms_per_batch": "ms",
    "records_per_batch": "records",
}


@dataclass(frozen=True)
class Round:
    """The batches of one round: milliseconds of each; records and CPU of all of them."""

    milliseconds: tuple[int, ...]
    records: int
    cpu_seconds: float

    def figures(self) -> dict[str, float]:
        """By metric."""
        return {
            "batch_ms": statistics.median(self.milliseconds),
            "slowest_batch_ms": max(self.milliseconds),
            "cpu_ms_per_batch": self.cpu_seconds * 1000 / len(self.milliseconds),
            "records_per_batch": self.records / len(self.milliseconds),
        }


@contextmanager
def traffic(broker: Broker) -> Iterator[None]:
    """Events at a steady rate into all partitions in turn, while the block runs."""
    ending = threading.Event()
    values = itertools.cycle(list(events(EVENTS_PER_SECOND)))
    partitions = itertools.cycle(range(PARTITIONS))
    sender = producer(client_config(KafkaSettings(), broker.bootstrap))

    def send() -> None:
        while not ending.wait(SEND_SECONDS):
            for _ in range(int(EVENTS_PER_SECOND * SEND_SECONDS)):
                sender.produce(TOPIC, next(values), partition=next(partitions))
            sender.poll(0)

    thread = threading.Thread(target=send, name="traffic")
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        sender.flush()


@contextmanager
def _session(java: dict[str, str]) -> Iterator[SparkSession]:
    from headrace.spark.session import start_session

    settings = SparkSettings(f"local[{THREADS}]", {"spark.driver.memory": f"{HEAP_MB}m"})
    master = f"local[{THREADS}]"
    spark = start_session("bench", settings, master=master, java=java, state=WORK / "spark")
    try:
        yield spark
    finally:
        spark.stop()


def measure(spark: SparkSession, broker: Broker, out: Path, java: dict[str, str]) -> Round:
    """One round: the batches that follow the warm-up."""
    from headrace.pipelines.run.pipeline_run import Deployment, PipelineRun

    settings = Settings(
        root=out, name="bench", modules=(), lake=str(out), kafka=KafkaSettings(broker.bootstrap)
    )
    deployment = Deployment(broker.bootstrap, str(out), f"local[{THREADS}]", java)
    pipeline = Pipeline(
        out.name,
        source=impressions_topic(TOPIC, PARTITIONS),
        sink=Lake("impressions", partition_by=("day", "hour")),
    )
    run = PipelineRun(spark, settings, pipeline, deployment, once=False)
    try:
        _tend_until(run, WARM_UP_BATCHES)
        before = run.progress.rows_in
        done = len(_reports(spark))
        broker_before = _cpu_seconds(broker)
        with Watch(os.getpid()) as watch:
            _tend_until(run, run.progress.batches + BATCHES)
        cpu_seconds = watch.usage.cpu_seconds - (_cpu_seconds(broker) - broker_before)
        reports = _reports(spark)[done:]
        records = run.progress.rows_in - before
    finally:
        run.stop()
    milliseconds = tuple(one["durationMs"]["triggerExecution"] for one in reports)
    return Round(milliseconds, records, cpu_seconds)


def _cpu_seconds(broker: Broker) -> float:
    return processes([broker.pid])[broker.pid].cpu_seconds


def _tend_until(run: Any, batches: int) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while run.progress.batches < batches:
        run.poll()
        if run.progress.has_ended or time.monotonic() > deadline:
            after = f"{run.progress.state} after {run.progress.batches} batches"
            raise RuntimeError(f"{after}: {run.progress.reason}")
        time.sleep(SEND_SECONDS)


def _reports(spark: SparkSession) -> list[Any]:
    """Of Spark, on the batches that read something."""
    (query,) = spark.streams.active
    return [one for one in query.recentProgress if "addBatch" in one["durationMs"]]


def run(rounds: int, console: Console) -> list[Row]:
    """The whole benchmark."""
    java = find_java(os.environ)
    measured = []
    with opened_broker(java, console) as broker, _session(java.environ()) as spark:
        fill(broker, TOPIC, PARTITIONS, PARTITIONS, console)
        with traffic(broker):
            for number in range(rounds):
                found = measure(spark, broker, WORK / f"round-{number}", java.environ())
                console.print(f"round {number + 1} of {rounds}: {found.figures()}")
                measured.append(found.figures())
    return [
        row(BENCHMARK, SYSTEM, name, unit, [one[name] for one in measured])
        for name, unit in UNITS.items()
    ]


def settings(rounds: int) -> dict[str, object]:
    """What the figures were measured with."""
    return {
        "work": f"{BATCHES} batches a round at {EVENTS_PER_SECOND:,} events/s",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "spark_master": f"local[{THREADS}]",
        "driver_heap_mb": HEAP_MB,
    }


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    parser = argparse.ArgumentParser(prog="python -m bench.live_edge", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="one round, nothing kept")
    chosen = parser.parse_args(given)
    rounds = 1 if chosen.quick else chosen.rounds

    def work(console: Console) -> int:
        show(console, BENCHMARK, run(rounds, console), None if chosen.quick else settings(rounds))
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
