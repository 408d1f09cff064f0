"""Offline files into PostgreSQL and Kafka: headrace's loader, and what copies without checking.

Every system is a command that loads the same lines into an empty table or topic, once to warm up
and then once a round, in turn; its start is counted. After each run the table or topic must hold
every counter once, otherwise the benchmark fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psycopg
from rich.console import Console
from tests.integration.postgres_server import PostgresServer, program

from bench.cluster import WORK, Broker, make_topic, opened
from bench.command import exit_code, in_turn, show
from bench.driver import OutputWrongError, SystemFailedError
from bench.offline_client import PRODUCER, ROWS_A_TRANSACTION
from bench.offline_lines import COLUMNS, TABLE, Input, write
from bench.peers.contest import PARTITIONS, cpu_seconds
from bench.results import Row, row
from bench.sink_targets import DATABASE, database_version, opened_database
from headrace import Topic
from headrace.kafka.admin.topics import delete_topic
from headrace.kafka.client.clients import client_config
from headrace.kafka.table.topic_table import table_records
from headrace.runtime.java.installation import find_java
from headrace.runtime.process_tree import Watch
from headrace.settings.model import KafkaSettings

BENCHMARK = "offline-files"
LINES = 300_000
QUICK_LINES = 5_000
ROUNDS = 5
UNITS = {
    "messages_per_second": "messages/s",
    "cpu_seconds_per_million": "s",
    "server_cpu_seconds_per_million": "s",
    "peak_memory_mb": "MB",
    "times_copy": "x",
    "times_produce": "x",
}
REFERENCES = {"times_copy": "copy", "times_produce": "produce"}
"""By ratio: the system whose speed in the same round is 1."""
_HEADRACE = str(Path(sys.executable).with_name("headrace"))
_SETTINGS = """
[project]
name = "bench"
modules = ["flow"]

[kafka]
bootstrap_servers = "{bootstrap}"
"""
_FLOW = """
from headrace import Topic


class Item:
    project_id: int
    timestamp: int
    version: int
    billable: int
    uuid: str
    counter: int


items = Topic("{topic}", event=Item, event_id="uuid", key="project_id", partitions={partitions})
"""


@dataclass(frozen=True)
class Held:
    """What a table or topic holds: rows, their different counters, the first and the last."""

    rows: int
    counters: int
    first: int | None
    last: int | None

    @classmethod
    def of(cls, counters: Collection[int]) -> Held:
        """Of the counters of all records."""
        return cls(
            len(counters),
            len(set(counters)),
            min(counters, default=None),
            max(counters, default=None),
        )


def check(held: Held, count: int) -> None:
    """Raises OutputWrongError unless every counter from 0 is there once."""
    if held != Held(count, count, 0, count - 1):
        raise OutputWrongError(f"{count} lines gave {held}")


@dataclass(frozen=True)
class Run:
    """One run of a command."""

    messages: int
    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    peak_memory_mb: float

    def figures(self) -> dict[str, float]:
        """By metric."""
        millions = self.messages / 1e6
        return {
            "messages_per_second": self.messages / self.seconds,
            "cpu_seconds_per_million": self.cpu_seconds / millions,
            "server_cpu_seconds_per_million": self.server_cpu_seconds / millions,
            "peak_memory_mb": self.peak_memory_mb,
        }


@dataclass(frozen=True)
class Table:
    """Where a run of a system of PostgreSQL writes: the table, made again for each."""

    server: PostgresServer

    @property
    def pid(self) -> int:
        """Of the server's first process."""
        return self.server.pid

    @property
    def address(self) -> str:
        """For a plain client."""
        return self.server.url

    def create(self) -> None:
        """An empty table; what a loader knows is forgotten, and all is written to disk."""
        columns = ", ".join(f"{column} {kind} NOT NULL" for column, kind in COLUMNS.items())
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            for table in (TABLE, "headrace_offline_files", "headrace_dead_letters"):
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            connection.execute(f"CREATE TABLE {TABLE} ({columns})")
            connection.execute("CHECKPOINT")

    def held(self) -> Held:
        """Counts the rows."""
        counting = f"count(*), count(DISTINCT counter), min(counter), max(counter) FROM {TABLE}"
        with psycopg.connect(self.server.url) as connection:
            [found] = connection.execute(f"SELECT {counting}").fetchall()
        return Held(*found)

    def remove(self) -> None:
        """Leaves it to the next run, which drops it."""


