"""Pipelines end to end, on a real broker and a real Spark, on both paths."""

import json
import re
import shutil
import threading
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta

import confluent_kafka
import pytest
from deltalake import DeltaTable
from tests.integration.flow import NOW_MS, Flow, click
from tests.kafka_topics import grow_topic
from tests.waiting import FLUSH_SECONDS

from headrace import (
    BatchLimits,
    DeadLetterLimit,
    EpochMillis,
    Lake,
    Metadata,
    Pipeline,
    Source,
    Topic,
    UnsafeValues,
    deduplicate,
)
from headrace.errors import RetentionPassedError
from headrace.kafka.client.admin_requests import admin
from headrace.kafka.dead_letters.replay import DeadLetterFilter, replay
from headrace.pipelines.run import pipeline_run as run_module
from headrace.pipelines.source.state import SourceState
from headrace.pipelines.start.checkpoint import CheckpointFolder, CurrentCheckpoint
from headrace.pipelines.status import PipelineStatus
from headrace.service.status import State, StatusFolder
from headrace.spark.lock import CheckpointLock
from headrace.storage import files as storage

PATHS = ("fused", "stepped")


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path)


def built(flow, path, **changes):
    return getattr(flow, "pipeline" if path == "fused" else path)(path, **changes)


@pytest.mark.parametrize("path", PATHS)
def test_every_event_lands_once_in_its_partition_and_the_group_shows_it(flow, path, monkeypatch):
    """A second run takes only what is new, and shows no figures of the first; then it is repeated.

    A repeated batch changes nothing.
    """
    flow.send([click(n) for n in range(3000)])
    outcome = flow.run(built(flow, path))[path]
    assert outcome.state is State.FINISHED, outcome.reason
    assert (outcome.rows_in, outcome.rows_out, outcome.dead_letters) == (3000, 3000, 0)
    assert flow.ids(path) == {f"e{n}": 1 for n in range(3000)}
    row = next(row for row in flow.rows(path) if row["n"] == 7)
    assert row["category"] == "c1"
    assert row["price"] == 1.75
    assert row["hour"] == row["event_time"].hour
    assert row["day"] == row["event_time"].date()
    assert flow.committed(path) == flow.latest()
    flow.send([click(n) for n in range(3000, 3150)] + [b"not json"])
    seen = []

    def look(*_):
        [shown] = StatusFolder(flow.folder / ".headrace", PipelineStatus).read()
        seen.append((shown.state, shown.rows_in))

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "check_topics", look)
        outcome = flow.run(built(flow, path))[path]
    assert seen == [(State.STARTING, 0)]
    assert (outcome.rows_in, outcome.dead_letters) == (151, 1)
    assert flow.ids(path) == {f"e{n}": 1 for n in range(3150)}
    flow.forget_newest_commit(path)
    outcome = flow.run(built(flow, path))[path]
    assert outcome.state is State.FINISHED, outcome.reason
    assert flow.ids(path) == {f"e{n}": 1 for n in range(3150)}
    assert len(flow.dead()) == 1


POISON = {
    "not json": b"not json",
    "cut short": click(1)[:-5],
    "wrong type": click(1, n="seven"),
    "wrong type for text": click(1, event_id=7),
    "float for integer": click(1, n=1.5),
    "overflow": click(1, n=2**63),
    "not a number": click(1).replace(b'"price": 0.25', b'"price": NaN'),
    "infinite": click(1).replace(b'"price": 0.25', b'"price": 1e999'),
    "empty": b"",
    "blank": b"  ",
    "null value": None,
    "null document": b"null",
    "two documents": click(1) + click(2),
    "two lines": click(1) + b"\n" + click(2),
    "array": b"[" + click(1) + b"]",
    "lone surrogate": click(1).replace(b'"e1"', b'"\\ud800"'),
    "not utf-8": click(1).replace(b'"e1"', b'"\xff\xfe"'),
    "byte order mark": b"\xef\xbb\xbf" + click(1),
    "900 kB of garbage": b"x" * 900_000,
    "900 kB in a wrong type": json.dumps({"event_id": ["y" * 900_000]}).encode(),
    "missing field": b'{"event_id": "e1"}',
    "before 2000": click(1, event_time=0),
    "negative time": click(1, event_time=-(10**12)),
    "two days ahead": click(1, event_time=NOW_MS + 2 * 86_400_000),
    "year 50000": click(1, event_time=1_515_000_000_000_000),
    "time in microseconds of text": click(1, event_time="2024-01-01"),
}
UNSAFE = {
    "path traversal": click(1, category="../../x"),
    "300 characters": click(1, category="k" * 300),
    "control character": click(1, category="a\u0001b"),
}
POISON |= UNSAFE


