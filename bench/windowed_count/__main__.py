"""One windowed count by key: headrace's standing query beside Spark and Quix Streams.

Every system counts the same topic from its start to its end by advertiser and minute, into a topic
of its run, once to warm up and then once a round, in turn. After each run that topic must have the
right count of each advertiser and minute, once, otherwise the system has no figures.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from bench.cluster import fill_placed, make_topic
from bench.command import exit_code, show
from bench.driver import Driver, Open, OutputWrongError
from bench.flow.part import OURS, ContestPart, System
from bench.peers.contest import PARTITIONS, Findings
from bench.peers.figures import UNITS, Measurement, Run
from bench.peers.record.python_programs import quix_python, quix_version
from bench.query_traffic import ad_impressions_topic
from bench.results import Row
from bench.windowed_count import headrace_count, quix_count, spark_count, traffic
from bench.windowed_count.counts import compared, counts_topic, decode_counted
from headrace.kafka.client.clients import ClientConfig, client_config
from headrace.runtime.java.installation import Java
from headrace.settings.model import KafkaSettings

SPEED = "messages_per_second"
PEERS = ("plain-spark", "quix-streams")
RATIOS = {peer: f"times_{peer.replace('-', '_')}" for peer in PEERS}


class CountMeasurement(Measurement):
    """A run, with its figures by million events, and others by metric."""

    def figures(self) -> dict[str, float]:
        """By metric."""
        return {**self.run.figures(), **self.others}


class WindowedCount(ContestPart):
    """One topic, counted by advertiser and minute."""

    benchmark = "windowed-count"
    topic = "ad-impressions"
    units: ClassVar[Mapping[str, str]] = {
        **UNITS,
        "whole_run_messages_per_second": "messages/s",
        "results": "results",
        **dict.fromkeys(RATIOS.values(), "x"),
    }

    @property
    def systems(self) -> Mapping[str, System]:
        """headrace, and the windows of the others."""
        results = len(self.counts)
        return {
            OURS: System(
                lambda _: partial(headrace_count.open_counts, results=results),
                "exactly once",
                self._headrace_results,
            ),
            "plain-spark": System(
                lambda _: partial(spark_count.open_counts, results=results),
                "at least once",
                self._peer_results,
                spark_count.SETTINGS,
            ),
            "quix-streams": System(
                self._quix, "at least once", self._peer_results, quix_count.SETTINGS
            ),
        }

    def _quix(self, _: Java) -> Open:
        return partial(quix_count.open_counts, python=quix_python(), results=len(self.counts))

    @cached_property
    def counts(self) -> traffic.Counts:
        """The right ones."""
        return traffic.counts(self.events)

    def fill(self, console: Console) -> None:
        """Makes the topic."""
        topic = ad_impressions_topic(self.topic, PARTITIONS)
        records = traffic.records(self.events, PARTITIONS)
        fill_placed(self.broker, topic, records, self.messages, console)

    @property
    def messages(self) -> int:
        """Of the topic."""
        return self.events

    @property
    def expected(self) -> Mapping[str, int]:
        """Each count once."""
        return dict.fromkeys(("results", "right_results"), len(self.counts))

    def measure(self, driver: Driver, out: Path) -> Measurement:
        """As every part does, into a topic of the run."""
        self._prepare(driver.name, out.name)
        os.sync()
        began = time.monotonic()
        measured = super().measure(driver, out)
        seconds = driver.commits[-1][0] - began
        whole_run = {"whole_run_messages_per_second": self.messages / seconds}
        return CountMeasurement(measured.run, {**measured.others, **whole_run})

    def others(self, driver: Driver, out: Path, run: Run) -> dict[str, float]:  # noqa: ARG002
        """How many results there are.

        Raises:
            OutputWrongError: they are not the right ones, whoever has written them.
        """
        counts = dict(self.systems[driver.name].counts(out))
        if counts != self.expected:
            raise OutputWrongError(f"the output has {counts}, not {dict(self.expected)}")
        return {"results": counts["results"]}

    def rows(self, findings: Findings) -> list[Row]:
        """A row a system and metric, with headrace's speed as a multiple of the others'."""
        return super().rows(replace(findings, runs=with_ratios(findings.runs)))

    def work(self) -> str:
        """What there is to do."""
        return f"{self.events:,} events, {len(self.counts):,} counts of an advertiser and minute"

    def rivals(self) -> Mapping[str, str]:
        """Quix Streams."""
        return {"quixstreams": quix_version()}

    @property
    def _config(self) -> ClientConfig:
        return client_config(KafkaSettings(), self.broker.bootstrap)

    def _prepare(self, system: str, run: str) -> None:
        if system == OURS:
            queries = headrace_count.standing_queries(run, PARTITIONS)
            headrace_count.register(self._config, queries, self.topic)
        else:
            make_topic(self.broker, counts_topic(run, PARTITIONS))

    def _headrace_results(self, out: Path) -> Mapping[str, int]:
        topic = headrace_count.standing_queries(out.name, PARTITIONS).results_topic
        return compared(self._config, topic, headrace_count.decode_count, self.counts)

    def _peer_results(self, out: Path) -> Mapping[str, int]:
        return compared(self._config, out.name, decode_counted, self.counts)


def with_ratios(
    runs: Mapping[tuple[str, int], Sequence[Mapping[str, float]]],
) -> dict[tuple[str, int], list[dict[str, float]]]:
    """The runs, those of headrace with its speed as a multiple of each peer's in the same round."""
    found = {key: [dict(run) for run in rounds] for key, rounds in runs.items()}
    for (system, size), rounds in found.items():
        for peer, ratio in RATIOS.items():
            if system == OURS and (theirs := found.get((peer, size))):
                for ours, their in zip(rounds, theirs, strict=True):
                    ours[ratio] = ours[SPEED] / their[SPEED]
    return found


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    systems = (OURS, *PEERS)
    part = WindowedCount
    parser = argparse.ArgumentParser(prog="python -m bench.windowed_count", description=__doc__)
    parser.add_argument("--events", type=int, default=part.count, help=f"default {part.count:,}")
    parser.add_argument("--rounds", type=int, default=part.rounds, help=f"default {part.rounds}")
    parser.add_argument(
        "--systems", nargs="+", choices=systems, default=list(systems), help="default: all of them"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{part.quick_count:,} events, one round, nothing kept: does it still run?",
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    rounds = 1 if chosen.quick else chosen.rounds
    part = WindowedCount(WindowedCount.quick_count if chosen.quick else chosen.events)

    def work(console: Console) -> int:
        findings = part.run(list(dict.fromkeys(chosen.systems)), rounds, console)
        settings = None if chosen.quick else part.settings(rounds, findings)
        show(console, part.benchmark, part.rows(findings), settings, findings.failed)
        return 0 if findings.runs and not findings.failed else 1

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
