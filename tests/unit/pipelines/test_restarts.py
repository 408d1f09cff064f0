import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from headrace import Lake, Pipeline
from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    ClaimLostError,
    DeadLetterLimitError,
    RegistryUnreachableError,
    SinkError,
    SinkUnavailableError,
)
from headrace.model import Topic
from headrace.pipelines.run.pipeline_run import Deployment, PipelineRun
from headrace.pipelines.start.checkpoint import CheckpointFolder, CurrentCheckpoint
from headrace.service.status import State
from headrace.settings.model import RestartSettings, Settings

BUDGET = 3
AWAY = BrokerUnreachableError("b:9092", "timed out")
REGISTRY_AWAY = RegistryUnreachableError("http://registry", "timed out")
SINK = SinkError("lake", "disk full")


def pipeline_run(tmp_path, *, once, standby=False):
    restart = RestartSettings(budget=BUDGET, first_delay_seconds=0.0)
    settings = Settings(root=tmp_path, name="p", modules=(), lake=str(tmp_path), restart=restart)
    deployment = Deployment("127.0.0.1:1", str(tmp_path), "local[1]", {}, standby)
    pipeline = Pipeline("p", source=Topic("t"), sink=Lake("p"))
    return PipelineRun(MagicMock(), settings, pipeline, deployment, once=once)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """``run(error, once=...)``: a pipeline whose every start fails so, tended ten times."""

    def tended(error, *, once):
        found = pipeline_run(tmp_path, once=once)

        def fails(*_):
            raise error

        monkeypatch.setattr(Lake, "position_store", fails)
        for _ in range(10):
            found.poll()
        return found.progress

    return tended


def test_a_failure_says_what_the_command_ends_with(run):
    progress = run(DeadLetterLimitError("p", "9 of 10"), once=False)
    assert (progress.state, progress.exit_code) == (State.FAILED, 4)
    assert run(OSError("disk full"), once=True).exit_code == 1
    assert run(AWAY, once=False).exit_code == 0


@pytest.mark.parametrize(
    "error", [AWAY, REGISTRY_AWAY, SinkUnavailableError("PostgreSQL", "refused")]
)
def test_servers_that_are_away_use_up_no_restart(run, error):
    progress = run(error, once=False)
    assert (progress.state, progress.restarts) == (State.RESTARTING, 0)


@pytest.mark.parametrize("once", [False, True])
def test_a_busy_machine_uses_up_no_restart_in_any_run(run, once):
    progress = run(RuntimeError("Python worker failed to connect back."), once=once)
    assert (progress.state, progress.restarts) == (State.RESTARTING, 0)
    assert "failed to connect back" in progress.reason


@pytest.mark.parametrize("once", [False, True])
def test_what_cannot_pass_is_not_tried_again(run, once):
    progress = run(TypeError("'NoneType' object is not subscriptable"), once=once)
    assert (progress.state, progress.restarts, progress.exit_code) == (State.FAILED, 0, 1)
    assert progress.reason == "'NoneType' object is not subscriptable"


@pytest.mark.parametrize("once", [False, True])
def test_a_missing_permission_ends_it_at_once(run, once):
    progress = run(AuthorizationError("READ", "topic t", "ann"), once=once)
    assert (progress.state, progress.restarts) == (State.FAILED, 0)
    assert all(word in progress.reason for word in ("READ", "topic t", "ann"))


@pytest.mark.parametrize(("error", "once"), [(AWAY, True), (REGISTRY_AWAY, True), (SINK, False)])
def test_a_run_with_an_end_and_other_failures_do(run, error, once):
    progress = run(error, once=once)
    assert (progress.state, progress.restarts) == (State.FAILED, BUDGET)


class Queries:
    """Stands for Spark: each start makes a query, unless one of that name is active."""

    def __init__(self):
        self.started = []
        writer = MagicMock()
        for option in ("queryName", "option", "trigger", "foreachBatch"):
            getattr(writer, option).return_value = writer
        writer.start = self._start
        self.graph = MagicMock()
        self.graph.manifests.writeStream = writer
        self.graph.committer.failure = None
        self.graph.sink.figures.return_value = {}

    def _start(self):
        assert not self.active
        query = MagicMock(isActive=True, status={"isTriggerActive": False})
        query.stop = lambda: setattr(query, "isActive", False)
        self.started.append(query)
        return query

    @property
    def active(self):
        return [query for query in self.started if query.isActive]


@pytest.fixture
def queries(tmp_path, monkeypatch):
    """The queries of pipelines whose topics and checkpoints need no server."""
    queries = Queries()
    folder = CheckpointFolder(str(tmp_path), "p")

    def checks(*_):
        current = folder.current() or CurrentCheckpoint(1, "", begun=False)
        return SimpleNamespace(
            folder=folder, checkpoint=lambda: current, check_query=lambda *_: None
        )

    monkeypatch.setattr("headrace.pipelines.run.pipeline_run.StartChecks", checks)
    monkeypatch.setattr("headrace.pipelines.run.pipeline_run.KafkaCluster", lambda _: None)
    monkeypatch.setattr("headrace.pipelines.run.pipeline_run.check_topics", lambda *_: None)
    monkeypatch.setattr("headrace.pipelines.run.pipeline_run.build", lambda *_: queries.graph)
    return queries


def test_a_query_does_not_outlive_a_start_that_fails(tmp_path, monkeypatch, queries):
    found = pipeline_run(tmp_path, once=False)
    monkeypatch.setattr(CheckpointFolder, "write", MagicMock(side_effect=OSError("disk full")))
    for _ in range(10):
        found.poll()
    assert (found.progress.state, found.progress.reason) == (
        State.FAILED,
        f"{BUDGET} restarts within an hour did not help: disk full",
    )
    assert (len(queries.started), queries.active) == (BUDGET + 1, [])


