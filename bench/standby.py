"""How long a pipeline stands still when its driver dies or hands over, and a standby is warm.

Two drivers run one pipeline into a lake, 100 events come each second, and a batch may fill for
100 ms. The active driver is killed with all its processes (``takeover``), stopped so that its lease
must expire, as if its machine had died (``expiry``), or asked to hand over (``handover``). The gap
is the longest time between two commits around that, by the times in the table's log. A driver that
is gone is started again, and the next fault comes when the standby is warm.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from bench.cluster import WORK, opened
from bench.command import exit_code, show
from bench.driver import OutputWrongError, SystemFailedError
from bench.results import Row, row
from headrace.kafka.client.clients import connected_producer
from headrace.runtime.java.installation import find_java
from headrace.settings import environment

BENCHMARK = "standby"
FAULTS = ("takeover", "expiry", "handover")
TIMES = 10
_HEADRACE = Path(sys.executable).with_name("headrace")
_LIMIT_SECONDS = 300.0
_COMMITS = 3  # of the standby: the first may be of a batch that the other one has planned
_EVERY_SECONDS = 0.1
_EVENTS_AT_ONCE = 10
_SETTINGS = """
[project]
name = "bench"
modules = ["flow"]
lake = ".headrace/lake"

[kafka]
bootstrap_servers = "{bootstrap}"
"""
_FLOW = """
from datetime import timedelta
from headrace import BatchLimits, EpochMillis, Lake, Pipeline, Topic


class Event:
    event_id: str
    event_time: EpochMillis
    category: str


events = Topic("events", event=Event, key="event_id", event_time="event_time", partitions=4)
limits = BatchLimits(max_wait=timedelta(milliseconds=100))
flow = Pipeline("flow", events, Lake("flow", ("day", "category")), limits=limits)
"""


class Drivers:
    """Drivers of the pipeline in a project's folder."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        (folder / "headrace.toml").write_text(_SETTINGS.format(bootstrap=bootstrap))
        (folder / "flow.py").write_text(_FLOW)
        self._running: list[subprocess.Popen[bytes]] = []
        self.call("apply")

    def call(self, *arguments: str) -> None:
        """Runs a command to its end."""
        process = self._start(*arguments)
        if process.wait(_LIMIT_SECONDS):
            raise SystemFailedError(f"`headrace {' '.join(arguments)}`: {self._output()}")

    def start(self) -> subprocess.Popen[bytes]:
        """Starts a driver; returns when it is active, or warm."""
        process = self._start("run", "--standby")
        self._running.append(process)
        self._await(lambda: self._is_active(process) or self._is_warm(process), "a driver")
        return process

    def fault(
        self, kind: str, active: subprocess.Popen[bytes], standby: subprocess.Popen[bytes]
    ) -> float:
        """Has the standby take over; returns the longest time between two commits around that."""
        self._await(lambda: self._is_warm(standby), "warm standby")
        before = max(self.commits(), default=time.time())
        if kind == "handover":
            self.call("handover", "flow")
        else:
            os.killpg(active.pid, signal.SIGSTOP if kind == "expiry" else signal.SIGKILL)
        self._await(lambda: self._is_active(standby), "takeover by the standby")
        first = time.time()
        self._await(lambda: sum(t > first for t in self.commits()) > _COMMITS, "commits of it")
        times = [t for t in self.commits() if t >= before]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def replaced(self, kind: str, before: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Returns the standby after a fault: the driver that was active, or a new one."""
        if kind == "handover":
            return before
        os.killpg(before.pid, signal.SIGKILL)
        before.wait(_LIMIT_SECONDS)
        self._running.remove(before)
        return self.start()

    def commits(self) -> list[float]:
        """When batches were committed, in seconds since 1970."""
        times = []
        for path in sorted((self._folder / ".headrace/lake/flow/_delta_log").glob("*.json")):
            for line in path.read_text().splitlines():
                info = json.loads(line).get("commitInfo", {})
                if "headrace" in info:
                    times.append(info["timestamp"] / 1000)
        return sorted(times)

    def close(self) -> None:
        """Kills those that run."""
        for process in self._running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._folder / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [_HEADRACE, *arguments, "--project", self._folder],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _status(self, process: subprocess.Popen[bytes]) -> dict[str, object]:
        for path in (self._folder / ".headrace/status/drivers").glob(f"*{process.pid}*.json"):
            try:
                status: dict[str, object] = json.loads(path.read_text())
            except (OSError, ValueError):
                return {}
            return status
        return {}

    def _is_active(self, process: subprocess.Popen[bytes]) -> bool:
        return self._status(process).get("state") == "running"

    def _is_warm(self, process: subprocess.Popen[bytes]) -> bool:
        status = self._status(process)
        return status.get("state") == "waiting" and status.get("warm_age_seconds") is not None

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise SystemFailedError(f"no {what} in time: {self._output()}")
            time.sleep(0.05)

    def _output(self) -> str:
        return (self._folder / "output.txt").read_text()[-3000:]


@contextmanager
def traffic(bootstrap: str) -> Iterator[list[int]]:
    """Sends events until the block ends; gives a list whose only value is their number."""
    sent, stop = [0], threading.Event()
    producer = connected_producer({"bootstrap.servers": bootstrap})

    def send() -> None:
        while not stop.wait(_EVERY_SECONDS):
            for _ in range(_EVENTS_AT_ONCE):
                event = {"event_id": f"e{sent[0]}", "category": f"c{sent[0] % 4}"}
                value = json.dumps(event | {"event_time": time.time_ns() // 10**6})
                producer.produce("events", value.encode(), str(sent[0]).encode())
                sent[0] += 1
            producer.poll(0)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()
        producer.flush(_LIMIT_SECONDS)


def run(times: int, console: Console) -> list[Row]:
    """The whole benchmark."""
    from headrace.sinks.lake.delta.table import read_table

    gaps: dict[str, list[float]] = {fault: [] for fault in FAULTS}
    with opened(find_java(environment()), console) as broker:
        folder = WORK / "project"
        drivers = Drivers(folder, broker.bootstrap)
        try:
            with traffic(broker.bootstrap) as sent:
                active, standby = drivers.start(), drivers.start()
                for number in range(times):
                    for fault in FAULTS:
                        seconds = drivers.fault(fault, active, standby)
                        gaps[fault].append(seconds)
                        console.print(f"{fault} {number + 1} of {times}: {seconds:.2f} s")
                        active, standby = standby, drivers.replaced(fault, active)
        finally:
            drivers.close()
        drivers.call("run", "--once")
        ids = read_table(str(folder / ".headrace/lake/flow"), ["event_id"])["event_id"].to_pylist()
        if sorted(ids) != sorted(f"e{n}" for n in range(sent[0])):
            raise OutputWrongError(f"{sent[0]} events gave {len(ids)} rows, {len(set(ids))} ids")
    return [
        row(BENCHMARK, fault, f"gap_p{percent}_seconds", "s", [percentile(seconds, percent)])
        for fault, seconds in gaps.items()
        for percent in (50, 99)
    ]


def percentile(values: Sequence[float], percent: int) -> float:
    """Returns the smallest value that at least so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    parser = argparse.ArgumentParser(prog="python -m bench.standby", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES, help=f"of each, default {TIMES}")
    parser.add_argument("--quick", action="store_true", help="two of each, nothing kept")
    chosen = parser.parse_args(given)
    times = 2 if chosen.quick else chosen.times

    def work(console: Console) -> int:
        kept = None if chosen.quick else {"work": "100 events/s", "rounds": times}
        show(console, BENCHMARK, run(times, console), kept)
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
