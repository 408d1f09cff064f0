"""Reprocessing on the real broker, Spark and tables: right rows stay, the others become right."""

import json
import threading
import time
import uuid
from collections import Counter
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from tests.integration.flow import NOW_MS, Flow, click
from tests.waiting import FLUSH_SECONDS, wait_for

from headrace import (
    Count,
    DeadLetterLimit,
    Iceberg,
    Kafka,
    Lake,
    LateData,
    Metadata,
    Postgres,
    Profiles,
    Source,
    Stats,
    Topic,
    Unique,
    WriteMode,
)
from headrace.cli import main
from headrace.errors import (
    DeadLetterLimitError,
    RangeExpiredError,
    ReprocessRefusedError,
    ReprocessRunningError,
    SinkError,
)
from headrace.kafka.client.admin_requests import admin, describe
from headrace.kafka.dead_letters.replay import DeadLetterFilter, replay
from headrace.ledger.balance import Balance
from headrace.ledger.request import ReconcileRequest
from headrace.operations.reconciling.reconcile import reconcile
from headrace.pipelines.reprocessing import ranges as ranges_module
from headrace.pipelines.reprocessing import reprocess as command
from headrace.pipelines.reprocessing import run as run_module
from headrace.pipelines.reprocessing.ranges import TimeRange
from headrace.pipelines.reprocessing.reprocess import ReprocessRequest, plan_reprocessing, reprocess
from headrace.pipelines.run.pipeline_run import Deployment
from headrace.project.loaded import LoadedProject
from headrace.service.status import State
from headrace.settings import Secret
from headrace.settings.model import KafkaSettings
from headrace.sinks.lake.delta import replacing as delta_replacing
from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable
from headrace.sinks.profiles.registry import open_store

