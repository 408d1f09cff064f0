"""Statistics in a real PostgreSQL: the sink under its contract, and what is its own."""

import random
import threading
import uuid
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from tests.integration.test_sinks import Database

from headrace import Count, Distinct, Stats, Sum
from headrace.errors import SinkError, TableMismatchError
from headrace.sinks.api import CommitRejection, CommitResult, Transaction
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_lab import batch, row

NOON = datetime(2019, 11, 24, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("campaign", pa.string()),
        ("n", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("ratio", pa.float64()),
        ("user", pa.string()),
    ]
)
ADS = Stats(
    "ads",
    by=("campaign",),
    every=MINUTE,
    measures={
        "clicks": Count(),
        "items": Sum("n"),
        "spend": Sum("price"),
        "share": Sum("ratio"),
        "users": Distinct("user"),
    },
)
NO_TABLE = "SELECT 1"
LATER = "1970-01-01T00:00:05.000001+00:00"


def event(campaign="a", minute=0, user="u", **changes):
    known = {"n": 1, "price": Decimal("0.10"), "ratio": 0.5}
    at = NOON + timedelta(minutes=minute, seconds=30)
    return {"at": at, "campaign": campaign, "user": user, **known, **changes}


@pytest.fixture
def database(postgres):
    """``database(ddl)``: a new database."""

    def made(ddl=NO_TABLE):
        return Database(postgres.create_database(f"stats_{uuid.uuid4().hex[:8]}"), ddl)

    return made


@pytest.fixture
def opened(database):
    """A new database, and the open sink ``ADS`` in it."""
    found = database()
    return found, ADS.open(found.context, SCHEMA)


def written(driver, *tasks):
    """The pieces of tasks, each a list of events."""
    pieces = []
    for events in tasks:
        writer = driver.writers(uuid.uuid4().hex)
        assert writer.write(pa.Table.from_pylist(events, SCHEMA)) == []
        pieces += writer.close()
    return pieces


def stats(database, columns="campaign, clicks"):
    return {
        key: values[0] if len(values) == 1 else tuple(values)
        for key, *values in database.execute(f"SELECT {columns} FROM ads")
    }


class TestStats(SinkContract):
    """Each row of the suite has a minute of its own, so it is a group that can be read back."""

    @pytest.fixture
    def lab(self, database):
        found = database()
        sink = Stats("ads", by=("id", "name"), every=MINUTE, measures={"rows": Count()})

        def read():
            there = found.execute("SELECT to_regclass('ads') IS NOT NULL") == [(True,)]
            rows = found.execute("SELECT id, name, window_start FROM ads") if there else []
            return [{"id": id_, "name": name, "at": at.astimezone(UTC)} for id_, name, at in rows]

        return SinkLab(
            sink,
            found.context,
            read,
            stored=lambda: len(found.staged()),
            bad_row={**row(9), "at": None},
        )


class TestStatsWithSketches(TestStats):
    @pytest.fixture
    def lab(self, database):
        found = database()
        measures = {"rows": Count(), "names": Distinct("name"), "ids": Distinct("id")}
        sink = Stats("ads", by=("id", "name"), every=MINUTE, measures=measures)

        def read():
            rows = found.execute("SELECT id, name, window_start, names, ids, rows FROM ads")
            assert all(
                (names, ids) == (1 if name else 0, number)
                for _, name, _, names, ids, number in rows
            )
            return [
                {"id": id_, "name": name, "at": at.astimezone(UTC)} for id_, name, at, *_ in rows
            ]

        return SinkLab(sink, found.context, read, bad_row=row(9, "a\0b"))


def test_columns_may_have_the_names_of_functions(database):
    names = {"campaign": "sum", "user": "row_number", "price": "bytea"}
    schema = pa.schema([field.with_name(names.get(field.name, field.name)) for field in SCHEMA])
    measures = {"count": Count(), "items": Distinct("n")}
    sink = Stats("ads", by=tuple(names.values()), every=MINUTE, measures=measures)
    found = database()
    driver = sink.open(found.context, schema)
    writer = driver.writers(uuid.uuid4().hex)
    event_ = {names.get(name, name): value for name, value in event().items()}
    assert writer.write(pa.Table.from_pylist([event_, event_], schema)) == []
    driver.commit(writer.close(), batch(0), 0)
    assert found.execute('SELECT sum, row_number, bytea, "count", items FROM ads') == [
        ("a", "u", Decimal("0.10"), 2, 1)
    ]