class _Counted(msgspec.Struct):
    counter: int


@dataclass(frozen=True)
class Records:
    """Where a run of a system of Kafka writes: a topic of its own, in a project of its own."""

    broker: Broker
    topic: str

    @property
    def pid(self) -> int:
        """Of the broker."""
        return self.broker.pid

    @property
    def address(self) -> str:
        """For a plain client."""
        return f"{self.broker.bootstrap}/{self.topic}"

    @property
    def project(self) -> Path:
        """The folder of a project that declares the topic."""
        return WORK / self.topic

    def create(self) -> None:
        """Makes the topic and the project."""
        make_topic(self.broker, Topic(self.topic, partitions=PARTITIONS))
        self.project.mkdir()
        settings = _SETTINGS.format(bootstrap=self.broker.bootstrap)
        (self.project / "headrace.toml").write_text(settings)
        flow = _FLOW.format(topic=self.topic, partitions=PARTITIONS)
        (self.project / "flow.py").write_text(flow)

    def held(self) -> Held:
        """Reads the committed records."""
        decoder = msgspec.json.Decoder(_Counted)
        records = table_records(self._config, self.topic, settled=True)
        return Held.of([decoder.decode(record.value() or b"").counter for record in records])

    def remove(self) -> None:
        """Deletes the topic."""
        delete_topic(self._config, self.topic)

    @property
    def _config(self) -> dict[str, str]:
        return client_config(KafkaSettings(), self.broker.bootstrap)


def _client(way: str) -> Callable[[Input, Table | Records], list[str]]:
    module = [sys.executable, "-m", "bench.offline_client", way]
    return lambda files, target: [*module, str(files.lines), target.address]


def _psql(files: Input, target: Table) -> list[str]:
    copying = f"\\copy {TABLE} ({', '.join(COLUMNS)}) FROM '{files.rows}'"
    return [program("psql"), "-X", "-v", "ON_ERROR_STOP=1", "-c", copying, target.address]


def _load_rows(files: Input, target: Table) -> list[str]:
    places = ["--into", TABLE, "--postgres", target.address]
    return [_HEADRACE, "load-offline-files", str(files.lines), *places]


def _load_records(files: Input, target: Records) -> list[str]:
    # Each run is of another source: the broker has the progress of those before it.
    places = ["--into", f"{TABLE}={target.topic}", "--source", target.topic]
    project = ["--project", str(target.project)]
    return [_HEADRACE, "load-offline-files", str(files.lines), *places, *project]


def _produce(files: Input, target: Records) -> list[str]:
    words = ["produce", target.topic, str(files.events), "--project", str(target.project)]
    return [_HEADRACE, *words]


INTO_POSTGRES: Mapping[str, Callable[[Input, Table], list[str]]] = {
    "load-postgres": _load_rows,
    "copy": _psql,
    "client-copy": _client("copy"),
    "client-insert": _client("insert"),
}
INTO_KAFKA: Mapping[str, Callable[[Input, Records], list[str]]] = {
    "load-topic": _load_records,
    "produce": _produce,
    "client-send": _client("send"),
}
SYSTEMS = (*INTO_POSTGRES, *INTO_KAFKA)


@dataclass(frozen=True)
class Bench:
    """The files, and the servers they are loaded into."""

    files: Input
    lines: int
    server: PostgresServer
    broker: Broker

    def measure(self, system: str, label: str) -> Run:
        """One run of one system into a new table or topic, checked."""
        target: Table | Records
        if system in INTO_POSTGRES:
            target = table = Table(self.server)
            command = INTO_POSTGRES[system](self.files, table)
        else:
            target = records = Records(self.broker, f"{system}-{label}")
            command = INTO_KAFKA[system](self.files, records)
        target.create()
        # Nobody pays for pages that another one's run left to be written.
        os.sync()
        run = _timed(system, command, target.pid, self.lines)
        check(target.held(), self.lines)
        target.remove()
        return run