PLACES = (Metadata.TOPIC, Metadata.PARTITION, Metadata.OFFSET)
ALL = TimeRange(datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
KEYS = ("by id", "by place")
UNIQUE = Lake(
    "fused", partition_by=("day",), unique=Unique(by=["event_id"], within=timedelta(hours=1))
)


@pytest.fixture
def flow(broker, spark, tmp_path, monkeypatch):
    @contextmanager
    def session(settings, deployment):
        yield spark

    monkeypatch.setattr(command, "driver_session", session)
    return Flow(broker, spark, tmp_path, partitions=2, event_id="event_id")


def built(flow, keys="by id", name="fused", **changes):
    source = Source(flow.topic, metadata=PLACES if keys == "by place" else ())
    return flow.pipeline(name, **{"source": source} | changes)


def project(flow, *pipelines):
    kafka = KafkaSettings(bootstrap_servers=flow.broker.bootstrap_servers)
    return LoadedProject(flow.settings(kafka=kafka), pipelines)


def again(flow, pipeline, times=ALL, *, others=(), stop=None, observe=None, **request):
    deployment = Deployment(flow.broker.bootstrap_servers, flow.lake, "local[2]", {})
    return reprocess(
        project(flow, pipeline, *others),
        pipeline,
        ReprocessRequest(times, **request),
        deployment,
        observe=observe or (lambda _: None),
        stop=stop or threading.Event(),
    ).done


def run(flow, pipeline):
    outcome = flow.run(pipeline)[pipeline.name]
    assert outcome.state is State.FINISHED, outcome.reason
    return outcome


def balance(flow, pipeline):
    request = ReconcileRequest(recount=True)
    return reconcile(project(flow, pipeline), [pipeline], request).books[0]


def content(flow, table="fused"):
    return Counter(repr(sorted(row.items())) for row in flow.rows(table))


def files(flow, table="fused"):
    return set(DeltaTable(f"{flow.lake}/{table}").file_uris())


def changed(done):
    return done.rows_added, done.rows_removed, done.rows_kept


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("steps", [False, True], ids=["fused", "with a step"])
def test_what_is_reprocessed_again_gives_the_same_rows_and_changes_no_file(flow, keys, steps):
    pipeline = built(flow, keys, steps=[with_double] if steps else [])
    flow.send([*(click(n) for n in range(500)), click(3), b"not json"])
    run(flow, pipeline)
    before, files_before = content(flow), files(flow)
    for _ in range(2):
        done = again(flow, pipeline)
        assert (done.records, done.dead_letters) == (502, 1)
        assert changed(done) == (0, 0, 501)
    assert (content(flow), files(flow)) == (before, files_before)
    assert done.tasks > flow.topic.partitions
    assert len(flow.dead()) == 1
    result = balance(flow, pipeline)
    assert [(each.parts, each.records, each.added) for each in result.reprocessed] == [(2, 1004, 0)]
    assert not Balance.of(result).is_unbalanced


def with_double(rows):
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("double", F.col("n") * 2)


@pytest.mark.parametrize("keys", KEYS)
def test_rows_that_the_table_has_lost_come_back_and_the_ledger_balances(flow, keys):
    pipeline = built(flow, keys)
    flow.send([*(click(n) for n in range(300)), *(click(n) for n in range(30))])
    run(flow, pipeline)
    before = content(flow)
    DeltaTable(f"{flow.lake}/fused").delete("n % 7 = 3 or category = 'c1'")
    lost = sum((before - content(flow)).values())
    assert Balance.of(balance(flow, pipeline)).is_unbalanced
    assert changed(again(flow, pipeline)) == (lost, 0, 330 - lost)
    assert content(flow) == before
    result = balance(flow, pipeline)
    assert not Balance.of(result).is_unbalanced
    assert result.reprocessed[0].added == lost
    assert run(flow, pipeline).rows_in == 0


@pytest.mark.parametrize("keys", KEYS)
def test_rows_come_back_to_an_iceberg_table_and_others_become_right(flow, keys):
    sink = Lake("fused", partition_by=["day", "category"], format=Iceberg())
    flow.send([click(n) for n in range(100)])
    run(flow, built(flow, keys, sink=sink, steps=[with_double]))
    pipeline = built(flow, keys, sink=sink, steps=[with_triple])
    context = pipeline.sink_context(sink, flow.lake, {}, {}, {})
    CatalogTable.of(context, "default", "fused").existing().delete("category = 'c1'")
    lost = 100 - len(sink.read(context))
    done = again(flow, pipeline)
    assert done.rows_added - done.rows_removed == lost
    assert changed(again(flow, pipeline)) == (0, 0, 100)
    doubles = {row["n"]: row["double"] for row in sink.read(context).to_pylist()}
    assert doubles == {n: with_triple_of(n) for n in range(100)}
    assert not Balance.of(balance(flow, pipeline)).is_unbalanced
    flow.send([click(100)])
    assert run(flow, pipeline).rows_in == 1
    assert len(sink.read(context)) == 101


@pytest.mark.parametrize("keys", KEYS)
def test_rows_of_older_code_become_those_of_the_code_as_it_is(flow, keys):
    flow.send([click(n) for n in range(200)])
    run(flow, built(flow, keys, steps=[with_double]))
    pipeline = built(flow, keys, steps=[with_triple])
    done = again(flow, pipeline)
    right = [n for n in range(200) if with_triple_of(n) == 2 * n]
    assert changed(done) == (200 - len(right), 200 - len(right), len(right))
    assert {row["n"]: row["double"] for row in flow.rows()} == {
        n: with_triple_of(n) for n in range(200)
    }
    flow.send([click(200)])
    assert run(flow, pipeline).rows_in == 1
    assert flow.ids() == {f"e{n}": 1 for n in range(201)}


def with_triple_of(n):
    return 3 * n if n % 2 else 2 * n


def with_triple(rows):
    from pyspark.sql import functions as F  # noqa: N812

    n = F.col("n")
    return rows.withColumn("double", F.when(n % 2 == 1, n * 3).otherwise(n * 2))


def without_odd(rows):
    return rows.where("n % 2 = 0")


def test_by_place_rows_go_that_the_pipeline_no_longer_makes(flow):
    flow.send([click(n) for n in range(100)])
    run(flow, built(flow, "by place", steps=[with_double]))
    done = again(flow, built(flow, "by place", steps=[with_double, without_odd]))
    assert changed(done) == (0, 50, 50)
    assert {row["n"] for row in flow.rows()} == set(range(0, 100, 2))


def test_by_id_no_row_goes_that_none_replaces(flow):
    flow.send([click(n) for n in range(100)])
    run(flow, built(flow, steps=[with_double]))
    assert changed(again(flow, built(flow, steps=[with_double, without_odd]))) == (0, 0, 50)
    assert len(flow.rows()) == 100


def test_rows_of_an_earlier_topic_of_the_name_are_not_taken_for_those_of_the_new_one(flow):
    flow.send([click(n) for n in range(20)])
    for keys in KEYS:
        run(flow, built(flow, keys, name=keys.replace(" ", "-")))
    for future in admin(flow.client).delete_topics([flow.name]).values():
        future.result()
    wait_for(lambda: not describe(flow.client, [flow.name]))
    flow.create(flow.name, 2)
    flow.send([click(n) for n in range(20, 50)])
    for keys in KEYS:
        pipeline = built(flow, keys, name=keys.replace(" ", "-"))
        flow.reset(pipeline, "earliest")
        run(flow, pipeline)
    with pytest.raises(ReprocessRefusedError, match="an earlier one of the name"):
        again(flow, built(flow, "by place", name="by-place"))
    assert changed(again(flow, built(flow, name="by-id"))) == (0, 0, 30)
    for table in ("by-id", "by-place"):
        assert flow.ids(table) == {f"e{n}": 1 for n in range(50)}


def test_a_range_is_of_the_times_at_which_records_came(flow):
    pipeline = built(flow, "by place")
    flow.send([click(n) for n in range(50)], partition=0)
    middle = sent_at(flow, [click(n) for n in range(50, 80)], partition=1)
    run(flow, pipeline)
    DeltaTable(f"{flow.lake}/fused").delete("true")
    done = again(flow, pipeline, TimeRange(middle, ALL.end))
    assert done.records == 30
    assert {row["n"] for row in flow.rows()} == set(range(50, 80))
    done = again(flow, pipeline, TimeRange(ALL.start, middle))
    assert done.records == 50
    assert len(flow.rows()) == 80


def sent_at(flow, values, partition):
    """Sends records whose timestamps begin in an hour, and returns when that is."""
    from headrace.kafka.client.clients import connected_producer

    at_ms = int(time.time() * 1000) + 3_600_000
    sender = connected_producer(flow.client)
    for index, value in enumerate(values):
        sender.produce(flow.name, value, partition=partition, timestamp=at_ms + index)
    assert sender.flush(FLUSH_SECONDS) == 0
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def test_records_that_the_pipeline_has_not_taken_are_left_to_it(flow):
    pipeline = built(flow)
    flow.send([click(n) for n in range(100)])
    run(flow, pipeline)
    flow.send([click(n) for n in range(100, 130)])
    plan = plan_reprocessing(project(flow, pipeline), pipeline, ReprocessRequest(ALL))
    assert (plan.offsets, sum(range_.live for range_ in plan.ranges)) == (100, 30)
    assert again(flow, pipeline).records == 100
    assert run(flow, pipeline).rows_in == 30
    assert flow.ids() == {f"e{n}": 1 for n in range(130)}


def test_beside_a_live_run_and_its_merges_nothing_is_lost_or_there_twice(flow):
    pipeline = built(flow, "by place", sink=Lake("fused", partition_by=("day",), compact_files=2))
    flow.send([click(n) for n in range(2000)])
    run(flow, pipeline)
    DeltaTable(f"{flow.lake}/fused").delete("n % 5 = 0")
    stop, failures, sent = threading.Event(), [], 2000

    def live():
        outcome = flow.run(pipeline, once=False, stop=stop)["fused"]
        failures.extend(filter(None, [outcome.reason, outcome.restarts]))

    thread = threading.Thread(target=live)
    thread.start()
    try:
        for _ in range(4):
            flow.send([click(n) for n in range(sent, sent + 300)])
            sent += 300
            again(flow, pipeline)
    finally:
        stop.set()
        thread.join()
    run(flow, pipeline)
    assert not failures
    assert flow.ids() == {f"e{n}": 1 for n in range(sent)}
    assert not Balance.of(balance(flow, pipeline)).is_unbalanced


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_what_is_killed_at_a_commit_is_finished_by_the_next_call(flow, monkeypatch, after):
    pipeline = built(flow)
    monkeypatch.setattr(ranges_module, "PART_OFFSETS", 100)
    flow.send([click(n) for n in range(300)])
    run(flow, pipeline)
    before = content(flow)
    DeltaTable(f"{flow.lake}/fused").delete("n % 3 = 0")
    commit, commits = delta_replacing.replace_rows, []

    def killed(*arguments):
        commits.append(arguments)
        if len(commits) == 2:
            if after:
                commit(*arguments)
            raise SinkError("table", "the process was killed here")
        commit(*arguments)

    monkeypatch.setattr(delta_replacing, "replace_rows", killed)
    with pytest.raises(SinkError, match="killed here"):
        again(flow, pipeline)
    found = balance(flow, pipeline)
    assert found.reprocessed[0].parts == (2 if after else 1)
    assert Balance.of(found).is_unbalanced
    assert not content(flow) - before
    done = again(flow, pipeline)
    assert (done.parts, done.records, done.rows_removed) == (3, 300, 0)
    assert content(flow) == before
    assert not Balance.of(balance(flow, pipeline)).is_unbalanced


def test_an_interrupt_ends_it_after_a_part_which_stays(flow, monkeypatch):
    pipeline = built(flow)
    monkeypatch.setattr(ranges_module, "PART_OFFSETS", 100)
    flow.send([click(n) for n in range(300)])
    run(flow, pipeline)
    DeltaTable(f"{flow.lake}/fused").delete("true")
    stop = threading.Event()
    done = again(flow, pipeline, stop=stop, observe=lambda _: stop.set())
    assert (done.parts, len(flow.rows())) == (1, done.rows_added)
    again(flow, pipeline)
    assert flow.ids() == {f"e{n}": 1 for n in range(300)}


def test_a_table_without_duplicates_gets_the_rows_back_that_it_has_lost(flow):
    pipeline = built(flow, sink=UNIQUE)
    flow.send([*(click(n) for n in range(100)), *(click(n) for n in range(0, 100, 5))])
    run(flow, pipeline)
    before = content(flow)
    assert sum(before.values()) == 100
    assert changed(again(flow, pipeline)) == (0, 0, 120)
    DeltaTable(f"{flow.lake}/fused").delete("n % 10 = 0")
    assert changed(again(flow, pipeline)) == (10, 0, 110)
    assert content(flow) == before
    assert not Balance.of(balance(flow, pipeline)).is_unbalanced


@pytest.mark.parametrize("changes", [{}, {"sink": UNIQUE}], ids=["lake", "without duplicates"])
def test_a_gap_that_a_reset_has_left_is_filled(flow, changes):
    pipeline = built(flow, **changes)
    flow.send([click(n) for n in range(100)])
    run(flow, pipeline)
    flow.send([click(n) for n in range(100, 140)])
    flow.reset(pipeline, "latest")
    run(flow, pipeline)
    flow.send([click(n) for n in range(140, 150)])
    run(flow, pipeline)
    assert [gap.is_gap for gap in balance(flow, pipeline).breaks] == [True, True]
    assert changed(again(flow, pipeline)) == (40, 0, 110)
    assert flow.ids() == {f"e{n}": 1 for n in range(150)}
    result = balance(flow, pipeline)
    assert (result.breaks, Balance.of(result).is_unbalanced) == ((), False)


def test_other_rows_of_new_code_are_no_difference_to_the_ledger(flow):
    strict = Topic(**vars_of(flow.topic) | {"earliest_event_time": at(-3600_000 + 50)})
    flow.send([click(n) for n in range(100)])
    run(flow, built(flow, source=strict))
    assert len(flow.rows()) == 50
    assert changed(again(flow, built(flow))) == (50, 0, 50)
    result = balance(flow, built(flow))
    assert not Balance.of(result).is_unbalanced
    DeltaTable(f"{flow.lake}/fused").delete("n = 7")
    assert Balance.of(balance(flow, built(flow))).is_unbalanced


@pytest.mark.parametrize("keys", KEYS)
def test_a_record_and_its_replay_are_one_event(flow, keys):
    strict = Topic(**vars_of(flow.topic) | {"earliest_event_time": at(-3600_000 + 50)})
    flow.send([click(n) for n in range(100)])
    places = PLACES if keys == "by place" else ()
    run(flow, built(flow, source=Source(strict, metadata=places)))
    pipeline = built(flow, keys)
    config = {"bootstrap.servers": flow.broker.bootstrap_servers}
    assert replay(config, flow.name, DeadLetterFilter()).sent == 50
    run(flow, pipeline)
    before = content(flow)
    assert sum(before.values()) == 100
    assert changed(again(flow, pipeline))[:2] == (0, 0)
    assert content(flow) == before
    assert not Balance.of(balance(flow, pipeline)).is_unbalanced


def test_rows_whose_event_time_a_step_has_corrected_are_replaced_by_id(flow):
    flow.send([click(n) for n in range(100)])
    run(flow, built(flow, steps=[five_hours_early]))
    assert changed(again(flow, built(flow))) == (100, 100, 0)
    assert flow.ids() == {f"e{n}": 1 for n in range(100)}


def five_hours_early(rows):
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("event_time", F.col("event_time") - F.expr("INTERVAL 5 HOURS"))


def at(milliseconds):
    return datetime.fromtimestamp((NOW_MS + milliseconds) / 1000, UTC)


def vars_of(topic):
    return {name: getattr(topic, name) for name in topic.__dataclass_fields__}


@pytest.mark.parametrize("keys", KEYS)
def test_records_that_retention_has_removed_are_named_with_the_ways_out(flow, monkeypatch, keys):
    """Also where it removes them meanwhile."""
    pipeline = built(flow, keys)
    flow.send([click(n) for n in range(100)], partition=0)
    run(flow, pipeline)
    before = content(flow)
    cut_into_parts = run_module.cut_into_parts

    def removing(*ranges):
        delete_before(flow, 0, 40)
        return cut_into_parts(*ranges)

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "cut_into_parts", removing)
        with pytest.raises(RangeExpiredError, match="--accept-loss"):
            again(flow, pipeline)
    with pytest.raises(RangeExpiredError, match="deleted by retention") as raised:
        again(flow, pipeline)
    assert (raised.value.partition, raised.value.earliest_offset) == (f"{flow.name}/0", 40)
    assert "--accept-loss" in str(raised.value)
    start = datetime.fromisoformat(raised.value.reprocess_from)
    later = plan_reprocessing(
        project(flow, pipeline), pipeline, ReprocessRequest(TimeRange(start, ALL.end))
    )
    assert later.offsets <= 60
    DeltaTable(f"{flow.lake}/fused").delete("n = 90")
    assert again(flow, pipeline, accept_loss=True).records == 60
    assert content(flow) == before


