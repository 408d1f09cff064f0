"""headrace spool: what waits on this host, and what people do about it."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.ingest.spool.loader import Loader, SendResult
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool, SpoolLimits


def event(text):
    return SpoolRecord("kept", b"k", text.encode(), (), 5, None)


@pytest.fixture
def project(tmp_path):
    """A project with a spool of which two events wait and one was quarantined."""
    (tmp_path / "headrace.toml").write_text('[project]\nname = "p"\nmodules = ["flow"]\n')
    spool = Spool(tmp_path / ".headrace" / "ingest" / "spool" / "kept", SpoolLimits())
    spool.append([event("too large")])
    loader = Loader(spool, lambda *_: SendResult(rejected={0: "kept: too large"}))
    loader.run_once()
    loader.close()
    spool.append([event("1"), event("2")])
    spool.close()
    return tmp_path


@pytest.fixture
def run(project):
    def running(*arguments, code=0):
        found = CliRunner().invoke(main, ["spool", *arguments, "--project", str(project)])
        assert found.exit_code == code, found.output
        return found.output

    return running


@pytest.fixture
def answer(run):
    return lambda *arguments, code=0: json.loads(run(*arguments, "--json", code=code))


def test_list_says_what_waits_and_why_the_rest_was_quarantined(run, answer):
    (spool,) = answer("list")["spools"]
    assert (spool["topic"], spool["events"], spool["rejected"]) == ("kept", 2, 1)
    (file,) = spool["quarantined"]
    assert (file["kind"], file["records"], file["reasons"]) == ("rejected", 1, {"too large": 1})
    shown = run("list", "kept")
    assert f"kept: {file['name']}: 1 event(s) too large (1)" in shown


def test_list_says_so_where_no_topic_has_a_spool(run, project):
    shutil.rmtree(project / ".headrace")
    assert run("list").startswith("No topic has a spool on this host")
    assert json.loads(run("list", "--json")) == {"spools": []}


def test_replay_puts_back_what_was_quarantined(answer):
    (wanted,) = answer("replay", "kept", "--dry-run")["replayed"]
    assert answer("list")["spools"][0]["events"] == 2
    assert answer("replay", "kept", wanted["file"]) == {"dry_run": False, "replayed": [wanted]}
    (spool,) = answer("list")["spools"]
    assert (spool["events"], spool["quarantined"]) == (3, [])
    assert answer("replay", "kept")["replayed"] == []


def test_a_file_that_can_not_be_put_back_holds_up_no_other(project, answer, run):
    quarantine = project / ".headrace" / "ingest" / "spool" / "kept" / "quarantine"
    (sound,) = [one.name for one in quarantine.iterdir()]
    (quarantine / "000-half.rejected").write_text('{"counter":1,"rea')
    half, whole = answer("replay", "kept", code=1)["replayed"]
    assert (whole["file"], whole["events"], whole["failure"]) == (sound, 1, "")
    assert half["file"] == "000-half.rejected"
    assert "a line can't be read" in half["failure"]
    assert "000-half.rejected stays: " in run("replay", "kept", code=1)
    assert answer("list")["spools"][0]["events"] == 3


def test_drop_removes_files_or_events_that_wait(answer, run):
    assert answer("drop", "kept", "--waiting", "--dry-run")["dropped"][0]["events"] == 2
    assert answer("drop", "kept", "--waiting")["dropped"][0]["events"] == 2
    assert "1 event(s) of" in run("drop", "kept", "--quarantined")
    (spool,) = answer("list")["spools"]
    assert (spool["events"], spool["quarantined"]) == (0, [])


def test_nothing_is_dropped_that_was_not_named(run):
    assert "name what to drop" in run("drop", "kept", code=2)
    assert "name what to drop" in run("drop", "kept", "x", "--waiting", code=2)


def test_a_topic_or_file_that_is_not_there_is_named_with_those_that_are(answer):
    assert "topic 'other' has no spool" in answer("list", "other", code=1)["message"]
    assert "no such file 'x'" in answer("drop", "kept", "x", code=1)["message"]
