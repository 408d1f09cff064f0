"""Kafka to Redis: profiles of users, by headrace's sink `Profiles`.

A pipeline reads the same topic from its start into an emptied Redis, once to warm up and then once
a round; after each run Redis must hold a profile of every user and of nobody else, and those of a
sample must be what the events say, otherwise there are no figures.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import redis
from rich.console import Console
from tests.integration.redis_server import PID_FILE, RedisServer

from bench.cluster import WORK, Broker, Placed, fill_placed, opened
from bench.command import exit_code, show
from bench.driver import Driver, OutputWrongError
from bench.headrace_profiles import (
    COLUMNS,
    FIELD,
    LENGTH,
    LIST,
    STORE,
    TTL,
    USERS,
    open_profiles,
    user_id,
    views,
    views_topic,
)
from bench.peers import figures
from bench.peers.contest import (
    BROKER,
    HEAP_MB,
    PARTITIONS,
    THREADS,
    Contest,
    Findings,
    run_once,
    setup_for,
)
from bench.peers.figures import Measurement
from headrace.runtime.java.installation import Java, find_java
from headrace.sinks.profiles.registry import open_store
from headrace.sinks.profiles.store import Profile

BENCHMARK = "loader"
SYSTEM = "headrace"
TOPIC = "views"
MESSAGES = 1_000_000
QUICK_MESSAGES = 100_000
ROUNDS = 3
BATCHES = 5
SAMPLE_EVERY = 250
GUARANTEE = "at least once; a repeated event changes nothing"
UNITS = {
    "messages_per_second": "messages/s",
    "cpu_us_per_message": "us",
    "redis_cpu_us_per_message": "us",
    "peak_memory_mb": "MB",
}
_SCAN_KEYS = 10_000


@dataclass
class Expected:
    """What the events say.

    Attributes:
        users: numbers of all users with events.
        sampled: the events of every :data:`SAMPLE_EVERY`-th user, by its number.
    """

    users: set[int] = field(default_factory=set)
    sampled: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)

    def add(self, user: int, value: bytes) -> None:
        """Adds an event."""
        self.users.add(user)
        if user % SAMPLE_EVERY == 0:
            self.sampled.setdefault(user, []).append(msgspec.json.decode(value))


@dataclass(frozen=True)
class Content:
    """A profile: the value of its field, and its list, the newest event first."""

    group: str
    views: list[tuple[str, dict[str, Any]]]

    @classmethod
    def of_events(cls, events: Sequence[Mapping[str, Any]]) -> Content:
        """The greatest event time wins, and of equal ones the greater event id."""
        newest = sorted(
            events, key=lambda event: (event["event_time"], event["event_id"]), reverse=True
        )
        views = [
            (event["event_id"], {column: event[column] for column in COLUMNS})
            for event in newest[:LENGTH]
        ]
        return cls(newest[0][FIELD], views)

    @classmethod
    def of_profile(cls, profile: Profile) -> Content:
        """What a store gives."""
        views = [(entry.event_id, dict(entry.values)) for entry in profile.lists.get(LIST, ())]
        field = profile.fields.get(FIELD)
        return cls(None if field is None else field.value, views)


@dataclass(frozen=True)
class Bench:
    """One topic on one broker, and a Redis."""

    broker: Broker
    server: RedisServer
    java: Java
    messages: int
    expected: Expected
    console: Console

    def run(self, rounds: int) -> Findings:
        """The warm-up, and the rounds."""
        setup = setup_for(
            self.broker,
            self.java,
            BENCHMARK,
            topic=TOPIC,
            messages=self.messages,
            batch_records=self.messages // BATCHES,
        )
        findings = Findings()
        start = partial(open_profiles, url=self.server.url)
        Contest(setup, THREADS, self._measure, findings, self.console).run({SYSTEM: start}, rounds)
        return findings

    def _measure(self, driver: Driver, out: Path) -> Measurement:
        self.server.command("FLUSHALL")
        pid = int((self.server.folder / PID_FILE).read_text())
        found = run_once(driver, out, self.messages, self.broker, pid)
        check(self.server, self.expected)
        redis_cpu_us = found.database_cpu_seconds * 1e6 / found.messages
        return Measurement(found, {"redis_cpu_us_per_message": redis_cpu_us})


def check(server: RedisServer, expected: Expected) -> None:
    """Compares what Redis holds with what the events say.

    Raises:
        OutputWrongError: users are missing or too many, or a profile of the sample is another one.
    """
    profiles = {_key(user) for user in expected.users}
    if wrong := profiles ^ profile_keys(server):
        raise OutputWrongError(f"{len(wrong)} profiles missing or unknown, such as {min(wrong)}")
    with closing(open_store(server.url, STORE, TTL)) as store:
        for user, events in expected.sampled.items():
            profile = store.read(user_id(user))
            if profile is None or Content.of_profile(profile) != Content.of_events(events):
                raise OutputWrongError(f"the profile of {user_id(user)} is wrong: {profile}")


def _key(user: int) -> str:
    return f"headrace:{{{STORE}:{user_id(user)}}}"


def profile_keys(server: RedisServer) -> set[str]:
    with redis.Redis.from_url(server.url.reveal(), decode_responses=True) as client:
        keys = client.scan_iter(count=_SCAN_KEYS)
        # The keys of a profile's lists have more behind the brace.
        return {key for key in keys if key.endswith("}")}


@contextmanager
def opened_redis(folder: Path) -> Iterator[RedisServer]:
    """A Redis that keeps nothing on disk; gone when the block ends."""
    folder.mkdir()
    server = RedisServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def placed_views(count: int, expected: Expected) -> Iterator[Placed]:
    """The records of the topic, with the user as key; each is noted as expected when it is made."""
    for user, value in views(count):
        expected.add(user, value)
        yield user % PARTITIONS, user_id(user).encode(), value


def run(messages: int, rounds: int, console: Console) -> tuple[Findings, str]:
    """The whole benchmark: what was found, and Redis's version."""
    java = find_java(os.environ)
    with ExitStack() as stack:
        broker = stack.enter_context(opened(java, console, BROKER))
        server = stack.enter_context(opened_redis(WORK / "redis"))
        expected = Expected()
        records = placed_views(messages, expected)
        fill_placed(broker, views_topic(TOPIC, PARTITIONS), records, messages, console)
        bench = Bench(broker, server, java, messages, expected, console)
        return bench.run(rounds), _version(server)


def _version(server: RedisServer) -> str:
    with redis.Redis.from_url(server.url.reveal()) as client:
        return str(client.info("server")["redis_version"])


def settings(messages: int, rounds: int, findings: Findings, version: str) -> dict[str, object]:
    """What the figures were measured with, and why there are none."""
    return {
        "work": f"{messages:,} events of {USERS:,} users",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "batch_records": messages // BATCHES,
        "heap_mb": HEAP_MB,
        "rivals": {"Redis": version},
        "guarantees": {SYSTEM: GUARANTEE},
        "without_figures": findings.without_figures("threads"),
    }


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.loader", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"default {MESSAGES:,}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_MESSAGES:,} events, one round, nothing kept: does it still run?",
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    messages, rounds = (QUICK_MESSAGES, 1) if chosen.quick else (chosen.messages, chosen.rounds)

    def work(console: Console) -> int:
        findings, version = run(messages, rounds, console)
        measured = figures.rows(BENCHMARK, "threads", UNITS, findings.runs)
        told = None if chosen.quick else settings(messages, rounds, findings, version)
        show(console, BENCHMARK, measured, told, findings.failed)
        return 1 if findings.failed or not findings.runs else 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