def delete_before(flow, partition, offset):
    import confluent_kafka

    place = confluent_kafka.TopicPartition(flow.name, partition, offset)
    for future in admin(flow.client).delete_records([place]).values():
        future.result()


def test_a_restored_table_gets_each_row_back_once(flow):
    """In any order of the two: a reset to the table reads again what batches had read."""
    pipeline, table = built(flow), f"{flow.lake}/fused"
    flow.send([click(n) for n in range(100)])
    run(flow, pipeline)
    first = DeltaTable(table).version()
    flow.send([click(n) for n in range(100, 200)])
    flow.reset(pipeline, "latest")
    run(flow, pipeline)
    flow.send([click(n) for n in range(200, 300)])
    run(flow, pipeline)
    second = DeltaTable(table).version()
    assert changed(again(flow, pipeline)) == (100, 0, 200)
    before = content(flow)

    DeltaTable(table).restore(second)
    outcome = flow.run(pipeline)["fused"]
    times = f"--from {ALL.start.isoformat()} --to {ALL.end.isoformat()}"
    assert "--to table` (state of stateful steps starts over). What was" in outcome.reason
    assert f"`headrace reprocess fused {times}`" in outcome.reason
    flow.reset(pipeline, "table")
    assert changed(again(flow, pipeline)) == (100, 0, 200)
    run(flow, pipeline)
    assert content(flow) == before

    DeltaTable(table).restore(first)
    assert changed(again(flow, pipeline)) == (0, 0, 100)
    flow.reset(pipeline, "table")
    run(flow, pipeline)
    assert content(flow) == before
    assert not Balance.of(balance(flow, pipeline)).is_unbalanced


