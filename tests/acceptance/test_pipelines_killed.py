"""All kinds of pipelines in one driver, which is killed again and again; so is what it works with.

Beside each run, PostgreSQL is killed in the middle of transactions, and so is a `reprocess`. After
each kill of the driver, checkpoints are damaged and the indexes of joins lost. Each event must end
in one fate, once: by the tables, by a recount of DuckDB, and by the ledger.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from tests.acceptance.project import HEADRACE, Project, kill_session
from tests.acceptance.test_driver_killed import nothing_is_committed_that_is_nowhere
from tests.integration.held_transactions import MOMENTS, held, make_holdable
from tests.integration.postgres_server import PostgresServer
from tests.waiting import DRILL_LIMIT_SECONDS, FLUSH_SECONDS, wait_for_drill

from headrace.kafka.client.clients import producer
from headrace.kafka.dead_letters.letters import scan
from headrace.sinks.lake.delta.table import read_table

FLOW = """
from datetime import timedelta
from headrace import BatchLimits, Count, Distinct, EpochMillis, Join, Lake, Match, Metadata
from headrace import Pipeline, Postgres, Source, Stats, Sum, Topic, classify, filter_rows


class Event:
    event_id: str
    event_time: EpochMillis
    category: str
    n: int


class Impression:
    id: str
    user: str
    at: EpochMillis


class Click:
    id: str
    user: str
    at: EpochMillis
    impression_id: str


def topic(name, event, key, event_id, event_time):
    return Topic(
        name, event=event, key=key, event_id=event_id, event_time=event_time, partitions=4
    )


events = topic("events", Event, "event_id", "event_id", "event_time")
impressions = topic("impressions", Impression, "user", "id", "at")
clicks = topic("clicks", Click, "user", "id", "at")
source = Source(events, metadata=(Metadata.TOPIC, Metadata.PARTITION, Metadata.OFFSET))
limits = BatchLimits(max_records=2_000, max_wait=timedelta(milliseconds=200))


def doubled(rows):
    from pyspark.sql import functions as F

    return rows.withColumn("double", F.col("n") * 2)


steps = [
    classify("kind", {"fives": "n % 5 = 0"}),
    filter_rows({"sevens": "n % 7 = 0"}),
    doubled,
    lambda rows: rows.select(
        "event_id", "event_time", "category", "n", "double", "_partition", "_offset"
    ),
    filter_rows({"elevens": "n % 11 = 0"}),
]


def counting(name, source, **options):
    measures = {"events": Count(), "total": Sum("n"), "ids": Distinct("event_id")}
    sink = Stats(name, by=("category",), every=timedelta(seconds=10), measures=measures)
    return Pipeline(name, source, sink, limits=limits, **options)


fused = Pipeline("fused", source, Lake("fused", ("day", "hour")), limits=limits)
stepped = Pipeline("stepped", source, Lake("stepped", ("day",)), steps=steps, limits=limits)
counted = counting("counted", events)
counted_steps = counting("counted_steps", source, steps=steps)
appended = Pipeline("appended", events, Postgres("appended"), limits=limits)


def joined(name, on, match, **options):
    times = {"within": timedelta(hours=1), "wait": timedelta(seconds=4)}
    join = Join(
        clicks, impressions, on, "impression", match=match, unmatched=Lake(f"un{name}"), **times
    )
    return Pipeline(name, join, Lake(name), limits=limits, **options)


by_id = joined("by_id", ("impression_id", "id"), Match.ID)
by_id_steps = joined(
    "by_id_steps", ("impression_id", "id"), Match.ID, steps=[lambda rows: rows.where("id != ''")]
)
last = joined("last", ("user", "user"), Match.LAST)
"""
SETTINGS = """
[ledger]
window_seconds = 60

