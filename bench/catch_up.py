"""A pipeline catches up with a lag: tasks a partition, codecs, and executors on a Spark cluster.

Events in Avro, in few partitions, go into a lake by day, hour and category. A batch has 1, 2, 4 or
8 tasks a partition, by ranges of offsets (``min-tasks``) or by key (``subpartitions``), and its
files are of Snappy or zstd. The driver's threads process, or the executors of a standalone cluster
on this machine, whose processes all count. Each system is warm, and writes the topic from its start
once a round; its files must hold every event once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing.util
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from rich.console import Console
from tests.integration.schema_registry_server import VERSION as REGISTRY_VERSION

from bench import headrace_writer
from bench.cluster import Broker, Placed, fill_placed, opened
from bench.command import exit_code, show
from bench.driver import Driver, WriteOnce
from bench.events import Impression, events
from bench.formats_lake import opened_registry
from bench.headrace_writer import TABLE, batch_limits, open_pipelines
from bench.peers import figures
from bench.peers.contest import (
    BROKER,
    HEAP_MB,
    PARTITIONS,
    THREADS,
    Contest,
    Findings,
    run_once,
    setup_for,
)
from bench.peers.figures import Measurement, Run
from bench.setup import Setup
from bench.writer import check
from headrace import Avro, Lake, Pipeline, Source, Topic
from headrace.events.avro.values import AvroWriter, avro_schema
from headrace.kafka.admin.schema_registry import register
from headrace.model import event_schema
from headrace.runtime.java.installation import Java, find_java
from headrace.settings import SchemaRegistrySettings

BENCHMARK = "catch-up"
HOUR_BENCHMARK = "catch-up-hour"
WAYS = ("min-tasks", "subpartitions")
CODECS = ("snappy", "zstd")
PLACES = ("local", "cluster")
TASKS_A_PARTITION = (1, 2, 4, 8)
MESSAGES = 5_000_000
QUICK_MESSAGES = 100_000
ROUNDS = 3
EXECUTORS = 4
BATCHES = 5
BATCH_RECORDS = 1_000_000
LAG_A_SECOND = 20_000
LAG_OF_AN_HOUR = LAG_A_SECOND * 60 * 60
LAG_OF_A_DAY = 24 * LAG_OF_AN_HOUR
RATE = 500_000
UNITS = figures.PER_MESSAGE | {"day_hours": "h", "cores_for_500k": "cores"}
_ID = slice(13, 49)  # of the event's id in its JSON


@dataclass(frozen=True)
class System:
    """One way to catch up.

    Attributes:
        way: how a partition is divided.
        codec: of the files.
        place: the driver's threads, or executors.
    """

    way: str
    codec: str
    place: str

    @property
    def name(self) -> str:
        """In the table."""
        return f"{self.way}-{self.codec}-{self.place}"

    def source(self, tasks: int) -> Source:
        """The topic, divided into so many tasks a partition."""
        if self.way == "min-tasks":
            return Source(topic(), min_tasks=tasks * PARTITIONS)
        return Source(topic(), subpartitions=tasks)


def systems(places: Sequence[str], codecs: Sequence[str]) -> list[System]:
    """All ways of these places and codecs."""
    return [
        System(way, codec, place) for place, codec, way in itertools.product(places, codecs, WAYS)
    ]


def topic() -> Topic:
    """The topic with the lag."""
    return Topic(
        "impressions",
        event=Impression,
        format=Avro(),
        event_time="event_time",
        partitions=PARTITIONS,
    )


def span(count: int) -> timedelta:
    """How long so many events take to come; a minute at least, as they are out of order by half."""
    return max(timedelta(minutes=1), timedelta(seconds=count / LAG_A_SECOND))


def records(registry: SchemaRegistrySettings, count: int) -> Iterator[Placed]:
    """The events in Avro, each with its id as the key, into the partitions in turn."""
    schema = event_schema(Impression)
    text = json.dumps(avro_schema(schema))
    encode = AvroWriter(schema, register(registry, f"{topic().name}-value", "AVRO", text))
    for number, value in enumerate(events(count, span=span(count))):
        yield number % PARTITIONS, value[_ID], encode(value)


def open_system(
    setup: Setup,
    *,
    system: System,
    tasks: int,
    registry: SchemaRegistrySettings,
    executors: int,
    java: Java,
) -> WriteOnce:
    """Starts Spark, and its cluster; the function returned writes the topic into a fresh lake."""
    if system.place == "cluster":
        setup = replace(setup, cluster=open_cluster(setup, system, executors, java))
    pipeline = partial(_pipeline, setup, system, tasks)
    return open_pipelines(setup, system.name, pipeline, schema_registry=registry)


def open_cluster(setup: Setup, system: System, executors: int, java: Java) -> str:
    """Starts a cluster of this process, which ends with it; returns its URL.

    Its processes are children of this one, so that what they use counts.
    """
    from tests.acceptance.test_spark_cluster import StandaloneCluster

    environ = {"PYTHONPATH": os.pathsep.join(sys.path)}
    folder = setup.logs / f"{system.name}-spark"
    cluster = StandaloneCluster(folder, java, workers=executors, environ=environ)
    multiprocessing.util.Finalize(None, cluster.stop, exitpriority=1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    return cluster.url


def _pipeline(setup: Setup, system: System, tasks: int, out: Path) -> Pipeline:
    partition_by = ("day", "hour", "category")
    return Pipeline(
        out.name,
        source=system.source(tasks),
        sink=Lake(TABLE, partition_by=partition_by, compression=system.codec),
        limits=batch_limits(setup),
    )


def extrapolated(run: Run) -> dict[str, float]:
    """What a day's lag takes at the speed of a run, and the cores that catch up with 500K/s."""
    cpu_seconds_a_message = run.usage.cpu_seconds / run.messages
    return {
        "day_hours": LAG_OF_A_DAY / run.messages_per_second / 3600,
        "cores_for_500k": RATE * cpu_seconds_a_message,
    }


