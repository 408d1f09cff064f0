"""Several servers of PostgreSQL: each table and its positions are at the server that is named."""

import json
import uuid
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from headrace import ByServer, Count, Postgres, Stats, WriteMode
from headrace.errors import SinkError, TableMismatchError
from headrace.settings import Secret
from headrace.sinks.api import CommitRejection, SinkContext, Transaction
from headrace.sinks.postgres.servers.records import ServerRecords
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_lab import batch, row, schema, table, written

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


HALVES = ByServer("id", dict.fromkeys(range(0, 100, 2), "eu"), otherwise="us")


class KilledError(BaseException):
    """The driver is gone."""


class TestServers(SinkContract):
    @pytest.fixture
    def lab(self, servers):
        made = servers("eu", "us")
        return SinkLab(
            Postgres("clicks", server=HALVES),
            made.context,
            read=lambda: made.rows("eu", "us"),
            stored=lambda: len(made.staged("eu", "us")),
            bad_row=row(9, "a\0b"),
        )


class TestServersByKey(SinkContract):
    @pytest.fixture
    def lab(self, servers):
        made = servers("eu", "us")
        sink = Postgres("clicks", WriteMode.UPSERT, ("id",), "at", server=HALVES)
        return SinkLab(sink, made.context, lambda: made.rows("eu", "us"), bad_row=row(9, "a\0b"))


def batch_of_p(number):
    """A batch, recorded as a pipeline ``p`` does."""
    expected = {"headrace.p/1": number - 1 if number else None}
    return Transaction({"headrace.p": 1, "headrace.p/1": number}, expected)


def stands_at(made, server):
    store = Postgres("clicks", server=server).position_store(made.context)
    return store.versions(["headrace.p/1"]).get("headrace.p/1")


def ids(made, server):
    return [n for (n,) in made.execute(server, "SELECT id FROM clicks ORDER BY id")]


def killed_between(monkeypatch, driver, pieces, transaction, server="us"):
    """Commits at the servers before this one, where the driver is killed."""

    def killed(*arguments):
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(driver._drivers[server], "commit", killed)
        with pytest.raises(KilledError):
            driver.commit(pieces, transaction, 0)


def test_a_batch_that_one_server_lacks_is_completed_there_alone(servers, monkeypatch):
    made = servers("eu", "us")
    sink = Postgres("clicks", server=HALVES)
    driver = sink.open(made.context, schema())
    driver.commit(written(driver, *map(row, range(4))), batch_of_p(0), 0)
    pieces = written(driver, *map(row, range(4, 8)))
    killed_between(monkeypatch, driver, pieces, batch_of_p(1))
    assert (ids(made, "eu"), ids(made, "us")) == ([0, 2, 4, 6], [1, 3])
    assert stands_at(made, HALVES) == 0
    again = sink.open(made.context, schema())
    done = again.commit(written(again, *map(row, range(4, 8))), batch_of_p(1), 0)
    assert (done.is_new, done.rows) == (True, 4)
    assert (ids(made, "eu"), ids(made, "us")) == ([0, 2, 4, 6], [1, 3, 5, 7])
    assert stands_at(made, HALVES) == 1
    assert made.staged("eu", "us") == []


def test_the_first_batch_may_be_at_one_server_alone(servers, monkeypatch):
    made = servers("eu", "us")
    sink = Postgres("clicks", server=HALVES)
    driver = sink.open(made.context, schema())
    killed_between(monkeypatch, driver, written(driver, row(1), row(2)), batch_of_p(0))
    assert stands_at(made, HALVES) is None
    again = sink.open(made.context, schema())
    again.commit(written(again, row(1), row(2)), batch_of_p(0), 0)
    assert (ids(made, "eu"), ids(made, "us")) == ([2], [1])


@pytest.mark.parametrize(
    "server",
    [ByServer("id", {1: "eu"}, "us"), ByServer("id", {1: "ap"}, "eu"), "eu", "us"],
    ids=["values", "servers", "ahead", "behind"],
)
def test_rows_are_sharded_in_another_way_only_when_no_server_lacks_a_batch(
    servers, monkeypatch, server
):
    made = servers("ap", "eu", "us")
    sink, other = Postgres("clicks", server=HALVES), Postgres("clicks", server=server)
    driver = sink.open(made.context, schema())
    driver.commit(written(driver, row(1), row(2)), batch_of_p(0), 0)
    killed_between(monkeypatch, driver, written(driver, row(3), row(4)), batch_of_p(1))
    with pytest.raises(TableMismatchError, match="`server` as it was before"):
        other.open(made.context, schema())
    again = sink.open(made.context, schema())
    again.commit(written(again, row(3), row(4)), batch_of_p(1), 0)
    new = other.open(made.context, schema())
    assert stands_at(made, server) == 1
    new.commit(written(new, row(5), row(6)), batch_of_p(2), 0)
    assert sorted(values["id"] for values in made.rows("ap", "eu", "us")) == [1, 2, 3, 4, 5, 6]


