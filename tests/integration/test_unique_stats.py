"""Statistics that count each event once: in a real PostgreSQL, whatever comes again."""

import json
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.flow import NOW_MS, Flow, click
from tests.integration.test_ledger import balance, run, states, totals
from tests.integration.test_pipeline_sinks import Database as FlowDatabase
from tests.integration.test_sinks import Database

from headrace import Count, Distinct, Stats, Sum, Unique
from headrace.errors import SinkError, TableMismatchError
from headrace.ledger.sums import Fate
from headrace.ledger.windows import WindowState
from headrace.sinks.api import CommitRejection, Transaction
from headrace.sinks.postgres.rows import taken_out
from headrace.sinks.postgres.stats.unique.staged_events import StagedEvents
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_lab import row

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
DAY = timedelta(days=1)
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("id", pa.string()),
        ("seller", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("received", pa.int64()),
    ]
)
REVENUE = Stats(
    "revenue",
    by=("seller",),
    every=DAY,
    measures={"sales": Count(), "total": Sum("price"), "prices": Distinct("id")},
    unique=Unique(by=["id"], within=7 * DAY, ignore=["received"]),
)
FOR_EVER = replace(REVENUE, unique=Unique(by=["id"], ignore=["received"]))
NO_TABLE = "SELECT 1"
DUPLICATES, CONFLICTS, TOO_OLD = (
    f"postgres_{name}_rows" for name in ("duplicate", "conflicting", "too_old")
)


def sale(id_, price="1.00", days=0, seller="s", received=0):
    at = NOON + timedelta(days=days)
    price = None if price is None else Decimal(price)
    return {"at": at, "id": id_, "seller": seller, "price": price, "received": received}


@pytest.fixture
def database(postgres):
    return Database(postgres.create_database(f"unique_{uuid.uuid4().hex[:8]}"), NO_TABLE)


class TestStatsThatCountOnce(SinkContract):
    @pytest.fixture
    def lab(self, database):
        unique = Unique(by=["id", "at"])
        sink = Stats("ads", by=("id", "name"), every=DAY / 1440, measures={"n": Count()})

        def read():
            there = database.execute("SELECT to_regclass('ads') IS NOT NULL") == [(True,)]
            rows = database.execute("SELECT id, name, window_start FROM ads") if there else []
            return [{"id": id_, "name": name, "at": at.astimezone(UTC)} for id_, name, at in rows]

        return SinkLab(
            replace(sink, unique=unique),
            database.context,
            read,
            stored=lambda: len(database.staged()),
            bad_row={**row(9), "at": None},
        )


def written(driver, *tasks, schema=SCHEMA):
    """The pieces of tasks, each a list of events, and the rows that their writers reject."""
    pieces, rejected = [], []
    for number, events in enumerate(tasks):
        writer = driver.writers(f"{number}{uuid.uuid4().hex[1:]}")
        rejected += writer.write(pa.Table.from_pylist(events, schema))
        pieces += writer.close()
    return pieces, rejected


class Commits:
    """The batches of a pipeline: each returns how many events went through which door."""

    def __init__(self, sink, database, pipeline="p", schema=SCHEMA):
        self.driver = sink.open(replace(database.context, pipeline=pipeline), schema)
        self.schema = schema
        self.pipeline, self.number = pipeline, 0
        self.letters, self.repeats, self.figures = [], [], Counter()

    def transaction(self):
        before = self.number - 1 if self.number else None
        return Transaction({self.pipeline: self.number}, {self.pipeline: before})

    def __call__(self, *tasks, days=None):
        pieces, rejected = written(self.driver, *tasks, schema=self.schema)
        watermark_us = 0 if days is None else int((NOON + days * DAY).timestamp() * 1e6)
        doors = Counter(row.reason for row in rejected)
        done = self.driver.commit(pieces, self.transaction(), watermark_us)
        while isinstance(done, CommitRejection):
            doors += Counter(row.reason for row in done.rejected)
            doors["duplicate"] += 0 if done.repeats is None else done.repeats.num_rows
            self.letters += [json.loads(row.values) for row in done.rejected]
            self.repeats += [] if done.repeats is None else done.repeats.to_pylist()
            done = self.driver.commit(done.pieces, self.transaction(), watermark_us)
        self.figures.update(done.figures)
        self.number += 1
        doors["counted"] = sum(map(len, tasks)) - doors.total()
        return +doors


