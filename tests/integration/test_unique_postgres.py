"""Tables of PostgreSQL that have each row once: in a real server, whatever comes again."""

import json
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.integration.flow import Flow, click
from tests.integration.test_ledger import balance, run, states, totals
from tests.integration.test_pipeline_sinks import Database as FlowDatabase
from tests.integration.test_sinks import CLICKS, Database
from tests.integration.test_unique_stats import CONFLICTS, DUPLICATES, Commits, written

from headrace import OnNull, Postgres, Unique, WriteMode
from headrace.errors import SinkError, TableMismatchError
from headrace.ledger.sums import Fate
from headrace.ledger.windows import WindowState
from headrace.settings import Secret
from headrace.sinks.api import DELETED, Transaction
from headrace.sinks.postgres.connection import connect
from headrace.sinks.postgres.rows import taken_out
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_lab import row

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
SALES = Postgres("sales", unique=Unique(by=["id"], ignore=["received"]))
DDL = (
    "CREATE TABLE sales (id text PRIMARY KEY, at timestamptz, seller text, price numeric(10, 2),"
    " received bigint, tags json, noted timestamptz DEFAULT now())"
)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("seller", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("received", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)


def sale(id_, price="1.50", seller="s", received=0, tags=(), hours=0):
    at = None if hours is None else NOON + timedelta(hours=hours)
    values = {"id": id_, "at": at, "seller": seller, "received": received}
    return {**values, "price": None if price is None else Decimal(price), "tags": list(tags)}


@pytest.fixture
def empty(postgres):
    return postgres.create_database(f"unique_{uuid.uuid4().hex[:8]}")


@pytest.fixture
def database(empty):
    return Database(empty, DDL)


class TestPostgresWithoutDuplicates(SinkContract):
    @pytest.fixture
    def lab(self, empty):
        found = Database(empty, f"{CLICKS[:-1]}, PRIMARY KEY (id))")
        sink = Postgres("clicks", unique=Unique(by=["id"]))
        return SinkLab(
            sink,
            found.context,
            found.rows,
            stored=lambda: len(found.staged()),
            bad_row={**row(9), "id": None},
        )


def rows(database, columns="id, price::float8"):
    return dict(database.execute(f"SELECT {columns} FROM sales"))


def test_rows_that_come_again_are_dropped_over_tasks_batches_and_pipelines(database):
    commits = Commits(SALES, database, schema=SCHEMA)
    first = [sale("a"), sale("b", None), sale("a", received=9)]
    second = [sale("b", "7.00"), sale("c", tags=[("x", 1), ("y", 2)]), sale("b", None)]
    assert commits(first, second) == {"counted": 3, "duplicate": 2, "conflicting-key": 1}
    assert rows(database) == {"a": 1.5, "b": None, "c": 1.5}
    assert rows(database, "id, received")["a"] == 0
    assert [(letter["id"], letter["price"]) for letter in commits.letters] == [("b", 7.0)]
    assert {event["id"] for event in commits.repeats} == {"a", "b"}
    assert {event["at"] for event in commits.repeats} == {NOON}
    assert commits.figures == {DUPLICATES: 2, CONFLICTS: 1}
    again = Commits(SALES, database, "another", schema=SCHEMA)
    other_order = [sale("c", tags=[("y", 2), ("x", 1)]), sale("c", tags=[("x", 1)])]
    assert again([sale("a"), sale("d")], other_order) == {
        "counted": 1,
        "duplicate": 2,
        "conflicting-key": 1,
    }
    assert database.staged() == []


def test_a_row_that_the_table_does_not_take_and_one_that_it_has_are_told_apart(database):
    database.execute("ALTER TABLE sales ADD CONSTRAINT cheap UNIQUE (price, seller)")
    commits = Commits(SALES, database, schema=SCHEMA)
    commits([sale("a")])
    doors = commits([sale("a"), sale("b"), sale("c", seller="t"), sale("a", "9.00"), sale(None)])
    expected = {"counted": 1, "duplicate": 1, "not-unique": 1, "conflicting-key": 1}
    assert doors == {**expected, "missing-value": 1}
    assert set(rows(database)) == {"a", "c"}


REFUSED_AT_COMMIT = {
    "foreign-key": "CREATE TABLE sellers (name text PRIMARY KEY); INSERT INTO sellers VALUES ('s');"
    " ALTER TABLE sales ADD FOREIGN KEY (seller) REFERENCES sellers DEFERRABLE INITIALLY DEFERRED",
    "not-unique": "INSERT INTO sales VALUES ('b', now(), 'unknown');"
    " ALTER TABLE sales ADD UNIQUE (seller) DEFERRABLE INITIALLY DEFERRED",
    "rejected-by-trigger": "CREATE FUNCTION known() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN IF NEW.seller = 'unknown' THEN RAISE 'no'; END IF; RETURN NULL; END $$;"
    " CREATE CONSTRAINT TRIGGER known AFTER INSERT ON sales DEFERRABLE INITIALLY DEFERRED"
    " FOR EACH ROW EXECUTE FUNCTION known()",
}


@pytest.mark.parametrize("price", ["1.50", "9.00"])
@pytest.mark.parametrize("reason", REFUSED_AT_COMMIT)
@pytest.mark.parametrize("sink", ["unique", "newest"])
def test_a_row_that_is_refused_at_commit_decides_about_no_other(database, sink, reason, price):
    database.execute(REFUSED_AT_COMMIT[reason])
    unique = replace(SALES, unique=Unique(by=["id"], ignore=["seller"]))
    commits = Commits(unique if sink == "unique" else NEWEST, database, schema=SCHEMA)
    doors = commits([sale("a", seller="unknown"), sale("a", price)])
    assert doors == {reason: 1, "counted": 1}
    assert [letter["seller"] for letter in commits.letters] == ["unknown"]
    assert rows(database)["a"] == float(price)


def test_pipelines_that_commit_at_once_add_each_row_once(database):
    sales = [sale(f"i{n}") for n in range(400)]
    pipelines = [Commits(SALES, database, name, schema=SCHEMA) for name in ("p", "q", "r")]
    with ThreadPoolExecutor(3) as pool:
        doors = list(pool.map(lambda commits: commits(sales[:250], sales[200:]), pipelines))
    assert sum(each["counted"] for each in doors) == 400
    assert sum(each["duplicate"] for each in doors) == 950
    assert database.execute("SELECT count(*) FROM sales") == [(400,)]


def test_a_table_without_the_index_is_refused_with_the_statement(empty):
    database = Database(empty, DDL.replace(" PRIMARY KEY", ""))
    statement = 'CREATE UNIQUE INDEX ON "sales" \\("id"\\)'
    for refused in (SALES.changes, SALES.open):
        with pytest.raises(TableMismatchError, match=statement):
            refused(database.context, SCHEMA)
    database.execute(statement.replace("\\", ""))
    assert Commits(SALES, database, schema=SCHEMA)([sale("a")]) == {"counted": 1}


def test_types_without_an_equality_of_their_own_are_compared_as_texts(empty):
    database = Database(empty, DDL.replace("seller text", "seller point"))
    commits = Commits(SALES, database, schema=SCHEMA)
    sales = [sale("a", seller="(1,2)"), sale("a", seller="(1,3)"), sale("a", seller="( 1, 2 )")]
    assert commits(sales) == {"counted": 1, "duplicate": 1, "conflicting-key": 1}


def test_a_trigger_that_skips_rows_is_no_duplicate(database):
    database.execute(
        "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
        " CREATE TRIGGER skip BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION skip()"
    )
    commits = Commits(SALES, database, schema=SCHEMA)
    with pytest.raises(SinkError, match="does a trigger skip rows"):
        commits([sale("a")])


def test_conflicts_without_end_are_not_held_in_memory(database, monkeypatch):
    monkeypatch.setattr(taken_out, "MAX_DEAD_LETTERS", 2)
    commits = Commits(SALES, database, schema=SCHEMA)
    commits([sale(f"i{n}") for n in range(3)])
    with pytest.raises(SinkError, match="more than 2 rows of a batch have a key"):
        commits([sale(f"i{n}", "7.00") for n in range(3)])


NEWEST = Postgres("sales", WriteMode.UPSERT, ("id",), newest_by="at")


def test_of_rows_that_are_equally_new_the_first_stays_and_others_are_dead_letters(database):
    commits = Commits(NEWEST, database, schema=SCHEMA)
    tied = [sale("a"), sale("b", hours=None)], [sale("a", "9.00"), sale("a"), sale("c")]
    assert commits(*tied) == {"counted": 4, "conflicting-key": 1}
    assert rows(database) == {"a": 1.5, "b": 1.5, "c": 1.5}
    older = [sale("a", "5.00", hours=-1), sale("c", "6.00", hours=1), sale("c")]
    untimed = [sale("b", price, hours=None) for price in ("6.00", "7.00")]
    assert commits(older, [*untimed, sale("a", tags=[("x", 1)])]) == {
        "counted": 5,
        "conflicting-key": 1,
    }
    assert rows(database) == {"a": 1.5, "b": 7.0, "c": 6.0}
    assert [letter["id"] for letter in commits.letters] == ["a", "a"]
    assert commits.figures == {CONFLICTS: 2}
    assert commits([sale("b", "8.00"), sale("a", "0.50", hours=2)]) == {"counted": 2}
    assert rows(database) == {"a": 0.5, "b": 8.0, "c": 6.0}
    assert database.staged() == []


def test_ties_without_end_are_not_held_in_memory(database, monkeypatch):
    monkeypatch.setattr(taken_out, "MAX_DEAD_LETTERS", 2)
    commits = Commits(NEWEST, database, schema=SCHEMA)
    with pytest.raises(SinkError, match="newest_by that differs, unlike at"):
        commits([sale("a", f"{n}.00") for n in range(4)])


LOUD = (
    "CREATE FUNCTION loud() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN NEW.seller := upper(NEW.seller); RETURN NEW; END $$;"
    " CREATE TRIGGER loud BEFORE INSERT OR UPDATE ON sales FOR EACH ROW EXECUTE FUNCTION loud()"
)


@pytest.mark.parametrize("ignore", ["seller", "received"])
def test_columns_that_a_trigger_changes_are_ignored_where_they_are_named(database, ignore):
    database.execute(LOUD)
    sink = replace(SALES, unique=Unique(by=["id"], ignore=[ignore]))
    commits = Commits(sink, database, schema=SCHEMA)
    assert commits([sale("a")]) == {"counted": 1}
    door = "duplicate" if ignore == "seller" else "conflicting-key"
    assert commits([sale("a")]) == {door: 1}


def test_what_a_trigger_changes_is_no_tie(database):
    database.execute(LOUD)
    commits = Commits(NEWEST, database, schema=SCHEMA)
    batch = [sale("a"), sale("b"), sale("b"), sale("a", hours=-1), sale("c"), sale("c", "9.00")]
    assert commits(batch) == {"counted": 5, "conflicting-key": 1}
    assert rows(database, "id, seller") == {"a": "S", "b": "S", "c": "S"}


def test_a_row_that_is_as_new_fills_in_what_the_table_lacks(database):
    without = pa.schema([field for field in SCHEMA if field.name != "price"])
    names = Commits(NEWEST, database, "names", schema=without)
    prices = pa.schema([field for field in SCHEMA if field.name in {"id", "at", "price"}])
    numbers = Commits(NEWEST, database, "numbers", schema=prices)
    assert names([sale("a"), sale("b")]) == {"counted": 2}
    assert numbers([sale("a"), sale("b", "7.00")]) == {"counted": 2}
    assert rows(database) == {"a": 1.5, "b": 7.0}
    assert rows(database, "id, seller") == {"a": "s", "b": "s"}
    # Whether the table has its price of then, or an older one, is not known.
    assert numbers([sale("a", "9.00"), sale("b", "7.00")]) == {"counted": 2}
    assert names([sale("a"), sale("b", seller="t")]) == {"counted": 2}
    assert rows(database) == {"a": 9.0, "b": 7.0}
    assert rows(database, "id, seller") == {"a": "s", "b": "t"}


ODD = [
    ("json", r'{"a": "\u0000"}', r'{"a":"\u0000"}'),
    ("json", r'["\ud800"]', "[]"),
    ("json", "[1e400000]", "[1]"),
    ("varchar(3)[]", "{a,b}", "{a}"),
    ("numeric(9, 2)[]", "{1.5}", "{1.6}"),
    ("json[]", '{"[1]"}', "{}"),
    ("point[]", '{"(1,2)"}', "{}"),
    ("jsonpath", "$.a", "$.b"),
    ("odd_parts", "([1],x)", "([2],x)"),
    ("timestamptz", "infinity", "-infinity"),
    ("interval", "1 month", "30 days"),
    ("interval[]", "{1 day}", "{24:00:00}"),
]


@pytest.mark.parametrize(("kind", "value", "other"), ODD)
@pytest.mark.parametrize("sink", [SALES, NEWEST], ids=["unique", "newest"])
def test_values_of_any_type_are_compared(empty, sink, kind, value, other):
    ddl = DDL.replace("seller text", f"seller {kind}")
    database = Database(empty, f"CREATE TYPE odd_parts AS (a json, b text); {ddl}")
    commits = Commits(sink, database, schema=SCHEMA)
    first, tied = sale("a", seller=value), sale("a", seller=other)
    is_dropped = sink is SALES
    doors = {"duplicate": 1, "counted": 1} if is_dropped else {"counted": 2}
    assert commits([first, first, tied]) == {**doors, "conflicting-key": 1}
    doors = {"duplicate": 1} if is_dropped else {"counted": 1}
    assert commits([first]) == doors
    assert commits([tied]) == {"conflicting-key": 1}


@pytest.mark.parametrize("name", ["rows", "first", "known", "newest", "target"])
def test_a_table_may_have_the_name_of_a_part_of_a_statement(empty, name):
    database = Database(
        empty, f'CREATE TABLE "{name}" (id text PRIMARY KEY, at timestamptz, n int)'
    )
    schema = pa.schema([("id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int32())])
    first, tied = ({"id": "a", "at": NOON, "n": n} for n in (1, 2))
    unique = Postgres(name, unique=Unique(by=["id"]))
    doors = Commits(unique, database, schema=schema)([first, first, tied])
    assert doors == {"counted": 1, "duplicate": 1, "conflicting-key": 1}
    database.execute(f'TRUNCATE "{name}"; DROP SCHEMA headrace CASCADE')
    newest = Postgres(name, WriteMode.UPSERT, ("id",), newest_by="at")
    doors = Commits(newest, database, schema=schema)([first, tied])
    assert doors == {"counted": 1, "conflicting-key": 1}


def test_any_character_may_be_in_the_names_of_columns(empty):
    ddl = 'CREATE TABLE sales ("% id" text PRIMARY KEY, "at %s" timestamptz, "$1" text)'
    schema = pa.schema(
        [("% id", pa.string()), ("at %s", pa.timestamp("us", "UTC")), ("$1", pa.string())]
    )
    first, tied = ({"% id": "a", "at %s": NOON, "$1": text} for text in "xy")
    database = Database(empty, ddl)
    unique = Postgres("sales", unique=Unique(by=["% id"]))
    doors = Commits(unique, database, schema=schema)([first, first, tied])
    assert doors == {"counted": 1, "duplicate": 1, "conflicting-key": 1}
    database.execute("TRUNCATE sales; DROP SCHEMA headrace CASCADE")
    newest = Postgres("sales", WriteMode.UPSERT, ("% id",), newest_by="at %s")
    assert Commits(newest, database, schema=schema)([first, tied]) == {
        "counted": 1,
        "conflicting-key": 1,
    }


def test_a_reprocessing_replaces_rows_that_are_equally_new(database):
    Commits(NEWEST, database, schema=SCHEMA)([sale("a")])
    driver = NEWEST.open_to_reprocess(database.context, SCHEMA, None)
    pieces, _ = written(driver, [sale("a", "9.00")], schema=SCHEMA)
    assert driver.commit(pieces, Transaction({"q": 0}, {"q": None}), 0).rows == 1
    assert rows(database) == {"a": 9.0}


def test_the_ledger_knows_which_rows_were_dropped(broker, spark, tmp_path, postgres):
    flow = Flow(broker, spark, tmp_path, event_id="event_id")
    columns = (
        "event_id text PRIMARY KEY, event_time timestamptz, category text, n int, price float8"
    )
    url = postgres.create_database(f"unique_{uuid.uuid4().hex[:8]}")
    database = FlowDatabase(flow, url, columns)
    sink = Postgres("clicks", unique=Unique(by=["event_id"]))
    pipeline = flow.pipeline(sink=sink)
    flow.send([click(n) for n in range(100)])
    run(flow, pipeline)
    again = [click(n) for n in range(20)]
    late = click(100, event_time=json.loads(click(0))["event_time"] - int(4e8))
    flow.send([*again, late, click(5, price=99.0)])
    outcome = run(flow, pipeline)
    assert (outcome.figures[DUPLICATES], outcome.figures[CONFLICTS]) == (20, 1)
    assert [stored.letter.reason for stored in flow.dead()] == ["conflicting-key"]
    assert database.ids() == Counter(f"e{n}" for n in range(101))
    result = balance(flow, pipeline)
    fates = {Fate.OUT: 101, Fate.DEDUPLICATED: 20, Fate.DEAD: 1}
    assert totals(result) == {"read": 122} | fates
    assert not {WindowState.UNBALANCED, WindowState.UNKNOWN} & set(states(result))


def test_pipelines_that_write_different_columns_complete_rows_that_change(empty):
    database = Database(
        empty, "CREATE TABLE users (id bigint PRIMARY KEY, at bigint, a int, b int)"
    )
    sink = Postgres("users", WriteMode.UPSERT, ("id",), newest_by="at")
    pipelines = [
        Commits(sink, database, name, schema=pa.schema([(each, pa.int64()) for each in columns]))
        for name, columns in {"first": ("id", "at", "a"), "second": ("id", "at", "b")}.items()
    ]
    for at in (1, 2, 3):
        for commits, name in zip(pipelines, ("a", "b"), strict=True):
            assert commits([{"id": 1, "at": at, name: 10 * at}]) == {"counted": 1}
    assert database.execute("TABLE users") == [(1, 3, 30, 30)]


@pytest.mark.parametrize("on_null", OnNull)
def test_a_value_of_another_unique_index_moves_between_keys_of_a_batch(empty, on_null):
    database = Database(
        empty, "CREATE TABLE users (id bigint PRIMARY KEY, at bigint, mail text UNIQUE)"
    )
    kinds = {"id": pa.int64(), "at": pa.int64(), "mail": pa.string(), DELETED: pa.bool_()}
    newest_by = "at" if on_null is OnNull.LEAVE_OUT else None
    sink = Postgres("users", WriteMode.UPSERT, ("id",), newest_by=newest_by, on_null=on_null)
    names = [name for name in kinds if name != DELETED or on_null is OnNull.DELETE]
    commits = Commits(sink, database, schema=pa.schema([(name, kinds[name]) for name in names]))

    def user(id_, at, mail):
        values = {"id": id_, "at": at, "mail": mail, DELETED: mail is None}
        return {name: values[name] for name in names}

    assert commits([user(1, 1, "a"), user(2, 1, "b"), user(3, 1, "c")]) == {"counted": 3}
    assert commits([user(2, 2, "d"), user(1, 2, "b")]) == {"counted": 2}
    left = [(1, 2, "b"), (2, 2, "d"), (3, 1, "c")]
    if on_null is OnNull.DELETE:
        assert commits([user(3, 2, None), user(0, 2, "c")]) == {"counted": 2}
        left = [(0, 2, "c"), *left[:2]]
    assert database.execute("SELECT * FROM users ORDER BY id") == left


def test_defaults_of_the_database_change_no_transaction_and_no_time(empty):
    database = Database(empty, "SELECT 1")
    [(name,)] = database.execute("SELECT current_database()")
    for setting in ("default_transaction_isolation = 'repeatable read'", "TimeZone = 'Asia/Tokyo'"):
        database.execute(f"ALTER DATABASE {name} SET {setting}")
    with connect(Secret(empty)) as connection, connection.transaction():
        for setting, value in {
            "transaction_isolation": "read committed",
            "TimeZone": "UTC",
        }.items():
            assert connection.execute(f"SHOW {setting}").fetchall() == [(value,)]


@pytest.mark.parametrize("sink", ["newest", "last", "delete"])
def test_a_row_that_is_replaced_is_no_dead_letter_beside_one_that_is(empty, sink):
    database = Database(
        empty,
        "CREATE TABLE cities (name text PRIMARY KEY); INSERT INTO cities VALUES ('good');"
        " CREATE TABLE users (id bigint PRIMARY KEY, at bigint, city text REFERENCES cities)",
    )
    kinds = {"id": pa.int64(), "at": pa.int64(), "city": pa.string()}
    declared = Postgres("users", WriteMode.UPSERT, ("id",))
    if sink == "newest":
        declared = replace(declared, newest_by="at")
    if sink == "delete":
        declared = replace(declared, on_null=OnNull.DELETE)
        kinds[DELETED] = pa.bool_()
    commits = Commits(declared, database, schema=pa.schema(list(kinds.items())))

    def user(id_, at, city):
        values = {"id": id_, "at": at, "city": city, DELETED: False}
        return {name: values[name] for name in kinds}

    replaced = [user(1, at, city) for at, city in enumerate(["bad", "good", "worse", "good"])]
    refused = [user(2, at, city) for at, city in enumerate(["worse", "good", "bad", "worse"])]
    batch = [row for pair in zip(replaced, refused, strict=True) for row in pair]
    assert commits(batch) == {"counted": 6, "foreign-key": 2}
    assert [letter["id"] for letter in commits.letters] == [2, 2]
    assert database.execute("SELECT * FROM users ORDER BY id") == [(1, 3, "good"), (2, 1, "good")]
    if sink == "newest":
        rows = [user(3, 2, "good"), user(4, 1, "bad"), user(3, 1, "bad"), user(3, 0, "worse")]
        assert commits(rows) == {"counted": 3, "foreign-key": 1}


def test_a_row_that_waits_for_another_is_not_written_over_a_newer_one(empty):
    database = Database(
        empty,
        "CREATE TABLE users (id bigint PRIMARY KEY, mail text UNIQUE,"
        " chief bigint REFERENCES users)",
    )
    schema = pa.schema([("id", pa.int64()), ("mail", pa.string()), ("chief", pa.int64())])
    sink = Postgres("users", WriteMode.UPSERT, ("id",))
    commits = Commits(sink, database, schema=schema)

    def users(*rows):
        return [dict(zip(schema.names, row, strict=True)) for row in rows]

    commits(users((1, "a", None), (2, "b", None)))
    # The mail b moves to a lower key, which no single statement does.
    batch = users((5, "e", 9), (2, "d", None), (5, "e", None), (9, "i", None), (1, "b", None))
    assert commits(batch) == {"counted": 5}
    assert database.execute("SELECT id, mail, chief FROM users ORDER BY id") == [
        (1, "b", None),
        (2, "d", None),
        (5, "e", None),
        (9, "i", None),
    ]


def test_numbers_whose_sum_fits_are_added_beside_one_that_does_not(empty):
    database = Database(empty, "CREATE TABLE totals (id bigint PRIMARY KEY, n int)")
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    commits = Commits(Postgres("totals", WriteMode.ADD, ("id",)), database, schema=schema)
    most = 2**31 - 1
    added = [(1, most), (1, most), (1, 1), (1, -most), (1, -1), (2, most), (2, most), (2, -1)]
    doors = commits([{"id": id_, "n": n} for id_, n in added])
    assert doors == {"counted": 7, "wrong-value": 1}
    assert [letter["id"] for letter in commits.letters] == [2]
    assert database.execute("SELECT * FROM totals ORDER BY id") == [(1, most), (2, most - 1)]


def test_the_letter_of_a_tombstone_that_is_refused_has_the_columns_of_the_table(empty):
    database = Database(
        empty,
        "CREATE TABLE users (id bigint PRIMARY KEY, mail text);"
        " CREATE TABLE orders (by_user bigint REFERENCES users);"
        " INSERT INTO users VALUES (1, 'a'); INSERT INTO orders VALUES (1)",
    )
    kinds = [("id", pa.int64()), ("mail", pa.string()), (DELETED, pa.bool_())]
    sink = Postgres("users", WriteMode.UPSERT, ("id",), on_null=OnNull.DELETE)
    commits = Commits(sink, database, schema=pa.schema(kinds))
    tombstone = {"id": 1, "mail": None, DELETED: True}
    assert commits([tombstone]) == {"foreign-key": 1}
    assert commits.letters == [{"id": 1, "mail": None}]
