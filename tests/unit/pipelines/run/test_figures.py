"""What a run adds up, from its batches and from what Spark reports of them."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest
from pyspark.sql import Row

from headrace import Lake, Pipeline, count_windows, deduplicate
from headrace.model import Topic, TopicPartition
from headrace.pipelines.batch.committer import BatchResult
from headrace.pipelines.run.figures import RunFigures
from headrace.pipelines.source.report import LateCounts
from headrace.pipelines.source.state import SourceState, SourceView
from headrace.pipelines.status import PipelineStatus


class Click:
    n: int


CLICKS = Topic("clicks", event=Click)


def result(batch_id, **changes):
    values = {
        "batch_id": batch_id,
        "records": 10,
        "rows": 9,
        "late": LateCounts(),
        "behind": 0,
        "dead_letters": 1,
        "tombstones": 0,
        "replays_skipped": 0,
        "figures": {"files_written": 3},
        "seconds": 2.0,
        "last_timestamp_ms": 1,
        "positions": {},
    }
    return BatchResult(**values | changes)


def report(batch_id, *operators, **counts):
    """What Spark says of a batch; the counts are those of one observation."""
    observed = {"deduplicate-1": Row(**counts)} if counts else {}
    return {
        "batchId": batch_id,
        "durationMs": {"addBatch": 40, "triggerExecution": 50},
        "stateOperators": list(operators),
        "observedMetrics": observed,
    }


def operator(name, dropped=0, duplicates=0, rows=0):
    return {
        "operatorName": name,
        "numRowsTotal": rows,
        "numRowsDroppedByWatermark": dropped,
        "customMetrics": {"numDroppedDuplicateRows": duplicates},
    }


@dataclass
class Query:
    """A query as Spark shows it: the newest report, and the latest few."""

    reports: list = field(default_factory=list)
    asked: int = 0

    @property
    def recentProgress(self):  # noqa: N802  Spark's name
        self.asked += 1
        return self.reports

    @property
    def lastProgress(self):  # noqa: N802  Spark's name
        return self.reports[-1] if self.reports else None


@pytest.fixture
def figures(tmp_path):
    pipeline = Pipeline("p", CLICKS, Lake("t"), steps=[lambda rows: rows])
    return RunFigures(pipeline, SourceState(tmp_path))


def test_every_value_is_a_figure_of_the_progress(figures):
    figures.batch_ended(result(0))
    progress = PipelineStatus("p").after(**figures.values())
    assert (progress.batches, progress.rows_in, progress.rows_out) == (1, 10, 9)
    assert (progress.dead_letters, progress.records_per_second) == (1, 5.0)


def test_what_a_sink_counts_is_added_up_beside_what_it_says_itself(figures):
    figures.batch_ended(result(0))
    figures.batch_ended(result(1))
    assert figures.own({"files_merged": 5}) == {"files_written": 6, "files_merged": 5}


def test_no_batch_is_missed_between_two_looks_and_none_counted_twice(figures):
    query = Query([report(n, operator("dedupe", dropped=1, duplicates=10)) for n in range(5)])
    for _ in range(3):
        figures.take_reports(query)
    query.reports.append(report(5, operator("dedupe", dropped=7)))
    figures.take_reports(query)
    values = figures.values()
    assert (values["dropped_by_watermark_rows"], values["duplicate_rows"]) == (12, 50)


def test_a_batch_that_a_restart_repeats_is_counted_once(figures):
    figures.take_reports(Query([report(3, operator("dedupe", dropped=4))]))
    figures.take_reports(Query([report(3, operator("dedupe", dropped=4))]))
    assert figures.values()["dropped_by_watermark_rows"] == 4


RECORDED = [
    json.loads(text)
    for text in Path(__file__).with_name("spark_progress.ndjson").read_text().splitlines()
]
"""Reports of two runs of a query in Spark 4.2 that drops duplicates, as it made them: of batches
with and without data, and of idle triggers among them. The first run read 20 rows, 10 of them
duplicates, four times, with newer event times and the same, then 20 rows behind the watermark; the
second 20 rows, 10 of them duplicates."""


def test_real_reports_count_each_executed_batch_once_however_often_one_looks(tmp_path):
    pipeline = Pipeline("p", CLICKS, Lake("t"), steps=[lambda rows: rows])
    totals = []
    for _, reports in groupby(RECORDED, itemgetter("runId")):
        run = list(reports)
        of_run = []
        for step in (1, 3, len(run)):
            figures = RunFigures(pipeline, SourceState(tmp_path))
            for seen in range(step, len(run) + step, step):
                figures.take_reports(Query(run[:seen]))
            values = figures.values()
            of_run.append((values["duplicate_rows"], values["dropped_by_watermark_rows"]))
        totals.append(of_run)
    assert totals == [[(40, 20)] * 3, [(10, 0)] * 3]


def test_an_idle_query_is_asked_for_all_its_reports_only_once(figures):
    """They are a hundred, and the driver looks five times a second."""
    idle = report(7, operator("dedupe", duplicates=3)) | {"durationMs": {"latestOffset": 1}}
    query = Query([idle])
    figures.take_reports(query)
    query.asked = 0
    figures.take_reports(query)
    assert query.asked == 0
    assert figures.values().get("duplicate_rows", 0) == 0


def test_rows_dropped_by_each_operator_of_a_batch_are_added(figures):
    figures.take([report(0, operator("stateStoreSave", 2), operator("symmetricHashJoin", 3))])
    assert figures.values()["dropped_by_watermark_rows"] == 5


def test_the_state_of_several_transforms_of_a_class_is_added_up_for_each_batch(tmp_path):
    hourly, daily = (count_windows(timedelta(hours=hours)) for hours in (1, 24))
    first, second = (deduplicate(by=[name], within=timedelta(days=1)) for name in ("n", "m"))
    pipeline = Pipeline("p", CLICKS, Lake("t"), steps=[first, second, hourly, daily])
    figures = RunFigures(pipeline, SourceState(tmp_path))
    for batch_id, rows in enumerate((50, 5)):
        windows = [operator("stateStoreSave", rows=rows), operator("stateStoreSave", rows=2)]
        keys = [operator("dedupeWithinWatermark", rows=rows * 10 + n) for n in range(2)]
        figures.take([report(batch_id, *windows, *keys)])
    assert figures.own({}) == {"count_windows_state_rows": 7, "deduplicate_state_rows": 101}


def test_rows_that_transforms_count_are_added_up_over_batches(tmp_path):
    steps = [deduplicate(by=["n"], within=timedelta(days=1))]
    figures = RunFigures(Pipeline("p", CLICKS, Lake("t"), steps=steps), SourceState(tmp_path))
    figures.take([report(n, deduplicate_null_key_rows=3, of_a_users_step=1) for n in range(2)])
    assert figures.own({}) == {"deduplicate_null_key_rows": 6}


def test_late_events_are_counted_by_destination(figures):
    figures.batch_ended(result(0, late=LateCounts(events=5, written=3, dead=1)))
    figures.batch_ended(result(1, late=LateCounts(events=2), behind=4))
    values = figures.values()
    names = ("late_rows", "late_side_rows", "late_dead_letters", "behind_watermark_rows")
    assert [values[name] for name in names] == [7, 3, 1, 4]


def test_what_is_left_is_counted_to_the_ends_that_the_planner_saw(figures, tmp_path):
    view = SourceView({0: 100, 1: 50, 2: 9}, {0: 80, 1: 50, 2: 9}, idle=(1,), paused=(0,))
    SourceState(tmp_path).write_view("clicks", view)
    positions = {TopicPartition("clicks", p): at for p, at in {0: 90, 1: 50}.items()}
    figures.batch_ended(result(0, positions=positions))
    values = figures.values()
    assert (values["backlog_records"], values["backlog_seconds"] > 0) == (10, True)
    assert (values["idle_partitions"], values["paused_partitions"]) == (
        ("clicks[1]",),
        ("clicks[0]",),
    )


@pytest.mark.parametrize(
    ("view", "backlog"),
    [
        (SourceView(), None),
        (SourceView(unreachable="timed out"), None),
        (SourceView({0: 4000, 1: 500}, {0: 0, 1: 0}), 4500),
        (SourceView({0: 7}, {0: 7}), 0),
        (SourceView({0: 7, 1: 5}, {0: 7}), 5),
    ],
    ids=["not seen", "no broker", "records", "none", "a new partition"],
)
def test_before_the_first_batch_the_backlog_is_what_the_planner_saw(
    figures, tmp_path, view, backlog
):
    SourceState(tmp_path).write_view("clicks", view)
    progress = PipelineStatus("p").after(**figures.values())
    assert (progress.backlog_records, progress.batch_id) == (backlog, None)
    assert progress.backlog_seconds == (0.0 if backlog == 0 else None)


def test_an_outage_makes_the_backlog_unknown(figures, tmp_path):
    figures.batch_ended(result(0, positions={TopicPartition("clicks", 0): 10}))
    SourceState(tmp_path).write_view("clicks", SourceView(unreachable="timed out"))
    values = figures.values()
    assert (values["backlog_records"], values["backlog_seconds"]) == (None, None)
