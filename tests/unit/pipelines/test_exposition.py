from headrace.metrics import METRICS
from headrace.pipelines.exposition import exposition
from headrace.pipelines.progress import PipelineProgress, PipelineState

CLICKS = PipelineProgress("clicks", PipelineState.RUNNING, rows_in=12, batch_seconds=0.25)
VIEWS = PipelineProgress("views", PipelineState.FAILED, rows_in=3)


def test_every_figure_of_every_pipeline_is_told_with_its_label():
    lines = exposition([CLICKS, VIEWS]).splitlines()
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
    assert len(helped) == len(METRICS) + 1