def test_two_addresses_of_one_database_are_no_two_servers(servers):
    made = servers("eu")
    own = made.urls["eu"]
    settings = {"eu.url": Secret(own), "us.url": Secret(f"{own}?application_name=us")}
    context = replace(made.context, settings=settings)
    with pytest.raises(TableMismatchError, match="server us is the database of another one"):
        Postgres("clicks", server=HALVES).open(context, schema())
    assert made.rows("eu") == []


def test_a_driver_that_was_frozen_while_a_server_joins_sets_no_positions_back(servers):
    made = servers("eu", "us")
    records = ServerRecords(made.context.settings, "clicks", "p")
    before = records.read("eu")
    driver = Postgres("clicks", server=HALVES).open(made.context, schema())
    driver.commit(written(driver, row(1), row(2)), batch_of_p(0), 0)
    with pytest.raises(SinkError, match="another driver has written"):
        records.copy("us", "eu", before)


def test_a_server_that_leaves_is_asked_whether_it_has_the_last_batch(servers):
    made = servers("eu", "us")
    driver = Postgres("clicks", server=HALVES).open(made.context, schema())
    driver.commit(written(driver, row(1), row(2)), batch_of_p(0), 0)
    us = made.context.settings.pop("us.url")
    alone = Postgres("clicks", server="eu")
    with pytest.raises(TableMismatchError, match=r"no \[sinks.postgres.us\]"):
        alone.open(made.context, schema())
    made.context.settings["us.url"] = us
    alone.open(made.context, schema())
    del made.context.settings["us.url"]
    driver = alone.open(made.context, schema())
    driver.commit(written(driver, row(3)), batch_of_p(1), 0)
    assert ids(made, "eu") == [2, 3]


def test_a_table_of_one_server_is_sharded_from_now_on(servers):
    made = servers("eu", "us")
    alone = Postgres("clicks", server="eu")
    driver = alone.open(made.context, schema())
    driver.commit(written(driver, row(1)), batch_of_p(0), 0)
    sink = Postgres("clicks", server=HALVES)
    assert stands_at(made, HALVES) == 0
    for number in (1, 2):
        driver = sink.open(made.context, schema())
        driver.commit(written(driver, row(2 * number), row(2 * number + 1)), batch_of_p(number), 0)
    assert (ids(made, "eu"), ids(made, "us")) == ([1, 2, 4], [3, 5])


def test_rows_without_a_server_are_rejected(servers):
    made = servers("eu")
    sink = Postgres("clicks", server=ByServer("name", {"acme": "eu"}))
    driver = sink.open(made.context, schema())
    writer = driver.writers("a" * 32)
    names = ["acme", None, "other", "acme", "a\0b"]
    rejected = writer.write(table([row(n, name) for n, name in enumerate(names)]))
    assert [(it.index, it.reason) for it in rejected] == [(n, "no-server") for n in (1, 2, 4)]
    assert rejected[1].detail == "column 'name': ByServer names no server for 'other'"
    driver.commit(writer.close(), batch_of_p(0), 0)
    assert ids(made, "eu") == [0, 3]


def test_rows_that_a_commit_rejects_keep_no_other_server_from_its_rows(servers):
    made = servers("eu", "us")
    for server in ("eu", "us"):
        made.execute(server, f"INSERT INTO clicks VALUES ({2 if server == 'eu' else 1})")
    sink = Postgres("clicks", server=HALVES)
    driver = sink.open(made.context, schema())
    pieces, rejected = written(driver, *map(row, range(1, 5))), []
    done = driver.commit(pieces, batch_of_p(0), 0)
    while isinstance(done, CommitRejection):
        rejected += [json.loads(it.values)["id"] for it in done.rejected]
        done = driver.commit(done.pieces, batch_of_p(0), 0)
    assert (rejected, done.is_new, done.rows) == ([2, 1], True, 2)
    assert (ids(made, "eu"), ids(made, "us")) == ([2, 4], [1, 3])
    assert made.staged("eu", "us") == []


