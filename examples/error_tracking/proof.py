"""What is there, beside what must be there: multisets, so that twice is not once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import commands
import polars as pl
import psycopg
import traffic
from client import Client

SCHEMA = "error_tracking"
DAMAGED = {"bad-base64": 1, "bad-zlib": 1}

Load = Mapping[str, Any]


class Sum:
    """Compares what is there, ``actual``, with what must be there, each as often."""

    def __init__(
        self,
        what: str,
        actual: Iterable[Hashable] | Mapping[Hashable, int],
        expected: Iterable[Hashable] | Mapping[Hashable, int],
    ) -> None:
        self.what = what
        self.actual, self.expected = Counter(actual), Counter(expected)

    @property
    def missing(self) -> int:
        """Returns how many are expected and not there."""
        return (self.expected - self.actual).total()

    @property
    def extra(self) -> int:
        """Returns how many are there and not expected, or too often."""
        return (self.actual - self.expected).total()


def of_http(clients: Sequence[Client]) -> Iterator[Sum]:
    """What was answered with 202 is in the lake once, with its owner, and nothing else is."""
    rows = lake("occurrences").select("account", "project_id", "uuid").rows()
    for client in clients:
        owner = client.project.account, client.project.id
        mine = (row for row in rows if row[:2] == owner)
        what = f"Lake: occurrences of {client.project.account}/{client.project.name}"
        yield Sum(what, mine, _owned(client))
    accepted = (row for client in clients for row in _owned(client))
    yield Sum("Lake: all occurrences", rows, accepted)
    rejected = (verdict["code"] for client in clients for verdict in client.rejected)
    yield Sum("HTTP: events rejected", rejected, ["unknown-value"])


def of_files(loads: Mapping[str, Sequence[Load]], url: str) -> Iterator[Sum]:
    """Each counter is there once, damaged lines are dead letters, second loads add nothing."""
    counters = list(traffic.offline_counters())
    for where, (first, second) in loads.items():
        yield Sum(f"{where}: lines loaded", first["loaded"], {"raw_item": len(counters)})
        again = Counter(second["loaded"]) + Counter(second["dead"])
        yield Sum(f"{where}: loaded by the second run", again, {})
    yield Sum("Kafka: dead letters", commands.dead_letters("raw-items"), DAMAGED)
    yield Sum("Lake: counters of offline files", lake("raw_items")["counter"], counters)
    with psycopg.connect(in_schema(url)) as connection:
        rows = connection.execute("SELECT counter FROM raw_item").fetchall()
        dead = connection.execute("SELECT reason FROM headrace_dead_letters").fetchall()
    yield Sum("PostgreSQL: dead letters", (reason for (reason,) in dead), DAMAGED)
    yield Sum("PostgreSQL: counters", (counter for (counter,) in rows), counters)


def lake(table: str) -> pl.DataFrame:
    """A table of the lake as it is now."""
    return pl.read_delta(str(commands.STATE / "lake" / table))


def in_schema(url: str) -> str:
    """Returns the URL of the same database with the example's schema as its search path."""
    separator = "&" if "?" in url else "?"
    return f"{url}{separator}options=-csearch_path%3D{SCHEMA}"


def _owned(client: Client) -> Iterator[tuple[str, int, str]]:
    owner = client.project.account, client.project.id
    return ((*owner, uuid) for uuid in sorted(client.accepted))
