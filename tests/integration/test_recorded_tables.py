"""A table of PostgreSQL is one, however it is named, and its rows have one meaning."""

import uuid
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from tests.integration.test_sinks import CLICKS, Database

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


def test_a_dropped_table_of_counts_is_missed_under_another_spelling(database):
    found = database("SELECT 1")
    driver = COUNTS.open(found.context, schema())
    driver.commit(written(driver, row(1)), batch(0), 0)
    found.execute("DROP TABLE ads")
    for look in (COUNTS.changes, COUNTS.open, replace(COUNTS, table="ads").open):
        with pytest.raises(TableMismatchError, match="it is gone"):
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
    writer = driver.writers("a" * 32)
    writer.write(pa.Table.from_pylist([{"id": 1, "n": 1, "m": 1}], NUMBERS))
    driver.commit(writer.close(), batch(0), 0)
    for look in (second.changes, second.open):
        with pytest.raises(TableMismatchError, match=reason):
            look(found.context, NUMBERS)
    found.execute("DELETE FROM headrace.tables")
    second.open(found.context, NUMBERS)


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
