"""Rows of PostgreSQL, recounted: one that is lost, added or another is named by its window."""

import uuid

import psycopg
import pytest
from tests.integration.flow import Flow
from tests.integration.test_ledger import balance, run, send_hours, states
from tests.integration.test_pipeline_sinks import Database
from tests.integration.test_planted_defects import found, hour

from headrace import Postgres, Source, WriteMode
from headrace.errors import SinkError
from headrace.ledger.request import ReconcileRequest
from headrace.ledger.windows import WindowState
from headrace.model import Metadata
from headrace.operations.reconciling.reconciliation import Reconciliation

COLUMNS = "event_id {id}, event_time {time}, category text, n int, price numeric"


@pytest.fixture
def made(broker, spark, tmp_path, postgres):
    """``made()``: flow, pipeline and database, with four hours of rows in table ``clicks``."""

    def make(sink=Postgres("clicks"), *, event_id="event_id", **types):  # noqa: B008  frozen
        flow = Flow(broker, spark, tmp_path, partitions=2, event_id=event_id)
        url = postgres.create_database(f"recount_{uuid.uuid4().hex[:8]}")
        columns = COLUMNS.format(**{"id": "text", "time": "timestamptz"} | types)
        if event_id is None:
            columns += ", _topic text, _partition int, _offset bigint"
        database = Database(flow, url, columns)
        if sink.key:
            database.execute("CREATE UNIQUE INDEX ON clicks (event_id)")
        place = (Metadata.TOPIC, Metadata.PARTITION, Metadata.OFFSET)
        source = Source(flow.topic, metadata=place if event_id is None else ())
        pipeline = flow.pipeline(source=source, sink=sink)
        send_hours(flow, range(4))
        run(flow, pipeline)
        return flow, pipeline, database

    return make


@pytest.mark.parametrize("time", ["timestamptz", "timestamp"])
@pytest.mark.parametrize("event_id", ["event_id", None])
def test_rows_that_are_lost_added_or_others_are_named_by_window(made, time, event_id):
    flow, pipeline, database = made(time=time, event_id=event_id)
    first = balance(flow, pipeline)
    assert found(first) == set()
    assert [window.rows for window in first.windows] == [40] * 4
    assert states(first)[0] is WindowState.BALANCED
    is_open = states(first)[-1]
    database.execute("DELETE FROM clicks WHERE event_id = 'e5'")
    database.execute("INSERT INTO clicks SELECT * FROM clicks WHERE event_id = 'e105'")
    changed = "event_id = 'other'" if event_id else "_offset = _offset + 1000"
    database.execute(f"UPDATE clicks SET {changed} WHERE event_id = 'e205'")
    result = balance(flow, pipeline)
    assert found(result) == {
        ("table", hour(0), 1),
        ("table", hour(1), -1),
        ("table", hour(2), 0),
    }
    assert states(result) == [*[WindowState.UNBALANCED] * 3, is_open]


def test_an_event_that_is_in_a_wrong_window_is_missing_in_one_and_too_many_in_another(made):
    flow, pipeline, database = made()
    database.execute(
        "UPDATE clicks SET event_time = event_time + interval '1 hour' WHERE event_id = 'e5'"
    )
    assert found(balance(flow, pipeline)) == {("table", hour(0), 1), ("table", hour(1), -1)}


def test_ids_that_the_column_may_show_in_another_form_are_not_compared(made):
    flow, pipeline, database = made(id="char(10)")
    assert found(balance(flow, pipeline)) == set()
    database.execute("UPDATE clicks SET event_id = 'other' WHERE event_id = 'e5'")
    assert found(balance(flow, pipeline)) == set()
    database.execute("DELETE FROM clicks WHERE event_id = 'e6'")
    assert found(balance(flow, pipeline)) == {("table", hour(0), 1)}


def test_of_rows_that_replace_others_the_other_hops_are_compared(made):
    flow, pipeline, _ = made(Postgres("clicks", WriteMode.UPSERT, ("event_id",)))
    recounted = balance(flow, pipeline)
    assert recounted.not_recounted == ("postgres clicks",)
    assert not Reconciliation((recounted,)).is_unknown
    without = balance(flow, pipeline, request=ReconcileRequest())
    assert without.not_recounted == ()
    assert recounted.windows == without.windows


def test_a_table_that_is_not_there_any_more_is_unknown(made):
    flow, pipeline, database = made()
    database.execute("DROP TABLE clicks")
    recounted = balance(flow, pipeline)
    assert recounted.not_recounted == ()
    assert {window.unknown for window in recounted.windows} == {
        "postgres clicks does not exist any more"
    }


def test_a_snapshot_is_of_one_moment(made):
    flow, pipeline, database = made()
    context = pipeline.sink_context(pipeline.sink, flow.lake, {}, flow.sinks, {})
    snapshot = pipeline.sink.snapshot(context)
    recorded = dict(database.execute("SELECT app_id, version FROM headrace.positions"))
    assert snapshot.versions([*recorded, "another"]) == recorded
    send_hours(flow, [4], first=5000)
    run(flow, pipeline)
    database.execute("DELETE FROM clicks WHERE event_id = 'e5'")
    rows = [
        id_ for batch in snapshot.batches(["event_id"]) for id_ in batch["event_id"].to_pylist()
    ]
    assert len(rows) == 160
    assert "e5" in rows
    assert snapshot.versions(recorded) == recorded
    assert dict(database.execute("SELECT app_id, version FROM headrace.positions")) != recorded
    snapshot.close()
    assert database.execute("SELECT count(*) FROM clicks") == [(199,)]


def test_a_role_that_may_not_read_the_rows_is_told_so(made):
    flow, pipeline, database = made()
    role = f"blind_{uuid.uuid4().hex[:8]}"
    database.execute(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA headrace TO {role}")
    database.execute(f"GRANT SELECT ON headrace.positions TO {role}")
    url = flow.sinks["postgres"]["url"]
    flow.sinks = {"postgres": {"url": type(url)(url.reveal().replace("headrace@", f"{role}@"))}}
    assert found(balance(flow, pipeline, request=ReconcileRequest())) == set()
    with pytest.raises(SinkError, match="permission denied for table clicks"):
        balance(flow, pipeline)


def test_no_connection_is_left_open(made):
    flow, pipeline, database = made()
    balance(flow, pipeline)
    balance(flow, pipeline, request=ReconcileRequest())
    with psycopg.connect(database.url) as connection:
        others = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND state = 'idle in transaction'"
        ).fetchone()
    assert others == (0,)
