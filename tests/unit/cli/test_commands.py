"""Commands that need no broker, through click's own runner."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable, TableFeatures, write_deltalake

from headrace import __version__
from headrace.cli import main
from headrace.cli.session import EXIT_CODES
from headrace.kafka.admin.topics import TopicState
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.client.brokers import Brokers
from headrace.pipelines.status import PipelineStatus
from headrace.service.status import State, StatusFolder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def answer(*arguments: str, code: int = 0) -> dict:
    result = run(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A new project."""
    target = tmp_path / "ads"
    assert run("init", str(target)).exit_code == 0
    return target


@pytest.fixture
def at(folder: Path) -> tuple[str, str]:
    return ("--project", str(folder))


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], click.Command]]:
    found = []
    for name, one in group.commands.items():
        found.append(((*path, name), one))
        if isinstance(one, click.Group):
            found += commands(one, (*path, name))
    return found


@pytest.mark.parametrize("path", [path for path, _ in commands(main)], ids=" ".join)
def test_every_command_says_what_it_does_and_shows_an_example(path):
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert f"Example:\n    headrace {' '.join(path)}" in result.stdout


def test_one_problem_is_counted_as_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("status")
    assert result.exit_code == 2
    assert "`headrace init DIR` makes a project" in result.stderr
    assert result.stderr.endswith("1 problem.\n")


def test_a_small_rate_is_not_shown_as_none():
    shown = run("size", "--rate", "10", "--event-bytes", "10").stdout
    assert ["0.098", "KiB/s"] in [line.split()[-2:] for line in shown.splitlines()]


@pytest.mark.parametrize(
    "path",
    [path for path, one in commands(main) if not isinstance(one, click.Group)],
    ids=" ".join,
)
def test_every_command_answers_in_json_and_takes_a_project(path):
    options = run(*path, "--help").stdout
    assert "--json" in options
    assert "--project" in options


@pytest.mark.parametrize(
    "path",
    [(), *(path for path, one in commands(main) if isinstance(one, click.Group))],
    ids=" ".join,
)
def test_the_list_of_commands_cuts_no_sentence(path):
    listed = run(*path, "--help").stdout.partition("\nCommands:\n")[2].partition("\n\n")[0]
    assert listed
    assert "..." not in listed


def test_the_exit_codes_are_documented():
    page = run("--help").stdout
    for code, meaning in EXIT_CODES.items():
        assert f"{code}  {meaning}"[:60] in page


def test_version_names_what_headrace_stands_on():
    found = answer("version")
    assert found["headrace"] == __version__
    assert {"python", "pyspark", "confluent-kafka"} <= set(found)


def test_a_new_project_is_valid_and_says_what_comes_next(tmp_path):
    result = run("init", str(tmp_path / "ads"))
    assert "headrace up" in result.stdout
    assert answer("check", "--project", str(tmp_path / "ads")) == {
        "project": "ads",
        "topics": ["page-views"],
        "pipelines": ["page-views-to-lake"],
        "workers": [],
        "mirrors": [],
        "mergers": [],
        "dispatchers": [],
        "standing_queries": [],
        "problems": [],
        "warnings": [],
    }


def test_a_project_is_never_overwritten(folder):
    found = answer("init", str(folder), code=2)
    assert {one["file"] for one in found["problems"]} == {str(one) for one in folder.iterdir()}


def test_check_shows_every_problem_with_file_and_line(folder, at):
    text = (folder / "flow.py").read_text()
    (folder / "flow.py").write_text(text.replace('key="visitor"', 'key="visiter"'))
    result = run("check", *at)
    assert result.exit_code == 2
    line = text[: text.index("page_views = Topic(")].count("\n") + 1
    assert f"{folder / 'flow.py'}:{line}: topic 'page-views': key 'visiter'" in result.stderr
    [problem] = answer("check", *at, code=2)["problems"]
    assert (problem["file"], problem["line"]) == (str(folder / "flow.py"), line)


def test_the_nearest_project_upwards_is_taken(folder, monkeypatch):
    inner = folder / "deep" / "down"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert answer("check")["project"] == "ads"


def test_without_a_project_the_way_to_one_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("check")
    assert result.exit_code == 2
    assert "headrace init DIR" in result.stderr


def test_a_plan_without_a_broker_shows_everything_as_declared(at):
    result = run("plan", *at)
    assert result.exit_code == 0
    assert "The broker does not respond" in result.stdout
    assert "create page-views: 4 partition(s)" in result.stdout
    assert "create page-views.dead" in result.stdout
    assert "fused, nothing runs between source and sink" in result.stdout


