"""The pure parts of the benchmark of a pipeline that catches up."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from bench import catch_up, headrace_writer
from bench.catch_up import (
    BENCHMARK,
    HOUR_BENCHMARK,
    UNITS,
    Bench,
    System,
    extrapolated,
    open_system,
    records,
    span,
    systems,
)
from bench.events import events
from bench.peers import figures
from bench.peers.contest import Findings
from bench.peers.figures import Measurement, Run
from bench.report import PAGE
from bench.setup import Setup
from tests.mock_registry import MockRegistry

from headrace.runtime.process_tree import Usage


@pytest.fixture
def setup(tmp_path):
    return Setup(
        bootstrap="127.0.0.1:9092",
        topic="impressions",
        messages=100,
        partitions=4,
        threads=2,
        batch_records=20,
        heap_mb=64,
        java={},
        connector=(),
        logs=tmp_path,
    )


def pipeline(monkeypatch, setup, system, tasks):
    """The pipeline that a system runs, and the setup it was made with."""
    kept = []
    monkeypatch.setattr(
        catch_up, "open_pipelines", lambda setup, name, make, **_: kept.append((setup, make))
    )
    monkeypatch.setattr(catch_up, "open_cluster", lambda *_: "spark://127.0.0.1:7077")
    open_system(setup, system=system, tasks=tasks, registry=None, executors=2, java=None)
    [(used, make)] = kept
    return make(setup.logs / "run"), used


def test_a_partition_has_so_many_tasks_by_offsets_or_by_key(monkeypatch, setup):
    by_offsets, _ = pipeline(monkeypatch, setup, System("min-tasks", "snappy", "local"), 8)
    by_key, _ = pipeline(monkeypatch, setup, System("subpartitions", "zstd", "local"), 8)
    [ranges], [lanes] = by_offsets.sources, by_key.sources
    assert (ranges.min_tasks, ranges.subpartitions) == (32, 1)
    assert (lanes.min_tasks, lanes.subpartitions) == (0, 8)
    assert (by_offsets.sink.compression, by_key.sink.compression) == ("snappy", "zstd")
    assert by_key.sink.table == headrace_writer.TABLE


def test_executors_process_where_the_place_is_a_cluster(monkeypatch, setup):
    _, local = pipeline(monkeypatch, setup, System("min-tasks", "zstd", "local"), 1)
    _, cluster = pipeline(monkeypatch, setup, System("min-tasks", "zstd", "cluster"), 1)
    assert (local.master, cluster.master) == ("local[2]", "spark://127.0.0.1:7077")


def test_with_one_task_a_partition_both_ways_are_the_same_and_one_is_measured(monkeypatch):
    contests = []

    class Noted:
        def __init__(self, setup, size, *_):
            self.size = size

        def run(self, starts, rounds):
            contests.append((self.size, sorted(starts), rounds))

    monkeypatch.setattr(catch_up, "Contest", Noted)
    monkeypatch.setattr(catch_up, "setup_for", lambda *_, **__: None)
    bench = Bench(None, None, None, 100, 2, None)
    bench.run(systems(["local"], ["zstd"]), [1, 2], 3, Findings())
    ways = ["min-tasks-zstd-local", "subpartitions-zstd-local"]
    assert contests == [(1, ways[:1], 3), (2, ways, 3)]


def test_the_topic_has_every_event_in_avro_with_its_id_as_the_key():
    with MockRegistry().running() as registry:
        placed = list(records(registry.settings, 9))
    assert [partition for partition, _, _ in placed] == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    ids = [json.loads(value)["event_id"].encode() for value in events(9, span=span(9))]
    assert [key for _, key, _ in placed] == ids
    assert all(key in value for _, key, value in placed)


def test_event_times_are_those_of_a_lag_that_came_at_20_000_a_second():
    assert span(72_000_000) == timedelta(hours=1)
    times = [json.loads(value)["event_time"] for value in events(9, span=span(9))]
    assert max(times) - min(times) <= timedelta(minutes=1) / timedelta(milliseconds=1)


def test_a_day_and_the_cores_for_500k_are_extrapolated_from_speed_and_cpu():
    run = Run(1_000_000, 10.0, Usage(4.0, 900.0, 0.0), 0.5)
    assert extrapolated(run) == {"day_hours": pytest.approx(4.8), "cores_for_500k": 2.0}
    slower = replace(run, usage=Usage(6.0, 900.0, 0.0))
    rounds = [Measurement(one, extrapolated(one)).figures() for one in (run, slower)]
    assert set(rounds[0]) == UNITS.keys()
    rows = figures.rows(BENCHMARK, "lanes", UNITS, {("min-tasks-zstd-local", 4): rounds})
    [cores] = [row for row in rows if row.metric == "cores_for_500k"]
    assert (cores.low, cores.median, cores.high, cores.lanes) == (2.0, 2.5, 3.0, 4)


def test_an_hour_of_lag_has_a_table_of_its_own_and_settings_say_how_much_was_run():
    assert catch_up.benchmark(72_000_000) == HOUR_BENCHMARK
    assert catch_up.benchmark(2_000_000) == BENCHMARK
    settings = catch_up.settings(1_200_000, 3, 4, Findings())
    assert "1,200,000 events, 1.0 minutes of a lag of 20,000 messages/s" in settings["work"]
    assert "extrapolated" in settings["work"]


def test_the_page_has_a_place_for_the_tables_and_names_parts_and_metrics():
    section = PAGE.read_text().split(f"## {BENCHMARK}: ")[1].split("\n## ")[0]
    for benchmark in (BENCHMARK, HOUR_BENCHMARK):
        assert f"<!-- {benchmark}: begin -->" in section
        assert f"<!-- {benchmark}: end -->" in section
    parts = [*catch_up.WAYS, *catch_up.CODECS, *catch_up.PLACES]
    assert all(f"`{name}`" in section for name in (*parts, *UNITS))
