"""What `run` makes of outcomes, signals and progress, without Spark."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import urllib.request
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.waiting import LIMIT_SECONDS

from headrace.cli import main
from headrace.cli.json_output import JsonOutput
from headrace.cli.signals import beside_main_thread, stop_on_signal
from headrace.pipelines import progress_view
from headrace.pipelines.commands import exit_code
from headrace.pipelines.progress_view import line, notes, reporting, summary
from headrace.pipelines.run.pipeline_run import Deployment
from headrace.pipelines.status import PipelineStatus
from headrace.pipelines.views import RunResult, running
from headrace.runtime.servers.ports import free_ports, is_free
from headrace.service.status import State
from headrace.spark.session import SPARK_STARTS

FAILED, REFUSED = State.FAILED, State.REFUSED


def outcome(state: State, exit_code: int = 0) -> PipelineStatus:
    return PipelineStatus("p", state, exit_code=exit_code)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([outcome(State.FINISHED), outcome(State.STOPPED)], 0),
        ([outcome(State.FINISHED), outcome(FAILED, 1)], 1),
        ([outcome(REFUSED, 3)], 3),
        ([outcome(FAILED, 4), outcome(FAILED, 4)], 4),
        ([outcome(REFUSED, 3), outcome(FAILED, 4)], 1),
    ],
)
def test_a_run_ends_with_the_code_of_what_failed(outcomes, code):
    assert exit_code({str(number): one for number, one in enumerate(outcomes)}) == code


def test_the_first_signal_asks_to_stop_and_says_so():
    told = threading.Event()
    with stop_on_signal(told.set) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(LIMIT_SECONDS)
    assert told.is_set()


def test_the_handlers_of_before_come_back():
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signal(lambda: None):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_what_runs_beside_the_main_thread_gives_its_result_and_its_errors():
    assert beside_main_thread(lambda: threading.current_thread().name) != "MainThread"
    with pytest.raises(ZeroDivisionError):
        beside_main_thread(lambda: 1 / 0)


def test_a_pipeline_is_a_line_with_every_figure():
    progress = PipelineStatus(
        "p", State.RUNNING, rows_in=1500, dead_letters=2, restarts=1, reason="slow disk"
    )
    text = line(progress)
    assert text.startswith("p running: rows in 1,500")
    assert "dead 2" in text
    assert text.endswith("slow disk; restarted 1 time(s)")


@pytest.mark.parametrize(
    ("records", "seconds", "text"),
    [(None, None, "unknown,"), (4500, None, "4,500 (age unknown),"), (0, 0.0, "0 (0 s),")],
)
def test_a_backlog_that_is_not_known_is_no_zero(records, seconds, text):
    progress = PipelineStatus("p", backlog_records=records, backlog_seconds=seconds)
    assert f"backlog {text}" in line(progress)


def test_a_summary_says_what_is_not_known():
    out = io.StringIO()
    Console(file=out, width=200).print(summary([PipelineStatus("p", State.RUNNING)]))
    assert out.getvalue().count("unknown") == 2


def test_a_pipeline_in_good_health_needs_no_notes():
    assert notes(PipelineStatus("p")) == []


def test_elsewhere_than_on_a_terminal_a_line_tells_each_change_of_state():
    out = io.StringIO()
    with reporting(Console(file=out, width=200)) as observe:
        for state in ("starting", "running", "running", "finished"):
            observe({"p": PipelineStatus("p", State(state))})
    assert [one.split()[1] for one in out.getvalue().splitlines()] == [
        "starting:",
        "running:",
        "finished:",
    ]


def test_on_a_terminal_the_live_table_leaves_nothing_behind():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200)
    with reporting(console) as observe:
        observe({"p": PipelineStatus("p", State.RUNNING, rows_in=77)})
        assert "77" in out.getvalue()


def test_on_a_terminal_a_clock_runs_while_spark_starts(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress_view, "time", SimpleNamespace(monotonic=lambda: now[0]))
    out = io.StringIO()
    with reporting(Console(file=out, force_terminal=True, width=200)) as observe:
        observe({"p": PipelineStatus("p", State.STARTING, SPARK_STARTS)})
        assert "Spark is starting (0 s)" in out.getvalue()
        now[0] = 112.0
        observe({"p": PipelineStatus("p", State.RUNNING, rows_in=77)})
    assert "Spark is starting (12 s)" in out.getvalue()
    assert "77" in out.getvalue()


def test_a_summary_says_why_a_pipeline_failed():
    out = io.StringIO()
    Console(file=out, width=200).print(summary([PipelineStatus("p", FAILED, "[disk] full")]))
    assert "p: [disk] full" in out.getvalue()


def test_programs_get_a_line_of_json_a_report(capsys):
    output = JsonOutput()
    with output.live(running) as observe:
        observe({"p": PipelineStatus("p", rows_in=5)})
        observe({"p": PipelineStatus("p", rows_in=6)})
    output.show(RunResult((outcome(State.FINISHED),)))
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["event"], first["pipelines"][0]["rows_in"]) == ("progress", 5)
    assert (last["event"], last["pipelines"][0]["state"]) == ("ended", "finished")


def test_every_metric_is_a_figure_of_the_progress():
    progress = PipelineStatus("p").to_json()
    words = {"pipeline", "state", "reason", "exit_code", "updated_ms"}
    words |= {"idle_partitions", "paused_partitions"}
    assert {one.name for one in PipelineStatus.metrics} == set(progress) - words


def test_a_run_serves_its_metrics_while_it_lasts(tmp_path, monkeypatch):
    [port] = free_ports(1)
    seen = []

    def run_pipelines(settings, pipelines, *, observe, **_):
        progress = {one.name: PipelineStatus(one.name, rows_in=7) for one in pipelines}
        observe(progress)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            seen.append(answer.read().decode())
        return {name: one.after(state=State.FINISHED) for name, one in progress.items()}

    monkeypatch.setattr("headrace.pipelines.run.runner.run_pipelines", run_pipelines)
    where = Deployment("b:1", str(tmp_path), "local[1]", {})
    monkeypatch.setattr("headrace.pipelines.commands.deployment_of", lambda *_: where)
    folder = str(tmp_path / "ads")
    assert CliRunner().invoke(main, ["init", folder]).exit_code == 0
    arguments = ["run", "--once", "--metrics-port", str(port), "--project", folder]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert 'headrace_pipeline_rows_in_total{pipeline="page-views-to-lake"} 7\n' in seen[0]
    assert is_free(port)
