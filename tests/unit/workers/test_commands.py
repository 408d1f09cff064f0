"""Commands about workers that need no broker, and what they show."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from headrace.cli import main
from headrace.cli.console import ConsoleOutput
from headrace.cli.json_output import JsonOutput
from headrace.errors import WorkerRunningError
from headrace.kafka.group.groups import ConsumerGroup, Member
from headrace.service.status import State, StatusFolder
from headrace.workers.progress_view import line, notes, reporting, summary
from headrace.workers.reset import Reset
from headrace.workers.run import PartitionStanding, WorkerStanding
from headrace.workers.status import WorkerStatus
from headrace.workers.views import ResetResult, WorkerStandings, working

PROGRESS = WorkerStatus(
    "enrich",
    State.RUNNING,
    instance="host-1",
    processed=1234,
    skipped=2,
    blocked=1,
    paused_partitions={"clicks/1": ("requested",)},
)
STANDING = WorkerStanding(
    "enrich",
    ("clicks",),
    "at least once",
    ConsumerGroup("stable", (Member("127.0.0.1", "", 4),)),
    2000,
    9.5,
    (
        PartitionStanding("clicks/0", 5, 0, 9, paused=False),
        PartitionStanding("clicks/1", None, 0, 9, paused=True),
    ),
    ("views",),
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a worker."""
    (tmp_path / "headrace.toml").write_text('[project]\nname = "ads"\nmodules = ["flow"]\n')
    (tmp_path / "flow.py").write_text(
        "from headrace import Topic, worker\n"
        'clicks = Topic("clicks")\n'
        "@worker(topic=clicks, subpartitions=8)\nasync def enrich(record): pass\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("workers", "run", "no-such"),
        ("workers", "run", "enrich", "--protocol", "old"),
        ("workers", "run", "enrich", "--instances", "2"),
        ("workers", "run", "enrich", "--on", "spark", "--instance-id", "pod-1"),
        ("workers", "pause", "enrich", "--topic", "views"),
        ("workers", "pause", "enrich", "--partition", "-1"),
        ("workers", "pause", "enrich", "clicks"),
        ("workers", "pause", "enrich", "views/1"),
        ("workers", "pause", "enrich", "clicks/1", "--topic", "clicks"),
        ("workers", "resume", "enrich", "clicks/x"),
        ("workers", "reset", "no-such"),
        ("workers", "reset", "enrich", "--to", "yesterday"),
        ("workers", "reset", "enrich", "--topic", "views"),
        ("workers", "run", "enrich", "--processes", "0"),
        ("workers", "run", "enrich", "--on", "spark", "--processes", "2"),
    ],
    ids=" ".join,
)
def test_a_wrong_argument_is_exit_code_two(folder, monkeypatch, arguments):
    monkeypatch.setattr("headrace.workers.run.worker_run", lambda *_: None)
    assert run(*arguments, "--project", str(folder)).exit_code == 2


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize(
    ("arguments", "calls"),
    [
        ((), [((), ())]),
        (("--topic", "clicks", "--partition", "3"), [(("clicks",), (3,))]),
        (("clicks/3", "clicks/5"), [(("clicks",), (3,)), (("clicks",), (5,))]),
    ],
)
def test_partitions_are_named_as_those_of_pipelines_or_by_options(
    folder, monkeypatch, verb, arguments, calls
):
    seen = []

    def change(_settings, _worker, topics, numbers):
        seen.append((topics, numbers))
        return [f"clicks/{len(seen)}"]

    monkeypatch.setattr(f"headrace.workers.run.{verb}", change)
    outcome = run("workers", verb, "enrich", *arguments, "--json", "--project", str(folder))
    assert json.loads(outcome.stdout)["paused_partitions"] == [f"clicks/{len(calls)}"]
    assert seen == calls


def test_check_and_plan_name_workers(folder):
    found = json.loads(run("check", "--json", "--project", str(folder)).stdout)
    assert found["workers"] == ["enrich"]
    assert "1 worker(s)" in run("check", "--project", str(folder)).stdout
    plan = run("plan", "--project", str(folder)).stdout
    assert "enrich (clicks, at least once): worker, 8 lane(s) over 1 partition(s)" in plan


def test_status_shows_instances(folder):
    StatusFolder(folder / ".headrace", WorkerStatus).write(PROGRESS)
    found = json.loads(run("status", "--json", "--project", str(folder)).stdout)
    assert found["workers"][0]["processed"] == 1234
    assert found["pipelines"] == []
    assert "1,234" in run("status", "--project", str(folder)).stdout


