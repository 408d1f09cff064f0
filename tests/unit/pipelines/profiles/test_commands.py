"""profile: what is shown, and what it does not take."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.cli.console import ConsoleOutput
from headrace.cli.json_output import JsonOutput
from headrace.pipelines.profiles.views import ShownProfile
from headrace.sinks.profiles.store import Profile, ProfileEntry, ProfileField

AT = datetime(2026, 11, 24, 12, 0, 0, 250_001, tzinfo=UTC)
PROFILE = Profile(
    "users",
    "u\x1b1",
    {"country": ProfileField("PL", AT, "e1")},
    {"views": (ProfileEntry(AT, "e:x:1", {"item": "[a]\x1b"}),)},
    AT,
    AT,
)
FLOW = """
from datetime import datetime, timedelta
from headrace import Latest, Pipeline, Profiles, Topic


class Event:
    user: str
    at: datetime


events = Topic("events", event=Event, event_time="at")
"""
SINK = """
{0} = Pipeline(
    "{0}", events, Profiles("{0}", key="user", ttl=timedelta(days=1), lists={{"all": Latest(5)}})
)
"""


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def test_people_see_fields_and_lists_without_what_a_terminal_would_execute(capsys):
    ConsoleOutput().show(ShownProfile(PROFILE))
    shown = capsys.readouterr().out
    for text in (
        "u\\x1b1 in users",
        "forgotten up to 2026-11-24T12:00:00.250001Z",
        '"PL"',
        "e:x:1",
    ):
        assert text in shown
    assert "[a]" in shown
    assert "\x1b" not in shown


def test_programs_get_times_to_the_microsecond(capsys):
    JsonOutput().show(ShownProfile(PROFILE))
    shown = json.loads(capsys.readouterr().out)
    time = "2026-11-24T12:00:00.250001Z"
    assert shown == {
        "store": "users",
        "user": "u\x1b1",
        "fields": {"country": {"value": "PL", "event_time": time, "event_id": "e1"}},
        "lists": {
            "views": [{"event_time": time, "event_id": "e:x:1", "values": {"item": "[a]\x1b"}}]
        },
        "forgotten": time,
        "expires": time,
    }


@pytest.mark.parametrize(
    ("stores", "arguments", "message"),
    [
        ((), ("u",), "no pipeline of the project has the sink Profiles"),
        (("users", "sites"), ("u",), "name a store with --store: sites, users"),
        (("users",), ("u", "--store", "user"), "did you mean 'users'?"),
    ],
)
def test_a_store_that_is_not_clear_is_asked_for(tmp_path, stores, arguments, message):
    (tmp_path / "flow.py").write_text(FLOW + "".join(map(SINK.format, stores)))
    settings = '[project]\nname = "any"\nmodules = ["flow"]\n[sinks.profiles]\nurl = "redis://h"\n'
    (tmp_path / "headrace.toml").write_text(settings)
    result = run("profile", *arguments, "--project", str(tmp_path))
    assert (result.exit_code, message in result.output) == (2, True), result.output
