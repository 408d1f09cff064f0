from dataclasses import replace

from headrace.metrics import METRICS, Metric
from headrace.pipelines.exposition import exposition
from headrace.pipelines.progress import PipelineProgress, PipelineState
from headrace.sinks.lake.metrics import LAKE_METRICS

CLICKS = PipelineProgress(
    "clicks",
    PipelineState.RUNNING,
    rows_in=12,
    batch_seconds=0.25,
    figures={"files_written": 4},
)
VIEWS = PipelineProgress("views", PipelineState.FAILED, rows_in=3)


def test_every_figure_of_every_pipeline_is_told_with_its_label():
    lines = exposition([CLICKS, VIEWS], LAKE_METRICS).splitlines()
    at = lines.index("# TYPE headrace_pipeline_rows_in_total counter")
    assert lines[at + 1 : at + 3] == [
        'headrace_pipeline_rows_in_total{pipeline="clicks"} 12',
        'headrace_pipeline_rows_in_total{pipeline="views"} 3',
    ]
    assert "# TYPE headrace_pipeline_batch_seconds gauge" in lines
    assert 'headrace_pipeline_batch_seconds{pipeline="clicks"} 0.250' in lines
    assert 'headrace_pipeline_state{pipeline="views",state="failed"} 1' in lines
    assert 'headrace_pipeline_state{pipeline="views",state="running"} 0' in lines
    helped = {line.split()[2] for line in lines if line.startswith("# HELP")}
    assert len(helped) == len(METRICS) + len(LAKE_METRICS) + 1


def test_what_is_not_known_has_no_sample():
    seen = PipelineProgress("seen", batch_id=3, backlog_records=0, backlog_seconds=0.0)
    text = exposition([CLICKS, seen], ())
    for name in ("batch_id", "backlog_records", "backlog_seconds"):
        assert f'headrace_pipeline_{name}{{pipeline="seen"}}' in text
        assert f'headrace_pipeline_{name}{{pipeline="clicks"}}' not in text


def test_a_sink_has_figures_of_its_own_for_the_pipelines_that_write_to_it():
    text = exposition([CLICKS, VIEWS], LAKE_METRICS)
    assert 'headrace_pipeline_files_written_total{pipeline="clicks"} 4\n' in text
    assert 'headrace_pipeline_files_written_total{pipeline="views"}' not in text


def test_a_meaning_of_several_lines_is_one_of_the_text():
    metric = Metric("odd_rows", "rows", "line one\nevil_total 1, of C:\\temp", "never")
    text = exposition([CLICKS], [metric])
    assert "# HELP headrace_pipeline_odd_rows line one\\nevil_total 1, of C:\\\\temp\n" in text


def test_metrics_of_one_name_of_two_pipelines_are_one_of_the_text():
    first = Metric("files_written", "files", "of one", "never", is_counter=True)
    text = exposition([CLICKS, VIEWS], [first, replace(first, meaning="of another")])
    assert text.count("headrace_pipeline_files_written_total{") == 1
    assert text.count("# HELP headrace_pipeline_files_written_total of one\n") == 1
