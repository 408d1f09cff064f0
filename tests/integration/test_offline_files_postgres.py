"""Offline files into a real PostgreSQL: rows, dead letters and progress in one transaction."""

import functools
import json
import shutil
import subprocess
import threading
import uuid
from datetime import timedelta

import psycopg
import pytest
from tests.integration.service import HEADRACE
from tests.offline_lines import ARTICLE, line, packed, write
from tests.waiting import wait_for

from headrace.errors import LoaderRunningError, SinkError
from headrace.offline_files.loading import LoadPlan, LoadStats
from headrace.offline_files.options import FollowOptions, LoadOptions
from headrace.offline_files.postgres_destination import PostgresDestination
from headrace.offline_files.run import follow_run, load_offline_files
from headrace.service.run import RunOptions
from headrace.settings import Secret

TABLES = """
CREATE TABLE raw_item (
  id serial PRIMARY KEY, project_id int NOT NULL, timestamp bigint, body jsonb, version int,
  billable int DEFAULT 1, uuid uuid UNIQUE, counter bigint, size int CHECK (size > 0),
  tag varchar(3), made int GENERATED ALWAYS AS (project_id + 1) STORED
);
CREATE SCHEMA old;
CREATE TABLE old.texts (project_id numeric, body text);
CREATE TABLE bytes (project_id int, body bytea);
CREATE TABLE verbatim (project_id int, body json);
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
"""


INTO = {name: name for name in ("raw_item", "bytes", "verbatim", "parent", "child")}


class Database:
    def __init__(self, url, folder):
        self.url, self.folder = url, folder
        with self.connection() as connection:
            connection.execute(TABLES)

    def connection(self):
        return psycopg.connect(self.url, autocommit=True)

    def rows(self, query):
        with self.connection() as connection:
            return connection.execute(query).fetchall()

    def load(self, on_batch=lambda _: None, **wanted):
        figures = LoadStats()
        wanted = LoadOptions(
            self.folder, **({"source": "host", "batch_lines": 3, "into": INTO} | wanted)
        )
        load_offline_files(wanted, Secret(self.url), figures, on_batch)
        return figures

    @property
    def counters(self):
        return [one for (one,) in self.rows("SELECT counter FROM raw_item ORDER BY id")]

    @property
    def letters(self):
        query = "SELECT counter, reason FROM headrace_dead_letters ORDER BY id"
        return self.rows(query)


@pytest.fixture
def database(postgres, tmp_path):
    return Database(postgres.create_database(f"db_{uuid.uuid4().hex[:8]}"), tmp_path)


def test_columns_get_what_the_line_holds_and_defaults(database):
    body = b'{"b" : 1.50, "a": [1]}'
    row = {"timestamp": 1574948156, "version": 2, "body": packed(body)}
    write(
        database.folder / "offline.1",
        line(356, **row, uuid="bad3a155-585f-47cb-bc3e-51767d52c2a2"),
        line(357, table="texts", project_id=1.25, body=packed(body)),
        line(358, table="bytes", body=packed(body)),
        line(359, table="verbatim", body=packed(body)),
        line(360, table="bytes", body=None),
        line(361, billable=None),
    )
    figures = database.load(into=INTO | {"texts": "old.texts"}, batch_lines=100)
    assert figures.loaded == {"raw_item": 2, "texts": 1, "bytes": 2, "verbatim": 1}
    assert database.rows("SELECT * FROM raw_item")[0][:6] == (
        1, 1, 1574948156, {"b": 1.5, "a": [1]}, 2, 1
    )  # fmt: skip
    assert database.rows("SELECT billable, made, counter FROM raw_item") == [
        (1, 2, 356),
        (None, 2, 361),
    ]
    assert database.rows("SELECT project_id::text, body FROM old.texts") == [
        ("1.25", body.decode())
    ]
    assert database.rows("SELECT body FROM bytes") == [(body,), (None,)]
    assert database.rows("SELECT body::text FROM verbatim") == [(body.decode(),)]


