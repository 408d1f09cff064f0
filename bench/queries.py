"""Standing queries: events matched with 1 to 1,000,000 registered queries, from Kafka to Kafka.

Every benchmark matches the same topic from its start to its end with queries of its own, once a
round, in turn, each in a new process: queries are read in the first batch, and speed is measured
behind it. With 100, 1,000 and 10,000 queries, Flink (with and without an index of rules) and
OpenSearch match the same events with the same queries in turn with headrace. After each run the
matches of each query must be as many as the events were made to have, otherwise the run has no
figures.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.progress import Progress

from bench.cluster import Broker, Placed, fill_with, make_topic, opened, records_in, send
from bench.command import exit_code, in_turn, show
from bench.driver import Driver, OutputWrongError
from bench.match_rules import encode_rule, rule_of
from bench.match_systems import (
    COMPARED,
    FLINK,
    FLINK_INDEXED,
    OPENSEARCH,
    OURS,
    SYSTEMS,
    standing_queries,
    systems_of,
)
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
from bench.peers.java_program import locked_version
from bench.peers.match_topics import rules_topic
from bench.query_traffic import AdImpressions, QueryMix, ad_impressions_topic
from headrace.kafka.client.clients import ClientConfig, client_config
from headrace.queries.registry.record import encode_query
from headrace.queries.topics import ensure_query_topics
from headrace.runtime.java.installation import Java, find_java
from headrace.settings.model import KafkaSettings

TOPIC = "ad-impressions"
MESSAGES = 2_000_000
QUICK_MESSAGES = 200_000
QUICK_QUERIES = 10_000
ROUNDS = 3
BATCHES = 4
HEAP_MB = 1024
# Of systems that commit by time: about as often as a batch of headrace ends.
MESSAGES_A_MS = 2_000
MIN_COMMIT_MS = 250
RIVALS = (FLINK, FLINK_INDEXED, OPENSEARCH)
VERSIONS = {
    **dict.fromkeys((FLINK, FLINK_INDEXED), locked_version("flink", "flink-clients")),
    OPENSEARCH: locked_version("opensearch", "opensearch"),
}
MIXES = {
    "match-1": QueryMix(1),
    "match-100": QueryMix(100),
    "match-1000": QueryMix(1_000),
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
Rounds: TypeAlias = Sequence[Mapping[str, float]]
UNITS = PER_MESSAGE | {
    "peak_worker_memory_mb": "MB",
    "first_batch_seconds": "s",
    "times_100_queries": "x",
    "times_10000_queries": "x",
    **{f"times_{rival}": "x" for rival in RIVALS},
    "matches": "matches",
}


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
        """One round of a benchmark, begun by another system than the round before.

        One that has failed before is left out.
        """
        part = [
            name
            for name in systems_of(benchmark)
            if name in systems and (name, THREADS) not in findings.failed
        ]
        first = number % max(1, len(part))
        chosen = {
            name: partial(SYSTEMS[name].prepare, benchmark)
            for name in (*part[first:], *part[:first])
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
            commit_every_ms=max(MIN_COMMIT_MS, self.traffic.count // MESSAGES_A_MS),
            heap_mb=HEAP_MB,
        )
        measure = partial(self._measure, benchmark)
        contest = Contest(setup, THREADS, measure, findings, self.console)
        contest.run(starts, 1, warm_ups=0)

    def _register(self, benchmark: str) -> None:
        queries, mix = standing_queries(benchmark), MIXES[benchmark]
        ensure_query_topics(self.config, queries)
        registered = map(encode_query, mix.queries(TOPIC))
        self._send(queries.queries_topic, ((0, key, value) for key, value in registered), mix.count)
        if benchmark in COMPARED:
            topic = rules_topic(benchmark)
            make_topic(self.broker, topic)
            rules = map(rule_of, mix.queries(TOPIC))
            self._send(topic.name, ((0, None, encode_rule(rule)) for rule in rules), mix.count)

    def _send(self, topic: str, records: Iterable[Placed], count: int) -> None:
        with Progress(console=self.console, transient=True) as progress:
            task = progress.add_task(f"{count:,} queries into topic {topic}", total=count)
            send(self.config, topic, records, lambda sent: progress.update(task, completed=sent))
        if (held := records_in(self.broker, topic, 1)) != count:
            raise RuntimeError(f"{count} queries were sent, topic {topic} holds {held}")

    def _measure(self, benchmark: str, driver: Driver, out: Path) -> Measurement:
        matches_of_run = SYSTEMS[driver.name].matches(self.broker, benchmark, out.name)
        os.sync()
        began = time.monotonic()
        run = run_once(driver, out, self.traffic.count, self.broker)
        matches = matches_of_run()
        check(matches, MIXES[benchmark].matches(self.traffic.matching))
        others = {
            "first_batch_seconds": driver.commits[0][0] - began,
            "matches": float(matches.total()),
        }
        if run.usage.peak_worker_memory_mb:
            others["peak_worker_memory_mb"] = run.usage.peak_worker_memory_mb
        return Measurement(run, others)


def check(matches: Counter[str], expected: Counter[str]) -> None:
    """Raises OutputWrongError unless as many events matched each query as were made to."""
    if wrong := [query for query in matches | expected if matches[query] != expected[query]]:
        raise OutputWrongError(
            f"{matches.total()} matches, not {expected.total()}; {len(wrong)} queries have others "
            f"than the events were made to have, {wrong[0]} has {matches[wrong[0]]} instead of "
            f"{expected[wrong[0]]}"
        )


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
    """The runs of a benchmark, with their speed as a multiple of others' in the same round.

    Of the same system with another number of queries, and, of headrace, of each rival.
    """
    runs: dict[tuple[str, int], Rounds] = dict(findings[benchmark].runs)
    if (base := BASES.get(benchmark, "")) in findings:
        ratio = f"times_{MIXES[base].count}_queries"
        runs = {
            key: _compared(ratio, rounds, findings[base].runs.get(key))
            for key, rounds in runs.items()
        }
    for rival in RIVALS:
        if (ours := runs.get((OURS, THREADS))) is not None:
            runs[OURS, THREADS] = _compared(f"times_{rival}", ours, runs.get((rival, THREADS)))
    return runs


def _compared(ratio: str, runs: Rounds, bases: Rounds | None) -> Rounds:
    if bases is None:
        return runs
    speed = "messages_per_second"
    return [
        {**ours, ratio: ours[speed] / theirs[speed]}
        for ours, theirs in zip(runs, bases, strict=True)
    ]


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
        "rivals": {name: VERSIONS[name] for name in measured if name in VERSIONS},
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
