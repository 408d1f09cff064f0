"""Two sorted topics into one: headrace's merger.

It merges the same topics from their start into a new topic, twice to warm up and then once a round;
after each run the new topic must hold every record once, in order, otherwise there are no figures.
With 1 and 2 instances.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from bench.cluster import Broker, opened
from bench.command import exit_code, show
from bench.driver import Driver
from bench.events import events, impressions_topic
from bench.headrace_site import late_topic, open_merger, sources
from bench.mirror_copies import Content, check, contents, copy_name
from bench.peers import figures
from bench.peers.contest import BROKER, PARTITIONS, Contest, Findings, run_once, setup_for
from bench.peers.figures import PER_MESSAGE, Measurement
from bench.setup import Setup
from headrace.kafka.admin.topics import apply_changes, delete_topic, plan_topics
from headrace.kafka.client.clients import client_config, producer
from headrace.model import Topic
from headrace.runtime.java.installation import Java, find_java
from headrace.settings.model import KafkaSettings

BENCHMARK = "merger"
TOPIC = "clicks"
MESSAGES = 2_000_000
QUICK_MESSAGES = 300_000
ROUNDS = 3
WARM_UPS = 2
THREADS = (1, 2)
SYSTEM = "headrace"
GUARANTEE = "exactly once"
PER_MILLISECOND = 2
_SINCE_MS = 3_600_000


@dataclass(frozen=True)
class Bench:
    """Two topics of one broker.

    Attributes:
        content: of the topic that they are to become.
    """

    broker: Broker
    java: Java
    content: list[Content]
    console: Console

    def contest(self, threads: int, rounds: int, findings: Findings) -> None:
        """The merger with one number of instances."""
        setup = setup_for(
            self.broker,
            self.java,
            f"{BENCHMARK}-{threads}",
            topic=TOPIC,
            messages=sum(partition.records for partition in self.content),
            threads=threads,
            batch_records=0,
        )
        measure = partial(self._measure, setup)
        Contest(setup, threads, measure, findings, self.console).run(
            {SYSTEM: open_merger}, rounds, warm_ups=WARM_UPS
        )

    def _measure(self, setup: Setup, driver: Driver, out: Path) -> Measurement:
        target = copy_name(out.name, setup.topic)
        names = (target, late_topic(target))
        config = make_topics(self.broker, names)
        driver.only_looks = True
        measured = run_once(driver, out, setup.messages, self.broker)
        check(contents(self.broker.bootstrap, target, PARTITIONS), self.content)
        for name in names:
            delete_topic(config, name)
        return Measurement(measured)


def make_topics(broker: Broker, names: Iterable[str]) -> dict[str, str]:
    """Makes topics; returns what a client is told of the broker."""
    config = client_config(KafkaSettings(), broker.bootstrap)
    topics: list[Topic] = [impressions_topic(name, PARTITIONS) for name in names]
    apply_changes(config, plan_topics(topics, {}))
    return config


def fill(broker: Broker, messages: int) -> list[Content]:
    """Fills the topics in turn; returns what they are merged into, by partition.

    Records of both topics have the same times, and follow one another in the same partition.
    """
    config = make_topics(broker, sources(TOPIC))
    sender, merged = producer(config), [Content() for _ in range(PARTITIONS)]
    began_ms = int(time.time() * 1000) - _SINCE_MS
    places = itertools.cycle(sources(TOPIC))
    for number, (topic, value) in enumerate(zip(places, events(messages), strict=False)):
        time_ms, partition = began_ms + number // PER_MILLISECOND, number // 2 % PARTITIONS
        merged[partition].add(time_ms, value)
        while True:
            try:
                sender.produce(topic, value, partition=partition, timestamp=time_ms)
                break
            except BufferError:
                sender.poll(0.1)
    if sender.flush(60):
        raise RuntimeError("the broker does not take the records")
    return merged


def run(threads: Sequence[int], messages: int, rounds: int, console: Console) -> Findings:
    """The whole benchmark."""
    java = find_java(os.environ)
    with ExitStack() as stack:
        broker = stack.enter_context(opened(java, console, BROKER))
        bench = Bench(broker, java, fill(broker, messages), console)
        findings = Findings()
        for number in threads:
            bench.contest(number, rounds, findings)
    return findings


def settings(messages: int, rounds: int, findings: Findings) -> dict[str, object]:
    """What the figures were measured with, and why some are not there."""
    return {
        "work": f"{messages:,} records a run, half of each topic",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "guarantees": {SYSTEM: GUARANTEE},
        "without_figures": findings.without_figures("threads"),
    }


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.merger", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"default {MESSAGES:,}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--threads", nargs="+", type=int, default=list(THREADS))
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
        findings = run(chosen.threads, messages, rounds, console)
        measured = figures.rows(BENCHMARK, "threads", PER_MESSAGE, findings.runs)
        told = None if chosen.quick else settings(messages, rounds, findings)
        show(console, BENCHMARK, measured, told, findings.failed)
        return 1 if findings.failed or not findings.runs else 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
