"""The installed command as processes: a new project from init to down, as a user does it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.contracts.names import FOLDERS
from tests.in_process import answer
from tests.quick_java import quick_kafka
from tests.waiting import FLUSH_SECONDS

from headrace.kafka.client.clients import connected_producer
from headrace.project.services import broker_config
from headrace.settings import load_settings
from headrace.sinks.lake.delta.table import read_table

HEADRACE = Path(sys.executable).with_name("headrace")
PIPELINE = "page-views-to-lake"


class Commands:
    """headrace commands in one project's folder."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self._environ = folder, environ

    def __call__(self, *arguments: str, code: int = 0) -> dict:
        """What a command answers in JSON: its last line."""
        done = subprocess.run(
            [HEADRACE, *arguments, "--json"],
            cwd=self.folder,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def ask(self, *arguments: str, code: int = 0) -> dict:
        """The same, in this process."""
        return answer(*arguments, "--project", self.folder, code=code)

    def edit(self, old: str, new: str) -> None:
        """Change flow.py."""
        file = self.folder / "flow.py"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def produce(self, count: int) -> None:
        """Send so many page views with the command, through a pipe."""
        views = (
            {
                "event_id": str(uuid.uuid4()),
                "event_time": datetime.now(UTC).isoformat(),
                "visitor": f"visitor-{number % 1000}",
                "page": "/",
                "country": ["DE", "PL", "US"][number % 3],
            }
            for number in range(count)
        )
        done = subprocess.run(
            [HEADRACE, "produce", "page-views", "--json"],
            cwd=self.folder,
            input="".join(json.dumps(view) + "\n" for view in views),
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout)["sent"] == count

    def send_late(self, count: int) -> None:
        """Page views of another day, in every partition: their files are merged into one."""
        sender = connected_producer(broker_config(load_settings(self.folder, {})))
        for number in range(count):
            view = {
                "event_id": f"late-{number}",
                "event_time": (datetime.now(UTC) - timedelta(days=3)).isoformat(),
                "visitor": "v",
                "page": "/",
                "country": "DE",
            }
            sender.produce("page-views", json.dumps(view).encode(), partition=number % 4)
        assert sender.flush(FLUSH_SECONDS) == 0

    def send_junk(self) -> None:
        """One record that is no event."""
        settings = load_settings(self.folder, {})
        sender = connected_producer(broker_config(settings))
        sender.produce("page-views", b"no json", partition=1)
        assert sender.flush(FLUSH_SECONDS) == 0

    def rows(self) -> int:
        """Rows in the project's table."""
        return read_table(str(self.folder / ".headrace" / "lake" / "page_views")).num_rows


@pytest.fixture(scope="module")
def headrace(tmp_path_factory, jars, java) -> Iterator[Commands]:
    """A new project whose broker is up, in folders of any name."""
    jars("kafka")
    folder = tmp_path_factory.mktemp("cli").joinpath(*FOLDERS, "views")
    subprocess.run([HEADRACE, "init", folder], check=True, capture_output=True)
    commands = Commands(folder, os.environ | quick_kafka(java))
    try:
        commands("up")
        yield commands
    finally:
        commands("down")


def test_up_and_down_can_be_given_twice_and_the_address_stays(headrace):
    first = headrace("up")
    assert headrace("up") == first
    assert [one["running"] for one in first["servers"]] == [True]
    down = headrace("down")
    assert headrace("down") == down
    assert [one["running"] for one in down["servers"]] == [False]
    assert headrace("plan", "--exit-code", code=5)["broker_down"]
    assert headrace("apply", code=1)["error"] == "BrokerUnreachableError"
    again = headrace("up")
    assert again["kafka"] == first["kafka"]


def test_from_declared_topics_to_rows_in_the_lake(headrace):
    headrace("apply")
    assert headrace("plan", "--exit-code")["changes"] == []
    headrace.produce(100)
    headrace.send_junk()
    outcome = headrace("run", "--once")["pipelines"][0]
    assert (outcome["state"], outcome["rows_out"]) == ("finished", 100)
    assert headrace.rows() == 100
    assert headrace.ask("status")["pipelines"][0]["rows_out"] == 100
    standing = headrace.ask("checkpoint", "show", PIPELINE)
    assert sum(one["committed"] for one in standing["positions"]) == 101
    assert [one["table"] for one in standing["positions"]] == [
        one["committed"] for one in standing["positions"]
    ]

    _what_was_no_event_is_shown_and_replayed_once(headrace)
    _the_checkpoint_is_reset_to_the_table(headrace)
    _a_run_that_has_merged_late_rows_stops_at_a_signal_and_the_next_goes_on(headrace)
    _drift_is_planned_applied_or_refused(headrace)


def _what_was_no_event_is_shown_and_replayed_once(headrace) -> None:
    [counts] = headrace.ask("dead-letters", "list")["topics"]
    assert (counts["count"], counts["waiting"], counts["reasons"]) == (1, 1, {"not-json": 1})
    [listed] = headrace.ask("dead-letters", "list", "page-views")["dead_letters"]
    [shown] = headrace.ask("dead-letters", "show", listed["record"])["dead_letters"]
    assert (shown["value"], shown["pipeline"]) == ("no json", PIPELINE)
    assert headrace.ask("dead-letters", "replay", "page-views", "--dry-run")["sent"] == 1
    assert headrace.ask("dead-letters", "replay", "page-views")["sent"] == 1
    assert headrace.ask("dead-letters", "replay", "page-views")["sent"] == 0


def _the_checkpoint_is_reset_to_the_table(headrace) -> None:
    """The next run goes on there exactly."""
    standing = headrace.ask("checkpoint", "reset", PIPELINE, "--to", "table")
    assert (standing["number"], standing["start"], standing["begun"]) == (2, "table", False)


def _a_run_that_has_merged_late_rows_stops_at_a_signal_and_the_next_goes_on(headrace) -> None:
    headrace.produce(50)
    with _running(headrace) as run:
        while _report(run)["rows_out"] < 50:
            pass
        refused = headrace.ask("checkpoint", "reset", PIPELINE, "--to", "earliest", code=3)
        assert refused["error"] == "CHECKPOINT_IN_USE"
        headrace.send_late(8)
        while _report(run)["rows_out"] < 58:
            pass
        last = _stopped(run, signal.SIGINT)
    assert (last["rows_out"], last["late_rows"], last["dead_letters"]) == (58, 8, 1)
    headrace.send_late(8)
    with _running(headrace) as run:
        while _report(run)["rows_out"] < 8:
            pass
        assert _stopped(run, signal.SIGTERM)["rows_out"] == 8
    assert headrace.rows() == 166
    [counts] = headrace.ask("dead-letters", "list")["topics"]
    assert (counts["count"], counts["waiting"]) == (2, 1)


@contextmanager
def _running(headrace) -> Iterator[subprocess.Popen]:
    command = [HEADRACE, "run", "--json"]
    with subprocess.Popen(command, cwd=headrace.folder, stdout=subprocess.PIPE, text=True) as run:
        try:
            yield run
        finally:
            run.kill()


def _stopped(run: subprocess.Popen, number: signal.Signals) -> dict:
    """The pipeline in the last line of a run that is told to stop."""
    run.send_signal(number)
    last = json.loads(run.stdout.read().splitlines()[-1])["pipelines"][0]
    assert (run.wait(), last["state"]) == (0, "stopped")
    return last


def _report(run: subprocess.Popen) -> dict:
    """The pipeline in the next line that a run prints."""
    return json.loads(run.stdout.readline())["pipelines"][0]


def _drift_is_planned_applied_or_refused(headrace) -> None:
    headrace.edit("partitions=4", "partitions=6")
    headrace.edit("days=7", "days=8")
    planned = headrace("plan", "--exit-code", code=5)["changes"]
    assert [one["action"] for one in planned] == ["add-partitions", "alter-config"]
    headrace("apply")
    assert headrace("plan")["changes"] == []
    headrace.edit('key="visitor"', 'key="country"')
    headrace.edit("partitions=6", "partitions=2")
    refused = headrace("apply", code=3)["changes"]
    assert [one["action"] for one in refused] == ["refused", "refused"]
    assert headrace("check")["problems"] == []