[sinks.postgres]
url = "{url}"
"""
STATS_OF = {"fused": "counted", "stepped": "counted_steps"}  # counts of the rows in the lake
BEHIND_STEPS = ("stepped", "counted_steps")
OF_EVENTS = ("fused", "stepped", "counted", "counted_steps", "appended")
RANGE = ("--from", "2020-01-01", "--to", "2100-01-01")
UNBALANCED = 6
TABLE = "CREATE TABLE appended (event_id text, event_time timestamptz, category text, n bigint)"

COUNTS = """
SELECT epoch_us(event_time) // 10000000 * 10, category, count(*), sum(n)::BIGINT
FROM events GROUP BY ALL
"""


def is_bad(n):
    return n % 1000 == 0


def is_dropped(n):
    """By the steps; bad events do not reach them."""
    return n % 7 == 0 or n % 11 == 0


class Clicks:
    """What is sent to the joins, and what must become of it."""

    def __init__(self, rng, count):
        self.begin, self.count = int(time.time() * 1000) - 10 * count - 60_000, count
        self.impressions, self.clicks = [], []
        self.by_id, self.last = {}, {}
        self.conflicting = 0
        newest = {}
        for n in range(count):
            user = f"u{rng.randrange(20) if n % 2 else 0}"  # one user with half of all
            seen = {"id": f"i{n}", "user": user, "at": self.begin + n * 10}
            self.impressions.append(seen)
            if n % 100 == 1:
                self.impressions.append(seen)
            if n % 1000 == 2:
                self.impressions.append(seen | {"at": seen["at"] + 1})
                self.conflicting += 1
            newest[user] = seen["id"]
            if n % 20 == 0:
                named = rng.choice([seen["id"], seen["id"], seen["id"], "none"])
                click = {"id": f"c{n}", "user": user, "at": seen["at"] + 5, "impression_id": named}
                # Some come before their impression: topics are sent side by side.
                self.clicks.insert(len(self.clicks) - rng.choice([0, 0, 0, 3]), click)
                self.by_id[click["id"]] = None if named == "none" else named
                self.last[click["id"]] = newest[user]

    def send(self, client, part, parts):
        """Sends a part of the time that all of them take, so no click waits for a later part."""
        sender = producer(client)
        for topic, events in (("clicks", self.clicks), ("impressions", self.impressions)):
            for event in events:
                if (event["at"] - self.begin) // 10 * parts // self.count == part:
                    sender.produce(topic, json.dumps(event).encode(), key=event["user"])
                    sender.poll(0)
        assert sender.flush(FLUSH_SECONDS) == 0

    @property
    def tables(self):
        """What each table of clicks must hold at the end: their ids, and of their impressions."""
        matched = {click: seen for click, seen in self.by_id.items() if seen is not None}
        none = {click: None for click in self.by_id if click not in matched}
        return {
            "by_id": matched,
            "unby_id": none,
            "by_id_steps": matched,
            "unby_id_steps": none,
            "last": self.last,
        }

    @property
    def fates(self):
        seen, asked = len(self.impressions), len(self.clicks)
        matched = len(self.tables["by_id"])
        of_ids = {
            "read": seen + asked,
            "kept": self.count,
            "deduplicated": seen - self.count - self.conflicting,
            "dead": self.conflicting,
            "out": matched,
            "unmatched": asked - matched,
        }
        last = {"read": seen + asked, "kept": seen, "out": asked}
        return {"by_id": of_ids, "by_id_steps": of_ids, "last": last}


@pytest.fixture
def server(stop_at_end):
    """A PostgreSQL of its own, which may be killed."""
    server = PostgresServer()
    stop_at_end(server.folder)
    server.start()
    yield server
    server.remove()


class Kills:
    """Faults of one drill, and what must hold after each.

    Args:
        project: whose pipelines run.
        server: the PostgreSQL that they write to.
        url: of their database.
        indexes: where the indexes of joins are.
        chosen: chooses the faults.
    """

    def __init__(
        self,
        project: Project,
        server: PostgresServer,
        url: str,
        indexes: Path,
        chosen: random.Random,
    ) -> None:
        self.project, self.server, self.url, self.indexes = project, server, url, indexes
        self.random = chosen
        self.sent = 0

    def send(self, count: int) -> None:
        self.project.send(self.sent, count, bad=b"not json")
        self.sent += count

    def good(self, *, behind_steps: bool = False) -> dict[str, int]:
        """How often each event that was sent must be in a table."""
        return {
            f"e{n}": 1
            for n in range(self.sent)
            if not is_bad(n) and not (behind_steps and is_dropped(n))
        }

    @property
    def fates(self) -> dict[str, dict[str, int]]:
        """What must have become of the events that were sent."""
        good, kept = len(self.good()), len(self.good(behind_steps=True))
        whole = {"read": self.sent, "out": good, "dead": self.sent - good}
        filtered = whole | {"out": kept, "filtered": good - kept}
        return {name: filtered if name in BEHIND_STEPS else whole for name in OF_EVENTS}

    def caught_up(self) -> bool:
        """Whether every pipeline of events has taken what was sent."""
        good, kept = len(self.good()), len(self.good(behind_steps=True))
        expected = {"appended": good, "counted": good, "counted_steps": kept}
        return self._counts() == expected and all(
            sum(map(len, self.project.offsets(table).values())) == count
            for table, count in (("fused", good), ("stepped", kept))
        )

    def kill_in_transactions(self, count: int) -> None:
        """Kills PostgreSQL at each moment of a transaction: one backend, or the whole server."""
        whole = [False, True, self.random.random() < 0.5]
        for moment in self.random.sample(list(MOMENTS), len(MOMENTS)):
            self._kill_in_transaction(
                moment, count, whole_server=whole.pop(self.random.randrange(len(whole)))
            )
            wait_for_drill(self.caught_up, f"all events behind a kill {moment}")

    def kill_a_reprocessing(self) -> None:
        """Deletes rows, which one `reprocess` begins to bring back and another one brings back."""
        first, before = self.sent, self._rows_of_fused(self.sent)
        delete(self.project, f"n % 7 = {self.random.randrange(7)}")
        files = self._files_of_fused()
        process = self.project.start("reprocess", "fused", *RANGE)
        deadline = time.monotonic() + self.random.uniform(5.0, 25.0)
        try:
            # Its files are there a moment before its commit.
            wait_for_drill(lambda: time.monotonic() > deadline or self._files_of_fused() - files)
            time.sleep(self.random.uniform(0.0, 0.3))
            assert process.poll() is None, "the reprocessing has ended before it was killed"
        finally:
            kill_session(process)
        self.send(500)
        assert not (self._rows_of_fused(first) - before)
        self.project.call("reprocess", "fused", *RANGE)
        assert self._rows_of_fused(first) == before

    def lose_files(self, *, indexes: bool) -> None:
        """One checkpoint loses its newest commit, another one all; joins may lose their indexes."""
        forgetful, lost = self.random.sample(OF_EVENTS, 2)
        checkpoints = Path(self.project.lake) / "_headrace" / "checkpoints"
        numbers = [int(path.name) for path in (checkpoints / forgetful).glob("[0-9]*")]
        commits = checkpoints / forgetful / str(max(numbers)) / "commits"
        newest = max((path for path in commits.glob("[0-9]*")), key=lambda path: int(path.name))
        newest.unlink()
        (commits / f".{newest.name}.crc").unlink(missing_ok=True)
        shutil.rmtree(checkpoints / lost)
        if indexes:
            for folder in self.indexes.glob("headrace-join-*"):
                shutil.rmtree(folder)

    def nothing_is_nowhere(self) -> None:
        nothing_is_committed_that_is_nowhere(self.project, "fused")
        nothing_is_committed_that_is_nowhere(self.project, "stepped", drops=is_dropped)

    def events_are_there_once(self) -> None:
        """In each table, among dead letters and in the ledger, once all have been taken."""
        self.nothing_is_nowhere()
        assert self.project.ids("fused") == self.good()
        assert self.project.ids("stepped") == self.good(behind_steps=True)
        letters = Counter(
            (each.pipeline, each.letter.partition, each.letter.offset)
            for each in scan(self.project.client, "events")
        )
        assert set(letters.values()) == {1}
        bad = self.sent - len(self.good())
        assert Counter(pipeline for pipeline, *_ in letters) == dict.fromkeys(OF_EVENTS, bad)
        balances = reconciled(self.project)
        assert {name: fates(balances[name]) for name in OF_EVENTS} == self.fates
        states = {window["state"] for name in OF_EVENTS for window in balances[name]["windows"]}
        assert states <= {"balanced", "closing", "open"}
        self._postgres_equals_a_recount_by_duckdb()

    def _kill_in_transaction(self, moment: str, count: int, *, whole_server: bool) -> None:
        with held(self.server, self.url, moment) as find:
            self.send(count)
            wait_for_drill(lambda: bool(find()), f"a transaction {moment}")
            if whole_server:
                self.server.kill_processes()
            else:
                os.kill(find()[0], signal.SIGKILL)  # the others are ended by the first process
        if whole_server:
            time.sleep(self.random.uniform(0, 2))
            self.server.start()
        wait_for_drill(self._answers, "the server")

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def _counts(self) -> dict[str, int]:
        """Rows, or sums of counts, by table; empty: they can't be read."""
        asked = {"appended": "count(*)"} | dict.fromkeys(STATS_OF.values(), "sum(events)")
        try:
            with psycopg.connect(self.url) as connection:
                return {
                    table: connection.execute(f"SELECT {what} FROM {table}").fetchone()[0]
                    for table, what in asked.items()
                }
        except psycopg.Error:
            return {}

    def _files_of_fused(self) -> set[Path]:
        return set(Path(self.project.lake, "fused").rglob("*.parquet"))

    def _rows_of_fused(self, sent: int) -> Counter:
        """Rows of the events that were sent first."""
        rows = read_table(f"{self.project.lake}/fused").to_pylist()
        return Counter(repr(sorted(row.items())) for row in rows if row["n"] < sent)

    def _postgres_equals_a_recount_by_duckdb(self) -> None:
        with psycopg.connect(self.url) as connection:
            for lake, table in STATS_OF.items():
                events = DeltaTable(f"{self.project.lake}/{lake}").to_pyarrow_table()
                expected = duckdb.from_arrow(events).query("events", COUNTS).fetchall()
                counts = connection.execute(
                    "SELECT extract(epoch FROM window_start)::bigint, category, events,"
                    f" total::bigint, ids FROM {table}"
                ).fetchall()
                assert Counter(row[:4] for row in counts) == Counter(expected)
                # Estimates of a few thousand ids: 1.04 / sqrt(2**12) is 1.6%.
                assert all(abs(ids - count) <= 2 + 0.1 * count for *_, count, _, ids in counts)
            appended = connection.execute("SELECT event_id FROM appended").fetchall()
        assert Counter(event_id for (event_id,) in appended) == self.good()


