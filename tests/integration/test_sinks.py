"""Sinks under their contract, on a real PostgreSQL and a real Kafka; and what is theirs alone."""

import json
import os
import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from tests.integration.held_transactions import MOMENTS, held, make_holdable
from tests.kafka_topics import make_topic
from tests.waiting import wait_for

from headrace import Guarantee, Kafka, Postgres, Topic, WriteMode
from headrace.errors import RecordRejectedError, SinkError, TableMismatchError
from headrace.kafka.table.topic_table import table_records
from headrace.settings import Secret
from headrace.sinks.api import CommitRejection, CommitResult, SinkContext, Transaction
from headrace.sinks.kafka.records import RecordsOf, batch_size_of
from headrace.sinks.postgres import driver as postgres_driver
from headrace.sinks.postgres import writer as postgres_writer
from headrace.sinks.postgres.rows import isolation
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_lab import batch, row, schema, table, written


class Database:
    """A database of its own with one table."""

    def __init__(self, url, ddl):
        self.url = url
        self.execute(ddl)
        self.context = SinkContext("p", "unused", {}, {"url": Secret(url)}, event_time="at")

    def execute(self, statement):
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def rows(self):
        with psycopg.connect(self.url, row_factory=psycopg.rows.dict_row) as connection:
            return connection.execute("SELECT * FROM clicks").fetchall()

    def staged(self):
        return self.execute(
            "SELECT relname FROM pg_class WHERE relname LIKE 'staging_%' AND relkind = 'r'"
        )


CLICKS = "CREATE TABLE clicks (id bigint NOT NULL, name text, at timestamptz)"


@pytest.fixture
def database(postgres):
    """``database(ddl)``: a new database."""

    def made(ddl=CLICKS, encoding="UTF8"):
        return Database(postgres.create_database(f"sink_{uuid.uuid4().hex[:8]}", encoding), ddl)

    return made


class TestPostgres(SinkContract):
    @pytest.fixture
    def lab(self, database):
        found = database()
        return SinkLab(
            Postgres("clicks"),
            found.context,
            read=found.rows,
            stored=lambda: len(found.staged()),
            bad_row=row(9, "a\0b"),
        )


class TestPostgresByKey(SinkContract):
    @pytest.fixture
    def lab(self, database):
        found = database(f"{CLICKS[:-1]}, PRIMARY KEY (id))")
        sink = Postgres("clicks", mode=WriteMode.UPSERT, key=("id",), newest_by="at")
        return SinkLab(sink, found.context, found.rows, bad_row={**row(9), "id": None})


class Click:
    id: int
    name: str | None
    at: datetime


class TestKafka(SinkContract):
    guarantee = Guarantee.AT_LEAST_ONCE

    @pytest.fixture
    def lab(self, broker):
        client = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
        topic = made_topic(client, event=Click, key="id", event_time="at", partitions=3)
        context = SinkContext("p", "unused", client)

        def read():
            events = [json.loads(record.value()) for record in records(client, topic.name)]
            return [event | {"at": datetime.fromisoformat(event["at"])} for event in events]

        sink = Kafka(topic, guarantee=self.guarantee)
        lab = SinkLab(sink, context, read, bad_row={**row(9), "id": None})
        yield lab
        lab.close()


class TestKafkaExactlyOnce(TestKafka):
    guarantee = Guarantee.EXACTLY_ONCE


def made_topic(client, **declared):
    topic = Topic(f"sink-{uuid.uuid4().hex[:8]}", **declared)
    make_topic(client, topic.name, topic.partitions, config=topic.kafka_config)
    return topic


def records(client, topic):
    """All committed records of a topic; waits for transactions whose end is not written yet."""
    return list(table_records(client, topic, settled=True))


@pytest.fixture
def keyed(database):
    """``keyed(mode, **declared)``: a table with a primary key, and its open sink."""

    def made(mode, **declared):
        found = database(f"{CLICKS[:-1]}, PRIMARY KEY (id))")
        sink = Postgres("clicks", mode=mode, key=("id",), **declared)
        return found, sink.open(found.context, schema())

    return made


def table_of(columns, rows):
    named = [dict(zip(columns.names, values, strict=True)) for values in rows]
    return pa.Table.from_pylist(named, columns)


def by_id(database):
    return {each["id"]: each["name"] for each in database.rows()}


