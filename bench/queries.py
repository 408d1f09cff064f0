"""Standing queries: events matched with 1 to 1,000,000 registered queries, from Kafka to Kafka.

Every benchmark matches the same topic from its start to its end with queries of its own, once a
round, in turn, each in a new process: queries are read in the first batch, and speed is measured
behind it. After each run the matches in the matched topic must be those that the events were made
to have, otherwise the run has no figures.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from bench.cluster import Broker, fill_with, opened, records_in, send
from bench.command import exit_code, in_turn, show
from bench.driver import Driver, Open, OutputWrongError
from bench.headrace_match import ends, matches_since, open_match
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
from bench.peers.figures import PER_MESSAGE, Measurement, Runs
from bench.query_traffic import TTL, AdImpressions, QueryMix, ad_impressions_topic
from headrace import StandingQueries
from headrace.kafka.client import ClientConfig, client_config
from headrace.queries.registry.record import encode_query
from headrace.queries.topics import ensure_query_topics
from headrace.runtime.java import Java, find_java
from headrace.settings.model import KafkaSettings

TOPIC = "ad-impressions"
MESSAGES = 2_000_000
QUICK_MESSAGES = 200_000
QUICK_QUERIES = 10_000
ROUNDS = 3
BATCHES = 10
HEAP_MB = 1024
MIXES = {
    "match-1": QueryMix(1),
    "match-100": QueryMix(100),
    "match-10000": QueryMix(10_000),
    "match-100000": QueryMix(100_000),
    "match-1000000": QueryMix(1_000_000),
    "match-unselective": QueryMix(10_000, unselective=0.3),
    "match-skewed": QueryMix(10_000, hot=0.015),
}
BASES = {name: "match-100" for name in MIXES if name != "match-100"} | {
    "match-unselective": "match-10000",
    "match-skewed": "match-10000",
}
"""What the speed of each is compared with, in the same round."""
UNITS = PER_MESSAGE | {
    "peak_worker_memory_mb": "MB",
    "first_batch_seconds": "s",
    "times_100_queries": "x",
    "times_10000_queries": "x",
    "matches": "matches",
}


@dataclass(frozen=True)
class System:
    """One way to match events with queries.

    Attributes:
        prepare: fetches what it needs; what it gives starts the system. Raises PeerMissingError or
            JarError where something can't be had.
        guarantee: of delivery.
        settings: what is not its default.
    """

    prepare: Callable[[StandingQueries, Java], Open]
    guarantee: str
    settings: Mapping[str, str] = field(default_factory=dict)


def _headrace(queries: StandingQueries, _: Java) -> Open:
    return partial(open_match, queries=queries)


SYSTEMS = {"headrace": System(_headrace, "exactly once")}


def standing_queries(benchmark: str) -> StandingQueries:
    """As a project would declare them."""
    return StandingQueries(benchmark, partitions=PARTITIONS, max_ttl=TTL)


@dataclass(frozen=True)
class Bench:
    """A topic of events, and registered queries for each benchmark."""

    broker: Broker
    java: Java
    traffic: AdImpressions
    console: Console

    @property
    def config(self) -> ClientConfig:
        """What a client is told of the broker."""
        return client_config(KafkaSettings(), self.broker.bootstrap)

    def fill(self, benchmarks: Sequence[str]) -> None:
        """Makes the events and registers the queries."""
        topic, count = ad_impressions_topic(TOPIC, PARTITIONS), self.traffic.count
        fill_with(self.broker, topic, self.traffic.values(), count, self.console)
        for benchmark in benchmarks:
            self._register(benchmark)

    def contest(
        self, benchmark: str, number: int, systems: Sequence[str], findings: Findings
    ) -> None:
        """One round of a benchmark."""
        chosen = {
            name: partial(SYSTEMS[name].prepare, standing_queries(benchmark)) for name in systems
        }
        starts, missing = prepared(chosen, self.java, self.console)
        findings.missing |= missing
        setup = setup_for(
            self.broker,
            self.java,
            f"{benchmark}-{number + 1}",
            topic=TOPIC,
            messages=self.traffic.count,
            batch_records=self.traffic.count // BATCHES,
            heap_mb=HEAP_MB,
        )
        measure = partial(self._measure, benchmark)
        contest = Contest(setup, THREADS, measure, findings, self.console)
        contest.run(starts, 1, warm_ups=0)

    def _register(self, benchmark: str) -> None:
        queries, mix = standing_queries(benchmark), MIXES[benchmark]
        ensure_query_topics(self.config, queries)
        encoded = map(encode_query, mix.queries(TOPIC))
        records = ((0, key, value) for key, value in encoded)
        with Progress(console=self.console, transient=True) as progress:
            task = progress.add_task(f"{mix.count:,} queries", total=mix.count)
            send(
                self.config,
                queries.queries_topic,
                records,
                lambda sent: progress.update(task, completed=sent),
            )
        if (held := records_in(self.broker, queries.queries_topic, 1)) != mix.count:
            raise RuntimeError(f"{mix.count} queries were sent, the topic holds {held}")

    def _measure(self, benchmark: str, driver: Driver, out: Path) -> Measurement:
        queries, begins = (
            standing_queries(benchmark),
            ends(self.config, standing_queries(benchmark)),
        )
        os.sync()
        began = time.monotonic()
        run = run_once(driver, out, self.traffic.count, self.broker)
        matches = matches_since(self.config, queries, begins)
        if matches != (expected := MIXES[benchmark].matches(self.traffic.matching)):
            raise OutputWrongError(f"the matched topic has {matches} matches, not {expected}")
        others = {
            "peak_worker_memory_mb": run.usage.peak_worker_memory_mb,
            "first_batch_seconds": driver.commits[0][0] - began,
            "matches": matches,
        }
        return Measurement(run, others)


def run(
    benchmarks: Sequence[str],
    systems: Sequence[str],
    messages: int,
    rounds: int,
    console: Console,
) -> dict[str, Findings]:
    """All benchmarks, in turn; what was measured, by name."""
    java = find_java(os.environ)
    findings = {benchmark: Findings() for benchmark in benchmarks}
    with opened(java, console, BROKER) as broker:
        bench = Bench(broker, java, AdImpressions(messages), console)
        bench.fill(benchmarks)
        for number, benchmark in in_turn(benchmarks, rounds):
            bench.contest(benchmark, number, systems, findings[benchmark])
    return findings


def with_ratios(benchmark: str, findings: Mapping[str, Findings]) -> Runs:
    """The runs of a benchmark, with their speed as a multiple of its base's in the same round."""
    runs, base = findings[benchmark].runs, BASES.get(benchmark)
    if base is None or base not in findings:
        return runs
    ratio = f"times_{MIXES[base].count}_queries"
    speed = "messages_per_second"
    return {
        key: [
            {**ours, ratio: ours[speed] / theirs[speed]}
            for ours, theirs in zip(rounds, findings[base].runs[key], strict=True)
        ]
        if key in findings[base].runs
        else rounds
        for key, rounds in runs.items()
    }


