"""A table of PostgreSQL is one, however it is named, and its rows have one meaning."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import psycopg
import pyarrow as pa
import pytest
from tests.integration.test_sinks import CLICKS, Database
from tests.waiting import wait_for

from headrace import Count, Distinct, Postgres, Stats, Sum, WriteMode
from headrace.errors import SinkError, TableMismatchError
from headrace.settings import Secret
from headrace.sinks.api import Transaction
from headrace.testing.sink_lab import batch, row, schema, written

NUMBERS = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("m", pa.int64())])
MINUTE = timedelta(minutes=1)
COUNTS = Stats(
    "public.ads",
    by=("id",),
    every=MINUTE,
    measures={"rows": Count(), "names": Distinct("name"), "ids": Sum("id")},
)


@pytest.fixture
def database(postgres):
    """``database(ddl)``: a new database."""

    def made(ddl=CLICKS):
        return Database(postgres.create_database(f"named_{uuid.uuid4().hex[:8]}"), ddl)

    return made


def recorded(database, table):
    return Postgres(table).position_store(database.context).versions(["app"])


SPELLINGS = [("clicks", "public.clicks"), ("public.clicks", "clicks"), ("clicks", "shop.views")]


@pytest.mark.parametrize(("first", "second"), SPELLINGS)
def test_a_table_keeps_its_positions_under_another_spelling_of_its_name(database, first, second):
    found = database()
    driver = Postgres(first).open(found.context, schema())
    driver.commit(written(driver, row(1)), batch(0), 0)
    if second == "shop.views":
        found.execute("CREATE SCHEMA shop; ALTER TABLE clicks SET SCHEMA shop")
        found.execute("ALTER TABLE shop.clicks RENAME TO views")
    assert recorded(found, second) == {"app": 0}
    again = Postgres(second).open(found.context, schema())
    assert again.commit(written(again, row(1)), batch(0), 0).is_new is False
    again.commit(written(again, row(2)), batch(1), 0)
    with pytest.raises(SinkError):
        driver.commit(written(driver, row(3)), Transaction({"app": 7}, {"app": 0}), 0)
    assert found.execute(f"SELECT id FROM {second} ORDER BY id") == [(1,), (2,)]
    assert found.execute("SELECT DISTINCT target FROM headrace.positions") == [(first,)]
    snapshot = Postgres(second).snapshot(found.context)
    assert snapshot.versions(["app"]) == {"app": 1}
    snapshot.close()


def test_positions_that_an_earlier_version_recorded_under_both_spellings_are_found(database):
    found = database()
    Postgres("clicks").open(found.context, schema())
    found.execute(
        "DROP TABLE headrace.tables; INSERT INTO headrace.positions"
        " SELECT target, app_id, version, 'clicks'::regclass, 'headrace.positions'::regclass"
        " FROM (VALUES ('clicks', 'old', 7), ('public.clicks', 'app', 0), ('other', 'app', 9))"
        " AS known (target, app_id, version)"
    )
    for table in ("clicks", "public.clicks"):
        assert Postgres(table).position_store(found.context).versions(["app", "old"]) == {
            "app": 0,
            "old": 7,
        }
        driver = Postgres(table).open(found.context, schema())
        assert driver.commit([], batch(0), 0).is_new is False


def test_tables_of_one_name_in_two_schemas_are_two(database):
    found = database("CREATE SCHEMA a; CREATE SCHEMA b")
    contexts = []
    for tenant in "ab":
        found.execute(f"{CLICKS.replace('clicks', f'{tenant}.clicks')}")
        url = Secret(f"{found.url}?options=-csearch_path%3D{tenant}")
        contexts.append(replace(found.context, settings={"url": url}))
    for number, context in enumerate(contexts):
        driver = Postgres("clicks").open(context, schema())
        assert driver.positions.versions(["app"]) == {}
        driver.commit(written(driver, row(number)), batch(0), 0)
    assert found.execute("TABLE a.clicks UNION ALL TABLE b.clicks")[1][0] == 1
    assert recorded(found, "b.clicks") == {"app": 0}


def test_tables_of_one_name_that_an_earlier_version_recorded_as_one_are_two(database):
    found = database("CREATE SCHEMA a; CREATE SCHEMA b")
    contexts = []
    for tenant in "ab":
        found.execute(f"CREATE TABLE {tenant}.clicks (id bigint PRIMARY KEY, n bigint, m bigint)")
        url = Secret(f"{found.url}?options=-csearch_path%3D{tenant}")
        contexts.append(replace(found.context, pipeline=tenant, settings={"url": url}))
    sinks = ADDED, REPLACED
    for sink, context in zip(sinks, contexts, strict=True):
        commit(sink.open(context, NUMBERS), context.pipeline)
    found.execute("DROP TABLE headrace.tables; UPDATE headrace.positions SET target = 'clicks'")
    for sink, context in zip(sinks, contexts, strict=True):
        app = context.pipeline
        assert sink.open(context, NUMBERS).positions.versions([app]) == {app: 0}
    for sink, context in zip(reversed(sinks), contexts, strict=True):
        with pytest.raises(TableMismatchError, match="mode"):
            sink.open(context, NUMBERS)
    assert found.execute("SELECT target FROM headrace.tables ORDER BY 1") == [
        ("b.clicks",),
        ("clicks",),
    ]


def commit(driver, app):
    """Writes one row, in a transaction of its own."""
    writer = driver.writers(uuid.uuid4().hex)
    writer.write(pa.Table.from_pylist([{"id": 1, "n": 1, "m": 1}], NUMBERS))
    return driver.commit(writer.close(), Transaction({app: 0}, {app: None}), 0)


def test_a_dropped_table_of_counts_is_missed_under_another_spelling(database):
    found = database("SELECT 1")
    driver = COUNTS.open(found.context, schema())
    driver.commit(written(driver, row(1)), batch(0), 0)
    found.execute("DROP TABLE ads")
    for look in (COUNTS.changes, COUNTS.open, replace(COUNTS, table="ads").open):
        with pytest.raises(TableMismatchError, match="it was deleted"):
            look(found.context, schema())


def test_pipelines_that_spell_a_table_differently_are_complete_under_one_name(database):
    found = database("SELECT 1")
    driver = COUNTS.open(found.context, schema())
    driver.commit(written(driver, row(1)), batch(0), 0)
    for recorded_by_an_earlier_version in ("completeness", "positions"):
        found.execute(f"UPDATE headrace.{recorded_by_an_earlier_version} SET target = 'ads'")
    other = replace(found.context, pipeline="other")
    replace(COUNTS, table="ads").open(other, schema())
    COUNTS.open(found.context, schema())
    names = found.execute("SELECT target, pipeline FROM headrace.completeness ORDER BY 2")
    assert names == [("public.ads", "other"), ("public.ads", "p")]


CHANGES = {
    "every_seconds 60, and 300": {"every": timedelta(minutes=5)},
    r"Count\(\)": {"measures": {**COUNTS.measures, "rows": Sum("id")}},
    r"Sum\('id'\)": {"measures": {**COUNTS.measures, "ids": Count()}},
    "by": {"by": ("ids",), "measures": {"rows": Count(), "id": Sum("id")}},
}


@pytest.mark.parametrize("reason", CHANGES)
def test_rows_of_another_meaning_are_refused_until_the_table_is_empty(database, reason):
    found = database("SELECT 1")
    driver = COUNTS.open(found.context, schema())
    driver.commit(written(driver, row(1)), batch(0), 0)
    found.execute("CREATE UNIQUE INDEX ON ads (window_start, ids)")
    changed = replace(COUNTS, table="ads", **CHANGES[reason])
    rows = schema().append(pa.field("ids", pa.int64()))
    for context in (found.context, replace(found.context, pipeline="of another project")):
        for look in (changed.changes, changed.open):
            with pytest.raises(TableMismatchError, match=f"{reason}.* declared.*headrace.tables"):
                look(context, rows)
    found.execute("TRUNCATE ads")
    assert changed.changes(found.context, rows) == ()
    changed.open(found.context, rows)
    with pytest.raises(TableMismatchError, match="is declared"):
        driver.commit(written(driver, row(1)), batch(1), 0)


def test_the_precision_of_a_distinct_count_may_change(database):
    found = database("SELECT 1")
    driver = COUNTS.open(found.context, schema())
    driver.commit(written(driver, row(1)), batch(0), 0)
    finer = {**COUNTS.measures, "names": Distinct("name", lg_k=14)}
    replace(COUNTS, measures=finer).open(found.context, schema())


ADDED = Postgres("clicks", WriteMode.ADD, ("id",))
REPLACED = Postgres("clicks", WriteMode.UPSERT, ("id",))


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (ADDED, REPLACED, "mode 'add', and 'upsert'"),
        (REPLACED, Postgres("clicks"), "mode 'upsert', and 'append'"),
        (REPLACED, replace(REPLACED, key=("n",)), "key .'id'., and .'n'."),
        (
            replace(REPLACED, newest_by="n"),
            replace(REPLACED, newest_by="m"),
            "newest_by 'n', and 'm'",
        ),
        (replace(REPLACED, newest_by="n"), REPLACED, "newest_by 'n', and None"),
    ],
)
def test_rows_that_another_mode_or_key_wrote_are_refused(database, first, second, reason):
    found = database("CREATE TABLE clicks (id bigint PRIMARY KEY, n bigint UNIQUE, m bigint)")
    driver = first.open(found.context, NUMBERS)
    second.changes(found.context, NUMBERS)
    commit(driver, "app")
    for look in (second.changes, second.open):
        with pytest.raises(TableMismatchError, match=reason):
            look(found.context, NUMBERS)
    found.execute("DELETE FROM headrace.tables")
    second.open(found.context, NUMBERS)


HELD = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NULL; END $$;
CREATE TRIGGER hold AFTER INSERT ON clicks FOR EACH ROW EXECUTE FUNCTION hold();
"""
WAITING = """
SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
"""


