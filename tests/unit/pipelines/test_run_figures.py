"""What a run adds up, from its batches and from what Spark reports of them."""

from dataclasses import dataclass, field

import pytest

from headrace import Lake, Pipeline
from headrace.model import Topic, TopicPartition
from headrace.pipelines.batch import BatchResult
from headrace.pipelines.progress import PipelineProgress
from headrace.pipelines.run_figures import RunFigures
from headrace.pipelines.source.report import LateCounts
from headrace.pipelines.source.state import SourceState, SourceView


class Click:
    n: int


CLICKS = Topic("clicks", event=Click)


def result(batch_id, **changes):
    values = {
        "batch_id": batch_id,
        "records": 10,
        "rows": 9,
        "late": LateCounts(),
        "dead_letters": 1,
        "replays_skipped": 0,
        "figures": {"files_written": 3},
        "seconds": 2.0,
        "last_timestamp_ms": 1,
        "positions": {},
    }
    return BatchResult(**values | changes)


def report(batch_id, *operators):
    return {"batchId": batch_id, "stateOperators": list(operators)}


def operator(name, dropped=0, duplicates=0):
    return {
        "operatorName": name,
        "numRowsDroppedByWatermark": dropped,
        "customMetrics": {"numDroppedDuplicateRows": duplicates},
    }


@dataclass
class Query:
    """A query as Spark shows it: the newest report, and the latest few."""

    recentProgress: list = field(default_factory=list)  # noqa: N815  Spark's name

    @property
    def lastProgress(self):  # noqa: N802  Spark's name
        return self.recentProgress[-1] if self.recentProgress else None


@pytest.fixture
def figures(tmp_path):
    pipeline = Pipeline("p", CLICKS, Lake("t"), steps=[lambda rows: rows])
    return RunFigures(pipeline, SourceState(tmp_path))


def test_every_value_is_a_figure_of_the_progress(figures):
    figures.batch_ended(result(0))
    progress = PipelineProgress("p").after(**figures.values())
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
    query.recentProgress.append(report(5, operator("dedupe", dropped=7)))
    figures.take_reports(query)
    values = figures.values()
    assert (values["dropped_by_watermark_rows"], values["duplicate_rows"]) == (12, 50)


def test_a_batch_that_a_restart_repeats_is_counted_once(figures):
    figures.take_reports(Query([report(3, operator("dedupe", dropped=4))]))
    figures.take_reports(Query([report(3, operator("dedupe", dropped=4))]))
    assert figures.values()["dropped_by_watermark_rows"] == 4


def test_rows_dropped_by_each_operator_of_a_batch_are_added(figures):
    figures.take([report(0, operator("stateStoreSave", 2), operator("symmetricHashJoin", 3))])
    assert figures.values()["dropped_by_watermark_rows"] == 5


def test_late_events_are_counted_by_destination(figures):
    figures.batch_ended(result(0, late=LateCounts(events=5, written=3, dead=1)))
    figures.batch_ended(result(1, late=LateCounts(events=2)))
    values = figures.values()
    names = ("late_rows", "late_side_rows", "late_dead_letters")
    assert [values[name] for name in names] == [7, 3, 1]


def test_what_is_left_is_counted_to_the_ends_that_the_planner_saw(figures, tmp_path):
    view = SourceView({0: 100, 1: 50, 2: 9}, idle=(1,), paused=(0,))
    SourceState(tmp_path).write_view("clicks", view)
    positions = {TopicPartition("clicks", p): at for p, at in {0: 90, 1: 50}.items()}
    figures.batch_ended(result(0, positions=positions))
    values = figures.values()
    assert (values["backlog_records"], values["backlog_seconds"] > 0) == (10, True)
    assert (values["idle_partitions"], values["paused_partitions"]) == (
        ("clicks[1]",),
        ("clicks[0]",),
    )