def test_each_row_that_postgres_refuses_is_a_dead_letter_and_the_others_go_in(database):
    uuid_ = "bad3a155-585f-47cb-bc3e-51767d52c2a2"
    bad = {
        "missing-value": line(1, project_id=None),
        "wrong-value": line(2, project_id="many"),
        "nul-character": line(3, body=packed(b'{"a":"\\u0000"}')),
        "not-unique": line(4, uuid=uuid_),
        "check-violated": line(5, size=0),
        "unknown-column": line(6, color="red"),
        "unknown-table": line(7, table="nowhere"),
        "foreign-key": b'{"table":"child","row":{"parent":5},"counter":8}',
        "bad-base64": line(9, body="?"),
    }
    good = [line(10, uuid=uuid_), *map(line, range(11, 30))]
    lines = [good[0]]
    for one, other in zip(bad.values(), good[1:], strict=False):
        lines += [one, other]
    lines += [line(30, made=5), line(31, tag="long"), *good[10:]]
    write(database.folder / "offline.1", *lines)
    figures = database.load(batch_lines=1000)
    assert sorted(database.letters) == [
        *((number, reason) for number, reason in enumerate(bad, 1)),
        (30, "unknown-column"),
        (31, "wrong-value"),
    ]
    assert database.counters == [10, *range(11, 30)]
    assert figures.loaded == {"raw_item": 20}


def test_characters_that_the_database_lacks_have_a_reason_of_their_own(postgres, tmp_path):
    url = postgres.create_database(f"db_{uuid.uuid4().hex[:8]}", "LATIN1")
    database = Database(url, tmp_path)
    texts = ["é".encode(), "€".encode(), b"\\u20ac", b"\\u0000", "ü".encode()]
    bodies = [packed(b'{"a":"' + text + b'"}') for text in texts]
    lines = [line(number, body=body) for number, body in enumerate(bodies)]
    write(database.folder / "offline.1", *lines)
    database.load()
    assert sorted(database.letters) == [
        (1, "unsupported-character"),
        (2, "unsupported-character"),
        (3, "nul-character"),
    ]
    assert database.counters == [0, 4]


GUARDED = """
CREATE TABLE guarded (project_id int, body jsonb);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.project_id = 13 THEN RAISE EXCEPTION 'unlucky' USING ERRCODE = 'UE001'; END IF;
  IF NEW.project_id = 14 THEN PERFORM missing FROM guarded; END IF;
  RETURN NEW; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION refuse();
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
CREATE POLICY low ON guarded WITH CHECK (project_id < 20);
CREATE ROLE {role} LOGIN;
GRANT ALL ON SCHEMA public TO {role};
"""


def test_no_line_holds_up_the_others_but_a_missing_right_to_the_table_does(database):
    role = f"r{uuid.uuid4().hex[:8]}"
    with database.connection() as connection:
        connection.execute(GUARDED.format(role=role))
    write(
        database.folder / "offline.1",
        line(1, table="guarded"),
        line(2, table="guarded", project_id=13),
        b'{"table":"a\\u0000b","row":{},"counter":3}',
        line(4, table="guarded", project_id=14),
        line(5, table="guarded", project_id=20),
        line(6, table="guarded"),
    )
    url, database.url = database.url, database.url.replace("//headrace@", f"//{role}@")
    with pytest.raises(SinkError, match="permission denied for table guarded"):
        database.load(into={"guarded": "guarded"}, batch_lines=100)
    assert database.letters == []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"GRANT INSERT, SELECT ON guarded TO {role}")
    figures = database.load(into={"guarded": "guarded"}, batch_lines=100)
    assert sorted(database.letters) == [
        (2, "rejected-by-trigger"),
        (3, "nul-character"),
        (4, "rejected-by-trigger"),
        (5, "not-permitted"),
    ]
    assert figures.loaded == {"guarded": 2}


