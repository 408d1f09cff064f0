"""The driver of counters is killed at random moments; they must count every event once."""

import time
import uuid

import psycopg
import pytest
from tests.acceptance.project import Project, kill_session, wait_for
from tests.acceptance.test_driver_killed import moved

FLOW = """
from datetime import timedelta
from headrace import BatchLimits, Count, Distinct, EpochMillis, Pipeline, Postgres, Stats, Sum
from headrace import Topic


class Event:
    event_id: str
    event_time: EpochMillis
    category: str
    n: int


events = Topic("events", event=Event, key="event_id", event_time="event_time", partitions=4)
limits = BatchLimits(max_records=2_000, max_wait=timedelta(milliseconds=200))


def doubled(rows):
    from pyspark.sql import functions as F

    return rows.withColumn("double", F.col("n") * 2)


def counting(name, **steps):
    measures = {"events": Count(), "total": Sum("n"), "ids": Distinct("event_id")}
    sink = Stats(name, by=("category",), every=timedelta(seconds=10), measures=measures)
    return Pipeline(name, events, sink, limits=limits, **steps)


fused = counting("fused")
stepped = counting("stepped", steps=[doubled])
raw = Pipeline("raw", events, Postgres("raw"))
"""

RAW = (
    "CREATE TABLE raw (event_id text PRIMARY KEY, event_time timestamptz, category text, n bigint)"
)
# Estimates of a few thousand ids: 1.04 / sqrt(2**12) is 1.6%.
DIFFERENCES = """
WITH expected AS (
    SELECT date_bin('10 seconds', event_time, 'epoch') AS window_start, category,
        count(*) AS events, sum(n) AS total
    FROM raw GROUP BY 1, 2
)
SELECT * FROM expected FULL JOIN {table} AS counted USING (window_start, category)
WHERE (expected.events, expected.total) IS DISTINCT FROM (counted.events, counted.total)
    OR abs(counted.ids - expected.events) > 2 + 0.1 * expected.events
"""


@pytest.mark.drill
@pytest.mark.timeout(1500)
def test_kills_of_the_driver_count_every_event_once(start_cluster, tmp_path, postgres, drill_run):
    """Both paths at once, beside the counts of what was sent."""
    events = drill_run.size(short=20_000, long=100_000)
    kills = drill_run.size(short=1, long=10)
    url = postgres.create_database(f"kill_{uuid.uuid4().hex[:8]}")
    project = Project(tmp_path / "drill", start_cluster().bootstrap_servers)
    (project.folder / "flow.py").write_text(FLOW)
    with (project.folder / "headrace.toml").open("a") as settings:
        settings.write(f'[sinks.postgres]\nurl = "{url}"\n')
    with psycopg.connect(url) as connection:
        connection.execute(RAW)
    project.call("apply")
    project.send(0, events)
    for _ in range(kills):
        before = {name: one["updated_ms"] for name, one in project.statuses().items()}
        process = project.start("run", "--once")
        try:
            wait_for(lambda seen=before: moved(project, seen), "a batch of the restarted run")
            time.sleep(drill_run.random.uniform(0.0, 2.5))
        finally:
            kill_session(process)
    project.call("run", "--once")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM raw").fetchall() == [(events,)]
        for table in ("fused", "stepped"):
            assert connection.execute(DIFFERENCES.format(table=table)).fetchall() == []
    drill_run.report(events=events, kills=kills)
