"""load-offline-files: what it shows, and what it does not take."""

from __future__ import annotations

import json
import sys
from collections import Counter

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.cli.console import ConsoleOutput
from headrace.cli.json_output import JsonOutput
from headrace.cli.parameters import DatabaseUrl
from headrace.errors import ExtraMissingError, OfflineFilesError
from headrace.offline_files.loading import LoadStats
from headrace.offline_files.progress import LoadProgress
from headrace.offline_files.status import LoaderStatus
from headrace.offline_files.views import LoadResult, following, loading
from headrace.operations.servers.statuses import LOADERS
from headrace.operations.servers.views import ProjectStatus
from headrace.project.services import ClusterAddress, Services
from headrace.service.status import State
from headrace.settings import Secret
from headrace.sinks.postgres.connection import connect

DONE = LoadProgress("api-1").adding([(one, f"line {one}") for one in (1, 2, 5, 9)])
FIGURES = LoadStats(
    files=2,
    file="offline.2",
    lines=1210,
    loaded=Counter({"raw_item": 1200}),
    dead=Counter({"bad-zlib": 2}),
    skipped=6,
    left=1,
    backwards=1,
    of_files=2,
    done=DONE,
)


def test_people_see_what_became_of_every_line(capsys):
    ConsoleOutput().show(LoadResult("api-1", FIGURES, dry_run=False))
    shown = " ".join(capsys.readouterr().out.split())
    assert "read 1,210 2 of 2 file(s)" in shown
    assert "loaded 1,200 raw_item dead letters 2 bad-zlib skipped 6 done before left 1" in shown
    assert "5 counter(s) were never seen: 3 to 4, 6 to 8" in shown
    assert "1 line(s) came after a higher counter: try the other --order" in shown


def test_a_dry_run_says_so(capsys):
    ConsoleOutput().show(LoadResult("api-1", LoadStats(), dry_run=True))
    assert "Nothing was written" in capsys.readouterr().out


def test_programs_see_the_same(capsys):
    JsonOutput().show(LoadResult("api-1", FIGURES, dry_run=False))
    found = json.loads(capsys.readouterr().out)
    assert found["loaded"] == {"raw_item": 1200}
    assert found["dead"] == {"bad-zlib": 2}
    assert found["holes"] == [{"first": 3, "last": 4}, {"first": 6, "last": 8}]
    assert (found["source"], found["dry_run"], found["left"]) == ("api-1", False, 1)


def test_a_load_in_the_background_writes_a_line_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr("headrace.cli.screen.LINE_SECONDS", 0)
    with ConsoleOutput().live(loading) as on_batch:
        on_batch(FIGURES)
    shown = capsys.readouterr().err
    assert "file 2 of 2 offline.2: 1,210 lines, 1,200 loaded, 6 skipped, 2 dead letters" in shown


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--into", "raw_item="], "'raw_item=' is neither TABLE nor TABLE=DESTINATION"),
        (["--into", "=x"], "'=x' is neither TABLE nor TABLE=DESTINATION"),
        (["--postgres", "postgresql://h/d"], "--postgres takes the lines of the tables"),
        (
            ["--postgres", "postgresql://a:${NOT_SET}@b/c"],
            "environment variable NOT_SET is not set",
        ),
        (["--postgres", "host=db password=hush"], "the URL begins with neither"),
        (["--order", "size"], "'size' is not one of"),
        (["--batch-size", "0"], "0 is not in the range"),
        (["--remove-done", "--move-done", "x"], "--remove-done and --move-done exclude"),
        (["--follow", "--dry-run"], "--dry-run reads what is there, so it can't follow"),
        (["--metrics-port", "9400"], "--metrics-port is for --follow"),
        (["--follow", "--complete-after", "soon"], "'soon' is no duration"),
    ],
)
def test_what_the_command_line_does_not_take_is_named(options, problem):
    done = CliRunner().invoke(main, ["load-offline-files", ".", *options])
    assert done.exit_code == 2
    assert problem in done.output
    assert "hush" not in done.output


@pytest.mark.parametrize(
    ("folder", "options", "problem"),
    [
        ("empty", [], "no file '*' is in it"),
        ("gone", [], "No such file or directory"),
        ("files", ["--source", "a/b"], "no name for a source"),
    ],
)
def test_a_folder_or_a_source_that_can_not_be_is_named(tmp_path, folder, options, problem):
    (tmp_path / "empty").mkdir()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "offline.1").touch()
    url = ["--postgres", "postgresql://127.0.0.1:1/x", "--into", "raw_item"]
    done = CliRunner().invoke(
        main, ["load-offline-files", str(tmp_path / folder), *url, *options, "--json"]
    )
    assert done.exit_code == 1
    assert problem in json.loads(done.output)["message"]


def test_a_database_that_does_not_answer_is_said_so_at_once(tmp_path):
    (tmp_path / "offline.1").touch()
    command = ["load-offline-files", str(tmp_path), "--postgres", "postgresql://127.0.0.1:1/x"]
    command += ["--into", "raw_item"]
    done = CliRunner().invoke(main, [*command, "--source", "a", "--json"])
    assert done.exit_code == 1
    assert "refused" in json.loads(done.output)["message"]


def test_a_missing_psycopg_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ExtraMissingError, match=r"pip install 'headrace\[postgres\]'"):
        connect(Secret("postgresql://127.0.0.1/x"))


@pytest.mark.parametrize("text", ["${URL}", "postgresql://a:${PASSWORD}@b/c"])
def test_the_url_may_stand_in_the_environment_as_a_whole_or_in_part(monkeypatch, text):
    monkeypatch.setenv("PASSWORD", "hush")
    monkeypatch.setenv("URL", "postgresql://a:hush@b/c")
    assert DatabaseUrl().convert(text, None, None).reveal() == "postgresql://a:hush@b/c"


def test_people_see_how_a_loader_that_follows_is_doing(capsys):
    status = LoaderStatus(
        "api-1", State.WAITING, "[disk]", loaded=1200, files=3, files_waiting=2, lag_seconds=61.4,
        missing_counters=5,
    )  # fmt: skip
    with ConsoleOutput().live(following) as observe:
        observe(status)
    assert (
        "3 files, 1,200 lines loaded, 0 dead letters, 2 files waiting, lag 61 s, waits: [disk], "
        "5 counters were never seen"
    ) in capsys.readouterr().out
    ConsoleOutput().show(
        ProjectStatus(Services((ClusterAddress("", "", ""),), "", ()), {LOADERS: [status]})
    )
    shown = " ".join(capsys.readouterr().out.split())
    assert "lag (s)" in shown
    assert "api-1: [disk]" in shown


def test_the_options_of_following_reach_the_loader(tmp_path, monkeypatch):
    seen = []

    def follow_run(options, _target, settings, run_options):
        seen.append((options, settings, run_options))
        raise OfflineFilesError("x", "seen")

    monkeypatch.setattr("headrace.offline_files.run.follow_run", follow_run)
    url = ["--postgres", "postgresql://127.0.0.1:1/x", "--into", "raw_item", "--follow"]
    monkeypatch.chdir(tmp_path)
    for options in ([], ["--complete-after", "0", "--metrics-port", "9400"]):
        CliRunner().invoke(main, ["load-offline-files", str(tmp_path), *url, *options])
    assert [options.complete_after.total_seconds() for options, _, _ in seen] == [60, 0]
    assert [run_options.metrics_port for _, _, run_options in seen] == [None, 9400]
    assert [settings for _, settings, _ in seen] == [None, None]