def test_a_plan_can_tell_by_its_exit_code_that_there_are_changes(at):
    assert len(answer("plan", "--exit-code", *at, code=5)["changes"]) == 2


def test_a_refused_change_is_exit_code_three(at, monkeypatch):
    config = {"cleanup.policy": "delete", "retention.ms": "604800000"}
    live = LiveTopic("page-views", "id", 8, 1)
    state = TopicState(live, config, frozenset(config))
    requests = []

    def describe(_, topics):
        requests.append(set(topics))
        return {"page-views": live}

    monkeypatch.setattr("headrace.operations.planning.plan.broker_config", lambda _: {})
    monkeypatch.setattr("headrace.operations.planning.plan.describe", describe)
    monkeypatch.setattr(
        "headrace.operations.planning.plan.states_of", lambda *_: {"page-views": state}
    )
    brokers = Brokers(1, {"auto.create.topics.enable": "true"})
    monkeypatch.setattr("headrace.operations.planning.plan.describe_brokers", lambda _: brokers)
    found = answer("plan", *at, code=3)
    assert "auto.create.topics.enable" in found["warnings"][0]["message"]
    assert [one["action"] for one in found["changes"]] == ["refused", "create"]
    leases = "headrace.page-views-to-lake.leases"
    assert requests == [{"page-views", "page-views.dead", leases}]  # one for all of them


def test_apply_without_a_broker_fails_with_the_remedy(at):
    result = run("apply", *at)
    assert result.exit_code == 1
    assert "headrace up" in result.stderr
    assert answer("apply", *at, code=1)["error"] == "BrokerUnreachableError"


def test_status_shows_how_each_pipeline_ended(folder, at):
    progress = PipelineStatus(
        "page-views-to-lake", State.FAILED, reason="the disk is full", rows_in=1234
    )
    StatusFolder(folder / ".headrace", PipelineStatus).write(progress)
    [found] = answer("status", *at)["pipelines"]
    assert (found["pipeline"], found["rows_in"]) == ("page-views-to-lake", 1234)
    result = run("status", *at)
    assert "1,234" in result.stdout
    assert "the disk is full" in result.stdout


def test_status_says_which_pipelines_are_no_longer_declared(folder, at):
    statuses = StatusFolder(folder / ".headrace", PipelineStatus)
    for name in ("page-views-to-lake", "from-last-year"):
        statuses.write(PipelineStatus(name, State.FINISHED))
    reasons = {one["pipeline"]: one["reason"] for one in answer("status", *at)["pipelines"]}
    assert reasons["page-views-to-lake"] == ""
    assert "no longer declared" in reasons["from-last-year"]


def test_status_works_in_a_project_that_is_broken(folder, at):
    (folder / "flow.py").write_text("this is no Python")
    StatusFolder(folder / ".headrace", PipelineStatus).write(PipelineStatus("any"))
    assert [one["pipeline"] for one in answer("status", *at)["pipelines"]] == ["any"]


def test_down_is_harmless_when_nothing_runs(at):
    assert answer("down", *at)["servers"] == []
    assert answer("down", *at)["servers"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "no-such"),
        ("checkpoint", "show", "no-such"),
        ("checkpoint", "reset", "page-views-to-lake", "--to", "yesterday"),
        ("checkpoint", "reset", "page-views-to-lake"),
        ("pause", "page-views-to-lake", "page-views"),
        ("pause", "page-views-to-lake", "clicks/1"),
        ("compact", "no-such"),
        ("dead-letters", "show", "page-views"),
        ("dead-letters", "replay", "page-views", "--record", "1"),
        ("no-such",),
    ],
    ids=" ".join,
)
def test_a_wrong_argument_is_exit_code_two(at, arguments):
    options = at if len(arguments) > 1 else ()
    result = run(*arguments, *options)
    assert result.exit_code == 2, result.output
    assert "Usage: " in result.stderr