def revenue(database):
    query = "SELECT seller, sum(sales)::int, sum(total), sum(prices)::int FROM revenue GROUP BY 1"
    return {seller: tuple(values) for seller, *values in database.execute(query)}


def test_events_that_come_again_count_once_over_tasks_batches_and_starts(database):
    commits = Commits(REVENUE, database)
    first = [sale("a", "2.00"), sale("b"), sale("a", "2.00", received=9)]
    second = [sale("c", seller="t"), sale("b"), sale("c", "9.99", seller="t")]
    assert commits(first, second) == {"counted": 3, "duplicate": 2, "conflicting-key": 1}
    counted = {"s": (2, Decimal("3.00"), 2), "t": (1, Decimal("1.00"), 1)}
    assert revenue(database) == counted
    assert [letter["price"] for letter in commits.letters] == ["9.99"]
    assert [event["id"] for event in commits.repeats] == ["a", "b"]
    assert commits.figures == {DUPLICATES: 2, CONFLICTS: 1}
    again = Commits(REVENUE, database, "another")
    assert again(first, second) == {"duplicate": 5, "conflicting-key": 1}
    assert again([sale("d", days=6)]) == {"counted": 1}
    assert revenue(database) == counted | {"s": (3, Decimal("4.00"), 3)}
    assert database.staged() == []


@pytest.mark.parametrize("unique", [REVENUE.unique, FOR_EVER.unique])
def test_any_character_may_be_in_the_name_of_the_table(database, unique):
    sink = replace(REVENUE, table='%s of "all" $1', unique=unique)
    commits = Commits(sink, database)
    assert commits([sale("a"), sale("a")], days=20) == {"counted": 1, "duplicate": 1}
    assert database.execute('SELECT sales FROM "%s of ""all"" $1"') == [(1,)]


def test_many_duplicates_are_handed_back_in_the_parts_that_were_staged(database):
    commits = Commits(REVENUE, database)
    sales = [sale(f"i{n}") for n in range(200)]
    commits(sales)
    pieces, _ = written(commits.driver, sales, [*sales, sale("new")])
    rejection = commits.driver.commit(pieces, commits.transaction(), 0)
    assert (rejection.repeats.num_rows, rejection.repeats["id"].num_chunks) == (400, 2)


def test_an_event_without_a_key_is_a_dead_letter(database):
    commits = Commits(REVENUE, database)
    assert commits([sale(None), sale(""), sale("a")]) == {"missing-value": 2, "counted": 1}


def test_a_batch_that_is_repeated_adds_nothing(database):
    commits = Commits(REVENUE, database)
    commits([sale("a")])
    pieces, _ = written(commits.driver, [sale("a"), sale("b")])
    transaction = Transaction({"p": 0}, {"p": None})
    done = commits.driver.commit(pieces, transaction, 0)
    assert not done.is_new
    commits.driver.discard(pieces)
    assert database.staged() == []
    assert commits([sale("b")]) == {"counted": 1}


def test_what_a_transaction_that_failed_has_added_is_not_counted(database):
    commits = Commits(REVENUE, database)
    commits([sale("a")])
    database.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'not today'; END $$;"
        " CREATE TRIGGER fail BEFORE INSERT ON revenue FOR EACH ROW EXECUTE FUNCTION fail()"
    )
    with pytest.raises(SinkError, match="not today"):
        commits([sale("b")])
    database.execute("DROP TRIGGER fail ON revenue")
    assert commits([sale("b"), sale("a")]) == {"counted": 1, "duplicate": 1}


def test_pipelines_that_commit_at_once_count_each_event_once(database):
    sales = [sale(f"i{n}") for n in range(400)]
    pipelines = [Commits(REVENUE, database, name) for name in ("p", "q", "r")]
    with ThreadPoolExecutor(3) as pool:
        doors = list(pool.map(lambda commits: commits(sales[:250], sales[200:]), pipelines))
    assert sum(each["counted"] for each in doors) == 400
    assert sum(each["duplicate"] for each in doors) == 950
    assert revenue(database) == {"s": (400, Decimal("400.00"), 400)}


