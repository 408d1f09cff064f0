"""How a pipeline is isolated, and how large its batches are."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Kafka, Lake, LateData, Pipeline, Source, Topic
from headrace.model import Start
from headrace.operations.measuring.pipeline import (
    TriedBatch,
    batch_records,
    isolated_pipeline,
    isolated_settings,
    not_measured,
)
from headrace.settings import Settings, SparkSettings


class Click:
    event_id: str


CLICKS = Topic("clicks", event=Click, partitions=3)
SCRATCH = [Topic("scratch", event=Click)]
SETTINGS = Settings(Path("/project"), "ads", ("flow",), "hdfs://host/lake")


def spent(fixed, a_record, records):
    return TriedBatch(records, fixed + a_record * records)


@given(st.floats(0.01, 1.0), st.floats(1e-6, 1e-3))
def test_what_a_batch_costs_by_itself_is_left_out(fixed, a_record):
    tried = [spent(fixed, a_record, 2_000), spent(fixed, a_record, 20_000)]
    records = batch_records(tried, 4.0)
    assert spent(fixed, a_record, records).seconds == pytest.approx(4.0, rel=0.01)


def test_half_of_the_time_is_for_records_whatever_a_batch_costs():
    tried = [spent(10.0, 0.001, 2_000), spent(10.0, 0.001, 20_000)]
    assert batch_records(tried, 2.0) == pytest.approx(1000, abs=1)


@pytest.mark.parametrize(
    "tried",
    [
        [TriedBatch(2_000, 1.0)],
        [TriedBatch(200, 0.5), TriedBatch(200, 0.1)],
        [TriedBatch(2_000, 1.0), TriedBatch(2_000, 1.0)],
    ],
)
def test_without_two_sizes_the_last_batch_decides(tried):
    assert batch_records(tried, 2.0) == int(tried[-1].records / tried[-1].seconds * 2)


def test_a_pipeline_reads_and_writes_elsewhere():
    source = Source(CLICKS, start=Start.LATEST, min_tasks=4)
    pipeline = Pipeline("p", source, Kafka(Topic("out", event=Click)), late_data=Lake("late"))
    isolated = isolated_pipeline(pipeline, SCRATCH)
    [read] = isolated.sources
    assert (read.topic, read.start, read.min_tasks) == (SCRATCH[0], Start.EARLIEST, 4)
    assert isinstance(isolated.sink, Lake)
    assert isolated.late_data == Lake("late")
    assert isolated.dead_letter_limit.max_ratio == 1.0


def test_a_table_of_a_lake_keeps_its_layout():
    sink = Lake("clicks", partition_by=("event_id",), compression="snappy")
    pipeline = Pipeline("p", CLICKS, sink, late_data=LateData.DROP)
    isolated = isolated_pipeline(pipeline, SCRATCH)
    assert isolated.sink == sink
    assert isolated.late_data is LateData.DROP
    assert isolated.allowed_lateness == timedelta(hours=1)


def test_settings_name_no_place_of_the_project(tmp_path):
    isolated = isolated_settings(SETTINGS, tmp_path)
    assert isolated.state.is_relative_to(tmp_path)
    assert isolated.lake == str(tmp_path / "lake")
    assert isolated.spark.config["spark.executorEnv.PYTHONPATH"] == "/project"


def test_what_is_not_measured_is_named():
    pipeline = Pipeline("p", CLICKS, Kafka(Topic("out", event=Click)))
    cluster = Settings(
        Path("/p"), "ads", ("flow",), "/lake", spark=SparkSettings("spark://host:7077")
    )
    parts = list(not_measured(pipeline, cluster))
    assert any("the sink (kafka)" in part for part in parts)
    assert any("the cluster spark://host:7077" in part for part in parts)
    assert not any("cluster" in part for part in not_measured(pipeline, SETTINGS))
