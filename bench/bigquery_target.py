"""Tables of a stand-in for BigQuery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.integration.bigquery_server import PID_FILE, REQUIREMENTS, BigQueryServer

from bench.cluster import WORK, Broker
from bench.events import BEGIN, SPAN
from bench.sink_targets import KEY, TIME, Target, table_name
from headrace.runtime.java.installation import Java


@dataclass(frozen=True)
class BigQueryTarget(Target):
    """Tables that the sink itself makes."""

    server: BigQueryServer

    @property
    def database_pid(self) -> int:
        """The stand-in's process."""
        return int((self.server.folder / PID_FILE).read_text())

    @property
    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """Its two addresses, and where tables are."""
        secrets = self.server.settings
        return {"bigquery": {name: secret.reveal() for name, secret in secrets.items()}}

    @property
    def versions(self) -> Mapping[str, str]:
        """The stand-in's, and that of its database."""
        pinned = (line.split("==") for line in REQUIREMENTS.split() if "==" in line)
        names = ("local-bigquery", "duckdb")
        return {name: version for name, version in pinned if name in names}

    def create(self, name: str) -> None:
        """There is nothing to make."""

    def event_ids(self, name: str) -> tuple[int, int]:
        """Counts them; a row counts if its time is one of the events'."""
        begin, end = (f"TIMESTAMP '{time.isoformat()}'" for time in (BEGIN, BEGIN + SPAN))
        [(rows, distinct)] = self.server.query(
            f"SELECT COUNTIF({TIME} >= {begin} AND {TIME} < {end}), COUNT(DISTINCT {KEY})"
            f" FROM {table_name(name)}"
        )
        return int(rows), int(distinct)

    def remove(self, name: str) -> None:
        """Drops the table."""
        self.server.query(f"DROP TABLE {table_name(name)}")


@contextmanager
def opened_stand_in(_: Broker, __: Java) -> Iterator[BigQueryTarget]:
    """A stand-in; gone when the block ends."""
    folder = WORK / "bigquery"
    folder.mkdir()
    server = BigQueryServer(folder)
    server.start()
    try:
        yield BigQueryTarget(server)
    finally:
        server.kill()
