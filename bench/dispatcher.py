"""From a record that is produced at the central site to one that is readable at another one.

Two brokers stand for the sites. A project with one dispatcher runs as `headrace dispatcher run`
does; records are produced at a steady rate, and a consumer at the target notes when each is there.
Both ways of Spark are measured, one after the other: real-time mode, and micro-batches. The target
must hold every record once, in order; otherwise there are no figures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.cluster import WORK, Broker, opened_in
from bench.command import exit_code, show
from bench.events import impressions_topic
from bench.latency import await_start
from bench.live_traffic import PARTITIONS, Arrivals, Traffic, quantile
from bench.peers.programs import check_running, end, started
from bench.results import Row, row
from headrace import DispatchMode
from headrace.kafka.admin.topics import apply_changes, plan_topics
from headrace.kafka.client.clients import client_config
from headrace.runtime.java.installation import find_java
from headrace.runtime.process_tree import Watch
from headrace.settings.model import KafkaSettings

BENCHMARK = "dispatcher"
SYSTEMS = {
    "headrace-real-time": DispatchMode.REAL_TIME,
    "headrace-micro-batch": DispatchMode.MICRO_BATCH,
}
SECONDS = {"headrace-real-time": 600, "headrace-micro-batch": 300}
QUICK_SECONDS = 20
RATE = 1_000
WARM_UP_SECONDS = 30
UNITS = {
    "p50_ms": "ms",
    "p99_ms": "ms",
    "p99.9_ms": "ms",
    "max_ms": "ms",
    "cpu_us_per_message": "us",
    "peak_memory_mb": "MB",
}


@dataclass(frozen=True)
class Sites:
    """The brokers of the central site and of the other one."""

    center: Broker
    target: Broker


def measure(sites: Sites, system: str, seconds: float, out: Path) -> dict[str, float]:
    """One system: figures by metric."""
    source, target = f"{out.name}.clicks", f"{out.name}.elsewhere"
    for broker, topic in ((sites.center, source), (sites.target, target)):
        config = client_config(KafkaSettings(), broker.bootstrap)
        apply_changes(config, plan_topics([impressions_topic(topic, PARTITIONS)], {}))
    out.mkdir(parents=True)
    for name, text in project(sites, system, source, target).items():
        (out / name).write_text(text)
    command = (sys.executable, "-m", "headrace.cli", "dispatcher", "run", "dispatch")
    instance = started(command, folder=out)
    traffic, arrivals = Traffic(sites.center, source, RATE), Arrivals(sites.target, target)
    try:
        with traffic.sending():
            await_start(lambda: bool(arrivals.take(1.0)), [instance], "nothing was dispatched")
            arrivals.take(WARM_UP_SECONDS)
            before = arrivals.count
            with Watch(instance.pid) as watch:
                taken = arrivals.take(seconds)
            messages = arrivals.count - before
        arrivals.take_rest(traffic)
        check_running(instance)
    finally:
        end(instance)
        arrivals.close()
    ordered = sorted(arrival.lag_ms for arrival in taken)
    return {
        "p50_ms": quantile(ordered, 0.5),
        "p99_ms": quantile(ordered, 0.99),
        "p99.9_ms": quantile(ordered, 0.999),
        "max_ms": ordered[-1],
        "cpu_us_per_message": watch.usage.cpu_seconds * 1e6 / messages,
        "peak_memory_mb": watch.usage.peak_memory_mb,
    }


def project(sites: Sites, system: str, source: str, target: str) -> Mapping[str, str]:
    """The files of a project with one dispatcher, by name."""
    return {
        "headrace.toml": (
            '[project]\nname = "bench"\nsite = "central"\nmodules = ["flow"]\n\n'
            f'[kafka]\nbootstrap_servers = "{sites.center.bootstrap}"\n\n'
            f'[sites.other.kafka]\nbootstrap_servers = "{sites.target.bootstrap}"\n'
        ),
        "flow.py": (
            '"""The dispatcher of a run."""\n\n'
            "from headrace import Dispatcher, DispatchMode, Topic\n\n"
            f'source = Topic("{source}", partitions={PARTITIONS})\n'
            f'dispatch = Dispatcher("dispatch", source, targets={{"other": "{target}"}}, '
            f"mode=DispatchMode.{SYSTEMS[system].name})\n"
        ),
    }


def run(seconds: Mapping[str, int], console: Console) -> list[Row]:
    """The whole benchmark."""
    java = find_java(os.environ)
    shutil.rmtree(WORK, ignore_errors=True)
    measured: list[Row] = []
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, WORK, ignore_errors=True)
        folders = [WORK / site for site in ("center", "target")]
        brokers = [stack.enter_context(opened_in(folder, java)) for folder in folders]
        sites = Sites(*brokers)
        for system in SYSTEMS:
            console.print(f"{system}: {seconds[system]} s at {RATE:,} records/s")
            figures = measure(sites, system, seconds[system], WORK / system)
            console.print(", ".join(f"{name} {value:,.4g}" for name, value in figures.items()))
            measured += [
                row(BENCHMARK, system, name, unit, [figures[name]]) for name, unit in UNITS.items()
            ]
    return measured


def settings(seconds: Mapping[str, int]) -> dict[str, object]:
    """What the figures were measured with."""
    each = ", ".join(f"{system} {length} s" for system, length in seconds.items())
    return {"work": f"{RATE:,} records/s; {each}", "rounds": 1, "partitions": PARTITIONS}


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    parser = argparse.ArgumentParser(prog="python -m bench.dispatcher", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_SECONDS} s of each, nothing kept"
    )
    chosen = parser.parse_args(given)
    seconds = dict.fromkeys(SYSTEMS, QUICK_SECONDS) if chosen.quick else SECONDS

    def work(console: Console) -> int:
        show(console, BENCHMARK, run(seconds, console), None if chosen.quick else settings(seconds))
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