def test_an_empty_table_is_declared_anew_only_behind_transactions_that_fill_it(database):
    found = database(f"CREATE TABLE clicks (id bigint PRIMARY KEY, n bigint, m bigint);{HELD}")
    driver = ADDED.open(found.context, NUMBERS)
    other = replace(found.context, pipeline="other")
    with ThreadPoolExecutor() as threads, psycopg.connect(found.url) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(42)")
        batch_0 = threads.submit(commit, driver, "app")
        wait_for(lambda: found.execute(WAITING) == [(1,)])
        start = threads.submit(REPLACED.open, other, NUMBERS)
        wait_for(lambda: start.done() or found.execute(WAITING) == [(2,)])
        holder.rollback()
        assert batch_0.result().is_new
        with pytest.raises(TableMismatchError, match="mode 'add', and 'upsert'"):
            start.result()
    ADDED.open(found.context, NUMBERS)


def test_a_table_from_before_meanings_were_recorded_goes_on(database):
    """Its role may write positions, and gets the right to write what a table means."""
    found = database("CREATE TABLE clicks (id bigint PRIMARY KEY, n bigint UNIQUE, m bigint)")
    REPLACED.open(found.context, NUMBERS)
    role = f"writer_{uuid.uuid4().hex[:8]}"
    found.execute(
        "INSERT INTO clicks VALUES (1, 1, 1); DROP TABLE headrace.tables;"
        f"CREATE ROLE {role} LOGIN; "
        f"GRANT USAGE, CREATE ON SCHEMA headrace TO {role};"
        f"GRANT SELECT, INSERT, UPDATE ON headrace.positions, clicks TO {role}"
    )
    url = Secret(found.url.replace("headrace@", f"{role}@"))
    assert REPLACED.changes(found.context, NUMBERS) == ()
    REPLACED.open(found.context, NUMBERS)
    replace(REPLACED, newest_by="n").open(replace(found.context, settings={"url": url}), NUMBERS)
    with pytest.raises(TableMismatchError, match="newest_by 'n', and None"):
        REPLACED.open(found.context, NUMBERS)


