"""From a topic of one broker to a topic of another: headrace's mirror beside MirrorMaker 2.

A loop of the client library alone shows what of the mirror's cost is the library's.

Every system copies the same topic from its start to a new topic at the other broker, twice to warm
up and then once a round, in turn; after each run the copy must hold every record once, in its
partition and in order, otherwise the system has no figures. With 1 and 2 tasks or instances.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from bench import headrace_site
from bench.cluster import WORK, Broker, fill, opened, opened_in
from bench.command import exit_code, show
from bench.driver import Driver, Open
from bench.events import impressions_topic
from bench.mirror_copies import Content, check, contents, copy_name
from bench.peers import figures, mirror_maker
from bench.peers.contest import (
    BROKER,
    HEAP_MB,
    PARTITIONS,
    Contest,
    Findings,
    prepared,
    run_once,
    setup_for,
)
from bench.peers.figures import PER_MESSAGE, Measurement, Runs
from bench.peers.java_program import locked_version
from bench.setup import Setup
from headrace.kafka.admin.topics import apply_changes, delete_topic, plan_topics
from headrace.kafka.client.clients import client_config
from headrace.runtime.java.installation import Java, find_java
from headrace.settings.model import KafkaSettings

BENCHMARK = "mirror"
TOPIC = "impressions"
MESSAGES = 1_000_000
QUICK_MESSAGES = 300_000
ROUNDS = 3
# CPU of a message still falls on a JVM's second run.
WARM_UPS = 2
THREADS = (1, 2)
RIVAL = "mirrormaker"
RATIO = f"times_{RIVAL}"
UNITS = PER_MESSAGE | {RATIO: "x"}


@dataclass(frozen=True)
class System:
    """One way to copy a topic.

    Attributes:
        prepare: fetches what it needs; what it gives starts the system. Is given the address of the
            broker to copy to. Raises JarError where something can't be had.
        guarantee: of delivery.
        settings: what is not its default.
    """

    prepare: Callable[[str, Java], Open]
    guarantee: str
    settings: Mapping[str, str]


def _headrace(target: str, _: Java) -> Open:
    return partial(headrace_site.open_mirror, target=target)


def _client_copy(target: str, _: Java) -> Open:
    return partial(headrace_site.open_client_copy, target=target)


def _mirror_maker(target: str, java: Java, *, exactly_once: bool) -> Open:
    maker = mirror_maker.prepare(java)
    start = mirror_maker.open_mirror_maker
    return partial(start, maker=maker, target=target, exactly_once=exactly_once)


_MIRROR_MAKER = mirror_maker.WORKER | mirror_maker.SETTINGS | mirror_maker.TUNING
SYSTEMS = {
    "headrace": System(_headrace, "exactly once", {}),
    "confluent-kafka": System(_client_copy, "at most once", {}),
    RIVAL: System(partial(_mirror_maker, exactly_once=False), "at least once", _MIRROR_MAKER),
    f"{RIVAL}-exactly-once": System(
        partial(_mirror_maker, exactly_once=True),
        "exactly once",
        _MIRROR_MAKER | mirror_maker.EXACTLY_ONCE_WORKER | mirror_maker.EXACTLY_ONCE,
    ),
}


@dataclass(frozen=True)
class Bench:
    """A topic of one broker, and another broker.

    Attributes:
        content: of the topic.
    """

    source: Broker
    target: Broker
    java: Java
    content: list[Content]
    console: Console

    @property
    def messages(self) -> int:
        """In the topic."""
        return sum(partition.records for partition in self.content)

    def contest(
        self, threads: int, starts: Mapping[str, Open], rounds: int, findings: Findings
    ) -> None:
        """All systems with one number of tasks or instances."""
        setup = setup_for(
            self.source,
            self.java,
            f"{BENCHMARK}-{threads}",
            topic=TOPIC,
            messages=self.messages,
            threads=threads,
            batch_records=0,
        )
        measure = partial(self._measure, setup)
        Contest(setup, threads, measure, findings, self.console).run(
            starts, rounds, warm_ups=WARM_UPS
        )

    def _measure(self, setup: Setup, driver: Driver, out: Path) -> Measurement:
        copy = copy_name(out.name, setup.topic)
        config = client_config(KafkaSettings(), self.target.bootstrap)
        apply_changes(config, plan_topics([impressions_topic(copy, PARTITIONS)], {}))
        driver.only_looks = True
        measured = run_once(driver, out, setup.messages, self.target)
        check(contents(self.target.bootstrap, copy, PARTITIONS), self.content)
        delete_topic(config, copy)
        return Measurement(measured)


def run(
    systems: Sequence[str], threads: Sequence[int], messages: int, rounds: int, console: Console
) -> Findings:
    """The whole benchmark."""
    java = find_java(os.environ)
    with ExitStack() as stack:
        source = stack.enter_context(opened(java, console, BROKER))
        target = stack.enter_context(opened_in(WORK / "target", java, BROKER))
        chosen = {name: partial(SYSTEMS[name].prepare, target.bootstrap) for name in systems}
        starts, missing = prepared(chosen, java, console)
        findings = Findings(missing=missing)
        fill(source, TOPIC, PARTITIONS, messages, console)
        content = contents(source.bootstrap, TOPIC, PARTITIONS)
        bench = Bench(source, target, java, content, console)
        for number in threads:
            bench.contest(number, starts, rounds, findings)
    return findings


def with_ratios(runs: Runs) -> Runs:
    """The runs, with their speed as a multiple of the rival's in the same round, if it has one."""
    rounds = {
        key: list(zip(found, runs[rival], strict=True))
        for key, found in runs.items()
        if (rival := (RIVAL, key[1])) in runs and key != rival
    }
    speed = "messages_per_second"
    compared = {
        key: [{**ours, RATIO: ours[speed] / theirs[speed]} for ours, theirs in pairs]
        for key, pairs in rounds.items()
    }
    return {**runs, **compared}


def settings(messages: int, rounds: int, findings: Findings) -> dict[str, object]:
    """What the figures were measured with, and why some are not there."""
    measured = dict.fromkeys(system for system, _ in findings.runs)
    return {
        "work": f"{messages:,} records a run",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "heap_mb": HEAP_MB,
        "rivals": {"MirrorMaker": locked_version("mirror-maker", "connect-mirror")},
        "guarantees": {name: SYSTEMS[name].guarantee for name in measured},
        "peers": {name: dict(SYSTEMS[name].settings) for name in measured},
        "without_figures": findings.without_figures("threads"),
    }


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.mirror", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"default {MESSAGES:,}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--threads", nargs="+", type=int, default=list(THREADS))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_MESSAGES:,} records, one round, nothing kept: does it still run?",
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    messages, rounds = (QUICK_MESSAGES, 1) if chosen.quick else (chosen.messages, chosen.rounds)

    def work(console: Console) -> int:
        findings = run(chosen.systems, chosen.threads, messages, rounds, console)
        measured = figures.rows(BENCHMARK, "threads", UNITS, with_ratios(findings.runs))
        told = None if chosen.quick else settings(messages, rounds, findings)
        show(console, BENCHMARK, measured, told, findings.failed)
        return 1 if findings.failed or not findings.runs else 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
