"""HTTP in, Kafka out: headrace's ingest beside services on Node, FastAPI and Go.

All run at once and idle, on one broker; each is measured once a round, in turn, with 1, 100 and
1,000 events a request. What a service acknowledged must be in the topic, no more and no less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.cluster import Broker
from bench.cluster import opened as opened_broker
from bench.command import exit_code, in_turn, show
from bench.driver import OutputWrongError, SystemFailedError
from bench.ingest.services import (
    NODE,
    PARTITIONS,
    PATH,
    SEGMENTS,
    SERVICES,
    TOPIC,
    WORKERS,
    Running,
    build,
    running,
)
from bench.results import Row, row
from headrace.kafka.admin.topics import ensure_topics
from headrace.kafka.client.clients import client_config
from headrace.kafka.client.offsets import watermarks
from headrace.model import Topic, TopicPartition
from headrace.runtime.java.installation import find_java
from headrace.runtime.process_tree import Usage, Watch, processes
from headrace.settings.model import KafkaSettings

OURS = "headrace"
SHAPES = {1: 512, 100: 64, 1000: 16}
"""Connections by events in a request: enough that a service is never short of work."""
SECONDS = 8.0
WARM_UP_SECONDS = 3.0
QUICK_SECONDS = 2.0
ROUNDS = 3
BUILT = Path(__file__).resolve().parents[1] / ".built"

UNITS = {
    "events_per_second": "events/s",
    "requests_per_second": "requests/s",
    "p50_ms": "ms",
    "p99_ms": "ms",
    "cpu_seconds_per_million": "CPU s / million events",
    "events_per_core_second": "events / CPU s",
    "broker_cpu_seconds_per_million": "CPU s / million events",
    "load_cpu_seconds_per_million": "CPU s / million events",
    "peak_memory_mb": "MB",
}


@dataclass(frozen=True)
class Run:
    """What the load generator saw, and what the service and the broker used for it."""

    load: Mapping[str, float]
    usage: Usage
    broker_cpu_seconds: float

    def figures(self) -> dict[str, float]:
        """By metric."""
        millions = self.load["Events"] / 1e6
        return {
            "events_per_second": self.load["Events"] / self.load["Seconds"],
            "requests_per_second": self.load["Requests"] / self.load["Seconds"],
            "p50_ms": self.load["P50"],
            "p99_ms": self.load["P99"],
            "cpu_seconds_per_million": self.usage.cpu_seconds / millions,
            "events_per_core_second": self.load["Events"] / self.usage.cpu_seconds,
            "broker_cpu_seconds_per_million": self.broker_cpu_seconds / millions,
            "load_cpu_seconds_per_million": self.load["CPUSeconds"] / millions,
            "peak_memory_mb": self.usage.peak_memory_mb,
        }


@dataclass(frozen=True)
class Bench:
    """One topic on one broker, and the services that write to it in turn."""

    broker: Broker
    services: Mapping[str, Running]

    def measure(self, name: str, events: int, seconds: float) -> Run:
        """One run of one service, checked."""
        service, before = self.services[name], self._records()
        broker_before = self._broker_cpu_seconds()
        with Watch(service.pid) as watch:
            load = self._load(service, events, seconds)
        broker_cpu = self._broker_cpu_seconds() - broker_before
        stored = self._records() - before
        if stored != load["Events"]:
            raise OutputWrongError(
                f"{name} acknowledged {load['Events']} events, the topic has {stored} more"
            )
        return Run(load, watch.usage, broker_cpu)

    def _load(self, service: Running, events: int, seconds: float) -> dict[str, float]:
        arguments = {
            "address": f"127.0.0.1:{service.port}",
            "path": PATH,
            "token": service.token,
            "events": events,
            "connections": SHAPES[events],
            "seconds": seconds,
        }
        words = [f"-{name}={value}" for name, value in arguments.items()]
        done = subprocess.run(
            [str(BUILT / "load"), *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemFailedError(done.stderr.strip())
        found: dict[str, float] = json.loads(done.stdout)
        return found

    def _records(self) -> int:
        config = client_config(KafkaSettings(), self.broker.bootstrap)
        ends = watermarks(config, [TopicPartition(TOPIC, one) for one in range(PARTITIONS)])
        return sum(latest for _, latest in ends.values())

    def _broker_cpu_seconds(self) -> float:
        return processes([self.broker.pid])[self.broker.pid].cpu_seconds


@contextmanager
def opened(names: Sequence[str], console: Console) -> Iterator[Bench]:
    """The broker and every service; all gone when the block ends."""
    with ExitStack() as stack:
        build(BUILT, console.print)
        broker = stack.enter_context(opened_broker(find_java(os.environ), console))
        topic = Topic(TOPIC, partitions=PARTITIONS, config=SEGMENTS)
        ensure_topics(client_config(KafkaSettings(), broker.bootstrap), [topic])
        console.print("starting the services")
        services = {
            name: stack.enter_context(running(name, BUILT, broker.bootstrap)) for name in names
        }
        yield Bench(broker, services)


def run(
    names: Sequence[str], shapes: Sequence[int], rounds: int, seconds: float, console: Console
) -> dict[int, list[Row]]:
    """The whole benchmark: rows by events in a request."""
    found = {}
    with opened(names, console) as bench:
        for events in shapes:
            runs: dict[str, list[Run]] = {name: [] for name in names}
            for name in names:
                bench.measure(name, events, min(seconds, WARM_UP_SECONDS))
            for number, name in in_turn(names, rounds):
                measured = bench.measure(name, events, seconds)
                runs[name].append(measured)
                _say(console, f"{events} a request, round {number + 1}: {name}", measured)
            found[events] = rows(benchmark(events), runs)
    return found


def benchmark(events: int) -> str:
    """Its name in results and docs."""
    return f"ingest-{events}"


def rows(name: str, runs: Mapping[str, Sequence[Run]]) -> list[Row]:
    """A row a system and metric; our speed beside a rival's is a ratio within each round."""
    found = []
    for system, measured in runs.items():
        figures = [run.figures() for run in measured]
        found += [
            row(name, system, metric, unit, [one[metric] for one in figures])
            for metric, unit in UNITS.items()
        ]
    for rival, measured in runs.items():
        if rival != OURS and OURS in runs:
            speed = "events_per_second"
            ratios = [
                ours.figures()[speed] / his.figures()[speed]
                for his, ours in zip(measured, runs[OURS], strict=True)
            ]
            found.append(row(name, rival, "headrace_is", "times its speed", ratios))
    return found


