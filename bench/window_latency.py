"""From the end of a window to its result.

A project with a topic of events and 100 standing queries with windows of ten seconds, a process of
``headrace run`` and one of ``headrace query run``. Events are produced at a steady rate, each with
the time of then, and match one query each. Windows end by event time. In the end, each window of
each query must have had one result, with as many events as were sent.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import confluent_kafka

from bench.cluster import Broker, make_topic, send
from bench.driver import OutputWrongError
from bench.latency import LatencyBenchmark, await_start
from bench.live_traffic import PARTITIONS, Traffic, quantile
from bench.peers.programs import end, started
from bench.query_traffic import TTL
from headrace import EpochMillis, StandingQueries, Topic
from headrace.events.times import parse_time
from headrace.kafka.client.clients import client_config, consumer
from headrace.queries.records.result import ResultKind, decode_result
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.topics import ensure_query_topics
from headrace.runtime.process_tree import Watch
from headrace.settings.model import KafkaSettings

LIMITS = {
    "headrace": "",
    "headrace-short-batches": ", limits=BatchLimits(max_wait=timedelta(milliseconds=100))",
}
"""What the pipeline of each system declares beside its topic and its sink."""
RATE = 1_000
QUERIES = 100
WINDOW_MS = 10_000
WARM_UP_SECONDS = 30
# After ten seconds without events, time goes on without them.
END_SECONDS = 60
UNITS = {
    "p50_ms": "ms",
    "p99_ms": "ms",
    "max_ms": "ms",
    "results": "results",
    "cpu_us_per_message": "us",
    "peak_memory_mb": "MB",
}
Windows: TypeAlias = Counter[tuple[str, int]]
"""Events by query and begin of the window, in milliseconds since 1970."""


class View:
    """A view of a page of an advertiser."""

    at: EpochMillis
    advertiser: str


class Views(Traffic):
    """Views, each with the time when it is produced."""

    def value(self, now_us: int) -> bytes:
        """Returns the value of the next record, which is produced at that time."""
        return b'{"at":%d,"advertiser":"asked-%d"}' % (now_us // 1000, self.sent % QUERIES)

    def windows(self) -> Windows:
        """Returns the windows that the views are in."""
        return Counter(
            (f"query-{number % QUERIES}", sent_us // 1000 // WINDOW_MS * WINDOW_MS)
            for number, sent_us in enumerate(self.sent_us)
        )


class Results:
    """The final results as they become readable.

    Attributes:
        windows: that have had their result.
    """

    def __init__(self, broker: Broker, topic: str) -> None:
        config = client_config(KafkaSettings(), broker.bootstrap)
        self._reader = consumer(config, tuning={"fetch.wait.max.ms": "500"})
        self._reader.assign(
            [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        )
        self.windows: Windows = Counter()

    def take(self, seconds: float) -> list[float]:
        """Returns how long after the ends of their windows results come, in milliseconds.

        Raises:
            OutputWrongError: a result is there twice.
        """
        lags: list[float] = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = self._reader.poll(0.1)
            if message is None or message.error() is not None:
                continue
            now_ms = time.time_ns() / 1e6
            result = decode_result(message.value() or b"")
            if result.kind is not ResultKind.FINAL:
                continue
            begin = parse_time(result.begin)
            assert begin is not None  # the decoder has looked at it
            begin_ms = round(begin.timestamp() * 1000)
            if (result.query, begin_ms) in self.windows:
                raise OutputWrongError(f"{result.query} has two results of {result.begin}")
            self.windows[result.query, begin_ms] = result.events
            lags.append(now_ms - begin_ms - WINDOW_MS)
        return lags

    def take_rest(self, views: Views) -> None:
        """Takes what comes until each window of the views has its result.

        Raises:
            OutputWrongError: a window has none, or has other events.
        """
        expected, deadline = views.windows(), time.monotonic() + END_SECONDS
        while len(self.windows) < len(expected) and time.monotonic() < deadline:
            self.take(0.5)
        if self.windows != expected:
            every = expected | self.windows
            wrong = next(key for key in every if self.windows[key] != expected[key])
            raise OutputWrongError(
                f"{wrong[0]} has {self.windows[wrong]} events from {wrong[1]} ms on, not "
                f"{expected[wrong]}; {len(self.windows)} of {len(expected)} windows have results"
            )

    def close(self) -> None:
        """Ends the consumer."""
        self._reader.close()


def measure(broker: Broker, system: str, seconds: float, out: Path) -> dict[str, float]:
    """One system: figures by metric."""
    topic = Topic(f"{out.name}.views", View, event_time="at", partitions=PARTITIONS)
    queries = StandingQueries(out.name, partitions=PARTITIONS)
    prepare(broker, topic, queries)
    out.mkdir(parents=True)
    for name, text in project(broker, topic, queries, LIMITS[system]).items():
        (out / name).write_text(text)
    views = Views(broker, topic.name, RATE)
    with ExitStack() as stack:
        results = stack.enter_context(closing(Results(broker, queries.results_topic)))
        programs = []
        for arguments in (("run", "matching"), ("query", "run")):
            command = (sys.executable, "-m", "headrace.cli", *arguments)
            programs.append(started(command, folder=out))
            stack.callback(end, programs[-1])
        with views.sending():
            await_start(lambda: bool(results.take(1.0)), programs, "no window had a result")
            results.take(WARM_UP_SECONDS)
            sent = views.sent
            with ExitStack() as watched:
                usages = [watched.enter_context(Watch(each.pid)) for each in programs]
                lags = sorted(results.take(seconds))
            messages = views.sent - sent
        results.take_rest(views)
    used = [watch.usage for watch in usages]
    return {
        "p50_ms": quantile(lags, 0.5),
        "p99_ms": quantile(lags, 0.99),
        "max_ms": lags[-1],
        "results": len(lags),
        "cpu_us_per_message": sum(each.cpu_seconds for each in used) * 1e6 / messages,
        "peak_memory_mb": sum(each.peak_memory_mb for each in used),
    }


def prepare(broker: Broker, topic: Topic, queries: StandingQueries) -> None:
    """Makes the topics, and registers the queries."""
    config = client_config(KafkaSettings(), broker.bootstrap)
    make_topic(broker, topic)
    ensure_query_topics(config, queries)
    registered = (encode_query(query) for query in registered_queries(topic))
    send(config, queries.queries_topic, ((0, *each) for each in registered), lambda _: None)


def registered_queries(topic: Topic) -> Iterator[RegisteredQuery]:
    """The queries, each of an advertiser."""
    now = datetime.now(UTC)
    for number in range(QUERIES):
        text = (
            f"SELECT count(*) FROM \"{topic.name}\"\nWHERE advertiser = 'asked-{number}'\n"
            f"WINDOW {WINDOW_MS // 1000} seconds"
        )
        yield RegisteredQuery(f"query-{number}", text, topic.name, 1, now, now, now + TTL)


def project(broker: Broker, topic: Topic, queries: StandingQueries, limits: str) -> dict[str, str]:
    """The files of a project with standing queries, by name."""
    return {
        "headrace.toml": (
            f'[project]\nname = "bench"\nsite = "here"\nmodules = ["flow"]\n\n'
            f'[kafka]\nbootstrap_servers = "{broker.bootstrap}"\n'
        ),
        "flow.py": (
            '"""Counts of views."""\n\nfrom datetime import timedelta\n\n'
            "from headrace import BatchLimits, EpochMillis, MatchQueries, Pipeline, "
            "StandingQueries, Topic\n\n\n"
            "class View:\n    at: EpochMillis\n    advertiser: str\n\n\n"
            f'views = Topic("{topic.name}", View, event_time="at", partitions={PARTITIONS})\n'
            f'queries = StandingQueries("{queries.name}", partitions={PARTITIONS})\n'
            f'matching = Pipeline("matching", views, MatchQueries(queries){limits})\n'
        ),
    }


BENCH = LatencyBenchmark(
    name="window-latency",
    description=__doc__,
    units=UNITS,
    measure=measure,
    systems=list(LIMITS),
    rate=RATE,
    queries=QUERIES,
    seconds=200,
    quick_seconds=30,
)

if __name__ == "__main__":
    sys.exit(BENCH.main(sys.argv[1:]))
