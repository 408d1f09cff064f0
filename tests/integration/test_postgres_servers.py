"""Several servers of PostgreSQL: each table and its positions are at the server that is named."""

import uuid
from datetime import timedelta

import psycopg
import pytest

from headrace import Count, Postgres, Stats, WriteMode
from headrace.settings import Secret
from headrace.sinks.api import SinkContext
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_lab import batch, row, schema, written

CLICKS = "CREATE TABLE clicks (id bigint PRIMARY KEY, name text, at timestamptz)"


class Servers:
    """Databases with a table ``clicks``, which settings name; the one without a name has none."""

    def __init__(self, postgres, *names):
        self.urls = {}
        for name in (None, *names):
            self.urls[name] = postgres.create_database(f"server_{uuid.uuid4().hex[:8]}")
            if name is not None:
                self.execute(name, CLICKS)
        settings = {
            "url" if name is None else f"{name}.url": Secret(url) for name, url in self.urls.items()
        }
        self.context = SinkContext("p", "unused", {}, settings, event_time="at")

    def execute(self, server, statement):
        with psycopg.connect(self.urls[server], autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def rows(self, *servers):
        rows = []
        for server in servers:
            with psycopg.connect(
                self.urls[server], row_factory=psycopg.rows.dict_row
            ) as connection:
                rows += connection.execute("SELECT * FROM clicks").fetchall()
        return rows

    def tables(self, server):
        """Tables of the database, without staging tables."""
        select = (
            "SELECT nspname || '.' || relname FROM pg_class JOIN pg_namespace n"
            " ON n.oid = relnamespace WHERE relkind = 'r' AND nspname IN ('public', 'headrace')"
            " AND relname NOT LIKE 'staging_%' ORDER BY 1"
        )
        return [name for (name,) in self.execute(server, select)]

    def staged(self, *servers):
        select = "SELECT relname FROM pg_class WHERE relname LIKE 'staging_%' AND relkind = 'r'"
        return [name for server in servers for (name,) in self.execute(server, select)]


@pytest.fixture
def servers(postgres):
    """``servers(*names)``."""
    return lambda *names: Servers(postgres, *names)


class TestNamedServer(SinkContract):
    @pytest.fixture
    def lab(self, servers):
        made = servers("eu")
        return SinkLab(
            Postgres("clicks", server="eu"),
            made.context,
            read=lambda: made.rows("eu"),
            stored=lambda: len(made.staged("eu")),
            bad_row=row(9, "a\0b"),
        )


def test_a_table_and_its_positions_are_at_its_server_alone(servers):
    made = servers("eu", "us")
    sink = Postgres("clicks", WriteMode.UPSERT, ("id",), "at", server="eu")
    assert sink.changes(made.context, schema()) == ()
    driver = sink.open(made.context, schema())
    driver.commit(written(driver, row(1)), batch(0), 0)
    driver.close(0)
    again = sink.open_to_reprocess(made.context, schema(), None)
    again.commit(written(again, row(2)), batch(1), 0)
    again.close(0)
    assert [r["id"] for r in made.rows("eu")] == [1, 2]
    assert made.rows("us") == []
    assert sink.position_store(made.context).versions(["app"]) == {"app": 1}
    other = Postgres("clicks", WriteMode.UPSERT, ("id",), "at", server="us")
    assert other.position_store(made.context).versions(["app"]) == {}
    assert made.tables("us") == ["public.clicks"]
    assert made.tables(None) == []


def test_rows_are_counted_at_their_server(servers):
    made = servers("eu", "us")
    sink = Postgres("clicks", server="eu")
    driver = sink.open(made.context, schema())
    driver.commit(written(driver, *map(row, range(5))), batch(0), 0)
    snapshot = sink.snapshot(made.context)
    assert sum(rows.num_rows for rows in snapshot.batches(["id"])) == 5
    snapshot.close()
    assert Postgres("clicks", server="us").snapshot(made.context) is None


def test_statistics_make_their_table_at_their_server(servers):
    made = servers("eu", "us")
    measures = {"events": Count()}
    sink = Stats("counts", by=(), every=timedelta(hours=1), measures=measures, server="eu")
    [change] = sink.changes(made.context, schema())
    assert change.startswith("is made by the first start: ")
    driver = sink.open(made.context, schema())
    driver.commit(written(driver, *map(row, range(5))), batch(0), 0)
    assert made.execute("eu", "SELECT sum(events) FROM counts") == [(5,)]
    assert sink.window_counts(made.context).versions(["app"]) == {"app": 0}
    assert made.tables("us") == ["public.clicks"]


def test_a_server_that_does_not_answer_is_named(servers):
    made = servers("eu")
    made.context.settings["eu.url"] = Secret("postgresql://app:hush@127.0.0.1:1/none")
    with pytest.raises(Exception, match="PostgreSQL eu") as raised:
        Postgres("clicks", server="eu").open(made.context, schema())
    assert "hush" not in str(raised.value)