def test_the_last_row_of_a_key_wins_within_a_batch_and_over_batches(keyed):
    database, driver = keyed(WriteMode.UPSERT)
    driver.commit(written(driver, row(1, "a"), row(1, "b"), row(2, "a")), batch(0), 0)
    assert by_id(database) == {1: "b", 2: "a"}
    driver.commit(written(driver, row(1, "c")), batch(1), 0)
    assert by_id(database) == {1: "c", 2: "a"}


def test_the_newest_row_of_a_key_wins_wherever_it_comes_from(keyed):
    database, driver = keyed(WriteMode.UPSERT, newest_by="at")
    new, old = {**row(5, "new"), "id": 1}, {**row(3, "old"), "id": 1}
    pieces = [*written(driver, new), *written(driver, old)]
    driver.commit(pieces, batch(0), 0)
    assert by_id(database) == {1: "new"}
    driver.commit(written(driver, old), batch(1), 0)
    assert by_id(database) == {1: "new"}
    driver.commit(written(driver, {**row(6, "newer"), "id": 1}), batch(2), 0)
    assert by_id(database) == {1: "newer"}


def test_numbers_are_added_to_those_of_their_key(database):
    found = database(
        "CREATE TABLE clicks (hour text, country text, n bigint, price numeric,"
        " seen timestamptz DEFAULT now(), UNIQUE (country, hour))"
    )
    columns = pa.schema(
        [
            ("hour", pa.string()),
            ("country", pa.string()),
            ("n", pa.int64()),
            ("price", pa.float64()),
        ]
    )
    sink = Postgres("clicks", mode=WriteMode.ADD, key=("hour", "country"))
    driver = sink.open(found.context, columns)

    def add(number, *rows):
        writer = driver.writers(f"{number:032x}")
        names = columns.names
        assert (
            writer.write(
                pa.Table.from_pylist([dict(zip(names, r, strict=True)) for r in rows], columns)
            )
            == []
        )
        return writer.close()

    first = [*add(1, ("7", "pl", 2, 0.5), ("7", "de", 1, 1.0)), *add(2, ("7", "pl", 3, 0.25))]
    driver.commit(first, batch(0), 0)
    driver.commit(add(3, ("7", "pl", 10, 0.25), ("8", "pl", 1, 0.0)), batch(1), 0)
    counts = {(r["hour"], r["country"]): (r["n"], float(r["price"])) for r in found.rows()}
    assert counts == {("7", "pl"): (15, 1.0), ("7", "de"): (1, 1.0), ("8", "pl"): (1, 0.0)}


def test_columns_of_every_kind_arrive(database):
    found = database(
        "CREATE TABLE clicks (whole int, small numeric(4, 1), flag boolean, day date, raw bytea,"
        " tags jsonb, more jsonb, named jsonb, priced json, note varchar(3),"
        " filled text DEFAULT 'x',"
        " serial bigint GENERATED ALWAYS AS IDENTITY)"
    )
    values = {
        "whole": 7,
        "small": 1.5,
        "flag": False,
        "day": datetime(2019, 11, 24).date(),  # noqa: DTZ001
        "raw": b"\x00\xff\\",
        "tags": ["a", 'b"'],
        "more": {"x": 1, "y": None},
        "named": {"a": 1, "b": 2},
        "priced": [Decimal("1.50")],
        "note": "żół",
    }
    rows = pa.Table.from_pylist([values, dict.fromkeys(values)])
    place = rows.schema.get_field_index("named")
    pairs = pa.array([[("a", 1), ("b", 2)], None], pa.map_(pa.string(), pa.int64()))
    rows = rows.set_column(place, "named", pairs)
    driver = Postgres("clicks").open(found.context, rows.schema)
    writer = driver.writers("a" * 32)
    assert writer.write(rows) == []
    driver.commit(writer.close(), batch(0), 0)
    first, second = sorted(found.rows(), key=lambda each: each["serial"])
    assert {name: first[name] for name in values} == values | {"priced": [1.5]}
    assert {second[name] for name in values} == {None}
    assert (first["filled"], second["filled"]) == ("x", "x")