@pytest.mark.parametrize("path", PATHS)
def test_each_poison_record_is_a_dead_letter_once_and_its_neighbours_land(flow, path):
    values = []
    for index, poison in enumerate(POISON.values()):
        values += [click(1000 + 2 * index), poison, click(1001 + 2 * index)]
    flow.send(values, partition=0)
    flow.send([click(n) for n in range(200)], partition=1)
    outcome = flow.run(built(flow, path))[path]
    assert outcome.state is State.FINISHED, outcome.reason
    good = {f"e{1000 + n}": 1 for n in range(2 * len(POISON))} | {f"e{n}": 1 for n in range(200)}
    assert flow.ids(path) == good
    assert len(flow.dead()) == len(POISON)
    letters = [stored.letter for stored in flow.dead()]
    dead = {letter.offset: letter for letter in letters if letter.offset >= 0}
    # Steps may make a partition value safe: what they give is judged, and has no offset.
    of_records = POISON if path == "fused" else dict(list(POISON.items())[: -len(UNSAFE)])
    assert sorted(dead) == [3 * index + 1 for index in range(len(of_records))]
    for index, (name, poison) in enumerate(of_records.items()):
        assert dead[3 * index + 1].value == poison, name
        assert dead[3 * index + 1].detail, name
    derived = [letter.reason for letter in letters if letter.offset < 0]
    assert derived == ["unsafe-partition-value"] * (len(POISON) - len(of_records))


@pytest.mark.parametrize("path", PATHS)
def test_too_many_bad_records_stop_the_pipeline_before_anything_is_written(flow, path):
    flow.send([b"bad"] * 50 + [click(n) for n in range(50)])
    limit = DeadLetterLimit(max_ratio=0.1, min_records=20)
    outcome = flow.run(built(flow, path, dead_letter_limit=limit))[path]
    assert outcome.state is State.FAILED
    assert "50 of 100 records" in outcome.reason
    assert "not-json" in outcome.reason
    assert flow.dead() == []
    assert sum(flow.committed(path).values()) == 0
    outcome = flow.run(built(flow, path))[path]
    assert outcome.state is State.FINISHED
    assert (len(flow.ids(path)), len(flow.dead())) == (50, 50)


def test_bad_records_in_a_row_are_counted_across_batches(flow):
    flow.send([b"bad"] * 30, partition=0)
    limit = DeadLetterLimit(max_consecutive=25)
    pipeline = flow.pipeline(dead_letter_limit=limit, limits=BatchLimits(max_records=20))
    outcome = flow.run(pipeline)["fused"]
    assert outcome.state is State.FAILED
    assert "in a row" in outcome.reason


def test_unsafe_partition_values_are_rescued_where_the_sink_says_so_and_replayed_elsewhere(flow):
    """A replayed record is taken again only by ``strict``, which refused it, on either path."""
    flow.send([click(1, category="../../x"), click(2), click(3, category="")])
    partitions = ("day", "hour", "category")
    rescue = {"partition_by": partitions, "unsafe_values": UnsafeValues.RESCUE}
    takers = [
        flow.pipeline(sink=Lake("fused", **rescue)),
        flow.stepped(sink=Lake("stepped", **rescue)),
    ]
    strict = flow.pipeline("strict", sink=Lake("strict", partition_by=("category",)))
    outcomes = flow.run(strict, *takers)
    assert [outcomes[path].dead_letters for path in PATHS] == [0, 0]
    for path in PATHS:
        rows = {row["n"]: (row["category"], row["_rescued"]) for row in flow.rows(path)}
        assert rows[1][0] == "__unsafe__"
        assert json.loads(rows[1][1]) == {"category": "../../x"}
        assert rows[2] == ("c2", None)
        assert rows[3] == (None, None)
    assert replay(flow.client, flow.name, DeadLetterFilter()).readers == {"strict": 1}
    outcomes = flow.run(strict, *takers)
    names = ("strict", *PATHS)
    assert [outcomes[name].dead_letters for name in names] == [1, 0, 0]
    assert [outcomes[name].replays_skipped for name in names] == [0, 1, 1]
    assert [outcomes[name].rows_out for name in names] == [0, 0, 0]
    assert all(flow.ids(name) == {"e1": 1, "e2": 1, "e3": 1} for name in PATHS)
    assert all(flow.committed(name) == flow.latest() for name in names)