def test_a_table_in_a_schema_that_a_role_may_not_use_is_nothing_to_it(database):
    found = database(f"{CLICKS}; CREATE SCHEMA finance; CREATE TABLE finance.sales (id bigint)")
    Postgres("finance.sales").open(found.context, NUMBERS.remove(2).remove(1))
    Postgres("clicks").open(found.context, schema())
    role = f"writer_{uuid.uuid4().hex[:8]}"
    found.execute(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE, CREATE ON SCHEMA headrace TO {role};"
        f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA headrace, public TO {role}"
    )
    url = Secret(found.url.replace("headrace@", f"{role}@"))
    own = replace(found.context, settings={"url": url})
    assert Postgres("clicks").changes(own, schema()) == ()
    driver = Postgres("clicks").open(own, schema())
    driver.commit(written(driver, row(1)), batch(0), 0)
    assert Postgres("clicks").position_store(own).versions(["app"]) == {"app": 0}


def test_sums_of_doubles_are_refused_by_a_column_that_would_round_them(database):
    found = database("")
    sums = replace(COUNTS, measures={"spent": Sum("price")})
    columns = NUMBERS.append(pa.field("price", pa.float64()))
    columns = columns.append(pa.field("at", pa.timestamp("us", "UTC")))
    sums.open(found.context, columns)
    found.execute("ALTER TABLE ads ALTER COLUMN spent TYPE numeric(12, 2)")
    with pytest.raises(TableMismatchError, match=r"'spent' is numeric.*double precision"):
        sums.open(found.context, columns)


