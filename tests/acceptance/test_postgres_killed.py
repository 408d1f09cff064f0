"""PostgreSQL is killed in the middle of its transactions, and checkpoints are damaged.

Afterwards the ledger balances at every hop, and the rows and counts of PostgreSQL are those that
DuckDB counts in the lake.
"""

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from tests.acceptance.project import Project, kill_session, wait_for
from tests.acceptance.test_ledger_killed import WINDOWS, fates, reconciled
from tests.integration.postgres_server import PostgresServer

FLOW = """
from datetime import timedelta
from headrace import BatchLimits, Count, EpochMillis, Lake, Pipeline, Postgres, Stats, Sum, Topic


class Event:
    event_id: str
    event_time: EpochMillis
    category: str
    n: int


events = Topic("events", event=Event, key="event_id", event_id="event_id",
               event_time="event_time", partitions=4)
limits = BatchLimits(max_records=2_000, max_wait=timedelta(milliseconds=200))


def doubled(rows):
    from pyspark.sql import functions as F

    return rows.withColumn("double", F.col("n") * 2)


def counting(name, **steps):
    measures = {"events": Count(), "total": Sum("n")}
    sink = Stats(name, by=("category",), every=timedelta(seconds=10), measures=measures)
    return Pipeline(name, events, sink, limits=limits, **steps)


counted = counting("counted")
stepped = counting("stepped", steps=[doubled])
appended = Pipeline("appended", events, Postgres("appended"), limits=limits)
lake = Pipeline("lake", events, Lake("lake", ("day",)), limits=limits)
"""
TABLE = "CREATE TABLE appended (event_id text, event_time timestamptz, category text, n bigint)"
STATS = ("counted", "stepped")
PIPELINES = (*STATS, "appended", "lake")

# A commit is held where a test wants it: by locks of the test, and by a standby that is not there.
# All but the transactions of batches end without waiting for a standby.
HOLDING = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'on', true);
    PERFORM pg_advisory_xact_lock_shared(42);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER hold AFTER INSERT OR UPDATE ON headrace.positions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold()
"""
HELD = "SELECT pid FROM pg_stat_activity WHERE application_name = 'headrace' AND {where} LIMIT 1"
# Where a transaction of a batch is when it dies: how it is held there, and how that is seen. Its
# rows are in the table already; after the last one of them, the commit is durable and only the
# answer is lost.
MOMENTS = {
    "before its positions": (
        "LOCK TABLE headrace.positions IN EXCLUSIVE MODE",
        "wait_event_type = 'Lock' AND query LIKE '%INSERT INTO headrace.positions%'",
    ),
    "at its commit": (
        "SELECT pg_advisory_xact_lock(42)",
        "wait_event_type = 'Lock' AND query = 'COMMIT'",
    ),
    "behind its commit": ("", "wait_event = 'SyncRep'"),
}
COUNTS = """
SELECT epoch_us(event_time) // 10000000 * 10, category, count(*), sum(n)::BIGINT
FROM events GROUP BY ALL
"""


@pytest.fixture
def server(stop_at_end):
    """A PostgreSQL of its own, which may be killed."""
    server = PostgresServer()
    stop_at_end(server.folder)
    server.start()
    yield server
    server.remove()


class Killings:
    """Faults of one drill, and what must hold after each.

    Args:
        project: whose pipelines run.
        server: that they write to.
        url: of their database.
        chosen: chooses the faults.
    """

    def __init__(
        self, project: Project, server: PostgresServer, url: str, chosen: random.Random
    ) -> None:
        self.project, self.server, self.url, self.random = project, server, url, chosen
        self.sent = 0

    def send(self, count: int) -> None:
        self.project.send(self.sent, count)
        self.sent += count

    def kill_in_transaction(self, moment: str, *, whole_server: bool) -> None:
        """Kills the backend of a batch's transaction, or the server, in the middle of it."""
        with self._held(moment) as find:
            self.send(2_000)
            wait_for(lambda: bool(find()), f"a transaction {moment}")
            if whole_server:
                self.server.kill_processes()
            else:
                os.kill(find()[0], signal.SIGKILL)  # the others are ended by the first process
        if whole_server:
            time.sleep(self.random.uniform(0, 2))
            self.server.start()
        else:
            os.kill(self.server.pid, signal.SIGHUP)  # to read its settings again
        wait_for(self._answers, "the server")

    def damage_checkpoints(self) -> None:
        """Deletes the newest commit file of one pipeline, and the checkpoint of another one."""
        forgetful, lost = self.random.sample(PIPELINES, 2)
        checkpoints = Path(self.project.lake) / "_headrace" / "checkpoints"
        numbers = [int(path.name) for path in (checkpoints / forgetful).glob("[0-9]*")]
        commits = checkpoints / forgetful / str(max(numbers)) / "commits"
        newest = max((path for path in commits.glob("[0-9]*")), key=lambda path: int(path.name))
        newest.unlink()
        (commits / f".{newest.name}.crc").unlink(missing_ok=True)
        shutil.rmtree(checkpoints / lost)

    def caught_up(self) -> bool:
        """Whether every pipeline has taken what was sent."""
        return self.counts() == {"appended": self.sent, "counted": self.sent, "stepped": self.sent}

    def counts(self) -> dict[str, int]:
        """Rows, or sums of counts, by table; empty: they can't be read."""
        try:
            with psycopg.connect(self.url) as connection:
                asked = {"appended": "count(*)", "counted": "sum(events)", "stepped": "sum(events)"}
                return {
                    table: connection.execute(f"SELECT {what} FROM {table}").fetchone()[0]
                    for table, what in asked.items()
                }
        except psycopg.Error:
            return {}

    @contextmanager
    def _held(self, moment: str) -> Iterator[Callable[[], list[int]]]:
        """Holds the next transaction at a moment; gives what finds the processes held there."""
        lock, where = MOMENTS[moment]
        holder, viewer = (psycopg.connect(self.url, autocommit=False) for _ in range(2))
        viewer.autocommit = True
        with closing(holder), closing(viewer):
            if lock:
                holder.execute(lock)
            else:
                viewer.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
                viewer.execute("SELECT pg_reload_conf()")
            yield lambda: [pid for (pid,) in viewer.execute(HELD.format(where=where)).fetchall()]
        (self.server.folder / "data" / "postgresql.auto.conf").write_text("")

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True