def test_a_wrong_pipeline_names_the_declared_ones(at):
    assert "declared: page-views-to-lake" in run("run", "no-such", *at).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "page-views-to-lak"), "did you mean 'page-views-to-lake'?"),
        (("dead-letters", "list", "page-view"), "did you mean 'page-views'?"),
        (("dead-letters", "replay", "page-view"), "did you mean 'page-views'?"),
        (("compact", "page_view"), "did you mean 'page_views'?"),
        (("workers", "run", "page-views-to-lake"), "is a pipeline: `headrace run` runs it"),
        (("run", "--master", "yarn"), "YARN, Kubernetes and Mesos are not supported"),
    ],
)
def test_a_wrong_name_is_told_from_the_one_that_was_meant(at, arguments, said):
    outcome = run(*arguments, *at)
    assert outcome.exit_code == 2
    assert said in " ".join(outcome.output.split())


def test_a_run_without_pipelines_says_how_workers_are_run(folder, at):
    (folder / "flow.py").write_text(
        "from headrace import Topic\nfrom headrace.workers import worker\n"
        "numbers = Topic('numbers')\n"
        "@worker(topic=numbers, name='doubled')\nasync def doubled(record):\n    pass\n"
    )
    outcome = run("run", *at)
    assert outcome.exit_code == 2
    assert "`headrace workers run doubled`" in " ".join(outcome.output.split())


def test_a_partition_that_the_topic_does_not_have_is_not_paused(at, monkeypatch):
    live = LiveTopic("page-views", "id", 6, 1)
    monkeypatch.setattr("headrace.pipelines.start.checkpoints.broker_config", lambda _: {})
    monkeypatch.setattr(
        "headrace.pipelines.start.checkpoints.describe", lambda *_: {"page-views": live}
    )
    name = "page-views-to-lake"
    assert answer("pause", name, "page-views/5", *at)["paused_partitions"] == ["page-views/5"]
    result = run("pause", name, "page-views/9", *at)
    assert result.exit_code == 2
    assert "page-views has 6 partitions: 0 to 5" in result.stderr


def test_a_table_that_cannot_be_merged_is_vacuumed_and_the_reason_said(folder, at):
    table = folder / ".headrace" / "lake" / "page_views"
    write_deltalake(table, pa.table({"n": [1]}))
    features = [TableFeatures.DeletionVectors]
    DeltaTable(table).alter.add_feature(features, allow_protocol_versions_increase=True)
    orphan = table / "part-0.zstd.parquet"
    orphan.write_bytes(b"")
    os.utime(orphan, (0, 0))
    result = run("compact", "page_views", *at)
    assert result.exit_code == 1
    assert "compact it there (OPTIMIZE)" in result.stderr
    assert not orphan.exists()


def test_partitions_are_paused_and_resumed_one_by_one_or_all(at):
    name = "page-views-to-lake"
    assert answer("pause", name, "page-views/3", "page-views/1", *at) == {
        "pipeline": name,
        "paused_partitions": ["page-views/1", "page-views/3"],
    }
    assert answer("resume", name, "page-views/3", *at)["paused_partitions"] == ["page-views/1"]
    assert answer("pause", name, "page-views/0", *at)["paused_partitions"] == [
        "page-views/0",
        "page-views/1",
    ]
    assert answer("resume", name, *at)["paused_partitions"] == []


def test_an_unexpected_failure_is_one_line_and_a_log(folder, at, monkeypatch):
    def fail(_: object) -> None:
        raise ZeroDivisionError("by accident")

    monkeypatch.setattr("headrace.operations.planning.plan.make_plan", fail)
    result = run("plan", *at)
    log = folder / ".headrace" / "headrace.log"
    assert result.exit_code == 1
    assert "Unexpected ZeroDivisionError: by accident" in result.stderr
    assert str(log) in result.stderr
    assert "Traceback" not in result.output
    assert "Traceback" in log.read_text()
    assert answer("plan", *at, code=1)["log"] == str(log)


def test_debug_shows_the_traceback(at, monkeypatch):
    def fail(_: object) -> None:
        raise ZeroDivisionError("by accident")

    monkeypatch.setattr("headrace.operations.planning.plan.make_plan", fail)
    assert isinstance(run("plan", "--debug", *at).exception, ZeroDivisionError)


def test_ctrl_c_is_exit_code_130(at, monkeypatch):
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headrace.operations.planning.plan.make_plan", interrupt)
    assert run("plan", *at).exit_code == 130


@pytest.mark.parametrize(
    "command", [("run",), ("workers", "run"), ("ingest",), ("load-offline-files",)]
)
def test_every_command_that_runs_long_has_a_format_of_its_log(command):
    chosen = main
    for word in command:
        chosen = chosen.commands[word]
    assert "log_format" in {option.name for option in chosen.params}