def completeness(database):
    query = (
        "SELECT min(complete_until)::text FROM headrace.completeness WHERE target = 'public.ads'"
    )
    [(until,)] = database.execute(query)
    return until


def counted(driver, number, until=None, *, begins_elsewhere=False):
    metadata = {} if until is None else {"complete_until": f"2026-11-28T{until}:00Z"}
    before = number - 1 if number else None
    driver.commit(
        written(driver, row(1)),
        Transaction({"app": number}, {"app": before}, metadata, begins_elsewhere=begins_elsewhere),
        0,
    )


@pytest.mark.parametrize(("until", "shown"), [("10:00", "2026-11-28 10:00"), (None, "-infinity")])
def test_a_table_that_is_counted_again_is_complete_as_far_as_that_has_come(database, until, shown):
    found = database("SET TIME ZONE 'UTC'")
    driver = COUNTS.open(found.context, schema())
    counted(driver, 0, "11:00", begins_elsewhere=True)
    counted(driver, 1, until, begins_elsewhere=True)
    assert completeness(found).startswith(shown)
    counted(driver, 2, "10:30")
    assert completeness(found).startswith("2026-11-28 10:30")


@pytest.mark.parametrize("is_running", [True, False])
def test_a_table_that_was_emptied_is_complete_only_after_it_is_counted_again(database, is_running):
    found = database("SELECT 1")
    driver = COUNTS.open(found.context, schema())
    counted(driver, 0, "11:00", begins_elsewhere=True)
    other = COUNTS.open(replace(found.context, pipeline="other"), schema())
    other.commit(
        [],
        Transaction({"o": 0}, {"o": None}, {"complete_until": "2026-11-28T12:00Z"}),
        0,
    )
    found.execute("VACUUM FULL ads")
    counted(driver, 1)
    assert completeness(found).startswith("2026-11-28 11:00")
    found.execute("TRUNCATE ads")
    if not is_running:
        driver = COUNTS.open(found.context, schema())
        assert completeness(found) == "-infinity"
    counted(driver, 2, "11:30")
    assert completeness(found) == "-infinity"
    counted(driver, 3, "10:00", begins_elsewhere=True)
    assert completeness(found) == "-infinity"
    other.commit(
        [],
        Transaction(
            {"o": 1}, {"o": 0}, {"complete_until": "2026-11-28T12:00Z"}, begins_elsewhere=True
        ),
        0,
    )
    assert completeness(found).startswith("2026-11-28 10:00")


@pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.ADD])
def test_a_column_that_is_no_longer_written_is_refused_where_rows_are_changed(database, mode):
    """The row would be that of no event: a part of an earlier one stays in it."""
    found = database("CREATE TABLE clicks (id bigint PRIMARY KEY, n bigint, m bigint)")
    sink = Postgres("clicks", mode, ("id",))
    driver = sink.open(found.context, NUMBERS)
    commit(driver, "app")
    less = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    opens = [sink.changes, sink.open]
    if mode is WriteMode.UPSERT:
        opens.append(lambda *args: sink.open_to_reprocess(*args, None))
    for look in opens:
        with pytest.raises(TableMismatchError, match="no longer writes column 'm'"):
            look(found.context, less)
    sink.open(replace(found.context, pipeline="of other columns"), less)
    sink.open(found.context, NUMBERS)
