"""What services tell Prometheus."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.service.samples import (
    DISPATCHER,
    EMITTER,
    INSTANCES,
    MERGER,
    MIRROR,
    PIPELINE,
    QUERIES,
    STATUSES,
    WORKER,
)

from headrace.metrics import Metric
from headrace.pipelines.status import PipelineStatus
from headrace.service.metrics import exposition
from headrace.service.status import State
from headrace.sinks.lake.metrics import LAKE_METRICS

SAMPLES = {
    "mirror": (
        MIRROR,
        'mirror="warsaw",instance="host-1"',
        {
            "records_total": "100",
            "value_bytes_total": "2000",
            "loops_skipped_total": "3",
            "restarts_total": "1",
            "partitions": "2",
            "refused_partitions": "1",
            "lag_records": "7",
            'partition_lag_records topic="clicks",partition="0"': "7",
            'partition_refused topic="clicks",partition="0"': "0",
            'partition_refused topic="clicks",partition="2"': "1",
        },
    ),
    "merger": (
        MERGER,
        'merger="clicks",instance="host-1"',
        {
            "records_total": "100",
            "late_total": "3",
            "waiting_partitions": "1",
            "idle_partitions": "1",
            "sorted_to_age_seconds": "2.500",
            'partition_lag_records topic="waw.clicks",partition="0"': "7",
            'partition_refused topic="clicks",partition="0"': "0",
            'partition_refused topic="clicks",partition="2"': "1",
        },
    ),
    "dispatcher": (
        DISPATCHER,
        'dispatcher="d",instance="host-1"',
        {
            "records_total": "60",
            "waiting_sites": "1",
            'site_records_total site="waw"': "60",
            'site_waiting site="par"': "1",
            'partition_lag_records topic="clicks",partition="1",site="waw"': "4",
            'partition_refused topic="clicks",partition="1",site="par"': "1",
        },
    ),
    "matched_events": (
        EMITTER,
        'matched_events="ads.clicks",instance="host-1"',
        {"records_total": "3", "read_total": "7", "queries": "2", "lag_records": "0"},
    ),
    "worker": (
        WORKER,
        'worker="enrich",instance="host-1"',
        {
            "processed_total": "12",
            "lag_seconds": "1.250",
            'partition_paused topic="clicks",partition="1",reason="requested"': "1",
            'partition_paused topic="clicks",partition="1",reason="lane"': "0",
            'partition_committed_offset topic="clicks",partition="1"': "90",
            'partition_processing_timestamp_seconds topic="clicks",partition="1"': (
                "1700000000.500"
            ),
        },
    ),
    "pipeline": (
        PIPELINE,
        'pipeline="clicks"',
        {"rows_in_total": "12", "batch_seconds": "0.250", "files_written_total": "4"},
    ),
    "queries": (
        QUERIES,
        'queries="ads",instance="host-1"',
        {
            "records_total": "100",
            "results_total": "7",
            "windows": "3",
            "late_events": "5",
            "unbalanced_events": "4",
            "partitions": "2",
            "uncovered_partitions": "1",
            "faulty_queries": "1",
            'topic_behind_seconds topic="clicks"': "1.500",
        },
    ),
}


VIEWS = PipelineStatus("views", State.FAILED, rows_in=3)


def lines_of(*statuses):
    own = LAKE_METRICS if statuses[0].kind == "pipeline" else ()
    return exposition(type(statuses[0]), statuses, own).splitlines()


@pytest.mark.parametrize(("status", "labels", "values"), SAMPLES.values(), ids=SAMPLES)
def test_every_figure_is_a_metric(status, labels, values):
    lines = lines_of(status)
    for name, value in values.items():
        metric, *own = name.split()
        place = ",".join([labels, *own])
        assert f"headrace_{status.kind}_{metric}{{{place}}} {value}" in lines
    assert f'headrace_{status.kind}_state{{{labels},state="running"}} 1' in lines
    assert f'headrace_{status.kind}_state{{{labels},state="failed"}} 0' in lines


@pytest.mark.parametrize("status", INSTANCES, ids=lambda status: status.kind)
def test_every_metric_is_explained_once_above_the_samples_of_all_instances(status):
    lines = lines_of(status, replace(status, instance="host-2"))
    explained = [line.split()[2] for line in lines if line.startswith("# HELP")]
    parts = [metric for metrics in status.part_metrics.values() for metric in metrics]
    assert len(explained) == len(set(explained)) == len(status.metrics) + len(parts) + 1
    at = lines.index(f"# TYPE headrace_{status.kind}_{status.metrics[0].name}_total counter")
    assert ['instance="host-1"' in lines[at + 1], 'instance="host-2"' in lines[at + 2]] == [
        True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.kind)
def test_without_instances_metrics_are_explained_all_the_same(status):
    lines = exposition(type(status), []).splitlines()
    assert lines
    assert all(line.startswith("#") for line in lines)


def test_what_is_not_known_has_no_sample():
    unknown = 'partition="1"'
    for status, name in (
        (MIRROR, "headrace_mirror_partition_lag"),
        (MERGER, "headrace_merger_partition_lag"),
        (replace(MERGER, waits_for={"clicks/1": ["b/1"]}), "headrace_merger_sorted_to_age_seconds"),
        (replace(QUERIES, event_ms={}), "headrace_queries_topic_behind_seconds"),
    ):
        samples = [line for line in lines_of(status) if line.startswith(name)]
        assert not [line for line in samples if unknown in line or "partition" not in name]


def test_a_target_that_was_never_committed_has_no_age():
    name = "headrace_dispatcher_site_commit_age_seconds"
    [age] = [line for line in lines_of(DISPATCHER) if line.startswith(name)]
    assert 'site="waw"' in age


def test_labels_are_escaped():
    [line, *_] = (line for line in lines_of(replace(MIRROR, instance='a"b\\c\n')) if "{" in line)
    assert 'instance="a\\"b\\\\c\\n"' in line


def test_the_state_is_one_of_those_of_its_kind():
    lines = [line for line in lines_of(replace(MIRROR, state=State.WAITING)) if "_state{" in line]
    assert [line.rpartition('state="')[2] for line in lines] == [
        'running"} 0', 'waiting"} 1', 'stopped"} 0', 'failed"} 0',
    ]  # fmt: skip


def test_what_is_not_known_of_a_pipeline_has_no_sample():
    seen = PipelineStatus("seen", batch_id=3, backlog_records=0, backlog_seconds=0.0)
    text = exposition(PipelineStatus, [PIPELINE, seen])
    for name in ("batch_id", "backlog_records", "backlog_seconds"):
        assert f'headrace_pipeline_{name}{{pipeline="seen"}}' in text
        assert f'headrace_pipeline_{name}{{pipeline="clicks"}}' not in text


def test_a_sink_has_figures_of_its_own_for_the_pipelines_that_write_to_it():
    lines = lines_of(PIPELINE, VIEWS)
    assert 'headrace_pipeline_files_written_total{pipeline="clicks"} 4' in lines
    assert not [
        line for line in lines if line.startswith("headrace_pipeline_files") and "vi" in line
    ]
    helped = [line for line in lines if line.startswith("# HELP")]
    assert len(helped) == len(PipelineStatus.metrics) + len(LAKE_METRICS) + 1
    assert 'headrace_pipeline_state{pipeline="views",state="failed"} 1' in lines


def test_a_meaning_of_several_lines_is_one_of_the_text():
    metric = Metric("odd_rows", "rows", "line one\nevil_total 1, of C:\\temp", "never")
    text = exposition(PipelineStatus, [PIPELINE], [metric])
    assert "# HELP headrace_pipeline_odd_rows line one\\nevil_total 1, of C:\\\\temp\n" in text


def test_metrics_of_one_name_of_two_pipelines_are_one_of_the_text():
    first = Metric("files_written", "files", "of one", "never", is_counter=True)
    own = [first, replace(first, meaning="of another")]
    text = exposition(PipelineStatus, [PIPELINE, VIEWS], own)
    assert text.count("headrace_pipeline_files_written_total{") == 1
    assert text.count("# HELP headrace_pipeline_files_written_total of one\n") == 1