def test_a_row_that_the_table_does_not_take_is_a_dead_letter(database):
    found = database(
        "CREATE TABLE clicks (id smallint NOT NULL, name varchar(3) CHECK (name <> 'no'),"
        " at timestamptz)"
    )
    driver = Postgres("clicks").open(found.context, schema())
    writer = driver.writers("a" * 32)
    rows = [row(1), row(99_999), row(2, "long"), row(3, "no"), {**row(4), "id": None}, row(5)]
    rejected = writer.write(table(rows))
    assert {each.index: each.reason for each in rejected} == {
        1: "wrong-value",
        2: "wrong-value",
        3: "check-violated",
        4: "missing-value",
    }
    driver.commit(writer.close(), batch(0), 0)
    assert sorted(by_id(found)) == [1, 5]


def test_characters_that_the_database_lacks_have_a_reason_of_their_own(database):
    found = database(encoding="LATIN1")
    driver = Postgres("clicks").open(found.context, schema())
    writer = driver.writers("a" * 32)
    names = ["é", "€", "a\0b", "ż", "ü"]
    rejected = writer.write(table([row(number, name) for number, name in enumerate(names)]))
    assert [(each.index, each.reason) for each in rejected] == [
        (1, "unsupported-character"),
        (2, "nul-character"),
        (3, "unsupported-character"),
    ]
    driver.commit(writer.close(), batch(0), 0)
    assert by_id(found) == {0: "é", 4: "ü"}


def test_rows_that_row_level_security_forbids_are_dead_letters(database):
    """Missing rights have the same SQLSTATE: those are no row's fault."""
    found = database()
    role = f"writer_{uuid.uuid4().hex[:8]}"
    found.execute(
        f"CREATE ROLE {role} LOGIN;"
        f"GRANT CREATE ON DATABASE {found.url.rpartition('/')[2]} TO {role};"
        f"GRANT SELECT, INSERT ON clicks TO {role}; ALTER TABLE clicks ENABLE ROW LEVEL SECURITY;"
        f"CREATE POLICY small ON clicks TO {role} WITH CHECK (id < 10)"
    )
    url = found.url.replace("headrace@", f"{role}@")
    context = replace(found.context, settings={"url": Secret(url)})
    driver = Postgres("clicks").open(context, schema())
    letters, left = leftover(driver.commit(written(driver, row(1), row(12)), batch(0), 0))
    assert [(each["id"], reason) for each, reason in letters] == [(12, "not-permitted")]
    driver.commit(left, batch(0), 0)
    assert sorted(by_id(found)) == [1]
    pieces = written(driver, row(2))
    found.execute(f"REVOKE INSERT ON clicks FROM {role}")
    with pytest.raises(SinkError, match="permission denied"):
        driver.commit(pieces, batch(1), 0)


def test_rows_that_a_crash_of_the_server_took_are_missed(postgres, database):
    found = database()
    driver = Postgres("clicks").open(found.context, schema())
    pieces = written(driver, row(1))
    postgres.kill()
    postgres.start()
    with pytest.raises(SinkError, match="has 0 of 1 rows"):
        driver.commit(pieces, batch(0), 0)
    driver.commit(written(driver, row(1)), batch(0), 0)
    assert sorted(by_id(found)) == [1]


def test_a_commit_whose_answer_was_lost_is_found_again(database, monkeypatch):
    found = database()
    driver = Postgres("clicks").open(found.context, schema())
    pieces = written(driver, row(1))
    connect, lost = postgres_driver.connect, []

    @contextmanager
    def unheard(url):
        with connect(url) as connection:
            yield connection
        if not lost:
            lost.append(url)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(postgres_driver, "connect", unheard)
    done = driver.commit(pieces, batch(0), 0)
    assert (done.is_new, done.rows, sorted(by_id(found))) == (True, 1, [1])