def test_a_step_may_make_a_partition_value_safe_and_one_that_it_derives_is_judged(flow):
    from pyspark.sql import functions as F  # noqa: N812

    def cleaned(rows):
        return rows.withColumn("category", F.regexp_replace("category", "/", "-"))

    def slashed(rows):
        odd = F.when(F.col("n") == 1, F.lit("a/b")).otherwise(F.lit("ok"))
        return rows.withColumn("kind", odd)

    flow.send([click(0, category="a/b"), *(click(n) for n in range(1, 4))])
    sink = Lake("derived", ("category", "kind"))
    pipeline = flow.pipeline("derived", steps=[cleaned, slashed], sink=sink)
    assert flow.run(pipeline)["derived"].rows_out == 3
    categories = {row["n"]: row["category"] for row in flow.rows("derived")}
    assert categories == {0: "a-b", 2: "c2", 3: "c0"}
    (letter,) = [stored.letter for stored in flow.dead()]
    assert json.loads(letter.value)["event_id"] == "e1"
    assert letter.reason == "unsafe-partition-value"


def test_sub_ranges_read_one_partition_in_several_tasks(flow):
    flow.send([click(n) for n in range(1000)], partition=0)
    source = Source(flow.topic, min_tasks=4)
    outcome = flow.run(flow.pipeline(source=source, sink=Lake("fused")))["fused"]
    assert outcome.figures["files_written"] == 4
    assert flow.ids() == {f"e{n}": 1 for n in range(1000)}


def test_sub_partitions_keep_the_order_of_each_key(flow):
    def numbered(rows):
        return rows.mapInArrow(
            number_rows, f"{rows.schema.simpleString()[7:-1]},task int,place int"
        )

    def number_rows(batches):
        import pyarrow as pa
        from pyspark import TaskContext

        seen = 0
        for batch in batches:
            count = batch.num_rows
            task = pa.array([TaskContext.get().partitionId()] * count, pa.int32())
            place = pa.array(range(seen, seen + count), pa.int32())
            seen += count
            yield batch.append_column("task", task).append_column("place", place)

    keys = [f"k{n % 17}".encode() for n in range(2000)]
    flow.send([click(n, category=f"k{n % 17}") for n in range(2000)], keys=keys)
    source = Source(flow.topic, subpartitions=4, metadata=(Metadata.KEY,))
    flow.run(flow.pipeline("lanes", source=source, steps=[numbered], sink=Lake("lanes")))
    lanes, places = defaultdict(set), defaultdict(list)
    for row in flow.rows("lanes"):
        lanes[row["_key"]].add(row["task"])
        places[row["_key"]].append((row["n"], row["place"]))
    assert sum(map(len, places.values())) == 2000
    assert all(len(tasks) == 1 for tasks in lanes.values())
    assert len({task for tasks in lanes.values() for task in tasks}) > flow.topic.partitions
    for found in places.values():
        assert [place for _, place in sorted(found)] == sorted(place for _, place in found)


def test_every_column_of_the_record_is_at_hand(flow):
    sender = confluent_kafka.Producer(flow.client)
    sender.produce(
        flow.name, click(5), key=b"k", headers=[("a", b"1"), ("a", None)], timestamp=NOW_MS
    )
    sender.flush(FLUSH_SECONDS)
    source = Source(flow.topic, metadata=tuple(Metadata))
    flow.run(flow.pipeline(source=source, sink=Lake("fused")))
    (row,) = flow.rows()
    assert row["_topic"] == flow.name
    assert row["_key"] == b"k"
    assert row["_offset"] == 0
    assert int(row["_timestamp"].timestamp() * 1000) == NOW_MS
    assert [dict(header) for header in row["_headers"]] == [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": None},
    ]


def test_raw_topics_land_as_bytes_and_keep_tombstones(flow):
    raw = Topic(f"{flow.name}-raw")
    flow.create(raw.name, 1)
    flow.create(raw.dead_letters, 1)
    flow.send([b"\xff\x00", None, b""], topic=raw.name)
    flow.run(Pipeline("raw", raw, Lake("raw")))
    assert [row["value"] for row in flow.rows("raw")] == [b"\xff\x00", None, b""]