def test_a_dead_letter_says_where_it_stood_and_holds_the_line(database):
    shutil.copy(ARTICLE, database.folder / "offline.7")
    for _ in range(2):
        database.load()
    found = database.rows(
        "SELECT source, file, line, counter, table_name, reason, content, detail "
        "FROM headrace_dead_letters ORDER BY id"
    )
    lines = ARTICLE.read_bytes().splitlines()
    assert [one[:-1] for one in found] == [
        ("host", "offline.7", 1, 356, "raw_item", "bad-zlib", lines[0]),
        ("host", "offline.7", 2, 357, "raw_item", "bad-base64", lines[1]),
    ]
    assert "invalid distance too far back" in found[0][-1]


def test_a_row_may_refer_to_one_before_it_in_another_table(database):
    lines = []
    for n in range(0, 8, 2):
        lines += [
            b'{"table":"parent","row":{"id":%d},"counter":%d}' % (n, n),
            b'{"table":"child","row":{"parent":%d},"counter":%d}' % (n, n + 1),
        ]
    write(database.folder / "offline.1", *lines)
    database.load(batch_lines=100)
    assert database.rows("SELECT parent FROM child") == [(0,), (2,), (4,), (6,)]


def test_lines_are_loaded_once_however_often_and_under_whatever_name(database):
    write(database.folder / "offline.1", *map(line, range(7)), b"no json")
    database.load()
    (database.folder / "offline.1").rename(database.folder / "again")
    write(database.folder / "offline.2", *map(line, range(5, 9)))
    figures = database.load()
    assert database.counters == list(range(9))
    assert database.letters == [(None, "not-json")]
    assert figures.skipped == 10
    assert database.load(source="another").loaded == {"raw_item": 9}


def test_a_dry_run_counts_and_writes_nothing(database):
    write(database.folder / "offline.1", *map(line, range(4)), line(4, size=0), line(4, size=0))
    figures = database.load(dry_run=True, remove_done=True)
    assert (figures.loaded, figures.dead) == ({"raw_item": 4}, {"check-violated": 1})
    assert database.counters == []
    assert database.rows("SELECT to_regclass('headrace_offline_files')") == [(None,)]


def test_another_loader_of_the_source_is_refused(database, monkeypatch):
    monkeypatch.setattr(PostgresDestination, "patience_seconds", 0.2)
    write(database.folder / "offline.1", line(1))
    first = PostgresDestination(Secret(database.url), "host", {})
    first.open()
    with pytest.raises(LoaderRunningError):
        database.load()
    assert database.load(source="another").loaded == {"raw_item": 1}
    first.close()
    assert database.load().loaded == {"raw_item": 1}


def test_a_loader_that_lost_its_lock_can_not_write_any_more(database):
    write(database.folder / "offline.1", *map(line, range(9)))

    def take_over(_):
        with database.connection() as connection:
            connection.execute("UPDATE headrace_offline_files SET batches = batches + 1")

    with pytest.raises(LoaderRunningError):
        database.load(take_over)
    assert database.counters == [0, 1, 2]


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_deadlocks_and_failed_serializations_are_tried_again(database, state, monkeypatch):
    plan = functools.partial(LoadPlan, retry_delays_seconds=(0, 0, 0))
    monkeypatch.setattr("headrace.offline_files.run.LoadPlan", plan)
    with database.connection() as connection:
        connection.execute(f"""
            CREATE SEQUENCE tries;
            CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              IF nextval('tries') IN (2, 3) THEN
                RAISE 'no luck' USING ERRCODE = '{state}';
              END IF;
              RETURN NEW;
            END $$;
            CREATE TRIGGER fails BEFORE INSERT ON raw_item EXECUTE FUNCTION fails();
        """)
    write(database.folder / "offline.1", *map(line, range(7)))
    assert database.load().retries == 2
    assert database.counters == list(range(7))


def test_the_crash_of_the_server_is_waited_for(database, postgres):
    write(database.folder / "offline.1", *map(line, range(30)))
    crashes = iter([True, True])

    def crash(_):
        if next(crashes, False):
            postgres.kill()
            postgres.start()

    figures = database.load(crash)
    assert database.counters == list(range(30))
    assert (figures.loaded, figures.skipped) == ({"raw_item": 30}, 0)
    assert figures.retries > 0


