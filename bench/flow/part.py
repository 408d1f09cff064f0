"""A part of ``make bench-flow``: what is in the topics, who works on them, what must come out."""

from __future__ import annotations

import abc
import itertools
import os
import shutil
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from bench.cluster import Broker, opened
from bench.driver import Driver, Open, OutputWrongError
from bench.peers import figures
from bench.peers.contest import (
    BROKER,
    PARTITIONS,
    THREADS,
    Contest,
    Findings,
    prepared,
    run_once,
    setup_for,
)
from bench.peers.figures import Measurement, Run
from bench.results import Row
from bench.setup import Setup
from headrace.runtime.java.installation import Java, find_java

HEAP_MB = 2048
BATCHES = 10
OURS = "headrace"
"""The names of systems that are headrace begin so; their output must be right."""


@dataclass(frozen=True)
class System:
    """One way to do the work of a part.

    Attributes:
        prepare: fetches what it needs; what it gives starts the system. Raises PeerMissingError or
            JarError where something can't be had.
        guarantee: of delivery.
        counts: of the output of a run, by metric.
        settings: what is not its default.
        state_folders: where its state is after a run.
    """

    prepare: Callable[[Java], Open]
    guarantee: str
    counts: Callable[[Path], Mapping[str, int]]
    settings: Mapping[str, str] = field(default_factory=dict)
    state_folders: Callable[[Path], Sequence[Path]] = lambda _: ()


class Part(abc.ABC):
    """One benchmark of event flow.

    Attributes:
        benchmark: name of its results.
        count: events of a whole run: impressions where there are several topics.
        quick_count: those of a quick one.
        rounds: of a whole run.
        units: by metric, in the order of the columns.
        events: those of this run.
    """

    benchmark: ClassVar[str]
    count: ClassVar[int] = 2_000_000
    quick_count: ClassVar[int] = 200_000
    rounds: ClassVar[int] = 3
    units: ClassVar[Mapping[str, str]]

    def __init__(self, events: int) -> None:
        self.events = events

    @property
    @abc.abstractmethod
    def systems(self) -> Mapping[str, System]:
        """Who takes part, by name."""

    @abc.abstractmethod
    def run(self, names: Sequence[str], rounds: int, console: Console) -> Findings:
        """Measures the systems of these names."""

    @abc.abstractmethod
    def work(self) -> str:
        """What there is to do, for the line under the table."""

    def rows(self, findings: Findings) -> list[Row]:
        """A row a system and metric."""
        return figures.rows(self.benchmark, "threads", self.units, findings.runs)

    def rivals(self) -> Mapping[str, str]:
        """Versions of what only this part needs."""
        return {}

    def settings(self, rounds: int, findings: Findings) -> dict[str, object]:
        """What the figures were measured with, and why some are not there."""
        measured = dict.fromkeys(system for system, _ in findings.runs)
        return {
            "work": self.work(),
            "rounds": rounds,
            "partitions": PARTITIONS,
            "threads": THREADS,
            "heap_mb": HEAP_MB,
            "rivals": dict(self.rivals()),
            "guarantees": {name: self.systems[name].guarantee for name in measured},
            "peers": {name: dict(self.systems[name].settings) for name in measured},
            "without_figures": findings.without_figures("threads"),
        }