def settings(benchmark: str, messages: int, rounds: int, findings: Findings) -> dict[str, object]:
    """What the figures were measured with, and why some are not there."""
    measured = dict.fromkeys(system for system, _ in findings.runs)
    return {
        "work": f"{messages:,} events and {MIXES[benchmark].count:,} queries",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "threads": THREADS,
        "batch_records": messages // BATCHES,
        "heap_mb": HEAP_MB,
        "rivals": {},
        "guarantees": {name: SYSTEMS[name].guarantee for name in measured},
        "peers": {name: dict(SYSTEMS[name].settings) for name in measured},
        "without_figures": findings.without_figures("threads"),
    }


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.queries", description=__doc__)
    parser.add_argument("benchmarks", nargs="*", metavar="benchmark", help=", ".join(MIXES))
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"default {MESSAGES:,}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_MESSAGES:,} events, one round, at most {QUICK_QUERIES:,} queries unless a "
        "benchmark is named, nothing kept: does it still run?",
    )
    chosen = parser.parse_args(given)
    if unknown := set(chosen.benchmarks) - MIXES.keys():
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}: {', '.join(MIXES)}")
    return chosen


def main(given: Sequence[str]) -> int:
    """Runs, shows a table for each benchmark, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    messages, rounds = (QUICK_MESSAGES, 1) if chosen.quick else (chosen.messages, chosen.rounds)
    limit = QUICK_QUERIES if chosen.quick else max(mix.count for mix in MIXES.values())
    every = [name for name, mix in MIXES.items() if mix.count <= limit]

    def work(console: Console) -> int:
        findings = run(chosen.benchmarks or every, chosen.systems, messages, rounds, console)
        for name, measured in findings.items():
            rows = figures.rows(name, "threads", UNITS, with_ratios(name, findings))
            kept = None if chosen.quick else settings(name, messages, rounds, measured)
            show(console, name, rows, kept, measured.failed)
        is_whole = all(measured.runs and not measured.failed for measured in findings.values())
        return 0 if is_whole else 1

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