def test_events_are_sent_again_with_the_ids_that_they_had(flow):
    target = Topic(f"{flow.name}-out", event=flow.topic.event, event_id="event_id")
    flow.create(target.name, 1)
    pipeline = built(flow, sink=Kafka(target))
    flow.send([click(n) for n in range(50)])
    run(flow, pipeline)
    assert again(flow, pipeline).rows == 50
    ids = Counter(headers(flow, target.name))
    assert ids == {(f"e{n}"): 2 for n in range(50)}
    assert balance(flow, pipeline).reprocessed[0].records == 50


def test_profiles_that_were_lost_come_back_and_others_stay(flow, redis_server):
    store = f"users-{flow.name}"
    flow.sinks = {"profiles": {"url": Secret(redis_server.url.reveal())}}
    ttl = timedelta(days=30)
    sink = Profiles(store, key="category", ttl=ttl, fields=("n",), event_id="event_id")
    pipeline = built(flow, sink=sink)
    flow.send([click(n) for n in range(60)])
    run(flow, pipeline)

    def read():
        with closing(open_store(redis_server.url, store, ttl)) as opened:
            return [opened.read(f"c{number}") for number in range(3)]

    before = read()
    assert [profile.fields["n"].value for profile in before] == [57, 58, 59]
    redis_server.command("DEL", f"headrace:{{{store}:c1}}")
    assert again(flow, pipeline).rows == 60
    assert read() == before