def test_a_paused_partition_stays_while_the_others_go_on_and_catches_up_in_order(flow):
    state = SourceState(flow.folder / ".headrace" / "state" / "fused")
    state.pause(flow.name, frozenset({0}))
    flow.send([click(n) for n in range(50)], partition=0)
    flow.send([click(n) for n in range(100, 150)], partition=1)
    source = Source(flow.topic, metadata=(Metadata.PARTITION, Metadata.OFFSET))
    pipeline = flow.pipeline(source=source, sink=Lake("fused"))
    outcome = flow.run(pipeline)["fused"]
    assert {row["_partition"] for row in flow.rows()} == {1}
    assert outcome.paused_partitions == (f"{flow.name}[0]",)
    assert outcome.backlog_records == 50
    state.pause(flow.name, frozenset())
    flow.run(pipeline)
    held = [(row["_offset"], row["n"]) for row in flow.rows() if row["_partition"] == 0]
    assert held == [(n, n) for n in range(50)]


def test_a_start_is_refused_where_records_or_rows_are_gone_and_goes_on_after_a_reset(flow):
    """Records that retention has deleted, then a topic that is another one, then the table."""
    flow.send([click(n) for n in range(20)], partition=0)
    flow.run(flow.pipeline())
    flow.send([click(n) for n in range(20, 60)], partition=0)
    upto = confluent_kafka.TopicPartition(flow.name, 0, 50)
    for future in admin(flow.client).delete_records([upto]).values():
        future.result()
    reason = refused(flow)
    assert "30 offsets are gone" in reason
    assert "headrace checkpoint reset fused --to table --accept-loss" in reason
    with pytest.raises(RetentionPassedError):
        flow.reset(flow.pipeline(), "table")
    flow.reset(flow.pipeline(), "table", accept_loss=True)
    assert flow.run(flow.pipeline())["fused"].state is State.FINISHED
    assert flow.ids() == {f"e{n}": 1 for n in (*range(20), *range(50, 60))}
    for future in admin(flow.client).delete_topics([flow.name], operation_timeout=20).values():
        future.result()
    flow.create(flow.name, 2)
    flow.send([click(n) for n in range(100, 160)])
    assert "headrace checkpoint reset fused --to earliest" in refused(flow)
    flow.reset(flow.pipeline(), "earliest")
    assert flow.run(flow.pipeline())["fused"].state is State.FINISHED
    assert len(flow.ids()) == 30 + 60
    storage.delete(f"{flow.lake}/fused")
    assert "headrace checkpoint reset fused --to earliest" in refused(flow)
    flow.reset(flow.pipeline(), "earliest")
    assert flow.run(flow.pipeline())["fused"].state is State.FINISHED
    assert flow.ids() == {f"e{n}": 1 for n in range(100, 160)}


def test_a_lost_newest_file_of_sparks_offsets_repeats_nothing(flow):
    for first in (0, 100):
        flow.send([click(n) for n in range(first, first + 100)])
        flow.run(flow.pipeline())
    for folder in ("offsets", "commits"):
        for name in ("1", ".1.crc"):
            (flow.checkpoint() / folder / name).unlink()
    flow.send([click(n) for n in range(200, 300)])
    assert flow.run(flow.pipeline())["fused"].state is State.FINISHED
    assert flow.ids() == {f"e{n}": 1 for n in range(300)}


def refused(flow):
    """The reason why the pipeline is not started."""
    outcome = flow.run(flow.pipeline())["fused"]
    assert outcome.state is State.REFUSED
    return outcome.reason


def test_a_pipeline_with_a_checkpoint_from_a_backup_goes_on_where_the_table_stands(flow):
    pipeline, backup = flow.pipeline(), flow.folder / "backup"
    flow.send([click(n) for n in range(100)])
    flow.run(pipeline)
    shutil.copytree(flow.checkpoint(), backup)
    flow.send([click(n) for n in range(100, 200)] + [b"bad"])
    flow.run(pipeline)
    shutil.rmtree(flow.checkpoint())
    shutil.copytree(backup, flow.checkpoint())
    flow.send([click(n) for n in range(200, 300)])
    outcome = flow.run(pipeline)["fused"]
    assert outcome.state is State.FINISHED, outcome.reason
    assert flow.ids() == {f"e{n}": 1 for n in range(300)}
    assert len(flow.dead()) == 1