@pytest.mark.drill
@pytest.mark.timeout(3500)
def test_kills_leave_each_event_in_one_fate(
    start_cluster, tmp_path, server, drill_run, monkeypatch
):
    kills = drill_run.size(short=1, long=10)
    indexes = tmp_path / "indexes"
    indexes.mkdir()
    monkeypatch.setenv("TMPDIR", str(indexes))
    url = server.create_database("drill")
    with psycopg.connect(url) as connection:
        connection.execute(TABLE)
    project = Project(
        tmp_path / "drill",
        start_cluster().bootstrap_servers,
        flow=FLOW,
        settings=SETTINGS.format(url=url),
    )
    project.call("apply")
    drill = Kills(project, server, url, indexes, drill_run.random)
    clicks = Clicks(drill_run.random, drill_run.size(short=10_000, long=200_000))
    drill.send(2_000)
    for number in range(kills):
        clicks.send(project.client, number, kills + 1)
        process = project.start("run")
        try:
            wait_for_drill(drill.caught_up, "all that was sent before the run")
            drill.events_are_there_once()
            if number == 0:
                make_holdable(url)
            drill.kill_in_transactions(drill_run.size(short=500, long=2_000))
            drill.kill_a_reprocessing()
            drill.send(drill_run.size(short=6_000, long=10_000))
            reconciled(project)
            time.sleep(drill_run.random.uniform(0.0, 2.5))
            assert process.poll() is None, project.output()
        finally:
            kill_session(process)
        drill.nothing_is_nowhere()
        reconciled(project)
        drill.lose_files(indexes=not drill_run.long or drill_run.random.random() < 0.5)
    clicks.send(project.client, kills, kills + 1)
    process = project.start("run")
    try:
        wait_for_drill(drill.caught_up, "all that was sent before the run")
        wait_for_drill(
            lambda: every_click_is_out(project, clicks), "clicks that wait for time to pass"
        )
        assert process.poll() is None, project.output()
        process.terminate()
        assert process.wait(DRILL_LIMIT_SECONDS) == 0, project.output()
    finally:
        kill_session(process)
    drill.events_are_there_once()
    clicks_are_there_once(project, clicks)
    the_ledger_would_have_seen_it(project, url)
    sent = drill.sent + len(clicks.impressions) + len(clicks.clicks)
    drill_run.report(events=sent, kills=kills * (len(MOMENTS) + 2))