def headers(flow, topic):
    from headrace.topics.tail import TailOptions, tail_topic

    kafka = KafkaSettings(bootstrap_servers=flow.broker.bootstrap_servers)
    options = TailOptions("earliest", until_end=True)
    for record in tail_topic(flow.settings(kafka=kafka), topic, options):
        values = {header.name: header.value for header in record.headers}
        yield values["event-id"].decode()


def test_postgresql_keeps_newer_rows_and_takes_those_that_are_gone(flow, postgres):
    url = postgres.create_database(f"flow_{uuid.uuid4().hex[:8]}")
    flow.sinks = {"postgres": {"url": Secret(url)}}
    columns = "event_id text PRIMARY KEY, event_time timestamptz, category text, n int, price float"
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(f"CREATE TABLE clicks ({columns})")
        sink = Postgres("clicks", WriteMode.UPSERT, ("event_id",), newest_by="n")
        pipeline = built(flow, sink=sink)
        flow.send([click(n) for n in range(100)])
        run(flow, pipeline)
        rows = "SELECT event_id, event_time, category, n, price FROM clicks ORDER BY n"
        before = database.execute(rows).fetchall()
        database.execute("DELETE FROM clicks WHERE n < 10")
        database.execute("UPDATE clicks SET n = 1000 WHERE n = 50")
        for number in (1, 2):
            assert again(flow, pipeline).rows == 100
            recorded = "SELECT version FROM headrace.positions WHERE app_id LIKE '%/reprocess'"
            assert database.execute(recorded).fetchall() == [(number,)]
        newer = [row for row in database.execute(rows).fetchall() if row[3] == 1000]
        assert [row[0] for row in newer] == ["e50"]
        database.execute("UPDATE clicks SET n = 50 WHERE n = 1000")
        assert database.execute(rows).fetchall() == before
        flow.send([click(n) for n in range(100, 110)])
        assert run(flow, pipeline).rows_in == 10
        left = "SELECT relname FROM pg_class WHERE relname LIKE 'headrace_staging%'"
        assert database.execute(left).fetchall() == []