def test_a_driver_that_was_killed_while_spark_wrote_the_first_offsets_starts_again(flow):
    CheckpointFolder(flow.lake, "fused").write(CurrentCheckpoint(1, "", begun=False))
    offsets = flow.checkpoint() / "offsets"
    offsets.mkdir(parents=True)
    # As Spark names them on a disk and on HDFS.
    (offsets / ".0.e5c50d6e-1171-4c59-9039-03b22bd5eb7d.tmp").write_text("v1")
    (offsets / "..0.e5c50d6e-1171-4c59-9039-03b22bd5eb7d.tmp.crc").write_bytes(b"crc")
    flow.send([click(0)])
    outcome = flow.run(flow.pipeline())["fused"]
    assert outcome.state is State.FINISHED, outcome.reason
    assert flow.ids() == {"e0": 1}


def test_dead_letters_of_input_that_a_step_does_not_read_are_not_lost(flow):
    few = {"limit": lambda rows: rows.limit(5), "false": lambda rows: rows.where("false")}
    flow.send([click(n) for n in range(30_000)] + [b"not json"], partition=0)
    flow.send([b"not json"] + [click(n) for n in range(200)], partition=1)
    outcomes = flow.run(
        *(flow.pipeline(name, steps=[step], sink=Lake(name)) for name, step in few.items())
    )
    letters = Counter(stored.pipeline for stored in flow.dead())
    for name, outcome in outcomes.items():
        assert outcome.state is State.FINISHED, outcome.reason
        assert (outcome.rows_in, outcome.dead_letters, letters[name]) == (30_202, 2, 2)


def test_a_missing_topic_of_dead_letters_is_refused_at_the_start(flow):
    raw = Topic(f"{flow.name}-raw")
    flow.create(raw.name, 1)
    flow.send([b"known to the broker by then"], topic=raw.name)
    outcome = flow.run(Pipeline("raw", raw, Lake("raw")))["raw"]
    assert outcome.state is State.REFUSED
    assert raw.dead_letters in outcome.reason


def test_rows_that_do_not_fit_the_table_are_refused_before_anything_is_read(flow):
    class Other:
        event_id: str
        event_time: EpochMillis
        category: str
        n: float
        price: float | None

    flow.send([click(1)])
    flow.run(flow.pipeline())
    flow.send([click(2), b"bad"])
    outcome = flow.run(flow.pipeline(source=replace(flow.topic, event=Other)))["fused"]
    assert (outcome.state, outcome.restarts) == (State.REFUSED, 0)
    assert "another `table`" in outcome.reason
    assert flow.dead() == []
    assert len(list(flow.folder.glob("lake/fused/**/*.parquet"))) == 1


def test_partitions_added_while_running_are_read_from_their_earliest_offset(flow):
    stop = threading.Event()
    grown = threading.Event()

    def grow(progress):
        one = progress["fused"]
        if one.rows_out >= 100 and not grown.is_set():
            grown.set()
            grow_topic(flow.client, flow.name, 8)
            for p in range(2, 8):
                flow.send([click(1000 * p + n) for n in range(20)], partition=p)
        if one.rows_out >= 220 or one.has_ended:
            stop.set()

    flow.send([click(n) for n in range(100)])
    pipeline = flow.pipeline(limits=BatchLimits(max_wait=timedelta(milliseconds=200)))
    outcome = flow.run(pipeline, once=False, observe=grow, stop=stop)["fused"]
    assert outcome.state is State.STOPPED, outcome.reason
    expected = {f"e{n}": 1 for n in range(100)}
    expected |= {f"e{1000 * p + n}": 1 for p in range(2, 8) for n in range(20)}
    assert flow.ids() == expected


def test_a_step_may_use_a_python_function(flow):
    def named(rows):
        from pyspark.sql import functions as F  # noqa: N812

        return rows.withColumn("name", F.udf(lambda n: f"number {n}")("n"))

    flow.send([click(n) for n in range(20)])
    flow.run(flow.pipeline("named", steps=[named], sink=Lake("named")))
    assert {row["name"] for row in flow.rows("named")} == {f"number {n}" for n in range(20)}


def null_step(rows):
    del rows


def wrong_column(rows):
    return rows.select("n", "no_such_column")