def test_rows_are_measured_by_window_and_group_over_tasks_writes_and_batches(opened):
    database, driver = opened
    first = [event("a", user="x"), event("a", user="y"), event("b", n=5)]
    second = [event("a", user="x", price=Decimal("9999.99")), event("a", minute=1)]
    driver.commit(written(driver, first, second), batch(0), 0)
    late = [event("a", minute=0, user="z")]
    driver.commit(written(driver, late), batch(1), 0)
    query = (
        "SELECT campaign, window_start, clicks, items, spend, share, users FROM ads ORDER BY 2, 1"
    )
    assert database.execute(query) == [
        ("a", NOON, 4, 4, Decimal("10000.29"), 2.0, 3),
        ("b", NOON, 1, 5, Decimal("0.10"), 0.5, 1),
        ("a", NOON + MINUTE, 1, 1, Decimal("0.10"), 0.5, 1),
    ]


def test_windows_begin_at_multiples_of_their_length_since_1970_also_before_it(database):
    found = database()
    sink = Stats("ads", by=(), every=timedelta(days=7), measures={"clicks": Count()})
    driver = sink.open(found.context, SCHEMA)
    times = [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(1970, 1, 7, 23, tzinfo=UTC)]
    driver.commit(written(driver, [event(at=at) for at in times]), batch(0), 0)
    starts = {at.astimezone(UTC) for (at,) in found.execute("SELECT window_start FROM ads")}
    assert starts == {datetime(1969, 12, 25, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)}


def test_a_batch_that_is_repeated_and_a_lost_checkpoint_count_nothing_twice(opened):
    database, driver = opened
    transaction = Transaction({"app": 0, "app/t/0": 10}, {"app": None})
    driver.commit(written(driver, [event()] * 10), transaction, 0)
    again = ADS.open(database.context, SCHEMA)
    done = again.commit(written(again, [event()] * 10), transaction, 0)
    assert (done.is_new, stats(database)) == (False, {"a": 10})
    store = ADS.position_store(database.context)
    assert store.versions(["app/t/0"]) == {"app/t/0": 10}
    ahead = Transaction({"app": 7, "app/t/0": 20}, {"app": 6})
    with pytest.raises(SinkError, match="another driver"):
        again.commit(written(again, [event()]), ahead, 0)
    assert stats(database) == {"a": 10}


def test_two_counts_have_the_same_number(database):
    sink = Stats("ads", by=(), every=MINUTE, measures={"clicks": Count(), "rows": Count()})
    found = database()
    driver = sink.open(found.context, SCHEMA)
    driver.commit(written(driver, [event(), event()]), batch(0), 0)
    assert found.execute("SELECT clicks, rows FROM ads") == [(2, 2)]


def test_null_is_a_group_and_adds_nothing_to_a_sum_or_a_distinct_count(opened):
    database, driver = opened
    nothing = event(None, n=None, price=None, ratio=None, user=None)
    for number in range(2):
        events = [[nothing, event(None, user="")], [nothing]]
        driver.commit(written(driver, *events), batch(number), 0)
    columns = "campaign, clicks, items, spend, share, users"
    assert stats(database, columns) == {None: (6, 2, Decimal("0.20"), 1.0, 0)}
    driver.commit(written(driver, [event("only nulls", n=None, user=None)]), batch(2), 0)
    assert stats(database, columns)["only nulls"] == (1, None, Decimal("0.10"), 0.5, 0)