@pytest.mark.parametrize(
    ("sink", "reason"),
    [
        (Postgres("t"), "insert its rows again"),
        (Postgres("t", WriteMode.UPSERT, ("event_id",)), "in the place of newer ones"),
        (Postgres("t", WriteMode.ADD, ("event_id",)), "count its rows twice"),
        (Stats("t", by=("category",), every=timedelta(hours=1), measures={"n": Count()}), "twice"),
    ],
)
def test_sinks_whose_rows_would_count_twice_are_refused(flow, sink, reason):
    flow.sinks = {"postgres": {"url": Secret("postgresql://127.0.0.1:1/none")}}
    with pytest.raises(ReprocessRefusedError, match=reason):
        again(flow, built(flow, sink=sink))


def test_too_many_bad_records_stop_it_before_anything_is_committed(flow):
    flow.send([click(n) for n in range(10)])
    run(flow, built(flow, "by place"))
    before = content(flow)
    strict = Topic(**vars_of(flow.topic) | {"earliest_event_time": at(3_600_000)})
    limit = DeadLetterLimit(max_consecutive=3)
    source = Source(strict, metadata=PLACES)
    with pytest.raises(DeadLetterLimitError):
        again(flow, built(flow, source=source, dead_letter_limit=limit))
    assert (content(flow), len(flow.dead())) == (before, 0)
    assert again(flow, built(flow, source=source)).rows_removed == 10
    assert len(flow.dead()) == 10


PROJECT = """
from headrace import EpochMillis, Lake, Pipeline, Topic

class Click:
    event_id: str
    event_time: EpochMillis
    category: str
    n: int
    price: float | None

clicks = Topic("{topic}", event=Click, key="event_id", event_id="event_id",
               event_time="event_time", partitions=2)
fused = Pipeline("fused", clicks, Lake("fused", partition_by=("day", "hour", "category")))
"""


