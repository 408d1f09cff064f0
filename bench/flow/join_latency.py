"""From a click to its row in the output, at a steady 2,000 events a second into both topics.

A twentieth are clicks, a second after their impression. A row is there when the commit that holds
it is in the table's log, or when the broker has it. What is measured begins some seconds after the
first commit; each round has topics, a table and a checkpoint of its own.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
import time
import uuid
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from bench.cluster import Broker, make_topic, opened, timed_values_of
from bench.driver import Driver, OutputWrongError
from bench.events import events
from bench.flow import headrace_flow
from bench.flow.events import CLICK_EVERY, Traffic
from bench.flow.join import TIMES
from bench.flow.part import HEAP_MB, Part, System
from bench.peers.contest import PARTITIONS, THREADS, Contest, Findings, prepared, setup_for
from headrace.kafka.client.clients import client_config, producer
from headrace.runtime.java.installation import find_java
from headrace.runtime.process_tree import Usage, Watch
from headrace.settings.model import KafkaSettings

EVENTS_PER_SECOND = 2_000
WARM_UP_SECONDS = 30
SETTLE_SECONDS = 5.0
"""From the first commit to the first click that counts."""
TICK_SECONDS = 0.01
CLICKS_BEHIND = 100
"""So many impressions are waiting for their click: about a second of them."""
TO_KAFKA = "headrace-to-kafka"
# As bench.events writes an event: after its id and its time.
BODY = slice(77, None)


class JoinLatency(Part):
    """Two topics, and a steady rate into them."""

    benchmark = "join-latency"
    count = 240_000
    quick_count = 40_000
    units: ClassVar[Mapping[str, str]] = {
        "latency_p50_ms": "ms",
        "latency_p99_ms": "ms",
        "latency_max_ms": "ms",
        "cpu_us_per_message": "us",
        "peak_memory_mb": "MB",
        "measured_clicks": "clicks",
    }

    @property
    def systems(self) -> Mapping[str, System]:
        """headrace, into a lake and into a topic."""
        return {
            "headrace": System(
                lambda _: partial(headrace_flow.open_live_join, times=TIMES, to_kafka=False),
                "exactly once",
                headrace_flow.joined_rows,
                state_folders=headrace_flow.join_state,
            ),
            TO_KAFKA: System(
                lambda _: partial(headrace_flow.open_live_join, times=TIMES, to_kafka=True),
                "at least once",
                lambda _: {},
                state_folders=headrace_flow.join_state,
            ),
        }

    @property
    def messages(self) -> int:
        """Of a round: those of the warm-up, too."""
        return self.events + WARM_UP_SECONDS * EVENTS_PER_SECOND

    def run(self, names: Sequence[str], rounds: int, console: Console) -> Findings:
        """Measures the systems of these names, one at a time."""
        java = find_java(os.environ)
        chosen = {name: self.systems[name].prepare for name in names}
        starts, missing = prepared(chosen, java, console)
        findings = Findings(missing=missing)
        with opened(java, console) as broker:
            setup = setup_for(
                broker,
                java,
                self.benchmark,
                topic="",
                messages=self.messages,
                batch_records=0,
                heap_mb=HEAP_MB,
            )
            measure = partial(self._measure, broker)
            contest = Contest(setup, THREADS, measure, findings, console)
            contest.run(starts, rounds, warm_ups=0)
        return findings

    def work(self) -> str:
        """What there is to do."""
        return f"{EVENTS_PER_SECOND:,} events/s for {self.events / EVENTS_PER_SECOND:g} s"

    def _measure(self, broker: Broker, driver: Driver, out: Path) -> Latencies:
        topics = Traffic(0, PARTITIONS, name=out.name)
        make_topic(broker, topics.clicks_topic)
        make_topic(broker, topics.impressions_topic)
        if driver.name == TO_KAFKA:
            make_topic(broker, headrace_flow.joined_topic(out.name, PARTITIONS))
        live = LiveTraffic(broker, topics)
        driver.begin(out)
        with live.sending(self.messages):
            first = driver.await_committed()
            began_ms = (time.time() + SETTLE_SECONDS) * 1000
            with Watch(driver.pid) as watch:
                last = driver.await_committed(self.messages)
            driver.finish()
        rows = rows_of_topic(broker, out.name) if driver.name == TO_KAFKA else rows_of_lake(out)
        check(rows, live.clicks_ms)
        for folder in headrace_flow.join_state(out):
            shutil.rmtree(folder, ignore_errors=True)
        return Latencies(waits(rows, live.clicks_ms, began_ms), last - first, watch.usage)


@dataclass(frozen=True)
class Latencies:
    """Of the clicks of a round, in ms; and what the messages of the round took."""

    milliseconds: Sequence[float]
    messages: int
    usage: Usage

    def figures(self) -> dict[str, float]:
        """By metric."""
        ordered = sorted(self.milliseconds)
        return {
            "latency_p50_ms": quantile(ordered, 0.5),
            "latency_p99_ms": quantile(ordered, 0.99),
            "latency_max_ms": ordered[-1],
            "cpu_us_per_message": self.usage.cpu_seconds * 1e6 / self.messages,
            "peak_memory_mb": self.usage.peak_memory_mb,
            "measured_clicks": len(ordered),
        }

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:,.4g}" for name, value in self.figures().items())


class LiveTraffic:
    """Impressions and clicks on them, which happen as they are sent.

    Attributes:
        clicks_ms: when each click was sent, by its id.
    """

    def __init__(self, broker: Broker, topics: Traffic) -> None:
        self.clicks_ms: dict[str, float] = {}
        self._topics = topics
        self._sender = producer(
            client_config(KafkaSettings(), broker.bootstrap), {"linger.ms": "5"}
        )
        self._bodies = [value[BODY] for value in events(EVENTS_PER_SECOND)]
        self._shown: deque[tuple[int, str]] = deque()
        self._ending = threading.Event()

    @contextmanager
    def sending(self, messages: int) -> Iterator[None]:
        """Sends so many at a steady rate, beside the block; no more once the block has ended."""
        thread = threading.Thread(target=self._send, args=(messages,), name="traffic")
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def _send(self, messages: int) -> None:
        began = time.monotonic()
        sent = 0
        while sent < messages and not self._ending.wait(TICK_SECONDS):
            due = min(messages, int((time.monotonic() - began) * EVENTS_PER_SECOND))
            for number in range(sent, due):
                self._send_one(number)
            sent = due
            self._sender.poll(0)
        self._sender.flush()

    def _send_one(self, number: int) -> None:
        event_id, now_ms = str(uuid.uuid4()), time.time() * 1000
        if number % CLICK_EVERY == 0 and len(self._shown) > CLICKS_BEHIND:
            partition, shown = self._shown.popleft()
            value = (
                f'{{"event_id":"{event_id}","event_time":{now_ms:.0f},'
                f'"impression_id":"{shown}","position":1}}'
            )
            self._sender.produce(self._topics.clicks_topic.name, value, shown, partition)
            self.clicks_ms[event_id] = now_ms
            return
        partition = number % self._topics.partitions
        body = self._bodies[number % len(self._bodies)]
        value = b'{"event_id":"%s","event_time":%d%s' % (event_id.encode(), now_ms, body)
        self._sender.produce(self._topics.impressions_topic.name, value, event_id, partition)
        if number % CLICK_EVERY == number // CLICK_EVERY % CLICK_EVERY:
            self._shown.append((partition, event_id))


Rows = Sequence[tuple[str, float]]
"""Of an output: the id of each click, and when its row was there, in ms since 1970."""


def rows_of_lake(out: Path) -> Rows:
    """The rows, each there when the version that adds it is in the table's log."""
    import polars as pl

    table = out / headrace_flow.CLICKS
    rows = []
    for version in sorted((table / "_delta_log").glob("*.json")):
        actions = map(json.loads, version.read_text().splitlines())
        added = [action["add"] for action in actions if "add" in action]
        there_ms = version.stat().st_mtime * 1000
        for file in (add["path"] for add in added if add["dataChange"]):
            read = pl.read_parquet(table / file, columns=["event_id", "impression"])
            matched = read.filter(pl.col("impression").is_not_null())["event_id"]
            rows += [(event_id, there_ms) for event_id in matched]
    return rows