def _say(console: Console, what: str, measured: Run) -> None:
    figures = measured.figures()
    console.print(
        f"{what}: {figures['events_per_second']:,.0f} events/s, p99 {figures['p99_ms']:.0f} ms, "
        f"{figures['cpu_seconds_per_million']:.2f} CPU us/event"
    )


def settings(rounds: int, seconds: float, events: int) -> dict[str, Any]:
    """What the figures were measured with; each rival's own are in docs/benchmarks.md."""
    return {
        "work": f"{seconds:g} s a run with {SHAPES[events]} connections",
        "rounds": rounds,
        "workers": WORKERS,
        "partitions": PARTITIONS,
        "rivals": _rival_versions(),
    }


def _rival_versions() -> dict[str, str]:
    lock = json.loads((BUILT / "node/package-lock.json").read_text())["packages"]
    node = ("fastify", "@platformatic/kafka")
    required = (Path(__file__).parent / "rivals/fastapi/requirements.txt").read_text()
    python = dict(line.split("==") for line in required.split())
    modules = (Path(__file__).parent / "rivals/go/go.mod").read_text()
    franz = next(line.split()[-1] for line in modules.splitlines() if "franz-go v" in line)
    return {
        "granian": version("granian"),
        "node": _said(str(BUILT / "node" / NODE), "--version"),
        **{name: lock[f"node_modules/{name}"]["version"] for name in node},
        **{name: python[name] for name in ("fastapi", "aiokafka[lz4]", "uvicorn[standard]")},
        "go": _said("go", "env", "GOVERSION"),
        "franz-go": franz,
    }


def _said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.ingest", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"a run; default {SECONDS}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument(
        "--events", nargs="+", type=int, choices=SHAPES, default=list(SHAPES), help="in a request"
    )
    parser.add_argument("--services", nargs="+", choices=SERVICES, default=list(SERVICES))
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"one round of {QUICK_SECONDS:g} s, nothing kept: does it still run?",
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Runs, shows tables, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    rounds, seconds = (1, QUICK_SECONDS) if chosen.quick else (chosen.rounds, chosen.seconds)

    def work(console: Console) -> int:
        found = run(chosen.services, chosen.events, rounds, seconds, console)
        for events, measured in found.items():
            told = None if chosen.quick else settings(rounds, seconds, events)
            show(console, benchmark(events), measured, told)
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