def test_the_command_shows_ranges_progress_and_what_has_changed(flow):
    flow.send([click(n) for n in range(50)])
    run(flow, flow.pipeline())
    DeltaTable(f"{flow.lake}/fused").delete("n = 3")
    module = f"flow_{flow.name.replace('-', '_')}"
    (flow.folder / f"{module}.py").write_text(PROJECT.format(topic=flow.name))
    (flow.folder / "headrace.toml").write_text(
        f'[project]\nname = "flow"\nmodules = ["{module}"]\nlake = "{flow.lake}"\n'
        f'[kafka]\nbootstrap_servers = "{flow.broker.bootstrap_servers}"\n'
    )

    def call(*options, start="2020-01-01", end="2100-01-01"):
        arguments = ["reprocess", "fused", "--from", start, "--to", end, *options]
        return CliRunner().invoke(main, [*arguments, "--project", str(flow.folder)])

    result = call("--dry-run", "--tasks", "5")
    assert (result.exit_code, "50 offsets" in result.output) == (0, True), result.output
    assert len(flow.rows()) == 49
    planned = json.loads(call("--dry-run", "--json").output)
    assert (planned["offsets"], planned["parts"]) == (50, 1)
    assert sum(range_["end"] - range_["start"] for range_ in planned["ranges"]) == 50
    result = call()
    assert result.exit_code == 0, result.output
    assert "50 rows: 1 added, 0 removed, 49 kept" in result.output
    progress, ended = map(json.loads, call("--json").output.splitlines())
    assert (progress["event"], progress["rows_kept"]) == ("progress", 50)
    assert (ended["event"], ended["state"], ended["done"]["rows_added"]) == ("ended", "finished", 0)
    result = call(start="2020-01-01", end="2020-01-02")
    assert (result.exit_code, "no records came" in result.output) == (0, True)
    for options in ({"end": "2019-01-01"}, {"start": "yesterday"}):
        assert call(**options).exit_code == 2
    assert call("--tasks", "0").exit_code == 2


def test_what_would_not_be_exact_is_refused_before_anything_is_read(flow):
    from headrace import deduplicate

    flow.send([click(n) for n in range(10)])
    run(flow, built(flow))
    other = flow.pipeline("other", sink=Lake("fused", partition_by=("day", "hour", "category")))
    no_id = Topic(**vars_of(flow.topic) | {"event_id": None})
    window = [lambda rows: rows.groupBy("category").count()]
    refused = {
        "several sources": built(flow, source=[flow.topic, Topic("t", event=flow.topic.event)]),
        "compacted": built(flow, source=Topic(**vars_of(flow.topic) | {"compaction": True})),
        "late_data": built(flow, late_data=LateData.DEAD_LETTER),
        "keeps state": built(flow, steps=[deduplicate("event_id", within=timedelta(hours=1))]),
        "do not identify": built(flow, source=no_id),
        "keep state": built(flow, steps=window),
        "nothing of topic": built(flow, name="never-run"),
    }
    for reason, pipeline in refused.items():
        with pytest.raises(ReprocessRefusedError, match=reason):
            again(flow, pipeline)
    with pytest.raises(ReprocessRefusedError, match="rows of other"):
        again(flow, built(flow), others=[other])


def test_one_at_a_time_and_of_two_machines_one_commits(flow, monkeypatch, tmp_path):
    pipeline = built(flow)
    flow.send([click(n) for n in range(30)])
    run(flow, pipeline)

    def second(_):
        with pytest.raises(ReprocessRunningError):
            again(flow, pipeline)

    assert again(flow, pipeline, observe=second).parts == 1
    DeltaTable(f"{flow.lake}/fused").delete("n = 3")
    commit = delta_replacing.replace_rows

    def late(*arguments):
        monkeypatch.setattr(delta_replacing, "replace_rows", commit)
        monkeypatch.setattr(command, "lock_folder", lambda *_: tmp_path / "other machine")
        again(flow, pipeline)
        commit(*arguments)

    monkeypatch.setattr(delta_replacing, "replace_rows", late)
    with pytest.raises(SinkError, match="another reprocessing"):
        again(flow, pipeline)
    assert flow.ids() == {f"e{n}": 1 for n in range(30)}