def test_a_checkpoint_is_noted_as_begun_once(tmp_path, monkeypatch, queries):
    written, write = [], CheckpointFolder.write

    def counted(folder, current):
        written.append(current)
        write(folder, current)

    monkeypatch.setattr(CheckpointFolder, "write", counted)
    for _ in range(2):
        found = pipeline_run(tmp_path, once=False)
        found.poll()
        queries.active[0].stop()
        found.stop()
    assert written == [CurrentCheckpoint(1, "", begun=True)]
    assert len(queries.started) == 2


def test_a_status_that_cannot_be_written_ends_nothing(tmp_path, queries):
    found = pipeline_run(tmp_path, once=False)
    status = tmp_path / ".headrace" / "status"
    status.parent.mkdir()
    status.write_text("in the way")
    for _ in range(3):
        found.poll()
    assert (found.progress.state, len(queries.active)) == (State.RUNNING, 1)
    found.stop()
    assert (found.progress.state, queries.active) == (State.STOPPED, [])


def test_a_run_that_is_refused_the_lock_leaves_the_status_of_the_one_that_has_it(tmp_path, queries):
    first = pipeline_run(tmp_path, once=False)
    first.poll()
    [path] = (tmp_path / ".headrace" / "status").glob("*.json")
    status = path.read_bytes()
    code = f"""
import sys
from pathlib import Path
from unittest.mock import MagicMock
from tests.unit.pipelines.test_restarts import pipeline_run
second = pipeline_run(Path({str(tmp_path)!r}), once=True)
second.poll()
second.stop()
print(second.progress.state, second.progress.reason)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.startswith("refused Another run holds this checkpoint")
    assert path.read_bytes() == status
    first.stop()


class LostClaim:
    """A claim that another driver takes while the pipeline runs."""

    waiting = "a driver on host-1 runs it"

    def __init__(self):
        self.has_claim, self.calls = True, []
        self.is_asked = False

    def hand_over(self):
        self.calls.append("hand over")
        self.is_asked = self.has_claim = False

    def try_acquire(self):
        return self.has_claim

    def keep(self):
        return self.has_claim

    def step_down(self):
        self.calls.append("step down")

    def release(self):
        self.calls.append("release")


@pytest.fixture
def standby(tmp_path):
    """A run whose query is a mock, and its claim."""
    run = pipeline_run(tmp_path, once=False)
    run._claim = LostClaim()
    query = MagicMock()
    query.lastProgress = None
    run._started = lambda: query
    run.poll()
    assert run.progress.state is State.RUNNING
    return run, query


def test_a_driver_that_has_lost_its_claim_becomes_a_standby(standby):
    run, query = standby
    run._claim.has_claim = False
    run.poll()
    query.stop.assert_called_once()
    assert run._claim.calls == ["step down"]
    run.poll()
    assert (run.progress.state, run.progress.reason) == (
        State.WAITING,
        "standby: a driver on host-1 runs it",
    )
    run._claim.has_claim = True
    run.poll()
    assert run.progress.state is State.RUNNING


def test_a_driver_that_is_asked_ends_its_batch_begins_no_other_and_waits(standby):
    run, query = standby
    run._is_standby = True
    statuses = iter([True, True, False])
    query.status.__getitem__.side_effect = lambda _: next(statuses)
    begun = []

    def stop():
        with pytest.raises(ClaimLostError):
            run._context.claim.begin()
        begun.append(list(run._claim.calls))

    query.stop.side_effect = stop
    run._claim.is_asked = True
    run.poll()
    assert next(statuses, None) is None  # it has waited for the batch
    assert begun == [[]]  # the lease is released when the query has stopped
    assert run._claim.calls == ["hand over"]
    assert run.progress.state is State.WAITING
    run._claim.has_claim = True
    run.poll()
    assert run.progress.state is State.RUNNING
    run._context.claim.begin()


@pytest.mark.parametrize("error", [ClaimLostError("p"), SINK, OSError("a batch was interrupted")])
def test_whatever_fails_without_the_claim_is_no_failure_of_the_pipeline(standby, error):
    run, query = standby
    query.isActive = False
    query.exception.return_value = error
    original = run._claim.keep
    run._claim.has_claim = False

    def keep():
        run._claim.keep = original
        return True  # it is lost between the look of the loop and the failure

    run._claim.keep = keep
    run.poll()
    assert (run.progress.state, run.progress.restarts) == (State.WAITING, 0)


def test_a_standby_shows_no_status_of_the_pipeline_which_the_active_writes(tmp_path):
    run = pipeline_run(tmp_path, once=False)
    run._claim = LostClaim()
    run._claim.has_claim = False
    run.poll()
    assert run.progress.state is State.WAITING
    assert not [*tmp_path.glob(".headrace/status/*.json")]
    run.stop()
    assert run._claim.calls == ["release"]
    assert run.progress.state is State.STOPPED


def test_a_driver_with_a_standby_that_ends_begins_no_further_batch(tmp_path):
    run = pipeline_run(tmp_path, once=False, standby=True)
    run._claim = LostClaim()
    run._context.claim.begin()
    run.stop()
    with pytest.raises(ClaimLostError):
        run._context.claim.begin()


def test_one_without_a_standby_lets_spark_interrupt_it(tmp_path):
    run = pipeline_run(tmp_path, once=False)
    run.stop()
    run._context.claim.begin()
    run._context.claim.check()
