"""From an event to what a standing query that it matches makes of it, in both forms of match.

A project with a topic of events and 1,000 registered queries; each event matches one of them.
Events are produced at a steady rate. In real-time mode (`headrace query emit`) an event has arrived
when it is readable in the topic of matched events, and each must be there once and in order. In
micro-batches (`headrace run`) it has when the tick of its batch is readable in the matched topic.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import confluent_kafka

from bench.cluster import Broker, send
from bench.events import events
from bench.latency import LatencyBenchmark, await_start
from bench.live_traffic import PARTITIONS, Arrival, Arrivals, Traffic, quantile
from bench.peers.programs import check_running, end, started
from bench.query_traffic import TTL, ad_impressions_topic
from headrace import StandingQueries
from headrace.kafka.admin.topics import apply_changes, plan_topics, with_dead_letters
from headrace.kafka.client.clients import client_config, consumer
from headrace.queries.records.matched import Tick, decode_matched
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.topics import ensure_query_topics
from headrace.runtime.process_tree import Watch
from headrace.settings.model import KafkaSettings

REAL_TIME, MICRO_BATCH = "headrace-real-time", "headrace-micro-batch"
COMMANDS = {REAL_TIME: ("query", "emit"), MICRO_BATCH: ("run", "matching")}
RATE = 1_000
QUERIES = 1_000
WARM_UP_SECONDS = 30
_NOTHING = "nothing was matched"
UNITS = {
    "p50_ms": "ms",
    "p99_ms": "ms",
    "p99.9_ms": "ms",
    "max_ms": "ms",
    "cpu_us_per_message": "us",
    "peak_memory_mb": "MB",
}


class Matched(Protocol):
    """What has arrived of the traffic."""

    count: int

    def take(self, seconds: float) -> list[Arrival]:
        """Returns what comes within a time."""

    def take_rest(self, traffic: Traffic) -> list[Arrival]:
        """Returns what comes until all that was sent is there."""

    def close(self) -> None:
        """Ends the consumer."""


class MatchedBatches:
    """Events whose batch has ended, by the ticks of the first partition of the matched topic."""

    def __init__(self, broker: Broker, topic: str, traffic: Traffic) -> None:
        config = client_config(KafkaSettings(), broker.bootstrap)
        self._reader = consumer(config, tuning={"fetch.wait.max.ms": "500"})
        self._reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        self._traffic = traffic
        self._next = dict.fromkeys(range(PARTITIONS), 0)
        self.count = 0

    def take(self, seconds: float) -> list[Arrival]:
        """Returns what comes within a time."""
        arrived: list[Arrival] = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = self._reader.poll(0.1)
            if message is None or message.error() is not None:
                continue
            now_us = time.time_ns() // 1000
            record = decode_matched(message.value() or b"")
            if isinstance(record, Tick):
                for partition, position in record.positions.items():
                    arrived += self._until(partition, position, now_us)
        return arrived

    def _until(self, partition: int, position: int, now_us: int) -> list[Arrival]:
        offsets = range(self._next[partition], position)
        self._next[partition] = position
        self.count += len(offsets)
        sent = [self._traffic.sent_us[offset * PARTITIONS + partition] for offset in offsets]
        return [Arrival(sent_us, (now_us - sent_us) / 1000) for sent_us in sent]

    def take_rest(self, traffic: Traffic) -> list[Arrival]:
        """Returns what comes until all that was sent is there."""
        arrived: list[Arrival] = []
        while self.count < traffic.sent:
            arrived += self.take(0.5)
        return arrived

    def close(self) -> None:
        """Ends the consumer."""
        self._reader.close()


def measure(broker: Broker, system: str, seconds: float, out: Path) -> dict[str, float]:
    """One system: figures by metric."""
    topic, queries = f"{out.name}.clicks", StandingQueries(out.name, partitions=PARTITIONS)
    prepare(broker, topic, queries)
    out.mkdir(parents=True)
    for name, text in project(broker, topic, queries).items():
        (out / name).write_text(text)
    instance = started((sys.executable, "-m", "headrace.cli", *COMMANDS[system]), folder=out)
    traffic = Traffic(broker, topic, RATE, list(asked_events()))
    arrivals = arrivals_of(system, broker, queries, traffic)
    try:
        await_claim(broker, system, queries, instance)
        with traffic.sending():
            await_start(lambda: bool(arrivals.take(1.0)), [instance], _NOTHING)
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


def arrivals_of(system: str, broker: Broker, queries: StandingQueries, traffic: Traffic) -> Matched:
    """What has arrived at a system's topic."""
    if system == REAL_TIME:
        return Arrivals(broker, queries.matched_events_topic)
    return MatchedBatches(broker, queries.matched_topic, traffic)