def test_what_is_no_longer_remembered_is_a_dead_letter_and_never_counted_twice(database):
    commits = Commits(REVENUE, database)
    assert commits([sale("a"), sale("b", days=10)], days=20) == {"counted": 2}
    # Keys of before day 6 are forgotten now, so events of before day 13 can't be compared.
    assert database.execute("SELECT count(*) FROM revenue_keys WHERE key_hash <> 0") == [(1,)]
    late = [sale("a"), sale("c", days=12.9), sale("d", days=13), sale("b", days=10)]
    expected = {"too-old-to-compare": 2, "counted": 1, "duplicate": 1}
    assert commits(late, days=20) == expected
    assert commits.figures == {TOO_OLD: 2, DUPLICATES: 1}
    assert {letter["id"] for letter in commits.letters} == {"a", "c"}


def test_nothing_is_forgotten_where_events_of_any_lateness_are_allowed(database):
    year_1 = (datetime(1, 1, 1, tzinfo=UTC) - NOON) // DAY + 1
    commits = Commits(REVENUE, database)
    assert commits([sale("a")], days=year_1) == {"counted": 1}
    assert commits([sale("a"), sale("b", days=-10_000)], days=year_1) == {
        "duplicate": 1,
        "counted": 1,
    }


def test_without_within_nothing_is_forgotten(database):
    commits = Commits(FOR_EVER, database)
    commits([sale("a")], days=5_000)
    assert commits([sale("a"), sale("a", days=4_000), sale("b")], days=5_000) == {
        "duplicate": 1,
        "conflicting-key": 1,
        "counted": 1,
    }


@pytest.mark.parametrize("within", [None, DAY, 30 * DAY])
def test_what_was_forgotten_stays_too_old_whatever_within_becomes(database, within):
    commits = Commits(REVENUE, database)
    assert commits([sale("a"), sale("b", days=10)], days=20) == {"counted": 2}
    other = replace(REVENUE, unique=replace(REVENUE.unique, within=within))
    again = Commits(other, database, "another")
    later = [sale("b", days=10), sale("b", days=10.5), sale("c", days=13), sale("d", days=30)]
    expected = {"too-old-to-compare": 1, "duplicate": 1, "conflicting-key": 1, "counted": 2}
    assert again([sale("a"), *later], days=21) == expected
    assert revenue(database) == {"s": (4, Decimal("4.00"), 4)}
    # By any `within`, the event of day 0 is never counted again.
    assert commits([sale("a"), sale("d", days=30)], days=22) == {
        "too-old-to-compare": 1,
        "duplicate": 1,
    }


@pytest.mark.parametrize("statement", ["TRUNCATE revenue", "DELETE FROM revenue"])
def test_a_table_that_was_emptied_counts_from_the_start(database, statement):
    Commits(REVENUE, database)([sale("a"), sale("b")])
    database.execute(statement)
    assert Commits(REVENUE, database, "again")([sale("a")]) == {"counted": 1}
    assert revenue(database) == {"s": (1, Decimal("1.00"), 1)}


def test_a_window_that_was_deleted_counts_again_when_its_keys_are_deleted_too(database):
    commits = Commits(REVENUE, database)
    commits([sale("a"), sale("b", days=1)])
    database.execute("DELETE FROM revenue WHERE window_start < '2026-11-25 00:00+00'")
    assert commits([sale("a")]) == {"duplicate": 1}
    database.execute(
        "DELETE FROM revenue_keys WHERE event_time < '2026-11-25 00:00+00' AND key_hash <> 0"
    )
    assert commits([sale("a")]) == {"counted": 1}


@pytest.mark.parametrize("statement", ["TRUNCATE revenue_keys", "DROP TABLE revenue_keys"])
def test_a_table_whose_keys_are_gone_is_refused(database, statement):
    commits = Commits(REVENUE, database)
    commits([sale("a")])
    database.execute(statement)
    with pytest.raises(TableMismatchError, match="the keys of their events are not in"):
        Commits(REVENUE, database)
    with pytest.raises((SinkError, TableMismatchError), match="revenue_keys"):
        commits([sale("b")])


def test_a_table_with_rows_takes_no_other_unique(database):
    plain = replace(REVENUE, unique=None)
    Commits(plain, database)([sale("a")])
    with pytest.raises(TableMismatchError, match="of unique None"):
        Commits(REVENUE, database)
    database.execute("TRUNCATE revenue")
    Commits(REVENUE, database, "q")([sale("a")])
    for other in (plain, replace(REVENUE, unique=Unique(by=["id", "seller"]))):
        with pytest.raises(TableMismatchError, match="its rows are of unique"):
            Commits(other, database)
    assert Commits(FOR_EVER, database, "r")([sale("a")]) == {"duplicate": 1}


