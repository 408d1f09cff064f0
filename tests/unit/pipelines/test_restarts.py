import pytest

from headrace.errors import BrokerUnreachableError, SinkError
from headrace.model import Lake, Pipeline, Topic
from headrace.pipelines.progress import PipelineState
from headrace.pipelines.run import PipelineRun, Placement
from headrace.settings.model import RestartSettings, Settings

BUDGET = 3
AWAY = BrokerUnreachableError("b:9092", "timed out")
SINK = SinkError("lake", "disk full")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """``run(error, once=...)``: a pipeline whose every start fails so, tended ten times."""

    def tended(error, *, once):
        restart = RestartSettings(budget=BUDGET, first_delay_seconds=0.0)
        settings = Settings(
            root=tmp_path, name="p", modules=(), lake=str(tmp_path), restart=restart
        )
        placement = Placement("127.0.0.1:1", str(tmp_path), "local[1]", {})
        pipeline = Pipeline("p", source=Topic("t"), sink=Lake("p"))
        found = PipelineRun(None, settings, pipeline, placement, once=once)

        def fails():
            raise error

        monkeypatch.setattr(found, "_started", fails)
        for _ in range(10):
            found.tend()
        return found.progress

    return tended


def test_brokers_that_are_away_use_up_no_restart(run):
    progress = run(AWAY, once=False)
    assert (progress.state, progress.restarts) == (PipelineState.RESTARTING, 10)


@pytest.mark.parametrize(("error", "once"), [(AWAY, True), (SINK, False)])
def test_a_run_with_an_end_and_other_failures_do(run, error, once):
    progress = run(error, once=once)
    assert (progress.state, progress.restarts) == (PipelineState.FAILED, BUDGET)
