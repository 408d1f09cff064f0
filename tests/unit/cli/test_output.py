"""Every value that commands show, on the console and as JSON."""

from __future__ import annotations

import inspect
import json
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from headrace.cli.console import ConsoleOutput
from headrace.cli.json_output import JsonOutput
from headrace.cli.output import Output
from headrace.cli.screen import MAX_SHOWN_BYTES
from headrace.control.checkpoints import Position, Standing
from headrace.control.letters import TopicLetters
from headrace.control.measuring import Consumed, Measurement, Produced, Sending
from headrace.control.sizing import Load, size
from headrace.errors import TopicRecreatedError
from headrace.kafka.dead_letters import StoredLetter
from headrace.kafka.replay import Replay
from headrace.model import DeadLetter, TopicPartition
from headrace.sinks.api import CompactionResult

LETTER = StoredLetter(
    DeadLetter(
        TopicPartition("clicks", 2),
        7,
        "not-json",
        "it is [no] JSON",
        None,
        b"\xff{",
        (("trace", b"1"),),
        1_700_000_000_000,
    ),
    "p",
    "v2",
    "id",
    1,
    (TopicPartition("clicks.dead", 0), 4),
    1_700_000_060_000,
)
STANDING = Standing("/lake/_headrace/c/1", 1, "", True, (Position("clicks/0", 7, None, 0, 9),))
COUNTS = TopicLetters("clicks", 3, 2, {"not-json": 3}, {"p": 3}, 1_700_000_060_000)
LOAD = Load(Fraction(10), Fraction(100), timedelta(days=1))
MEASURED = Measurement(
    "topic [clicks]",
    2,
    Fraction(5, 2),
    1,
    (Produced(Sending("1", 0, 16_384, "none"), 123_456, 2048),),
    (Consumed(2000, 2650, 1024),),
)

SHOWN = [
    (
        lambda output: output.sized(LOAD, size(LOAD), None, MEASURED),
        "of topic [clicks], 2 bytes on average; 1 partition, replication 1",
        {"event_bytes": 100, "catch_up": None},
    ),
    (
        lambda output: output.failed(TopicRecreatedError("clicks", "a", "b", "p")),
        "checkpoint reset p --to earliest",
        {"error": "TOPIC_RECREATED"},
    ),
    (
        lambda output: output.compacted("clicks", CompactionResult(9, 2, 1)),
        "9 small files merged into 2, 1 dead ones removed",
        {"merged": 9, "written": 2, "vacuumed": 1},
    ),
    (
        lambda output: output.checkpoint("p", STANDING),
        "clicks/0   7      none       0         9",
        {"number": 1, "begun": True},
    ),
    (
        lambda output: output.letter_counts([COUNTS]),
        "not-json 3  2023-11-14 22:14:20 UTC",
        {},
    ),
    (lambda output: output.letters([LETTER]), "it is [no] JSON", {}),
    (lambda output: output.letter([LETTER]), "value: \\xff{", {}),
    (
        lambda output: output.replayed("clicks", Replay(5, 1, 2), dry_run=True),
        "5 would be sent to clicks, 1 replayed before, 2 given up.",
        {"sent": 5, "already": 1, "given_up": 2, "dry_run": True},
    ),
    (lambda output: output.paused("p", []), "paused partitions: none", {"paused_partitions": []}),
]


@pytest.mark.parametrize(("show", "text", "facts"), SHOWN)
def test_people_and_programs_are_told_the_same(show, text, facts, capsys):
    show(ConsoleOutput())
    captured = capsys.readouterr()
    assert text in captured.out + captured.err
    show(JsonOutput())
    document = json.loads(capsys.readouterr().out)
    assert document | facts == document


def test_bytes_that_are_no_text_travel_in_base64(capsys):
    JsonOutput().letter([LETTER])
    [found] = json.loads(capsys.readouterr().out)["dead_letters"]
    assert found["value_base64"] == "/3s="
    assert found["key"] is None
    assert found["headers"] == [{"name": "trace", "value": "1"}]
    assert found["record"] == "clicks/2:7"


def test_a_huge_record_is_cut_on_the_console(capsys):
    letter = DeadLetter(TopicPartition("t", 0), 0, "r", "d", None, b"x" * 900_000)
    stored = StoredLetter(letter, "p", "1", "", 0, (TopicPartition("t.dead", 0), 0), 0)
    ConsoleOutput().letter([stored])
    shown = capsys.readouterr().out
    assert "(900000 bytes)" in shown
    assert len(shown) < 2 * MAX_SHOWN_BYTES


def test_bytes_that_a_terminal_would_obey_are_shown_and_not_sent_to_it(capsys):
    letter = DeadLetter(
        TopicPartition("t", 0),
        0,
        "r",
        "d\x07",
        b"\x1b[31mkey",
        "\x1b[2J\x1b]0;owned\x07\u202e\ufeff".encode(),
        (("\x1b[1m", b"\x00"),),
        0,
    )
    stored = StoredLetter(letter, "p", "1", "", 0, (TopicPartition("t.dead", 0), 0), 0)
    ConsoleOutput().letter([stored])
    ConsoleOutput().letters([stored])
    shown = capsys.readouterr().out
    assert all(one.isprintable() or one == "\n" for one in shown)
    assert r"key: \x1b[31mkey" in shown
    assert r"value: \x1b[2J\x1b]0;owned\x07\u202e\ufeff" in shown


def test_an_unexpected_error_names_its_log(capsys):
    ConsoleOutput().crashed(ValueError("odd"), Path("/x/headrace.log"))
    assert "/x/headrace.log" in capsys.readouterr().err


def test_errors_for_people_leave_stdout_alone(capsys):
    ConsoleOutput().failed(TopicRecreatedError("clicks", "a", "b", "p"))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("implementation", [ConsoleOutput, JsonOutput])
def test_both_outputs_say_everything(implementation):
    for name, method in inspect.getmembers(Output, inspect.isfunction):
        if not name.startswith("_"):
            own = getattr(implementation, name)
            assert list(inspect.signature(own).parameters) == list(
                inspect.signature(method).parameters
            )