def test_plan_shows_the_statements_and_another_table_of_that_name_is_refused(database):
    table, keys = REVENUE.changes(database.context, SCHEMA)
    assert 'CREATE TABLE "revenue"' in table
    assert 'CREATE TABLE "revenue_keys"' in keys
    database.execute(keys.partition(": ")[2])
    assert len(REVENUE.changes(database.context, SCHEMA)) == 1
    database.execute("ALTER TABLE revenue_keys ADD COLUMN mine text")
    with pytest.raises(TableMismatchError, match="rename one"):
        REVENUE.changes(database.context, SCHEMA)
    with pytest.raises(TableMismatchError, match="no column 'number'"):
        replace(REVENUE, unique=Unique(["number"])).open(database.context, SCHEMA)


def test_the_keys_are_beside_the_table_wherever_the_search_path_finds_it(database):
    database.execute(
        "CREATE SCHEMA stats; CREATE TABLE stats.revenue (window_start timestamptz, seller text,"
        " sales bigint, total numeric, prices bigint, prices_sketch bytea,"
        " UNIQUE (window_start, seller));"
        " DO $$ BEGIN EXECUTE format("
        "'ALTER DATABASE %I SET search_path = public, stats', current_database()); END $$"
    )
    Commits(REVENUE, database)([sale("a")])
    assert database.execute("SELECT count(*) FROM stats.revenue_keys") == [(2,)]
    again = Commits(replace(REVENUE, table="stats.revenue"), database, "again")
    assert again([sale("a"), sale("b")]) == {"duplicate": 1, "counted": 1}


def test_conflicts_without_end_are_not_held_in_memory(database, monkeypatch):
    monkeypatch.setattr(taken_out, "MAX_DEAD_LETTERS", 2)
    commits = Commits(REVENUE, database)
    commits([sale(f"i{n}") for n in range(3)])
    with pytest.raises(SinkError, match=r"3 events of a batch have a key.*Unique\.ignore"):
        commits([sale(f"i{n}", "7.00") for n in range(3)])
    commits([sale("new", days=50)], days=50)
    with pytest.raises(SinkError, match=r"3 events of a batch are of a time.*empty the table"):
        commits([sale(f"i{n}") for n in range(3)])


def test_staged_events_that_a_crash_of_the_server_took_are_missed(database, monkeypatch):
    commits = Commits(REVENUE, database)
    commits([sale("a")])
    pieces, _ = written(commits.driver, [sale("a"), sale("b")])
    places = StagedEvents.places

    def crashed(staged, connection):
        connection.execute(f'TRUNCATE headrace."{staged.keys}"')
        return places(staged, connection)

    monkeypatch.setattr(StagedEvents, "places", crashed)
    with pytest.raises(SinkError, match="has 0 of 2 events"):
        commits.driver.commit(pieces, commits.transaction(), 0)


def test_a_sum_that_the_table_does_not_take_ends_the_batch(database):
    database.execute(
        "CREATE TABLE revenue (window_start timestamptz, seller text, sales bigint,"
        " total numeric(3, 2), prices bigint, prices_sketch bytea, UNIQUE (window_start, seller))"
    )
    commits = Commits(REVENUE, database)
    commits([sale("a", "9.00")])
    with pytest.raises(SinkError, match="numeric field overflow"):
        commits([sale("b", "9.00")])
    doors = commits([sale("c", "99.00", seller="t"), sale("d", seller="u"), sale("a", "9.00")])
    assert doors == {"wrong-value": 1, "counted": 1, "duplicate": 1}