@pytest.mark.drill
@pytest.mark.timeout(1500)
def test_kills_of_postgres_and_lost_checkpoints_leave_what_duckdb_counts(
    start_cluster, tmp_path, server, drill_run
):
    """The driver runs on while the server dies, and is killed before checkpoints are damaged."""
    rounds = drill_run.size(short=1, long=5)
    url = server.create_database("drill")
    with psycopg.connect(url) as connection:
        connection.execute(TABLE)
        connection.execute("ALTER DATABASE drill SET synchronous_commit = 'local'")
    project = project_of(tmp_path / "drill", start_cluster().bootstrap_servers, url)
    drill = Killings(project, server, url, drill_run.random)
    drill.send(2_000)
    project.call("run", "--once")
    with psycopg.connect(url) as connection:
        connection.execute(HOLDING)
    for _ in range(rounds):
        process = project.start("run")
        try:
            for moment in drill_run.random.sample(list(MOMENTS), len(MOMENTS)):
                drill.kill_in_transaction(moment, whole_server=drill_run.random.random() < 0.5)
                wait_for(drill.caught_up, f"all events behind a kill {moment}")
            drill.send(4_000)
            time.sleep(drill_run.random.uniform(0, 2))
        finally:
            kill_session(process)
        drill.damage_checkpoints()
        project.call("run", "--once")
        balances = reconciled(project)
        assert {name: fates(balances[name]) for name in PIPELINES} == {
            name: {"read": drill.sent, "out": drill.sent} for name in PIPELINES
        }
        postgres_equals_a_recount_by_duckdb(project, url)
    drill_run.report(events=drill.sent, kills=rounds * (len(MOMENTS) + 1))


def project_of(folder, bootstrap, url):
    project = Project(folder, bootstrap)
    (project.folder / "flow.py").write_text(FLOW)
    with (project.folder / "headrace.toml").open("a") as settings:
        settings.write(f'{WINDOWS}\n[sinks.postgres]\nurl = "{url}"\n')
    project.call("apply")
    return project


def postgres_equals_a_recount_by_duckdb(project, url):
    events = DeltaTable(f"{project.lake}/lake").to_pyarrow_table()
    expected = Counter(duckdb.sql(COUNTS).fetchall())
    ids = Counter(events["event_id"].to_pylist())
    with psycopg.connect(url) as connection:
        for table in STATS:
            counts = connection.execute(
                "SELECT extract(epoch FROM window_start)::bigint, category, events, total::bigint"
                f" FROM {table}"
            )
            assert Counter(counts.fetchall()) == expected
        appended = connection.execute("SELECT event_id FROM appended").fetchall()
    assert Counter(event_id for (event_id,) in appended) == ids