def test_where_the_key_takes_no_null_a_row_without_its_group_is_a_dead_letter(database):
    found = database(
        "CREATE TABLE ads (window_start timestamptz, campaign text, clicks bigint NOT NULL,"
        " PRIMARY KEY (window_start, campaign))"
    )
    sink = Stats("ads", by=("campaign",), every=MINUTE, measures={"clicks": Count()})
    driver = sink.open(found.context, SCHEMA)
    writer = driver.writers("a" * 32)
    rows = [event("a"), event(None), event("b"), event(None, minute=3)]
    rejected = writer.write(pa.Table.from_pylist(rows, SCHEMA))
    assert [(each.index, each.reason) for each in rejected] == [
        (1, "missing-value"),
        (3, "missing-value"),
    ]
    driver.commit(writer.close(), batch(0), 0)
    assert stats(found) == {"a": 1, "b": 1}


def test_rows_that_would_spoil_a_sum_or_have_no_window_are_dead_letters(opened):
    database, driver = opened
    writer = driver.writers("a" * 32)
    nan, infinity = float("nan"), float("inf")
    rows = [
        event("a"),
        event("a", at=None),
        event("a", ratio=nan),
        event("b", ratio=-infinity),
        event("\0"),
        event("c", ratio=1.7e308),
        event("c", ratio=1.7e308),
        event("\0", minute=5),
    ]
    rejected = writer.write(pa.Table.from_pylist(rows, SCHEMA))
    assert [(each.index, each.reason) for each in rejected] == [
        (1, "missing-value"),
        (2, "wrong-value"),
        (3, "wrong-value"),
        (4, "nul-character"),
        (5, "wrong-value"),
        (6, "wrong-value"),
        (7, "nul-character"),
    ]
    assert "'at' is null" in rejected[0].detail
    assert "'ratio'" in rejected[1].detail
    driver.commit(writer.close(), batch(0), 0)
    assert stats(database) == {"a": 1}


def test_integers_are_added_beyond_64_bits(opened):
    database, driver = opened
    big = 2**63 - 1
    driver.commit(written(driver, [event(n=big)] * 3, [event(n=big)]), batch(0), 0)
    driver.commit(written(driver, [event(n=-(2**63)), event(n=2)]), batch(1), 0)
    assert stats(database, "campaign, items") == {"a": 4 * big - 2**63 + 2}


def test_a_sum_that_its_column_does_not_take_is_a_dead_letter_and_the_others_are_added(database):
    found = database(
        "CREATE TABLE ads (window_start timestamptz, campaign text, items bigint, users int,"
        " users_sketch bytea NOT NULL, UNIQUE (window_start, campaign))"
    )
    measures = {"items": Sum("n"), "users": Distinct("user")}
    sink = Stats("ads", by=("campaign",), every=MINUTE, measures=measures)
    driver = sink.open(found.context, SCHEMA)
    driver.commit(written(driver, [event("a", n=2**62), event("b")]), batch(0), 0)
    pieces = written(driver, [event("a", n=2**62, user="v"), event("b", user="v")])
    done = driver.commit(pieces, batch(1), 0)
    assert isinstance(done, CommitRejection)
    [rejected] = done.rejected
    assert (rejected.reason, '"campaign":"a"' in rejected.values) == ("wrong-value", True)
    assert isinstance(driver.commit(done.pieces, batch(1), 0), CommitResult)
    assert stats(found, "campaign, items, users") == {"a": (2**62, 1), "b": (2, 2)}


def test_distinct_counts_merge_over_tasks_and_batches_within_their_error(opened):
    database, driver = opened
    users = [f"user {number}" for number in range(30_000)]
    for number in range(3):
        part = users[number * 5_000 : number * 5_000 + 20_000]
        halves = part[:12_000], part[8_000:]
        tasks = [[event(user=user) for user in half] for half in halves]
        driver.commit(written(driver, *tasks), batch(number), 0)
    [(estimate, size)] = database.execute("SELECT users, length(users_sketch) FROM ads")
    assert abs(estimate - 30_000) < 30_000 * 3 * 1.04 / 64
    assert size <= 2**12 // 2 + 100