def _timed(system: str, command: Sequence[str], server_pid: int, lines: int) -> Run:
    """Runs a command to its end.

    Raises:
        SystemFailedError: its exit code is not 0.
    """
    log = WORK / f"{system}.log"
    [before], began = cpu_seconds(server_pid), time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            with Watch(process.pid) as watch:
                _, status, usage = os.wait4(process.pid, 0)
                seconds = time.monotonic() - began
        except BaseException:
            process.kill()
            process.wait()
            raise
    process.returncode = os.waitstatus_to_exitcode(status)
    [after] = cpu_seconds(server_pid)
    if process.returncode:
        raise SystemFailedError(f"{system}: exit code {process.returncode}: {log.read_text()}")
    cpu = usage.ru_utime + usage.ru_stime
    return Run(lines, seconds, cpu, after - before, watch.usage.peak_memory_mb)


def rows(runs: Mapping[str, Sequence[Run]]) -> list[Row]:
    """A row a system and metric; the ratios are those within each round."""
    found = []
    for system, measured in runs.items():
        by_round = [run.figures() for run in measured]
        by_metric = {name: [figures[name] for figures in by_round] for name in by_round[0]}
        for ratio, reference in REFERENCES.items():
            if reference in runs and system != reference and _are_beside(system, reference):
                by_metric[ratio] = [
                    their.seconds / own.seconds
                    for own, their in zip(measured, runs[reference], strict=True)
                ]
        found += [row(BENCHMARK, system, name, UNITS[name], by_metric[name]) for name in by_metric]
    return found


def _are_beside(system: str, reference: str) -> bool:
    return (system in INTO_POSTGRES) == (reference in INTO_POSTGRES)


def run(
    lines: int, rounds: int, systems: Sequence[str], console: Console
) -> tuple[list[Row], Mapping[str, str]]:
    """The whole benchmark: the rows, and the version of the database."""
    runs: dict[str, list[Run]] = {system: [] for system in systems}
    with ExitStack() as stack:
        broker = stack.enter_context(opened(find_java(os.environ), console))
        server = stack.enter_context(opened_database())
        console.print(f"writing {lines:,} lines")
        bench = Bench(write(WORK / "input", lines), lines, server, broker)
        for system in systems:
            _say(console, f"warm-up: {system}", bench.measure(system, "warm-up"))
        for number, system in in_turn(systems, rounds):
            measured = bench.measure(system, f"round-{number + 1}")
            runs[system].append(measured)
            _say(console, f"round {number + 1} of {rounds}: {system}", measured)
        return rows(runs), {"PostgreSQL": database_version(server)}


def _say(console: Console, what: str, measured: Run) -> None:
    figures = measured.figures()
    console.print(
        f"{what}: {measured.seconds:.1f} s, {figures['messages_per_second']:,.0f} messages/s, "
        f"{figures['cpu_seconds_per_million']:.1f} CPU s/million"
    )


def settings(lines: int, rounds: int, versions: Mapping[str, str]) -> dict[str, object]:
    """What the figures were measured with."""
    return {
        "work": f"{lines:,} lines",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "database": DATABASE,
        "client_rows_a_transaction": ROWS_A_TRANSACTION,
        "client_producer": PRODUCER,
        "rivals": dict(versions),
    }


def _arguments(given: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.offline_files", description=__doc__)
    parser.add_argument("--lines", type=int, default=LINES, help=f"default {LINES:,}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all of them"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_LINES:,} lines, one round, nothing kept: does it still run?",
    )
    return parser.parse_args(list(given))


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    lines, rounds = (QUICK_LINES, 1) if chosen.quick else (chosen.lines, chosen.rounds)

    def work(console: Console) -> int:
        measured, versions = run(lines, rounds, list(dict.fromkeys(chosen.systems)), console)
        kept = None if chosen.quick else settings(lines, rounds, versions)
        show(console, BENCHMARK, measured, kept)
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