def test_a_loader_that_follows_waits_for_the_server_and_loads_each_line_once(database, postgres):
    folder = database.folder / "offline"
    folder.mkdir()
    load = LoadOptions(folder, "host", INTO, batch_lines=3, move_done=database.folder)
    options = FollowOptions(load, timedelta())
    run = follow_run(options, Secret(database.url), None, RunOptions())
    thread = threading.Thread(target=run.run, args=[lambda _: None])

    def add(number):
        content = map(line, range(number * 10, number * 10 + 10))
        write(database.folder / "part", *content).rename(folder / f"offline.{number}")

    def is_loaded(number):
        return (database.folder / f"offline.{number}").exists()

    postgres.kill()
    add(0)
    thread.start()
    postgres.start()
    try:
        wait_for(lambda: is_loaded(0))
        postgres.kill()
        add(1)
        add(2)
        postgres.start()
        wait_for(lambda: is_loaded(2))
    finally:
        run.stop()
        thread.join()
    assert database.counters == list(range(30))
    assert not list(folder.iterdir())


def test_what_is_wrong_with_the_database_is_said_without_its_password(database, postgres):
    write(database.folder / "offline.1", line(1))
    url = f"postgresql://{{}}:hush-hush@127.0.0.1:{postgres.port}/{{}}"
    for wrong in (
        url.format("nobody", "postgres"),
        url.format("headrace", "nowhere"),
        "postgresql://a:hush-hush@127.0.0.1:1/x",
        "postgresql://a:hush-hush@[/x",
    ):
        wanted = LoadOptions(database.folder, "host")
        with pytest.raises(SinkError) as caught:
            load_offline_files(wanted, Secret(wrong), LoadStats(), lambda _: None)
        assert "hush" not in str(caught.value)


def test_a_table_that_is_named_must_be_there(database):
    write(database.folder / "offline.1", line(1))
    with pytest.raises(SinkError, match="there is no table 'nowhere'"):
        database.load(into={"raw_item": "nowhere"})


def test_a_source_of_which_no_line_has_a_table_is_not_emptied_into_dead_letters(database):
    write(database.folder / "offline.1", line(1, table="nowhere"), line(2, body="?"))
    with pytest.raises(SinkError, match="--into"):
        database.load()
    with database.connection() as connection:
        connection.execute("CREATE TABLE nowhere (project_id int, body json)")
    with pytest.raises(SinkError, match="--into"):  # a line does not choose its table
        database.load()
    assert database.load(into={"nowhere": "nowhere"}).loaded == {"nowhere": 1}
    write(database.folder / "offline.2", line(3, table="elsewhere"))
    assert database.load().dead == {"unknown-table": 1}


@pytest.mark.parametrize("own", ["headrace_offline_files", "public.headrace_dead_letters"])
def test_headraces_own_tables_are_no_destination(database, own):
    text = b'{"table":"%s","row":{"source":"other"},"counter":8}' % own.encode()
    write(database.folder / "offline.1", line(1), text)
    assert database.load().dead == {"unknown-table": 1}
    with pytest.raises(SinkError, match="headrace's own"):
        database.load(into={own: own})


def test_the_command_loads_without_a_project_and_keeps_the_password_to_itself(
    database, monkeypatch
):
    write(database.folder / "offline.1", *map(line, range(3)), line(5))
    shutil.copy(ARTICLE, database.folder / "offline.2")
    monkeypatch.setenv("SECRET", "hush-hush")
    url = database.url.replace("@", ":${SECRET}@")
    command = [HEADRACE, "load-offline-files", database.folder, "--postgres", url]
    command += ["--into", "raw_item"]
    done = subprocess.run(
        [*command, "--source", "web-1", "--json"], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["source"] == "web-1"
    assert found["loaded"] == {"raw_item": 4}
    assert found["dead"] == {"bad-zlib": 1, "bad-base64": 1}
    assert found["holes"] == [{"first": 3, "last": 4}, {"first": 6, "last": 355}]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "hush" not in done.stdout + done.stderr + again.stdout + again.stderr