def test_without_a_broker_the_way_out_is_shown(folder):
    for arguments in (("run", "enrich"), ("list",), ("pause", "enrich"), ("reset", "enrich")):
        result = run("workers", *arguments, "--project", str(folder))
        assert result.exit_code == 1
        assert "headrace up" in result.stderr


@pytest.mark.parametrize(
    ("value", "text", "facts"),
    [
        (
            WorkerStandings((STANDING,)),
            "enrich  clicks  at least once  stable  127.0.0.1  2,000  10        clicks/1",
            {},
        ),
        (
            ResetResult(Reset("enrich", "g", {"clicks/0": 5}, {"clicks/0": 2}, 3, 0), dry_run=True),
            "enrich (group g) would begin there: 3 records are processed again, 0 are skipped.",
            {"committed": {"clicks/0": 5}, "begins": {"clicks/0": 2}, "dry_run": True},
        ),
        (
            ResetResult(Reset("enrich", "g", {}, {"clicks/0": 7}, 0, 7), dry_run=False),
            "clicks/0              7",
            {"repeated": 0, "skipped": 7},
        ),
    ],
)
def test_people_and_programs_are_told_the_same(value, text, facts, capsys):
    ConsoleOutput().show(value)
    captured = capsys.readouterr()
    assert text in captured.out + captured.err
    JsonOutput().show(value)
    document = json.loads(capsys.readouterr().out)
    assert document | facts == document


def test_a_worker_that_runs_says_what_to_do_first(capsys):
    ConsoleOutput().failed(WorkerRunningError("enrich", "g", "host-1"))
    assert "Stop its instances first" in capsys.readouterr().err


def test_programs_are_told_which_partitions_are_paused(capsys):
    JsonOutput().show(WorkerStandings((STANDING,)))
    [standing] = json.loads(capsys.readouterr().out)["workers"]
    assert standing["paused_partitions"] == ["clicks/1"]
    assert standing["group"]["members"][0]["host"] == "127.0.0.1"


def test_a_worker_that_is_taken_for_a_pipeline_is_told_where_its_commands_are(folder):
    result = run("pause", "enrich", "clicks/2", "--project", str(folder))
    assert result.exit_code == 2
    assert "`headrace workers` has its commands" in result.stderr


def test_what_is_not_there_yet_is_said(capsys):
    ConsoleOutput().show(WorkerStandings((STANDING,)))
    assert "enrich: no topic views yet" in capsys.readouterr().out


def test_programs_get_a_line_a_look_and_one_at_the_end(capsys):
    with JsonOutput().live(working) as observe:
        observe(PROGRESS)
        observe(replace(PROGRESS, state=State.CLOSED))
    lines = [json.loads(one) for one in capsys.readouterr().out.splitlines()]
    assert [one["event"] for one in lines] == ["progress", "ended"]
    assert lines[0]["worker"]["paused_partitions"] == {"clicks/1": ["requested"]}


def test_an_instance_without_partitions_knows_no_lag():
    assert "lag -, behind s -" in line(PROGRESS, 0.0)
    assert "lag 7, behind s 2" in line(
        replace(PROGRESS, partitions=1, lag_records=7, lag_seconds=2.4), 0.0
    )


def test_a_line_and_a_table_say_what_figures_do_not():
    assert "done 1,234" in line(PROGRESS, 12.4)
    assert "rate/s 12" in line(PROGRESS, 12.4)
    assert notes(PROGRESS) == [
        "skipped 2",
        "1 lane(s) blocked, 0 starved",
        "paused: clicks/1 (requested)",
    ]
    console = Console(file=io.StringIO(), width=160)
    console.print(summary([PROGRESS], 5.0))
    assert "enrich: skipped 2" in console.file.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_while_it_runs_and_at_the_end(terminal):
    console = Console(file=io.StringIO(), width=160, force_terminal=terminal)
    with reporting(console) as observe:
        observe(PROGRESS)
        observe(replace(PROGRESS, processed=1300, updated_ms=PROGRESS.updated_ms + 1000))
        ended = {"state": State.CLOSED, "updated_ms": PROGRESS.updated_ms + 2000}
        observe(replace(PROGRESS, processed=1310, **ended))
    shown = console.file.getvalue()
    assert "closed" in shown
    assert "1,310" in shown