def test_a_distinct_count_may_have_a_percent_sign_in_its_name(database):
    found = database()
    driver = replace(ADS, measures={"50%d": Distinct("user")}).open(found.context, SCHEMA)
    driver.commit(written(driver, [event(user="a"), event(user="b")]), batch(0), 0)
    assert found.execute('SELECT "50%d" FROM ads') == [(2,)]


def test_two_pipelines_add_to_one_table_at_the_same_time(database):
    found = database()
    groups = [f"g{number}" for number in range(200)]

    def run(pipeline, errors):
        try:
            driver = ADS.open(replace(found.context, pipeline=pipeline), SCHEMA)
            order = random.Random(pipeline)
            for number in range(8):
                some = [event(g, user=f"{pipeline} {number}") for g in groups]
                order.shuffle(some)
                before = number - 1 if number else None
                transaction = Transaction({pipeline: number}, {pipeline: before})
                driver.commit(written(driver, some), transaction, 0)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    errors = []
    threads = [threading.Thread(target=run, args=(f"p{n}", errors)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    columns = "campaign, clicks, users"
    assert stats(found, columns) == dict.fromkeys(groups, (24, 24))


def test_how_far_the_table_is_complete_is_written_with_the_batch_and_never_falls(opened):
    database, driver = opened

    def complete_until():
        query = "SELECT extract(epoch FROM min(complete_until)) FROM headrace.completeness"
        [(seconds,)] = database.execute(f"{query} WHERE target = 'ads'")
        return float(seconds)

    assert complete_until() == float("-inf")
    steps = [({}, float("-inf")), ({"complete_until": LATER}, 5.000001), ({}, 5.000001)]
    steps.append(({"complete_until": "1970-01-01T00:00:03+00:00"}, 5.000001))
    for number, (metadata, seconds) in enumerate(steps):
        before = number - 1 if number else None
        driver.commit([], Transaction({"app": number}, {"app": before}, metadata), 0)
        assert complete_until() == seconds
    ADS.open(database.context, SCHEMA)
    assert complete_until() == 5.000001
    ADS.open(replace(database.context, pipeline="new"), SCHEMA)
    assert complete_until() == float("-inf")


def test_plan_shows_the_statement_that_the_first_start_executes(database):
    found = database()
    [change] = ADS.changes(found.context, SCHEMA)
    assert found.execute("SELECT to_regclass('ads')") == [(None,)]
    statement = change.partition("CREATE TABLE ")[2]
    assert '"spend" numeric' in statement
    assert '"users_sketch" bytea' in statement
    ADS.open(found.context, SCHEMA)
    assert ADS.changes(found.context, SCHEMA) == ()
    assert found.execute("SELECT count(*) FROM ads") == [(0,)]


def test_a_table_that_is_gone_is_not_made_again(opened):
    database, driver = opened
    driver.commit(written(driver, [event()]), batch(0), 0)
    database.execute("DROP TABLE ads")
    for look in (ADS.changes, ADS.open):
        with pytest.raises(TableMismatchError, match="it was deleted"):
            look(database.context, SCHEMA)
    database.execute("DELETE FROM headrace.positions")
    ADS.open(database.context, SCHEMA)
    assert stats(database) == {}


@pytest.mark.parametrize(
    ("sink", "reason"),
    [
        (("campain",), "no column 'campain'"),
        (("ratio",), "no type for groups"),
        ({"x": Sum("user")}, "no number"),
        ({"x": Distinct("ratio")}, "neither text nor integer"),
        ("n", "no timestamp"),
        ("seen", "no column 'seen'"),
    ],
)
def test_columns_that_steps_hid_are_looked_at_by_the_start(database, sink, reason):
    declared = {"by": (), "every": MINUTE, "measures": {"x": Count()}}
    kind = {tuple: "by", dict: "measures", str: "event_time"}[type(sink)]
    with pytest.raises(TableMismatchError, match=reason):
        Stats("ads", **declared | {kind: sink}).open(database().context, SCHEMA)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("clicks bigint, users bigint", "no column 'users_sketch'"),
        ("clicks bigint, users_sketch bytea", "no column 'users'"),
        ("clicks bigint, users bigint, users_sketch bytea", "unique index"),
        ("clicks bigint, users bigint, users_sketch text, UNIQUE (window_start)", "bytea"),
    ],
)
def test_a_table_of_the_user_that_does_not_fit_is_refused(database, columns, reason):
    found = database(f"CREATE TABLE ads (window_start timestamptz, {columns})")
    measures = {"clicks": Count(), "users": Distinct("user")}
    sink = Stats("ads", by=(), every=MINUTE, measures=measures)
    with pytest.raises(TableMismatchError, match=reason):
        sink.open(found.context, SCHEMA)


