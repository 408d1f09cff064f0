"""produce and tail: what they show, and what they do not take."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

import headrace.topics.views  # noqa: F401 - the views of `tail`
from headrace.cli import main
from headrace.cli.console import ConsoleOutput
from headrace.cli.json_output import JsonOutput
from headrace.cli.parameters import Header
from headrace.errors import TopicMissingError
from headrace.ingest.producing.produce import ProduceProgress, ProduceResult, RejectedLine
from headrace.ingest.producing.views import producing
from headrace.kafka.read.tail import TailedHeader, TailedRecord

REJECTED = RejectedLine(17, "wrong-type", "field 'x' is [null]", '{"x": null, "\x1b": 1}')
RESULT = ProduceResult("views", "finished", 1200, 1198, 2, {"wrong-type": 2})
RECORD = TailedRecord(
    "views", 3, 1042, 1_700_000_000_000, b"v-\x1b7", (TailedHeader("trace", b"\xff"),), b'{":x:":1}'
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def at(tmp_path) -> tuple[str, str]:
    """A new project."""
    folder = str(tmp_path / "ads")
    assert run("init", folder).exit_code == 0
    return ("--project", folder)


@pytest.mark.parametrize(
    ("value", "texts", "facts"),
    [
        (
            REJECTED,
            ["line 17: field 'x' is [null] (wrong-type)", '{"x": null, "\\x1b": 1}'],
            {"event": "rejected", "line": 17, "reason": "wrong-type"},
        ),
        (
            RESULT,
            ["1,198 of 1,200 line(s) sent to views, 2 rejected (wrong-type 2)."],
            {"event": "ended", "state": "finished", "sent": 1198, "failed_lines": []},
        ),
        (
            replace(RESULT, state="failed", not_acknowledged=2, failed_lines=(5,), failure="away"),
            ["2 event(s) were not acknowledged", "(line 5 ...): away"],
            {"state": "failed", "not_acknowledged": 2, "failed_lines": [5]},
        ),
        (
            RECORD,
            [
                'views/3:1042 2023-11-14 22:13:20 UTC v-\\x1b7 {":x:":1}\n',
                "  trace: \\xff\n",
            ],
            {
                "topic": "views",
                "partition": 3,
                "offset": 1042,
                "timestamp_ms": 1_700_000_000_000,
                "key": "v-\x1b7",
                "headers": [{"name": "trace", "value_base64": "/w=="}],
                "value": '{":x:":1}',
            },
        ),
        (
            replace(RECORD, key=None, headers=None, value=None),
            ["null null\n  headers can't be read"],
            {"key": None, "headers": None, "value": None},
        ),
    ],
)
def test_people_and_programs_are_told_the_same(value, texts, facts, capsys):
    ConsoleOutput().show(value)
    captured = capsys.readouterr()
    for text in texts:
        assert text in captured.out + captured.err
    JsonOutput().show(value)
    document = json.loads(capsys.readouterr().out)
    assert document | facts == document


def test_how_it_ended_is_said_with_what_to_do(capsys):
    ConsoleOutput().show(replace(RESULT, state="rejected"))
    assert "leave such lines out with --on-invalid skip" in capsys.readouterr().out
    ConsoleOutput().show(replace(RESULT, state="interrupted"))
    assert "Interrupted: the lines that follow were not read." in capsys.readouterr().out


def test_rejected_lines_are_shown_at_once_and_progress_to_people_only(capsys, monkeypatch):
    monkeypatch.setattr("headrace.cli.screen.LINE_SECONDS", 0)
    with ConsoleOutput().live(producing) as observe:
        observe(ProduceProgress(10, 8, 1))
        observe(REJECTED)
    shown = capsys.readouterr().err
    assert "10 lines read, 8 sent, 1 rejected" in shown
    assert "line 17" in shown
    with JsonOutput().live(producing) as observe:
        observe(ProduceProgress(10, 8, 1))
        observe(REJECTED)
    assert json.loads(capsys.readouterr().out)["event"] == "rejected"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("produce", "page-view"), "did you mean 'page-views'?"),
        (("produce", "page-views", "no-such-file"), "does not exist"),
        (("produce", "page-views", "--header", "trace"), "'trace' is not NAME=VALUE"),
        (("produce", "page-views", "--on-invalid", "wait"), "'wait' is not one of"),
        (("tail", "page-views", "--from", "yesterday"), "is no start in a topic"),
        (("tail", "page-views", "--limit", "0"), "0 is not in the range"),
    ],
)
def test_what_the_command_line_does_not_take_is_named(at, arguments, said):
    outcome = run(*arguments, *at)
    assert outcome.exit_code == 2
    assert said in " ".join(outcome.output.split())


def test_a_topic_that_is_nowhere_is_told_from_one_that_is_to_be_created(at, monkeypatch):
    def missing(_settings, topic, _options):
        raise TopicMissingError(topic)

    monkeypatch.setattr("headrace.topics.tail.tail_topic", missing)
    outcome = run("tail", "page-view.dead", *at)
    assert outcome.exit_code == 2
    assert "did you mean 'page-views.dead'?" in " ".join(outcome.output.split())
    outcome = run("tail", "page-views", *at)
    assert outcome.exit_code == 3
    assert "headrace apply" in outcome.output


def test_the_end_of_a_look_by_ctrl_c_is_no_failure(at, monkeypatch):
    def interrupted(*_):
        yield RECORD
        raise KeyboardInterrupt

    monkeypatch.setattr("headrace.topics.tail.tail_topic", interrupted)
    outcome = run("tail", "page-views", *at)
    assert outcome.exit_code == 0
    assert "views/3:1042" in outcome.output
    assert run("tail", "page-views", "--once", *at).exit_code == 130


def test_without_a_broker_the_way_out_is_shown(at, tmp_path):
    file = tmp_path / "events.ndjson"
    file.write_text("{}\n")
    for arguments in (("produce", "page-views", str(file)), ("tail", "page-views")):
        outcome = run(*arguments, *at)
        assert outcome.exit_code == 1
        assert "headrace up" in outcome.output


@pytest.mark.parametrize(
    "arguments", [("--header", "\udcff=1"), ("--header", "name"), ("--account", "\udcff")]
)
def test_what_no_record_can_carry_is_an_error_of_the_command_line(at, arguments):
    result = run("produce", "page-views", *arguments, *at)
    assert result.exit_code == 2
    assert f"Invalid value for '{arguments[0]}'" in result.output


@pytest.mark.parametrize("topic", ["a b", "..", "t" * 250, "\udcff", ""])
def test_a_name_that_kafka_does_not_take_is_an_error_of_the_command_line(at, topic):
    result = run("tail", topic, *at)
    assert result.exit_code == 2
    assert "Invalid value for 'TOPIC'" in result.output


def test_bytes_of_a_header_go_out_as_they_were_typed():
    assert Header().convert("trace=\udcff", None, None) == ("trace", b"\xff")