@pytest.mark.parametrize("killed", ["connection", "server"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_batch_whose_transaction_dies_at_any_moment_is_in_the_table_once(
    postgres, database, moment, killed
):
    """The batch is repeated as a pipeline repeats it; a crash of the server takes staged rows."""
    found = database()
    sink = Postgres("clicks")
    driver = sink.open(found.context, schema())
    make_holdable(found.url)
    with ThreadPoolExecutor() as pool:
        with held(postgres, found.url, moment) as find:
            commit = pool.submit(driver.commit, written(driver, row(1)), batch(0), 0)
            wait_for(find)
            if killed == "server":
                postgres.kill_processes()
            else:
                found.execute(f"SELECT pg_terminate_backend({find()[0]})")
        if killed == "server":
            postgres.start()
        try:
            commit.result()
        except SinkError:
            driver = sink.open(found.context, schema())
            driver.commit(written(driver, row(1)), batch(0), 0)
    assert sorted(each["id"] for each in found.rows()) == [1]
    driver.commit(written(driver, row(2)), batch(1), 0)
    assert sorted(each["id"] for each in found.rows()) == [1, 2]


def leftover(rejection):
    """The dead letters of a commit that was rejected, and its other pieces."""
    assert isinstance(rejection, CommitRejection)
    values = [json.loads(each.values) for each in rejection.rejected]
    return list(zip(values, [each.reason for each in rejection.rejected], strict=True)), (
        rejection.pieces
    )


def test_rows_that_only_the_commit_finds_out_about_are_dead_letters(database):
    found = database(f"{CLICKS[:-1]}, UNIQUE (id), UNIQUE (name))")
    driver = Postgres("clicks").open(found.context, schema())
    driver.commit(written(driver, row(1, "a")), batch(0), 0)
    huge = random.Random(1).randbytes(20_000).hex()  # no index entry has room for it
    pieces = [
        *written(driver, row(2, "b"), row(3, huge), row(4, None)),
        *written(driver, row(5, "c"), row(1, "d")),
    ]
    letters, left = leftover(driver.commit(pieces, batch(1), 0))
    assert sorted((each["id"], reason) for each, reason in letters) == [
        (1, "not-unique"),
        (3, "row-too-large"),
    ]
    assert sorted(by_id(found)) == [1]
    assert driver.positions.versions(["app"]) == {"app": 0}
    assert driver.commit(left, batch(1), 0) == CommitResult(is_new=True, rows=3)
    assert sorted(by_id(found)) == [1, 2, 4, 5]
    assert driver.positions.versions(["app"]) == {"app": 1}
    assert found.staged() == []


def test_a_sum_that_its_column_does_not_take_is_a_dead_letter_and_the_others_are_added(database):
    found = database(
        "CREATE TABLE clicks (id int PRIMARY KEY, n smallint, CHECK (id <> 2 OR n < 95))"
    )
    columns = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    driver = Postgres("clicks", mode=WriteMode.ADD, key=("id",)).open(found.context, columns)

    def add(*rows):
        writer = driver.writers(uuid.uuid4().hex)
        assert writer.write(table_of(columns, rows)) == []
        return writer.close()

    driver.commit(add((1, 30_000), (2, 5)), batch(0), 0)
    pieces = add((1, 2_000), (1, 2_000), (2, 90), (2, 1), (3, 1))
    letters, left = leftover(driver.commit(pieces, batch(1), 0))
    assert letters == [
        ({"id": 1, "n": 2_000}, "wrong-value"),
        ({"id": 2, "n": 90}, "check-violated"),
    ]
    driver.commit(left, batch(1), 0)
    assert {each["id"]: each["n"] for each in found.rows()} == {1: 32_000, 2: 6, 3: 1}


def test_deferred_constraints_and_triggers_reject_rows_too(database):
    found = database(
        f"CREATE TABLE users (id int PRIMARY KEY); INSERT INTO users VALUES (1), (2);"
        f"{CLICKS[:-1]}, FOREIGN KEY (id) REFERENCES users DEFERRABLE INITIALLY DEFERRED);"
        "CREATE FUNCTION no_b() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN IF new.name = 'b' THEN RAISE 'no b' USING ERRCODE = 'UE001'; END IF;"
        " RETURN new; END$$;"
        "CREATE TRIGGER no_b BEFORE INSERT ON clicks FOR EACH ROW EXECUTE FUNCTION no_b()"
    )
    driver = Postgres("clicks").open(found.context, schema())
    pieces = written(driver, row(1, "a"), row(2, "b"), row(7, "c"))
    letters, left = leftover(driver.commit(pieces, batch(0), 0))
    assert [(each["id"], reason) for each, reason in letters] == [
        (2, "rejected-by-trigger"),
        (7, "foreign-key"),
    ]
    driver.commit(left, batch(0), 0)
    assert sorted(by_id(found)) == [1]


FAMILY = pa.schema([("id", pa.int64()), ("parent", pa.int64())])


def family(database, constraint):
    """A table whose rows refer to others of it; returns it, and ``commit(*rows)``."""
    found = database(f"CREATE TABLE clicks (id int PRIMARY KEY, parent int {constraint})")
    driver = Postgres("clicks").open(found.context, FAMILY)

    def commit(*rows):
        writer = driver.writers(uuid.uuid4().hex)
        assert writer.write(table_of(FAMILY, rows)) == []
        pieces, letters = writer.close(), []
        while isinstance(done := driver.commit(pieces, batch(0), 0), CommitRejection):
            rejected, pieces = leftover(done)
            letters += [(values["id"], values["parent"], reason) for values, reason in rejected]
        return letters, sorted(each["id"] for each in found.rows())

    return found, commit


@pytest.mark.parametrize("when", ["NOT DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"])
def test_rows_that_refer_to_later_ones_and_to_each_other_go_in_beside_a_rejected_one(
    database, when
):
    _, commit = family(database, f"REFERENCES clicks {when}")
    rows = [(1, 2), (2, 3), (3, None), (4, 5), (9, None), (9, None), (5, 4), (6, 6)]
    assert commit(*rows) == ([(9, None, "not-unique")], [1, 2, 3, 4, 5, 6, 9])


@pytest.mark.parametrize("when", ["NOT DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"])
def test_rows_that_refer_to_a_rejected_one_are_rejected_with_it(database, when):
    _, commit = family(database, f"REFERENCES clicks {when}")
    letters, ids = commit((1, 2), (6, 7), (2, 3), (7, 99), (3, None))
    assert letters == [(6, 7, "foreign-key"), (7, 99, "foreign-key")]
    assert ids == [1, 2, 3]


def test_where_order_matters_to_a_trigger_the_earlier_row_is_rejected(database):
    found, commit = family(database, "")
    found.execute(
        "CREATE FUNCTION known() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN IF new.parent IS NOT NULL AND NOT EXISTS (SELECT FROM clicks WHERE id ="
        " new.parent) THEN RAISE 'no parent' USING ERRCODE = '23503'; END IF; RETURN new; END$$;"
        "CREATE TRIGGER known BEFORE INSERT ON clicks FOR EACH ROW EXECUTE FUNCTION known()"
    )
    assert commit((1, 2), (2, None)) == ([(1, 2, "foreign-key")], [2])


def test_many_rejected_rows_cost_few_statements(database, monkeypatch):
    """Each has its own reason, and the others are in their order, whichever way they went in."""
    found = database(
        "CREATE TABLE clicks (id smallint NOT NULL, name varchar(3) CHECK (name <> 'no'),"
        " at timestamptz, serial bigserial)"
    )
    driver = Postgres("clicks").open(found.context, schema())
    writer = driver.writers("a" * 32)
    copies, copy_into = [], postgres_writer.copy_into
    monkeypatch.setattr(
        postgres_writer, "copy_into", lambda *args: copies.append(args) or copy_into(*args)
    )
    names = {0: 'a,"', 1: "long", 2: "no", 3: "ż\n", 4: "a\0b", 5: None}
    rows = [row(number, names[number % 6]) for number in range(3_000)]
    rows += [row(40_000), {**row(3_001), "id": None}]
    rejected = writer.write(table(rows))
    reasons = {1: "wrong-value", 2: "check-violated", 4: "nul-character"}
    expected = [(n, reasons[n % 6]) for n in range(3_000) if n % 6 in reasons]
    assert [(each.index, each.reason) for each in rejected] == [
        *expected,
        (3_000, "wrong-value"),
        (3_001, "missing-value"),
    ]
    assert 'column "id"' in rejected[-1].detail
    assert len(copies) < 100
    driver.commit(writer.close(), batch(0), 0)
    kept = sorted(found.rows(), key=lambda each: each["serial"])
    assert [(each["id"], each["name"]) for each in kept] == [
        (n, names[n % 6]) for n in range(3_000) if n % 6 not in reasons
    ]


def test_rows_are_told_apart_by_halves_where_the_role_may_not_use_plpgsql(database):
    found = database("CREATE TABLE clicks (id smallint, name text, at timestamptz)")
    role = f"writer_{uuid.uuid4().hex[:8]}"
    found.execute(
        f"CREATE ROLE {role} LOGIN; REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC;"
        f"GRANT CREATE ON DATABASE {found.url.rpartition('/')[2]} TO {role};"
        f"GRANT SELECT, INSERT ON clicks TO {role}"
    )
    url = found.url.replace("headrace@", f"{role}@")
    context = replace(found.context, settings={"url": Secret(url)})
    writer = Postgres("clicks").open(context, schema()).writers("a" * 32)
    rejected = writer.write(table([row(n) for n in (1, 40_000, 2, 50_000, 3)]))
    assert [each.index for each in rejected] == [1, 3]


def test_a_table_that_takes_no_row_at_all_fails_the_batch(database, monkeypatch):
    monkeypatch.setattr(isolation, "MAX_REJECTED_ROWS", 2)
    found = database(f"{CLICKS[:-1]}, UNIQUE (name))")
    driver = Postgres("clicks").open(found.context, schema())
    driver.commit(written(driver, row(0)), batch(0), 0)
    pieces = written(driver, *(row(number) for number in range(1, 5)))
    with pytest.raises(SinkError, match=r"more than 2 rows .*clicks_name_key"):
        driver.commit(pieces, batch(1), 0)
    assert driver.positions.versions(["app"]) == {"app": 0}


def test_null_adds_nothing(database):
    found = database("CREATE TABLE clicks (id int PRIMARY KEY, n bigint)")
    columns = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    driver = Postgres("clicks", mode=WriteMode.ADD, key=("id",)).open(found.context, columns)
    for number, n in enumerate([None, 5, None, 3]):
        writer = driver.writers(uuid.uuid4().hex)
        writer.write(table_of(columns, [(1, n)]))
        driver.commit(writer.close(), batch(number), 0)
    assert found.rows() == [{"id": 1, "n": 8}]


def test_a_row_without_its_key_is_a_dead_letter(database):
    found = database("CREATE TABLE clicks (id bigint, name text UNIQUE, at timestamptz)")
    sink = Postgres("clicks", mode=WriteMode.UPSERT, key=("name",))
    writer = sink.open(found.context, schema()).writers(uuid.uuid4().hex)
    [rejected] = writer.write(table([row(1, None), row(2, "a")]))
    assert (rejected.index, rejected.reason) == (0, "missing-value")


def test_the_tasks_of_a_batch_are_taken_in_the_order_of_their_ids(keyed):
    database, driver = keyed(WriteMode.UPSERT)
    pieces = []
    for task, name in [(2, "newest"), (0, "oldest"), (1, "older")]:
        writer = driver.writers(f"{task:08x}{uuid.uuid4().hex[:24]}")
        writer.write(table([row(1, name)]))
        pieces += writer.close()
    driver.commit(pieces, batch(0), 0)
    assert by_id(database) == {1: "newest"}


def test_a_table_that_was_made_again_is_refused(database):
    found = database()
    driver = Postgres("clicks").open(found.context, schema())
    driver.commit(written(driver, row(1)), batch(0), 0)
    pieces = written(driver, row(2))
    found.execute(f"DROP TABLE clicks; {CLICKS}")
    with pytest.raises(TableMismatchError, match="recreated"):
        driver.positions.versions(["app"])
    with pytest.raises(TableMismatchError, match="recreated"):
        driver.commit(pieces, batch(1), 0)
    found.execute("UPDATE headrace.positions SET target_oid = NULL")
    driver.commit(written(driver, row(2)), batch(1), 0)
    assert sorted(by_id(found)) == [2]


def test_a_database_that_was_restored_whole_goes_on(database):
    """A restore gives every table another oid."""
    found = database()
    driver = Postgres("clicks").open(found.context, schema())
    driver.commit(written(driver, row(1)), batch(0), 0)
    found.execute(
        f"DROP TABLE clicks; {CLICKS}; CREATE TABLE kept AS TABLE headrace.positions;"
        "DROP TABLE headrace.positions;"
    )
    again = Postgres("clicks").open(found.context, schema())
    found.execute("INSERT INTO headrace.positions TABLE kept")
    assert again.positions.versions(["app"]) == {"app": 0}
    again.commit(written(again, row(2)), batch(1), 0)
    assert sorted(by_id(found)) == [2]


def test_a_role_with_rights_in_the_schema_only_may_start(database):
    found = database()
    Postgres("clicks").open(found.context, schema())
    role = f"writer_{uuid.uuid4().hex[:8]}"
    found.execute(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE, CREATE ON SCHEMA headrace TO {role};"
        f"GRANT SELECT, INSERT, UPDATE ON headrace.positions, headrace.tables TO {role};"
        f"GRANT SELECT, INSERT ON clicks TO {role}"
    )
    url = found.url.replace("headrace@", f"{role}@")
    driver = Postgres("clicks").open(
        replace(found.context, settings={"url": Secret(url)}), schema()
    )
    driver.commit(written(driver, row(1)), batch(0), 0)
    assert sorted(by_id(found)) == [1]


@pytest.mark.parametrize(
    ("ddl", "sink", "reason"),
    [
        ("CREATE TABLE other (id int)", Postgres("clicks"), "no such table"),
        ("CREATE TABLE clicks (id int, name text)", Postgres("clicks"), "no column 'at'"),
        (CLICKS, Postgres("clicks", mode=WriteMode.UPSERT, key=("id",)), "no unique index"),
        (f"{CLICKS[:-1]}, shop int NOT NULL)", Postgres("clicks"), "'shop' is NOT NULL"),
        (
            f"{CLICKS[:-1]}, UNIQUE (id) DEFERRABLE)",
            Postgres("clicks", mode=WriteMode.UPSERT, key=("id",)),
            "DEFERRABLE",
        ),
        (
            f"{CLICKS[:-1]}, UNIQUE (id))",
            Postgres("clicks", mode=WriteMode.ADD, key=("id",)),
            "sum",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_at_the_start(database, ddl, sink, reason):
    found = database(ddl)
    with pytest.raises(TableMismatchError, match=reason):
        sink.open(found.context, schema())
    assert found.staged() == []


def test_plan_looks_at_the_table_and_makes_nothing(database):
    found = database()
    assert list(Postgres("clicks").changes(found.context, schema())) == []
    with pytest.raises(TableMismatchError, match="no such table"):
        Postgres("nosuch").changes(found.context, schema())
    assert found.execute("SELECT to_regnamespace('headrace')") == [(None,)]


def test_no_message_holds_the_password(database):
    found = database()
    url = Secret(
        found.url.replace("headrace@", "headrace:hush-hush@").replace("postgresql", "postgres")
    )
    context = replace(found.context, settings={"url": Secret(url.reveal() + "x_no_such")})
    with pytest.raises(SinkError) as caught:
        Postgres("clicks").open(context, schema())
    assert "hush-hush" not in str(caught.value)


def test_records_carry_key_id_origin_and_partition(broker):
    class View:
        view_id: str
        country: str

    client = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    topic = made_topic(client, event=View, key="country", event_id="view_id", partitions=5)
    columns = [("view_id", pa.string()), ("country", pa.string()), ("_topic", pa.string())]
    columns += [("_partition", pa.int32()), ("_offset", pa.int64())]
    rows = [(f"v{n}", ["pl", "de"][n % 2], "views", n % 3, 100 + n) for n in range(20)]
    names = [name for name, _ in columns]
    found = pa.Table.from_pylist(
        [dict(zip(names, r, strict=True)) for r in rows], pa.schema(columns)
    )
    driver = Kafka(topic).open(SinkContext("p", "", client), found.schema)
    writer = driver.writers("a" * 32)
    assert writer.write(found) == []
    assert driver.commit(writer.close(), Transaction({}, {}), 0).rows == 20
    sent = records(client, topic.name)
    assert {r.key() for r in sent} == {b"pl", b"de"}
    assert len({(r.key(), r.partition()) for r in sent}) == 2
    assert {dict(r.headers())["event-id"] for r in sent} == {f"v{n}".encode() for n in range(20)}
    assert dict(sent[0].headers())["origin"].startswith(b"views/")
    assert json.loads(sent[0].value()).keys() == {"view_id", "country"}


def exactly_once(broker, **declared):
    """A topic, and ``opened()``: another driver of its pipeline."""
    client = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    topic = made_topic(client, event=Click, key="id", event_time="at", **declared)
    sink = Kafka(topic, guarantee=Guarantee.EXACTLY_ONCE)

    def ids():
        return sorted(json.loads(record.value())["id"] for record in records(client, topic.name))

    return lambda: sink.open(SinkContext("p", "", client), schema()), ids


def test_batches_of_a_topic_follow_one_another_in_each_partition(broker):
    """Tasks of a batch come in no order; the ids of their attempts say which read first."""
    client = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    topic = made_topic(client, event=Click, event_time="at", partitions=1)
    sink = Kafka(topic, guarantee=Guarantee.EXACTLY_ONCE)
    driver = sink.open(SinkContext("p", "", client), schema())
    for number in range(3):
        pieces = []
        for task in reversed(range(3)):
            writer = driver.writers(f"{task:08x}{uuid.uuid4().hex[:24]}")
            first = 100 * number + 10 * task
            writer.write(table([row(first), row(first + 1)]))
            pieces += writer.close()
        driver.commit(pieces, batch(number), 0)
    sent = [json.loads(record.value())["id"] for record in records(client, topic.name)]
    assert (len(sent), sent) == (18, sorted(sent))


def test_a_driver_that_was_frozen_within_its_transaction_is_fenced(broker, monkeypatch):
    """It wakes up when another one has committed its batch, and the batch after it."""
    opened, ids = exactly_once(broker)
    frozen, done = opened(), []

    def records_of(versions):
        """Called when the rows are with the client, and the transaction is open."""
        monkeypatch.undo()
        other = opened()
        for number in range(2):
            rows = written(other, row(number))
            done.append(other.commit(rows, batch(number), 0).is_new)
        yield from frozen.positions.records(versions)

    monkeypatch.setattr(frozen.positions, "records", records_of)
    with pytest.raises(SinkError, match="another driver has recorded other positions"):
        frozen.commit(written(frozen, row(0)), batch(0), 0)
    assert (done, ids()) == ([True, True], [0, 1])


def test_what_a_dead_driver_left_in_an_open_transaction_is_never_read(broker):
    opened, ids = exactly_once(broker)
    dead = opened()
    pieces = written(dead, *map(row, range(5)))
    records_of = dead.positions.records

    def dies(versions):
        yield from records_of(versions)
        raise KeyboardInterrupt

    dead.positions.records = dies
    dead.close = lambda _: None  # the process has ended: nothing aborts the transaction
    with pytest.raises(KeyboardInterrupt):
        dead.commit(pieces, batch(0), 0)
    restarted = opened()
    assert restarted.positions.versions(["app"]) == {}
    assert restarted.commit(written(restarted, row(1), row(2)), batch(0), 0).is_new
    assert ids() == [1, 2]


def test_a_topic_that_takes_less_than_is_declared_is_named_and_nothing_is_committed(broker):
    client = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "none"}
    topic = made_topic(client, event=Click, config={"max.message.bytes": "2000"})
    declared = replace(topic, config={"max.message.bytes": "200000"})
    sink = Kafka(declared, guarantee=Guarantee.EXACTLY_ONCE)
    driver = sink.open(SinkContext("p", "", client), schema())
    pieces = written(driver, row(1), row(2, os.urandom(4_000).hex()))
    with pytest.raises(RecordRejectedError, match=r"max\.message\.bytes"):
        driver.commit(pieces, batch(0), 0)
    assert (records(client, topic.name), driver.positions.versions(["app"])) == ([], {})


def test_a_record_that_is_too_large_is_a_dead_letter_and_its_batch_goes_in(broker):
    client = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    topic = made_topic(client, event=Click, config={"max.message.bytes": "2000"})
    driver = Kafka(topic).open(SinkContext("p", "", client), schema())
    writer = driver.writers("a" * 32)
    big = row(2, os.urandom(4_000).hex())
    rejected = writer.write(table([row(1), big, row(3)]))
    assert [(each.index, each.reason) for each in rejected] == [(1, "rejected-by-kafka")]
    assert sorted(json.loads(r.value())["id"] for r in records(client, topic.name)) == [1, 3]


def test_a_small_limit_of_the_topic_keeps_the_order_of_its_rows(broker):
    """Batches are bounded by it: one that is refused would be passed by those behind it."""
    client = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": "none"}
    topic = made_topic(client, event=Click, partitions=1, config={"max.message.bytes": "20000"})
    writer = Kafka(topic).open(SinkContext("p", "", client), schema()).writers("a" * 32)
    clicks = [row(n, "x" * 1_000) for n in range(100)]
    rest = 20_000 - batch_size_of(RecordsOf(topic).of(table([row(50, "x" * 19_000)]))[0][0])
    clicks[50], clicks[60] = row(50, "x" * (19_000 + rest)), row(60, "x" * (19_001 + rest))
    assert [each.index for each in writer.write(table(clicks))] == [60]
    sent = [json.loads(r.value())["id"] for r in records(client, topic.name)]
    assert sent == [n for n in range(100) if n != 60]