def every_click_is_out(project, clicks):
    return all(
        clicks_of(project, name).total() >= len(expected)
        for name, expected in clicks.tables.items()
    )


def clicks_are_there_once(project, clicks):
    for name, expected in clicks.tables.items():
        assert clicks_of(project, name) == Counter(expected.items()), name
    letters = Counter(letter.pipeline for letter in scan(project.client, "impressions"))
    assert letters == dict.fromkeys(("by_id", "by_id_steps"), clicks.conflicting)
    balances = reconciled(project)
    assert {name: fates(balances[name]) for name in clicks.fates} == clicks.fates


def clicks_of(project, table):
    """Ids of a table's clicks, with those of their impressions; none before its first commit."""
    uri = f"{project.lake}/{table}"
    if not Path(uri, "_delta_log").exists():
        return Counter()
    rows = read_table(uri).to_pylist()
    return Counter((row["id"], (row.get("impression") or {}).get("id")) for row in rows)


def reconciled(project):
    """What the command says of each pipeline, by name; it must find no difference."""
    answer = reconcile(project)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return {each["pipeline"]: each for each in json.loads(answer.stdout)["pipelines"]}


def reconcile(project):
    command = [HEADRACE, "reconcile", "--recount", "--json", "--project", project.folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def fates(balance):
    total = Counter(read=sum(window["read"] for window in balance["windows"]))
    for window in balance["windows"]:
        total.update(window["fates"])
    return dict(total)


def delete(project, predicate):
    """Deletes rows as another engine does; the live run commits beside it."""
    for _ in range(20):
        try:
            DeltaTable(f"{project.lake}/fused").delete(predicate)
        except Exception as error:  # noqa: BLE001  whichever conflict it is, it is tried again
            conflict = error
        else:
            return
    raise AssertionError(conflict)


def the_ledger_would_have_seen_it(project, url):
    DeltaTable(f"{project.lake}/stepped").delete("event_id = 'e8'")
    with psycopg.connect(url) as connection:
        changed = connection.execute(
            "UPDATE counted SET events = events + 1 WHERE ctid = (SELECT min(ctid) FROM counted)"
        )
        assert changed.rowcount == 1
    answer = reconcile(project)
    assert answer.returncode == UNBALANCED, answer.stdout + answer.stderr
    found = {
        each["pipeline"]: [
            (difference["hop"], difference["number"])
            for window in each["windows"]
            for difference in window["differences"]
        ]
        for each in json.loads(answer.stdout)["pipelines"]
    }
    differences = {name: numbers for name, numbers in found.items() if numbers}
    assert differences == {"stepped": [("table", 1)], "counted": [("table", -1)]}
