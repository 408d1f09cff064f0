"""Where the rows of ``bench.sinks`` go: a new topic or table for each run, counted after it.

Targets that need more libraries have modules of their own.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import psycopg
from tests.integration.postgres_server import USER, PostgresServer

from bench.cluster import Broker
from bench.driver import OutputWrongError
from bench.events import BEGIN, SPAN, impressions_topic
from bench.peers.contest import PARTITIONS
from headrace.kafka.admin.topics import apply_changes, delete_topic, plan_topics
from headrace.kafka.client.clients import client_config
from headrace.kafka.table.topic_table import table_records
from headrace.runtime.java.installation import Java
from headrace.settings.model import KafkaSettings

KEY = "event_id"
TIME = "event_time"
COLUMNS = {
    KEY: "text",
    TIME: "timestamptz",
    "category": "text",
    "campaign": "text",
    "item_id": "bigint",
    "position": "bigint",
    "clicked": "boolean",
    "propensity": "double precision",
    "user_group": "text",
    "user_segment": "text",
}
# The defaults of PostgreSQL but for these. With its own limit of 1 GB a checkpoint in the middle
# of a run would be paid for by whoever happens to run.
DATABASE = {
    "fsync": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "timezone": "UTC",
}


class Target(abc.ABC):
    """A kind of topic, table or index; a run has one with its own name."""

    @property
    def database_pid(self) -> int | None:
        """The first process of the database, if there is one."""
        return None

    @property
    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """The tables ``[sinks]`` of a headrace.toml that finds the database."""
        return {}

    @property
    def versions(self) -> Mapping[str, str]:
        """Of the database."""
        return {}

    @abc.abstractmethod
    def create(self, name: str) -> None:
        """Makes an empty one."""

    @abc.abstractmethod
    def event_ids(self, name: str) -> tuple[int, int]:
        """How many rows it holds, and how many event ids these have."""

    @abc.abstractmethod
    def remove(self, name: str) -> None:
        """Deletes it, and leaves nothing to be done in the next run's time."""


def check(target: Target, name: str, count: int) -> None:
    """Raises OutputWrongError unless ``name`` holds ``count`` rows with as many event ids."""
    if (held := target.event_ids(name)) != (count, count):
        rows, distinct = held
        raise OutputWrongError(f"{count} events gave {rows} rows with {distinct} event ids")


def table_name(name: str) -> str:
    """Of a run's table."""
    return name.replace("-", "_")


@dataclass(frozen=True)
class TopicTarget(Target):
    """Topics of the broker that the events come from."""

    broker: Broker
    partitions: int

    def create(self, name: str) -> None:
        """Makes a topic for the events."""
        apply_changes(self._config, plan_topics([impressions_topic(name, self.partitions)], {}))

    def event_ids(self, name: str) -> tuple[int, int]:
        """Reads what is committed of the topic; markers of transactions may be its end."""
        decoder = msgspec.json.Decoder(_Identified)
        records = table_records(self._config, name, settled=True)
        ids = [decoder.decode(record.value() or b"").event_id for record in records]
        return len(ids), len(set(ids))

    def remove(self, name: str) -> None:
        """Deletes the topic."""
        delete_topic(self._config, name)

    @property
    def _config(self) -> dict[str, str]:
        return client_config(KafkaSettings(), self.broker.bootstrap)


class _Identified(msgspec.Struct):
    event_id: str


@dataclass(frozen=True)
class TableTarget(Target):
    """Tables of a PostgreSQL; ``is_keyed`` gives them a primary key, the event's id."""

    database: PostgresServer
    is_keyed: bool

    @property
    def database_pid(self) -> int | None:
        """PostgreSQL's first process."""
        return self.database.pid

    @property
    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """Its URL."""
        return {"postgres": {"url": self.database.url}}

    @property
    def versions(self) -> Mapping[str, str]:
        """Of the server."""
        return {"PostgreSQL": database_version(self.database)}

    def create(self, name: str) -> None:
        """Makes a table with a column for each field of the events."""
        columns = ", ".join(f"{column} {kind} NOT NULL" for column, kind in COLUMNS.items())
        key = f", PRIMARY KEY ({KEY})" if self.is_keyed else ""
        self._execute(f"CREATE TABLE {table_name(name)} ({columns}{key})")

    def event_ids(self, name: str) -> tuple[int, int]:
        """Counts them; a row counts if its time is one of the events', in their time zone."""
        rows_in_time = f"count(*) FILTER (WHERE {TIME} >= %s AND {TIME} < %s)"
        counting = f"SELECT {rows_in_time}, count(DISTINCT {KEY}) FROM {table_name(name)}"
        with psycopg.connect(self.database.url) as connection:
            times = (BEGIN, BEGIN + SPAN)
            [(rows, distinct)] = connection.execute(counting, times).fetchall()
        return rows, distinct

    def remove(self, name: str) -> None:
        """Drops the table, and writes what PostgreSQL has in memory."""
        self._execute(f"DROP TABLE {table_name(name)}")
        self._execute("CHECKPOINT")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def opened_topics(broker: Broker, _: Java) -> Iterator[TopicTarget]:
    """Needs no server but the broker."""
    yield TopicTarget(broker, PARTITIONS)


@contextmanager
def opened_tables(_: Broker, __: Java, *, is_keyed: bool) -> Iterator[TableTarget]:
    """A PostgreSQL; gone when the block ends."""
    with opened_database() as database:
        yield TableTarget(database, is_keyed)


@contextmanager
def opened_database() -> Iterator[PostgresServer]:
    """A PostgreSQL; gone when the block ends."""
    server = PostgresServer(DATABASE)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def jdbc_url(url: str) -> str:
    """The same database, as JDBC names it; the driver makes one INSERT of many rows."""
    address = url.partition("@")[2]
    return f"jdbc:postgresql://{address}?user={USER}&reWriteBatchedInserts=true"


def database_version(database: PostgresServer) -> str:
    """Of the server."""
    with psycopg.connect(database.url) as connection:
        return str(connection.info.parameter_status("server_version"))