def test_a_partitioned_table_takes_counts_and_sketches(database):
    found = database(
        "CREATE TABLE ads (window_start timestamptz, campaign text, clicks bigint, users bigint,"
        " users_sketch bytea, UNIQUE NULLS NOT DISTINCT (window_start, campaign))"
        " PARTITION BY RANGE (window_start)"
    )
    for number, (first, last) in enumerate(
        [("2019-01-01", "2019-11-25"), ("2019-11-25", "2020-01-01")]
    ):
        bounds = f"FROM ('{first}Z') TO ('{last}Z')"
        found.execute(f"CREATE TABLE ads_{number} PARTITION OF ads FOR VALUES {bounds}")
    measures = {"clicks": Count(), "users": Distinct("user")}
    driver = Stats("ads", by=("campaign",), every=MINUTE, measures=measures).open(
        found.context, SCHEMA
    )
    for number in range(2):
        events = [event(user=f"u{number}"), event(None, user=f"u{number}", minute=24 * 60)]
        driver.commit(written(driver, events), batch(number), 0)
    assert stats(found, "campaign, clicks, users") == {"a": (2, 2), None: (2, 2)}


def test_a_sketch_that_is_none_and_a_trigger_that_moves_rows_fail_the_batch(opened):
    database, driver = opened
    driver.commit(written(driver, [event()]), batch(0), 0)
    database.execute("UPDATE ads SET users_sketch = 'x'")
    with pytest.raises(SinkError, match="users_sketch is no sketch"):
        driver.commit(written(driver, [event()]), batch(1), 0)
    database.execute(
        "DELETE FROM ads; CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RETURN NULL; END'; CREATE TRIGGER skipping BEFORE INSERT ON ads"
        " FOR EACH ROW EXECUTE FUNCTION skip()"
    )
    with pytest.raises(SinkError, match="1 rows have new sketches, and 0"):
        driver.commit(written(driver, [event()]), batch(1), 0)
    assert stats(database) == {}


def test_counts_equal_a_plain_group_by_of_random_rows(database):
    found = database(
        "CREATE TABLE raw (at timestamptz, campaign text, n bigint, price numeric, ratio float8,"
        ' "user" text)'
    )
    driver = ADS.open(found.context, SCHEMA)
    chance = random.Random(7)
    for number in range(5):
        events = [
            event(
                chance.choice(["a", "b", "ż", "", None]),
                chance.randrange(-3, 3),
                chance.choice(["x", "y", "z", None]),
                n=chance.choice([None, 2**62, -5, 7]),
                price=chance.choice([None, Decimal("-0.01"), Decimal("99999999.99")]),
            )
            for _ in range(400)
        ]
        columns = 'at, campaign, "user", n, price, ratio'
        with psycopg.connect(found.url) as connection:
            values = [tuple(each.values()) for each in events]
            insert = f"INSERT INTO raw ({columns}) VALUES (%s, %s, %s, %s, %s, %s)"
            connection.cursor().executemany(insert, values)
        driver.commit(written(driver, events[:150], events[150:]), batch(number), 0)
    columns = "clicks, items, spend, share, users"
    expected = found.execute(
        "SELECT date_trunc('minute', at), campaign, count(*), sum(n), sum(price), sum(ratio),"
        ' count(DISTINCT "user") FROM raw GROUP BY 1, 2'
    )
    assert Counter(found.execute(f"SELECT window_start, campaign, {columns} FROM ads")) == Counter(
        expected
    )
