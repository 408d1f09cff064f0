"""The catalog of both systems, in PostgreSQL: commits are held up here, and rows are counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psycopg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import HourTransform
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)
from tests.integration.postgres_server import PostgresServer

from bench.driver import OutputWrongError, SystemFailedError
from bench.sink_targets import COLUMNS, KEY

Answer = TypeVar("Answer")

NAME = "headrace"
NAMESPACE = "bench"
_TYPES = {
    "text": StringType(),
    "timestamptz": TimestamptzType(),
    "bigint": LongType(),
    "boolean": BooleanType(),
    "double precision": DoubleType(),
}
_PARTITION_ID = 1000
_LOOK_SECONDS = 0.005
_BLOCKED = """
    SELECT pid, client_port FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))
"""
_VERSION = "SELECT metadata_location FROM iceberg_tables WHERE table_name = %s"


@dataclass(frozen=True)
class Tally:
    """What a table holds of the events that were sent.

    Attributes:
        rows: all of them.
        lost: events without a row.
        doubled: rows of an event beyond its first one.
    """

    rows: int
    lost: int
    doubled: int


def tally(sent: Collection[str], held: Iterable[str]) -> Tally:
    """Returns the tally of a table that holds rows with these ids.

    Raises:
        OutputWrongError: if a row has an id that was not sent.
    """
    rows = Counter(held)
    if unknown := rows.keys() - set(sent):
        raise OutputWrongError(f"{len(unknown)} ids were never sent, such as {min(unknown)!r}")
    count = rows.total()
    return Tally(count, len(set(sent)) - len(rows), count - len(rows))


class Catalog:
    """A SQL catalog, as pyiceberg and Iceberg's Java library have it, whose tables are in a folder.

    Args:
        server: the PostgreSQL that holds it.
        warehouse: the folder of the tables.
    """

    def __init__(self, server: PostgresServer, warehouse: Path) -> None:
        self._server = server
        self.warehouse = warehouse.as_uri()
        self._catalog = SqlCatalog(NAME, uri=python_uri(self.url), warehouse=self.warehouse)
        self._catalog.create_namespace_if_not_exists(NAMESPACE)

    @property
    def port(self) -> int:
        """The port of its server."""
        return self._server.port

    @property
    def url(self) -> str:
        """The URL of its database."""
        return self._server.url

    def close(self) -> None:
        """Closes its connections."""
        self._catalog.close()

    def create(self, table: str) -> None:
        """Makes a table for the events, partitioned by the hour of their event time."""
        fields = [
            NestedField(number, name, _TYPES[kind], required=False)
            for number, (name, kind) in enumerate(COLUMNS.items(), start=1)
        ]
        schema = Schema(*fields)
        source = schema.find_field("event_time").field_id
        by_hour = PartitionField(source, _PARTITION_ID, HourTransform(), "event_time_hour")
        identifier = (NAMESPACE, table)
        self._catalog.create_table(identifier, schema, partition_spec=PartitionSpec(by_hour))

    def count(self, table: str) -> int:
        """Returns how many rows the newest snapshot has, by its summary."""
        try:
            snapshot = self._catalog.load_table((NAMESPACE, table)).current_snapshot()
        except NoSuchTableError:
            return 0
        summary = snapshot.summary if snapshot else None
        return int(summary["total-records"] or 0) if summary else 0

    def ids(self, table: str) -> list[str]:
        """Returns the event id of each row."""
        scan = self._catalog.load_table((NAMESPACE, table)).scan(selected_fields=(KEY,))
        ids: list[str] = scan.to_arrow()[KEY].to_pylist()
        return ids

    def version(self, table: str) -> str:
        """Returns the file of its newest metadata; each commit makes another one."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return _version(connection, table)

    @contextmanager
    def commits_held(self, table: str) -> Iterator[HeldCommits]:
        """Holds up all commits inside the block, or until :meth:`HeldCommits.release`."""
        with psycopg.connect(self.url) as connection:
            connection.execute("LOCK TABLE iceberg_tables IN SHARE ROW EXCLUSIVE MODE")
            yield HeldCommits(self.url, connection, table)


def python_uri(url: str) -> str:
    """Returns the URI of a catalog in a database, as pyiceberg takes it."""
    return url.replace("postgresql:", "postgresql+psycopg:")


class HeldCommits:
    """Commits that wait in the catalog: their files are written.

    Args:
        url: of the database.
        connection: which holds the lock.
        table: whose commits are of interest.
    """

    def __init__(self, url: str, connection: psycopg.Connection, table: str) -> None:
        self._url, self._holder, self._table = url, connection, table
        self._pid = connection.info.backend_pid

    def waiting(self) -> tuple[int, int] | None:
        """Returns the backend of a commit that waits, and the port of who sent it."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute(_BLOCKED, (self._pid,)).fetchone()
        return (row[0], row[1]) if row else None

    def drop(self, backend: int) -> None:
        """Ends a commit that waits: it will not happen."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 10000)", (backend,))

    def release(self) -> None:
        """Returns as soon as the commit that waited has happened.

        Raises:
            SystemFailedError: if it did not within a minute.
        """
        with psycopg.connect(self._url, autocommit=True) as connection:
            before = _version(connection, self._table)
            self._holder.rollback()
            await_(
                lambda: _version(connection, self._table) != before,
                60,
                "the commit that was held up",
                look_seconds=_LOOK_SECONDS,
            )


def await_(
    condition: Callable[[], Answer | None], seconds: float, what: str, *, look_seconds: float = 0.3
) -> Answer:
    """Returns the first answer that is true.

    Raises:
        SystemFailedError: if it does not in time.
    """
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise SystemFailedError(f"waited {seconds:g} s for {what}")
        time.sleep(look_seconds)
    return answer


def _version(connection: psycopg.Connection, table: str) -> str:
    row = connection.execute(_VERSION, (table,)).fetchone()
    return str(row[0]) if row else ""
