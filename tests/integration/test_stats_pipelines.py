"""Statistics by pipelines: real Kafka, Spark and PostgreSQL, beside a plain GROUP BY."""

import json
import shutil
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.flow import NOW_MS, Flow, click
from tests.integration.test_pipeline_sinks import Database

from headrace import Count, Distinct, Stats, Sum
from headrace.service.status import State

STATS = Stats(
    "per_minute",
    by=("category",),
    every=timedelta(minutes=1),
    measures={"clicks": Count(), "total": Sum("n"), "spend": Sum("price"), "ids": Distinct("n")},
)
PATHS = ("fused", "stepped")
COLUMNS = "event_id text, event_time timestamptz, category text, n int, price numeric"


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path)


@pytest.fixture
def database(flow, postgres):
    return Database(flow, postgres.create_database(f"stats_{uuid.uuid4().hex[:8]}"), COLUMNS)


def built(flow, path, **changes):
    make = flow.pipeline if path == "fused" else flow.stepped
    return make(path, sink=STATS, **changes)


def finished(flow, pipeline):
    outcome = flow.run(pipeline)[pipeline.name]
    assert outcome.state is State.FINISHED, outcome.reason
    return outcome


def differences(database, events):
    """What the table and a plain GROUP BY of the same events do not have in common."""
    database.execute(
        "INSERT INTO clicks SELECT event_id, to_timestamp(event_time / 1000.0), category, n, price"
        f" FROM json_to_recordset('[{b','.join(events).decode()}]')"
        f" AS event({COLUMNS.replace('timestamptz', 'bigint')})"
    )
    expected = database.execute(
        "SELECT date_trunc('minute', event_time), category, count(*), sum(n), sum(price)::float8,"
        " count(DISTINCT n) FROM clicks GROUP BY 1, 2"
    )
    columns = "window_start, category, clicks, total, spend, ids"
    counted = Counter(database.execute(f"SELECT {columns} FROM per_minute"))
    return counted - Counter(expected), Counter(expected) - counted


@pytest.mark.parametrize("path", PATHS)
def test_counts_equal_a_plain_group_by_whatever_is_repeated_lost_or_late(flow, path, database):
    pipeline = built(flow, path)
    spread = [click(n, event_time=NOW_MS - n * 1_000) for n in range(600)]
    flow.send([*spread, b"not json"])
    assert finished(flow, pipeline).dead_letters == 1
    flow.forget_newest_commit(path)
    later = [click(n, event_time=NOW_MS - n * 1_000) for n in range(600, 900)]
    flow.send(later)
    finished(flow, pipeline)
    shutil.rmtree(flow.checkpoint(path).parent)
    days_late = [click(n, event_time=NOW_MS - 86_400_000 * 3, price=None) for n in range(50)]
    flow.send([*days_late, *spread[:10]])
    assert finished(flow, pipeline).rows_in == 60
    events = [*spread, *later, *days_late, *spread[:10]]
    assert differences(database, events) == (Counter(), Counter())
    assert database.execute("SELECT sum(clicks) FROM per_minute") == [(960,)]


def test_the_tasks_of_a_batch_add_to_the_same_groups(flow, database):
    from headrace import Source

    pipeline = built(flow, "fused", source=Source(flow.topic, min_tasks=4))
    events = [click(n, event_time=NOW_MS) for n in range(400)]
    flow.send(events, partition=0)
    finished(flow, pipeline)
    assert differences(database, events) == (Counter(), Counter())
    assert database.execute("SELECT count(*), sum(clicks) FROM per_minute") == [(3, 400)]


def test_the_table_says_until_when_it_is_complete(flow, database):
    lateness = timedelta(minutes=10)
    pipeline = built(flow, "fused", allowed_lateness=lateness)
    flow.send([click(n, event_time=NOW_MS - 60_000 * 100 + n) for n in range(100)], partition=0)
    flow.send([click(n, event_time=NOW_MS - 60_000 * 90 + n) for n in range(100)], partition=1)
    finished(flow, pipeline)
    [(target, name, until)] = database.execute("SELECT * FROM headrace.completeness")
    assert (target, name) == ("per_minute", "fused")
    newest = datetime.fromtimestamp(NOW_MS / 1000 - 60 * 90, UTC) + timedelta(milliseconds=100)
    assert newest - lateness - timedelta(milliseconds=10) <= until <= newest - lateness
    # A window is complete if it ends by then; both groups of events are older by ten minutes.
    is_complete = (
        "SELECT window_start + interval '1 minute' <= (SELECT min(complete_until)"
        " FROM headrace.completeness WHERE target = 'per_minute') FROM per_minute GROUP BY 1"
    )
    assert {complete for (complete,) in database.execute(is_complete)} <= {True, False}


def test_spark_reads_and_merges_the_sketches(flow, database):
    from pyspark.sql import functions as F  # noqa: N812

    flow.send([click(n, event_time=NOW_MS - n * 1_000) for n in range(300)])
    finished(flow, built(flow, "fused"))
    sketches = database.execute("SELECT ids_sketch FROM per_minute WHERE category = 'c1'")
    frame = flow.spark.createDataFrame([(bytes(each),) for (each,) in sketches], "sketch binary")
    union = F.hll_sketch_estimate(F.hll_union_agg("sketch"))
    assert frame.select(union.alias("estimate")).collect()[0]["estimate"] == 100


def test_rows_of_a_group_that_the_table_rejects_are_dead_letters_each(flow, database):
    database.execute(
        "CREATE TABLE per_minute (window_start timestamptz, category varchar(4), clicks bigint,"
        " UNIQUE (window_start, category))"
    )
    sink = Stats("per_minute", by=("category",), every=STATS.every, measures={"clicks": Count()})
    flow.send([click(n, category="c" if n % 2 else "much too long") for n in range(10)])
    outcome = finished(flow, flow.pipeline(sink=sink))
    assert outcome.dead_letters == 5
    assert database.execute("SELECT sum(clicks) FROM per_minute") == [(5,)]
    ids = {json.loads(stored.letter.value)["event_id"] for stored in flow.dead()}
    assert ids == {"e0", "e2", "e4", "e6", "e8"}