class ContestPart(Part):
    """A part whose systems work through topics from their start to their end, in turn.

    Attributes:
        messages_a_ms: rate by which commits are timed: systems that commit by time do it every
            ``messages / messages_a_ms`` milliseconds.
        has_warm_up: each system works through the topics once before the rounds.
        broker: where the topics are, while it is held.
        database_pid: the first process of the database that they write to, if there is one.
    """

    messages_a_ms: ClassVar[int] = 1_000
    has_warm_up: ClassVar[bool] = True
    broker: Broker
    database_pid: int | None = None

    @abc.abstractmethod
    def fill(self, console: Console) -> None:
        """Makes the topics."""

    @property
    @abc.abstractmethod
    def messages(self) -> int:
        """In all topics that a system reads."""

    @property
    @abc.abstractmethod
    def topic(self) -> str:
        """The topic of systems that read one."""

    @property
    @abc.abstractmethod
    def expected(self) -> Mapping[str, int]:
        """The counts of an output that is right."""

    def expected_of(self, system: str) -> Mapping[str, int]:  # noqa: ARG002
        """Of a system; all have the same topics unless a part says otherwise."""
        return self.expected

    def open(self, stack: ExitStack) -> None:
        """Starts what there must be beside the broker."""

    def run(self, names: Sequence[str], rounds: int, console: Console) -> Findings:
        """Measures the systems of these names."""
        java = find_java(os.environ)
        chosen = {name: self.systems[name].prepare for name in names}
        with ExitStack() as stack:
            self.broker = stack.enter_context(opened(java, console, BROKER))
            self.open(stack)
            starts, missing = prepared(chosen, java, console)
            findings = Findings(missing=missing)
            self.fill(console)
            contest = Contest(self.setup(java), THREADS, self.measure, findings, console)
            contest.run(starts, rounds, warm_ups=int(self.has_warm_up))
        return findings

    def setup(self, java: Java) -> Setup:
        """What every system is given."""
        return setup_for(
            self.broker,
            java,
            self.benchmark,
            topic=self.topic,
            messages=self.messages,
            batch_records=self.messages // BATCHES,
            commit_every_ms=max(250, self.messages // self.messages_a_ms),
            heap_mb=HEAP_MB,
        )

    def measure(self, driver: Driver, out: Path) -> Measurement:
        """One run of one warm system, its output counted.

        Raises:
            SystemFailedError: it did not do its work.
            OutputWrongError: headrace's output is not right.
        """
        run = run_once(driver, out, self.messages, self.broker, self.database_pid)
        return Measurement(run, self.others(driver, out, run))

    def others(self, driver: Driver, out: Path, run: Run) -> dict[str, float]:  # noqa: ARG002
        """The figures of a run beside speed and CPU. Raises as :meth:`measure`."""
        system, expected = self.systems[driver.name], dict(self.expected_of(driver.name))
        counts = dict(system.counts(out))
        if driver.name.startswith(OURS) and counts != expected:
            raise OutputWrongError(f"the output has {counts}, not {expected}")
        state = {"batch_time_growth": growth(driver.commits)}
        if folders := system.state_folders(out):
            state["state_mb"] = sum(map(size, folders)) / 1e6
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
        return {**state, **counts}


def growth(commits: Sequence[tuple[float, int]]) -> float:
    """Time of a message in the last fifth of the batches, as a multiple of that in the first fifth.

    Batches that are much smaller than others say nothing. The first two commits don't either: a
    query starts before them, and who starts it hears of them when it has started.
    """
    steps = [
        (until - since, now - before)
        for (since, before), (until, now) in itertools.pairwise(commits[min(2, len(commits) - 2) :])
    ]
    usual = statistics.median(count for _, count in steps)
    whole = [seconds / count for seconds, count in steps if count and count >= usual / 2]
    fifth = max(1, len(whole) // 5)
    return statistics.mean(whole[-fifth:]) / statistics.mean(whole[:fifth])


def size(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def nulls(files: Iterable[Path], column: str) -> tuple[int, int]:
    """The rows of Parquet files with a value in a column, and those without one."""
    import polars as pl

    values = pl.concat([pl.read_parquet(file, columns=[column]) for file in files])[column]
    return len(values) - values.null_count(), values.null_count()


def distinct_ids(files: Iterable[Path]) -> dict[str, int]:
    """The rows of Parquet files, and how many event ids these have."""
    import polars as pl

    ids = pl.concat([pl.read_parquet(file, columns=["event_id"]) for file in files])["event_id"]
    return {"rows": len(ids), "distinct_ids": ids.n_unique()}