class Reference:
    """What a list of all counted events would decide."""

    def __init__(self, within):
        self.within, self.counted, self.begin, self.is_empty = within, [], None, True

    def judge(self, events):
        before, doors = list(self.counted), Counter()
        if self.is_empty:
            self.begin = None
        for event in events:
            doors[self._door(event, before)] += 1
        return doors

    def _door(self, event, before):
        known = [other for other in before if self._is_near(event, other)]
        if not known and self.begin is not None and event["at"] < self.begin + self.within:
            return "too-old-to-compare"
        first = next((o for o in self.counted if self._is_near(event, o)), None)
        same = [(o["price"], o["at"]) for o in known or ([first] if first else [])]
        if same:
            is_same = (event["price"], event["at"]) in same
            return "duplicate" if is_same else "conflicting-key"
        self.counted.append(event)
        self.is_empty = False
        return "counted"

    def _is_near(self, event, other):
        return event["id"] == other["id"] and abs(event["at"] - other["at"]) <= self.within

    def forget(self, reached):
        begin = reached - 2 * self.within
        if self.begin is None or begin >= self.begin + self.within / 8:
            self.begin = begin
            self.counted = [event for event in self.counted if event["at"] >= begin]


EVENTS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["1.00", "2.00"]), st.integers(0, 12)),
    max_size=8,
)
BATCHES = st.lists(
    st.tuples(st.integers(0, 1), EVENTS, EVENTS, st.none() | st.integers(0, 20)),
    min_size=1,
    max_size=5,
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(BATCHES)
def test_any_batches_of_two_pipelines_are_judged_as_a_list_of_all_events_says(database, batches):
    """Every event goes through one door, the same one; and the table is what counted ones give."""
    database.execute(
        "DROP TABLE IF EXISTS revenue, revenue_keys; DROP SCHEMA IF EXISTS headrace CASCADE"
    )
    within = 3 * DAY
    sink = replace(REVENUE, unique=Unique(by=["id"], within=within, ignore=["received"]))
    pipelines = [Commits(sink, database, name) for name in ("p", "q")]
    reference, total = Reference(within), Counter()
    for pipeline, first, second, days in batches:
        tasks = [[sale(id_, price, day) for id_, price, day in task] for task in (first, second)]
        doors = pipelines[pipeline](*tasks, days=days)
        counted = len(reference.counted)
        assert doors == +reference.judge([event for task in tasks for event in task])
        for event in reference.counted[counted:]:
            total[event["at"].date()] += 1
        if days is not None:
            reference.forget(NOON + days * DAY)
    rows = database.execute("SELECT (window_start AT TIME ZONE 'UTC')::date, sales FROM revenue")
    assert dict(rows) == total


@pytest.mark.parametrize("path", ["fused", "stepped"])
def test_revenue_is_exact_whatever_comes_late_again_or_with_other_values(
    broker, spark, tmp_path, postgres, path
):
    """A sale that comes days late counts, one that comes again does not, and the ledger agrees."""
    flow = Flow(broker, spark, tmp_path, event_id="event_id")
    url = postgres.create_database(f"unique_{uuid.uuid4().hex[:8]}")
    database = FlowDatabase(flow, url, "unused int")
    sink = Stats(
        "revenue",
        by=("category",),
        every=timedelta(hours=1),
        measures={"sales": Count(), "total": Sum("n")},
        unique=Unique(by=["event_id"], within=timedelta(days=7)),
    )
    pipeline = getattr(flow, "pipeline" if path == "fused" else "stepped")(path, sink=sink)
    flow.send([click(n) for n in range(100)])
    run(flow, pipeline)
    days_late = [click(n, event_time=NOW_MS - 86_400_000 * 4) for n in range(100, 110)]
    again = [click(n) for n in range(20)]
    flow.send([*days_late, *again, click(5, price=99.0)])
    outcome = run(flow, pipeline)
    assert (outcome.figures[DUPLICATES], outcome.figures[CONFLICTS]) == (20, 1)
    assert [stored.letter.reason for stored in flow.dead()] == ["conflicting-key"]
    expected = [(110, sum(range(110)))]
    assert database.execute("SELECT sum(sales)::int, sum(total)::int FROM revenue") == expected
    result = balance(flow, pipeline)
    fates = {Fate.OUT: 110, Fate.DEDUPLICATED: 20, Fate.DEAD: 1}
    assert totals(result) == {"read": 131} | fates
    assert not {WindowState.UNBALANCED, WindowState.UNKNOWN} & set(states(result))
    flow.reset(pipeline, "earliest")
    run(flow, pipeline)
    assert database.execute("SELECT sum(sales)::int, sum(total)::int FROM revenue") == expected
    assert WindowState.UNBALANCED not in states(balance(flow, pipeline))