def wrong_udf(rows):
    from pyspark.sql import functions as F  # noqa: N812

    def divided(n):
        return str(n // 0)

    return rows.withColumn("name", F.udf(divided)("n"))


def test_steps_that_fail_are_named_with_their_lines_and_not_retried(flow):
    problems = {
        null_step: "step 'null_step'.*it gave NoneType, and must return a DataFrame",
        wrong_column: "step 'wrong_column'.*AnalysisException: .*no_such_column",
        wrong_udf: "step 'divided'.*ZeroDivisionError: ",
    }
    flow.send([click(n) for n in range(10)])
    wrong = {step.__name__.replace("_", "-"): step for step in problems}
    outcomes = flow.run(
        *(flow.pipeline(name, steps=[step], sink=Lake(name)) for name, step in wrong.items())
    )
    for name, step in wrong.items():
        outcome = outcomes[name]
        assert (outcome.state, outcome.restarts) == (State.FAILED, 0)
        assert re.search(problems[step], outcome.reason)
        line = int(re.search(rf"at '{re.escape(__file__)}:(\d+)'", outcome.reason)[1])
        first = step.__code__.co_firstlineno
        assert line in range(first, first + 6)


def second_topic(flow):
    """Another topic of the same events."""
    topic = Topic(f"{flow.name}-2", event=flow.topic.event, event_time="event_time", partitions=1)
    flow.create(topic.name, 1)
    flow.create(topic.dead_letters, 1)
    return topic


def test_a_pipeline_that_spark_refuses_begins_once_it_is_corrected(flow):
    """A refused start leaves a checkpoint without metadata and batches."""

    def by_row(rows):
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        window = Window.partitionBy("category").orderBy("n")
        return rows.withColumn("row", F.row_number().over(window)).drop("row")

    flow.send([click(n) for n in range(3)])
    refused = flow.run(flow.pipeline("corrected", sink=Lake("corrected"), steps=[by_row]))
    assert refused["corrected"].state is State.FAILED
    assert "NON_TIME_WINDOW_NOT_SUPPORTED" in refused["corrected"].reason
    outcome = flow.run(flow.pipeline("corrected", sink=Lake("corrected")))["corrected"]
    assert (outcome.state, outcome.rows_out) == (State.FINISHED, 3), outcome.reason


def test_a_second_watermark_is_refused_before_the_first_batch(flow):
    def unique(clicks, others):
        rows = clicks.unionByName(others).withWatermark("event_time", "2 days")
        return rows.dropDuplicatesWithinWatermark(["event_id"])

    flow.send([click(n) for n in range(10)])
    sources = [flow.topic, second_topic(flow)]
    pipeline = Pipeline("twice", sources, Lake("twice"), steps=[unique])
    outcome = flow.run(pipeline)["twice"]
    assert (outcome.state, outcome.restarts, outcome.batches) == (State.FAILED, 0, 0)
    assert "step 'unique'" in outcome.reason
    assert "Source(watermark=...)" in outcome.reason


def test_pipelines_go_on_beside_one_that_fails_and_one_whose_checkpoint_is_in_use(flow):
    def broken(rows):
        from urllib.request import urlopen

        from pyspark.sql import functions as F  # noqa: N812

        asked = F.udf(lambda _: urlopen("http://127.0.0.1:1").read().decode())
        return rows.withColumn("x", asked("event_id"))

    flow.send([click(n) for n in range(10)])
    held = CheckpointLock(flow.folder / "lake" / "_headrace" / "locks", "fused")
    held.acquire()
    outcomes = flow.run(flow.pipeline("broken", steps=[broken]), flow.pipeline(), flow.stepped())
    held.release()
    assert outcomes["stepped"].state is State.FINISHED
    assert outcomes["fused"].state is State.REFUSED
    assert "Stop that run first" in outcomes["fused"].reason
    assert outcomes["broken"].state is State.FAILED
    assert outcomes["broken"].restarts == 2
    assert "Connection refused" in outcomes["broken"].reason


def test_late_rows_are_counted_and_their_files_merged_beside_the_batches(flow):
    day = 86_400_000
    flow.send([click(n, category="c") for n in range(40)])
    sink = Lake("fused", partition_by=("day", "category"))
    source = Source(flow.topic, min_tasks=10)
    pipeline = flow.pipeline(source=source, sink=sink, allowed_lateness=timedelta(hours=1))
    flow.run(pipeline)
    late = [click(100 + n, event_time=NOW_MS - 5 * day, category="c") for n in range(40)]
    flow.send(late, partition=0)
    outcome = flow.run(pipeline)["fused"]
    figures = outcome.figures
    assert (figures["files_written"], figures["files_merged"]) == (10, 10)
    assert outcome.late_rows == 40
    live = DeltaTable(str(flow.folder / "lake" / "fused")).file_uris()
    assert len([uri for uri in live if "-merged-" in uri]) == 1
    assert len(flow.ids()) == 80


def test_what_a_batch_drops_is_counted_once_also_after_idle_time(flow, spark):
    interval = "spark.sql.streaming.noDataProgressEventInterval"
    before, stop = spark.conf.get(interval), threading.Event()
    # The event time moves on, stands still, and moves on: with and without a batch without data.
    phases = iter([NOW_MS, NOW_MS + 1000, NOW_MS + 1000, NOW_MS + 2000])
    idle = Counter()

    def observe(progress):
        [query] = [each for each in spark.streams.active if each.name == "unique"] or [None]
        report = query and query.lastProgress
        if report is None or "addBatch" in report["durationMs"]:
            return
        rows_in = progress["unique"].rows_in
        idle[rows_in] += 1
        if rows_in < sent[0] or idle[rows_in] < 3:  # the run has seen the idle report
            return
        at = next(phases, None)
        if at is None:
            stop.set()
            return
        flow.send([click(sent[0] + n % 10, event_time=at) for n in range(20)], partition=0)
        sent[0] += 20

    sent = [0]
    unique = deduplicate(by=["event_id"], within=timedelta(hours=1))
    spark.conf.set(interval, "200")
    try:
        pipeline = flow.pipeline("unique", steps=[unique], sink=Lake("unique"))
        outcome = flow.run(pipeline, once=False, observe=observe, stop=stop)["unique"]
    finally:
        spark.conf.set(interval, before)
    assert (outcome.rows_in, outcome.rows_out, outcome.duplicate_rows) == (80, 40, 40)
    assert outcome.figures["deduplicate_state_rows"] == 40


def test_duplicates_over_two_topics_are_dropped_by_the_watermark_that_sources_declare(flow):
    def united(clicks, others):
        return clicks.unionByName(others)

    other = second_topic(flow)
    sources = [Source(each, watermark=timedelta(days=2)) for each in (flow.topic, other)]
    steps = [united, deduplicate(by=["event_id"], within=timedelta(hours=9))]
    pipeline = Pipeline("unique", sources, Lake("unique"), steps=steps)
    for first in (0, 5):
        old = [click(n, event_time=NOW_MS - 86_400_000 + n) for n in range(first, first + 10)]
        flow.send(old)
        flow.send([click(100 + first), old[0]], topic=other.name)
        outcome = flow.run(pipeline)["unique"]
        assert outcome.state is State.FINISHED, outcome.reason
    expected = [f"e{n}" for n in (*range(15), 100, 105)]
    assert flow.ids("unique") == dict.fromkeys(expected, 1)


def test_an_idle_input_does_not_freeze_the_time_of_the_others(flow, monkeypatch):
    from pyspark.sql import functions as F  # noqa: N812

    monkeypatch.setattr("headrace.pipelines.rows.HEARTBEAT_AFTER_US", 1_000_000)
    silent = second_topic(flow)
    stop = threading.Event()

    def counted(clicks, others):
        both = clicks.unionByName(others)
        windows = both.groupBy(F.window("event_time", "1 minute")).count()
        return windows.select(F.col("window.start").alias("minute"), "count")

    def enough(progress):
        one = progress["counts"]
        if (one.rows_out and one.idle_partitions) or one.has_ended:
            stop.set()

    flow.send([click(n, event_time=NOW_MS - 86_400_000 + 60_000 * n) for n in range(200)])
    pipeline = Pipeline(
        "counts",
        [flow.topic, silent],
        Lake("counts", event_time="minute"),
        allowed_lateness=timedelta(minutes=1),
        steps=[counted],
        limits=BatchLimits(max_wait=timedelta(milliseconds=200)),
    )
    outcome = flow.run(pipeline, once=False, observe=enough, stop=stop)["counts"]
    assert outcome.rows_out > 100, outcome.reason
    assert any(silent.name in partition for partition in outcome.idle_partitions)