@dataclass(frozen=True)
class Bench:
    """The topic, and what its systems need.

    Attributes:
        broker: of the topic.
        registry: of its schema.
        java: the runtime of all.
        messages: in the topic.
        executors: of a cluster, each with a core.
        console: where it is told.
    """

    broker: Broker
    registry: SchemaRegistrySettings
    java: Java
    messages: int
    executors: int
    console: Console

    def run(
        self, chosen: Sequence[System], tasks: Sequence[int], rounds: int, findings: Findings
    ) -> None:
        """Systems of one place and codec take turns; more of them would not fit into memory."""
        groups = itertools.product(tasks, dict.fromkeys((s.place, s.codec) for s in chosen))
        for number, (place, codec) in groups:
            starts = {
                system.name: self._start(system, number)
                for system in chosen
                if (system.place, system.codec) == (place, codec) and _is_of_its_own(system, number)
            }
            setup = setup_for(
                self.broker,
                self.java,
                f"{place}-{codec}-{number}",
                topic=topic().name,
                messages=self.messages,
                batch_records=min(BATCH_RECORDS, self.messages // BATCHES),
            )
            contest = Contest(setup, number, self._measure, findings, self.console)
            contest.run(starts, rounds)

    def _start(self, system: System, tasks: int) -> partial[WriteOnce]:
        return partial(
            open_system,
            system=system,
            tasks=tasks,
            registry=self.registry,
            executors=self.executors,
            java=self.java,
        )

    def _measure(self, driver: Driver, out: Path) -> Measurement:
        run = run_once(driver, out, self.messages, self.broker)
        check(headrace_writer.table_files(out), self.messages)
        return Measurement(run, extrapolated(run))


def _is_of_its_own(system: System, tasks: int) -> bool:
    """Whether it differs from the other way: with one task a partition both are the same."""
    return system.way == "min-tasks" or tasks > 1


def run(chosen: argparse.Namespace, messages: int, rounds: int, console: Console) -> Findings:
    """The whole benchmark."""
    java = find_java(os.environ)
    findings = Findings()
    with ExitStack() as stack:
        broker = stack.enter_context(opened(java, console, BROKER))
        registry = stack.enter_context(opened_registry())
        fill_placed(broker, topic(), records(registry, messages), messages, console)
        bench = Bench(broker, registry, java, messages, chosen.executors, console)
        bench.run(systems(chosen.places, chosen.codecs), chosen.tasks, rounds, findings)
    return findings


def benchmark(messages: int) -> str:
    """Whose figures these are: those of an hour's lag have a table of their own."""
    return HOUR_BENCHMARK if messages >= LAG_OF_AN_HOUR else BENCHMARK


def settings(
    messages: int, rounds: int, executors: int, findings: Findings
) -> Mapping[str, object]:
    """What the figures were measured with, and why some are not there."""
    minutes = messages / LAG_A_SECOND / 60
    return {
        "work": (
            f"{messages:,} events, {minutes:,.1f} minutes of a lag of {LAG_A_SECOND:,} messages/s "
            f"(`day_hours` and `cores_for_500k` are extrapolated)"
        ),
        "rounds": rounds,
        "partitions": PARTITIONS,
        "batch_records": min(BATCH_RECORDS, messages // BATCHES),
        "threads": THREADS,
        "executors": executors,
        "heap_mb": HEAP_MB,
        "rivals": {"Apicurio Registry": REGISTRY_VERSION},
        "without_figures": findings.without_figures("lanes"),
    }


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.catch_up", description=__doc__)
    parser.add_argument(
        "--messages",
        type=int,
        default=MESSAGES,
        help=f"the lag, default {MESSAGES:,}; an hour of it is {LAG_OF_AN_HOUR:,}",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument(
        "--executors", type=int, default=EXECUTORS, help=f"of a cluster, default {EXECUTORS}"
    )
    parser.add_argument(
        "--tasks",
        type=int,
        nargs="+",
        choices=TASKS_A_PARTITION,
        default=list(TASKS_A_PARTITION),
        help="a partition, default: all of them",
    )
    for option, choices in (("--places", PLACES), ("--codecs", CODECS)):
        parser.add_argument(
            option, nargs="+", choices=choices, default=list(choices), help="default: both"
        )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_MESSAGES:,} events, one round, nothing kept: does it still run?",
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    messages, rounds = (QUICK_MESSAGES, 1) if chosen.quick else (chosen.messages, chosen.rounds)

    def work(console: Console) -> int:
        findings = run(chosen, messages, rounds, console)
        name = benchmark(messages)
        measured = figures.rows(name, "lanes", UNITS, findings.runs)
        kept = None if chosen.quick else settings(messages, rounds, chosen.executors, findings)
        show(console, name, measured, kept, findings.failed)
        return 1 if findings.failed or not findings.runs else 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