def asked_events() -> list[bytes]:
    """Events, each of an advertiser that one query asks for."""
    return [
        b'{"advertiser":"asked-%d",%s' % (number, value[1:])
        for number, value in enumerate(events(QUERIES))
    ]


def prepare(broker: Broker, topic: str, queries: StandingQueries) -> None:
    """Makes the topics, and registers the queries."""
    config = client_config(KafkaSettings(), broker.bootstrap)
    read = [ad_impressions_topic(topic, PARTITIONS)]
    apply_changes(config, plan_topics(with_dead_letters(read, read), {}))
    ensure_query_topics(config, queries)
    now = datetime.now(UTC)
    texts = (
        f"SELECT count(*) FROM \"{topic}\"\nWHERE advertiser = 'asked-{number}' AND position >= 1"
        "\nWINDOW 1 minute\nMATCHED EVENTS EMIT"
        for number in range(QUERIES)
    )
    encoded = (
        encode_query(RegisteredQuery(f"query-{number}", text, topic, 1, now, now, now + TTL))
        for number, text in enumerate(texts)
    )
    records = ((0, key, value) for key, value in encoded)
    send(config, queries.queries_topic, records, lambda _: None)


def await_claim(
    broker: Broker, system: str, queries: StandingQueries, instance: subprocess.Popen[str]
) -> None:
    """Waits until a process in real-time mode has begun: it looks at what comes from then on."""
    if system != REAL_TIME:
        return
    topic = f"{queries.name}.clicks"
    group = f"headrace.{queries.matched_events_topic}.{topic}"
    await_start(lambda: bool(committed_of(broker, group, topic)), [instance], _NOTHING)


def committed_of(broker: Broker, group: str, topic: str) -> Sequence[object]:
    """The committed offsets of a group."""
    from headrace.kafka.client.offsets import committed
    from headrace.model import TopicPartition

    config = client_config(KafkaSettings(), broker.bootstrap)
    return committed(config, group, [TopicPartition(topic, 0)])


def project(broker: Broker, topic: str, queries: StandingQueries) -> Mapping[str, str]:
    """The files of a project with standing queries, by name."""
    return {
        "headrace.toml": (
            f'[project]\nname = "bench"\nsite = "here"\nmodules = ["flow"]\n\n'
            f'[kafka]\nbootstrap_servers = "{broker.bootstrap}"\n'
        ),
        "flow.py": (
            '"""The queries of a run."""\n\n'
            "from headrace import EpochMillis, MatchQueries, Pipeline, StandingQueries, Topic\n\n\n"
            "class AdImpression:\n"
            "    event_id: str\n    event_time: EpochMillis\n    category: str\n"
            "    campaign: str\n    item_id: int\n    position: int\n    clicked: bool\n"
            "    propensity: float\n    user_group: str\n    user_segment: str\n"
            "    advertiser: str\n\n\n"
            f'source = Topic("{topic}", AdImpression, event_time="event_time", '
            f"partitions={PARTITIONS})\n"
            f'queries = StandingQueries("{queries.name}", partitions={PARTITIONS})\n'
            'matching = Pipeline("matching", source, MatchQueries(queries))\n'
        ),
    }


BENCH = LatencyBenchmark(
    name="match-latency",
    description=__doc__,
    units=UNITS,
    measure=measure,
    systems=list(COMMANDS),
    rate=RATE,
    queries=QUERIES,
    seconds=300,
    quick_seconds=20,
)

if __name__ == "__main__":
    sys.exit(BENCH.main(sys.argv[1:]))