def test_a_column_that_is_not_there_is_refused_by_the_start(servers):
    made = servers("eu")
    sink = Postgres("clicks", server=ByServer("account", {"acme": "eu"}))
    with pytest.raises(TableMismatchError, match="no column 'account'"):
        sink.open(made.context, schema())
    sink = Postgres("clicks", server=ByServer("id", {"acme": "eu"}))
    with pytest.raises(TableMismatchError, match="column 'id' of its rows is int64"):
        sink.open(made.context, schema())


def test_a_table_that_is_missing_is_named_with_its_server(servers):
    made = servers("eu", "us")
    made.execute("us", "DROP TABLE clicks")
    sink = Postgres("clicks", server=HALVES)
    for look in (sink.changes, sink.open):
        with pytest.raises(TableMismatchError) as raised:
            look(made.context, schema())
        assert raised.value.table == "clicks at us"


def test_a_lost_checkpoint_is_replaced_only_where_no_server_lacks_a_batch(servers, monkeypatch):
    """A pipeline that takes over commits no rows, and the positions that its servers record."""
    made = servers("eu", "us")
    sink = Postgres("clicks", server=HALVES)
    driver = sink.open(made.context, schema())
    driver.commit(written(driver, row(1), row(2)), batch_of_p(0), 0)
    killed_between(monkeypatch, driver, written(driver, row(3), row(4)), batch_of_p(1))
    taken_over = Transaction({"headrace.p": 2}, {"headrace.p": 1, "headrace.p/1": 0})
    with pytest.raises(SinkError, match="table clicks at eu"):
        sink.open(made.context, schema()).commit([], taken_over, 0)
    again = sink.open(made.context, schema())
    again.commit(written(again, row(3), row(4)), batch_of_p(1), 0)
    taken_over = Transaction({"headrace.p": 2}, {"headrace.p": 1, "headrace.p/1": 1})
    assert sink.open(made.context, schema()).commit([], taken_over, 0).is_new
    assert (ids(made, "eu"), ids(made, "us")) == ([2, 4], [1, 3])


@pytest.mark.parametrize(
    "server", [ByServer("id", {1: "eu"}, "us"), "eu"], ids=["another map", "one server"]
)
def test_a_driver_that_was_frozen_is_refused_once_rows_are_sharded_in_another_way(servers, server):
    made = servers("eu", "us")
    before = Postgres("clicks", server=server).open(made.context, schema())
    before.commit(written(before, row(1)), batch_of_p(0), 0)
    pieces = written(before, row(2))
    after = Postgres("clicks", server=HALVES).open(made.context, schema())
    with pytest.raises(SinkError, match="shards its rows in another way"):
        before.commit(pieces, batch_of_p(1), 0)
    after.commit(written(after, row(2)), batch_of_p(1), 0)
    assert (ids(made, "eu"), ids(made, "us")) == ([1, 2], [])


@pytest.mark.parametrize(("stays", "leaves"), [("eu", "us"), ("us", "eu")])
@pytest.mark.parametrize("kills", [1, 2, 3])
def test_a_start_that_is_killed_while_servers_record_a_new_map_is_continued(
    servers, monkeypatch, kills, stays, leaves
):
    made = servers("ap", "eu", "us")
    driver = Postgres("clicks", server=HALVES).open(made.context, schema())
    driver.commit(written(driver, row(1), row(2)), batch_of_p(0), 0)
    steps = []

    def killed(self, *arguments):
        steps.append(arguments)
        if len(steps) >= kills:
            raise KilledError
        original[len(arguments) == 2](self, *arguments)

    original = {True: ServerRecords.copy, False: ServerRecords.record}
    new = Postgres("clicks", server=ByServer("id", {1: "ap"}, stays))
    with monkeypatch.context() as patched:
        patched.setattr(ServerRecords, "record", killed)
        patched.setattr(ServerRecords, "copy", killed)
        with pytest.raises(KilledError):
            new.open(made.context, schema())
    again = new.open(made.context, schema())
    assert stands_at(made, new.server) == 0
    again.commit(written(again, row(3), row(4)), batch_of_p(1), 0)
    # Those that stay have the batch.
    with pytest.raises(SinkError, match=f"at {leaves}"):
        driver.commit(written(driver, row(3), row(4)), batch_of_p(1), 0)
    counted = Counter(values["id"] for values in made.rows("ap", "eu", "us"))
    assert counted == dict.fromkeys([1, 2, 3, 4], 1)