def rows_of_topic(broker: Broker, topic: str) -> Rows:
    """The rows, each there when the broker had it."""
    values = [
        (json.loads(value), there_ms)
        for there_ms, value in timed_values_of(broker, topic, PARTITIONS)
    ]
    return [(row["event_id"], there_ms) for row, there_ms in values if row.get("impression")]


def check(rows: Rows, clicks: Collection[str]) -> None:
    """Raises OutputWrongError unless each click has one row, with its impression."""
    ids = {event_id for event_id, _ in rows}
    if len(rows) != len(clicks) or ids != set(clicks):
        raise OutputWrongError(f"{len(clicks)} clicks gave {len(rows)} rows of {len(ids)} clicks")


def waits(rows: Rows, clicks_ms: Mapping[str, float], began_ms: float) -> list[float]:
    """How long the clicks that were sent from then on had no row.

    Raises:
        OutputWrongError: there are none.
    """
    milliseconds = [
        there_ms - clicks_ms[event_id]
        for event_id, there_ms in rows
        if clicks_ms[event_id] >= began_ms
    ]
    if not milliseconds:
        raise OutputWrongError("no click was sent after the first commit: more events are needed")
    return milliseconds


def quantile(ordered: Sequence[float], share: float) -> float:
    """The least value that so large a share of them does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
