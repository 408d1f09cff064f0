"""Every value that commands show, on the console and as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

import headrace.operations.planning.views  # noqa: F401  registers the view
from headrace.cli.console import ConsoleOutput
from headrace.cli.json_output import JsonOutput
from headrace.cli.screen import MAX_SHOWN_BYTES, Screen, table, with_remarks
from headrace.cli.view import PausedPartitions, Stopping
from headrace.errors import Problem, ProjectError, TopicRecreatedError
from headrace.ingest.tokens.token import Token
from headrace.ingest.views import NewToken, Serving, TokenList
from headrace.kafka.dead_letters.letters import StoredDeadLetter
from headrace.kafka.dead_letters.replay import Replay
from headrace.kafka.group.groups import ConsumerGroup
from headrace.links.copying.views import copying
from headrace.links.merger.views import MergerStandings
from headrace.links.mirror.status import MirrorStatus
from headrace.links.standing import Standing
from headrace.links.views import LinkStandings
from headrace.model import DeadLetter, TopicPartition
from headrace.operations.planning.plan import PipelineRoute, Plan
from headrace.operations.servers.statuses import status_kinds
from headrace.operations.servers.views import ProjectStatus, fetching
from headrace.operations.sizing.measuring import Consumed, Measurement, Produced, Sending
from headrace.operations.sizing.sizes import TopicLoad, size
from headrace.operations.sizing.views import SizeResult, measuring
from headrace.pipelines.start.checkpoints import CheckpointStatus, PartitionPositions
from headrace.pipelines.views import Compacted, PipelineCheckpoint
from headrace.project.services import ClusterAddress, Server, Services
from headrace.settings import Rate
from headrace.sinks.api import CompactionResult
from headrace.topics.dead_letters.held_letters import TopicDeadLetters
from headrace.topics.dead_letters.views import (
    DeadLetterContents,
    DeadLetterCounts,
    DeadLetterList,
    ReplayResult,
)

LETTER = StoredDeadLetter(
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
STATUS = CheckpointStatus(
    "/lake/_headrace/c/1", 1, "", True, (PartitionPositions("clicks/0", 7, None, 0, 9),)
)
COUNTS = TopicDeadLetters("clicks", 3, 2, 1, {"not-json": 3}, {"p": 3}, 1_700_000_060_000)
LOAD = TopicLoad(Fraction(10), Fraction(100), timedelta(days=1))
MEASURED = Measurement(
    "topic [clicks]",
    2,
    Fraction(5, 2),
    1,
    (Produced(Sending("1", 0, 16_384, "none"), 123_456, 2048),),
    (Consumed(2000, 2650, 1024),),
)

TOKEN = Token(
    "3x8Jq0aLmN2b",
    "[web]",
    "shop",
    "acme",
    ("*",),
    "0" * 64,
    datetime(2026, 1, 1, tzinfo=UTC),
    rate=Rate(events_per_second=5.0),
)
SERVICES = Services(
    (ClusterAddress("central", "", embedded=True),),
    "/lake",
    (Server("kafka broker 1", "127.0.0.1:9", 7),),
)

NEVER_LATE = PipelineRoute(
    "p", ("t",), "lake t", "once", "fused", "why", "dead-letter", timedelta.max.total_seconds()
)
NO_MEMBERS = ConsumerGroup("Empty", ())
STATUSES = {status.name: status for status in status_kinds()}
MIRROR = MirrorStatus("warsaw", instance="host-1", refused={"clicks/2": "clicks/2 is gone [again]"})
SHOWN = [
    (
        SizeResult(LOAD, size(LOAD), None, MEASURED),
        "of topic [clicks], 2 bytes on average; 1 partition, replication 1",
        {"event_bytes": 100, "retention_seconds": 86_400.0, "catch_up": None},
    ),
    (
        Compacted("clicks", CompactionResult(9, 2, 1)),
        "9 small files merged into 2, 1 unreferenced files removed",
        {"table": "clicks", "merged": 9, "written": 2, "vacuumed": 1},
    ),
    (
        PipelineCheckpoint("p", STATUS),
        "clicks/0   7      none       0         9",
        {"pipeline": "p", "number": 1, "begun": True},
    ),
    (
        DeadLetterCounts((COUNTS,)),
        "not-json 3  2023-11-14 22:14:20 UTC",
        {},
    ),
    (DeadLetterList((LETTER,)), "it is [no] JSON", {}),
    (DeadLetterContents((LETTER,)), "value: \\xff{", {}),
    (
        ReplayResult("clicks", Replay(5, 1, 2), dry_run=True),
        "5 would be sent to clicks, 1 replayed before, 2 exceeded the replay limit.",
        {"sent": 5, "already": 1, "given_up": 2, "dry_run": True},
    ),
    (
        Plan((), (NEVER_LATE,), ()),
        "events 999999999 days, 23:59:59 behind their partition -> dead-letter",
        {},
    ),
    (
        PausedPartitions("pipeline", "p", ()),
        "paused partitions: none",
        {"pipeline": "p", "paused_partitions": []},
    ),
    (
        PausedPartitions("worker", "enrich", ("clicks/1",)),
        "enrich, paused partitions: clicks/1",
        {"worker": "enrich", "paused_partitions": ["clicks/1"]},
    ),
    (Stopping(), "Press Ctrl-C again", {"event": "stopping"}),
    (
        Stopping("enrich"),
        "Press Ctrl-C again",
        {"event": "stopping", "worker": {"worker": "enrich", "state": "draining"}},
    ),
    (
        SERVICES,
        "Kafka  not started yet (`headrace up`)\nLake   /lake\n  kafka broker 1 127.0.0.1:9: up",
        {
            "kafka": {"bootstrap_servers": "", "embedded": True},
            "servers": [
                {"name": "kafka broker 1", "address": "127.0.0.1:9", "pid": 7, "running": True}
            ],
        },
    ),
    (
        ProjectStatus(SERVICES, {STATUSES[name]: () for name in ("pipelines", "workers")}),
        "Nothing has run yet",
        {"lake": "/lake", "pipelines": [], "workers": []},
    ),
    (
        ProjectStatus(SERVICES, {STATUSES["mirrors"]: (MIRROR,)}),
        "warsaw: clicks/2 is gone [again]",
        {"mirrors": [MIRROR.to_json()]},
    ),
    (
        Serving("http://127.0.0.1:80", 2, ("clicks",)),
        "  POST http://127.0.0.1:80/v1/topics/clicks/events",
        {"address": "http://127.0.0.1:80", "workers": 2, "topics": ["clicks"]},
    ),
    (
        LinkStandings("mirror", (Standing("mirror", "warsaw", {"source": "waw"}, (), NO_MEMBERS),)),
        "warsaw: no instance runs",
        {},
    ),
    (
        MergerStandings(
            "merger", (Standing("merger", "merge-clicks", {"target": "clicks"}, (), NO_MEMBERS),)
        ),
        "merge-clicks: no instance runs",
        {},
    ),
    (
        NewToken(TOKEN, "hr_secret"),
        "hr_secret",
        {"token": "hr_secret", "public_id": "3x8Jq0aLmN2b", "created": "2026-01-01T00:00:00Z"},
    ),
    (
        TokenList((TOKEN,), ("gone",)),
        "[web]",
        {"unreadable": ["gone"]},
    ),
]


@pytest.mark.parametrize(("value", "text", "facts"), SHOWN)
def test_people_and_programs_are_told_the_same(value, text, facts, capsys):
    ConsoleOutput().show(value)
    captured = capsys.readouterr()
    assert text in captured.out + captured.err
    JsonOutput().show(value)
    document = json.loads(capsys.readouterr().out)
    assert document | facts == document


def test_a_mirror_shows_its_figures_while_it_runs(capsys):
    status = replace(MIRROR, records=1_200, loops_skipped=3, lags={"clicks/0": 5, "clicks/1": None})
    with ConsoleOutput().live(copying) as observe:
        observe(status)
    figures = "1,200 records copied, 2 partitions, lag 5, 3 records of a loop skipped, 1 partitions"
    assert figures in capsys.readouterr().out
    with JsonOutput().live(copying) as observe:
        observe(status)
    document = json.loads(capsys.readouterr().out)
    assert (document["records"], document["lag_records"]) == (1_200, 5)


def test_an_error_has_its_remedy(capsys):
    error = TopicRecreatedError("clicks", "a", "b", "p")
    ConsoleOutput().failed(error)
    assert "checkpoint reset p --to earliest" in capsys.readouterr().err
    JsonOutput().failed(error)
    assert json.loads(capsys.readouterr().out)["error"] == "TOPIC_RECREATED"


def test_a_token_is_shown_with_its_state_and_without_its_secret(capsys):
    JsonOutput().show(TokenList((TOKEN,)))
    [token] = json.loads(capsys.readouterr().out)["tokens"]
    assert token["state"] == "active"
    assert not [name for name in token if name.endswith("sha256")]


def test_progress_of_downloads_and_measurements_is_for_people(capsys):
    for output in (ConsoleOutput(), JsonOutput()):
        with output.live(fetching) as on_progress:
            on_progress(1, 2, "kafka.jar")
        with output.live(measuring) as on_run:
            on_run(0, 15, "producer [1]")
        shown = capsys.readouterr()
        assert shown.out == ""
        assert ("1/15 producer [1]" in shown.err) == isinstance(output, ConsoleOutput)


def test_a_warning_leaves_stdout_alone(capsys):
    for output in (ConsoleOutput(), JsonOutput()):
        output.warn("other tokens are named [web]")
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("", "other tokens are named [web]\n")


PROGRAM = """
import subprocess
from headrace.cli.json_output import JsonOutput
from headrace.cli.view import Stopping
from headrace.operations.sizing.views import measuring

output = JsonOutput()
with output.live(measuring):
    print("of a task")
    subprocess.run(["echo", "of a process"], check=True)
    output.show(Stopping())
output.show({"event": "ended"})
"""


def test_what_tasks_print_is_not_mixed_with_documents():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == ["stopping", "ended"]
    assert sorted(done.stderr.splitlines()) == ["of a process", "of a task"]


def test_a_value_without_a_view_is_an_error():
    with pytest.raises(TypeError, match="no view of object"):
        ConsoleOutput().show(object())


def test_bytes_that_are_no_text_travel_in_base64(capsys):
    JsonOutput().show(DeadLetterContents((LETTER,)))
    [found] = json.loads(capsys.readouterr().out)["dead_letters"]
    assert found["value_base64"] == "/3s="
    assert found["key"] is None
    assert found["headers"] == [{"name": "trace", "value": "1"}]
    assert found["record"] == "clicks/2:7"


def test_a_huge_record_is_cut_on_the_console(capsys):
    letter = DeadLetter(TopicPartition("t", 0), 0, "r", "d", None, b"x" * 900_000)
    stored = StoredDeadLetter(letter, "p", "1", "", 0, (TopicPartition("t.dead", 0), 0), 0)
    ConsoleOutput().show(DeadLetterContents((stored,)))
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
    stored = StoredDeadLetter(letter, "p", "1", "", 0, (TopicPartition("t.dead", 0), 0), 0)
    ConsoleOutput().show(DeadLetterContents((stored,)))
    ConsoleOutput().show(DeadLetterList((stored,)))
    shown = capsys.readouterr().out
    assert all(one.isprintable() or one == "\n" for one in shown)
    assert r"key: \x1b[31mkey" in shown
    assert r"value: \x1b[2J\x1b]0;owned\x07\u202e\ufeff" in shown


@pytest.mark.parametrize(
    "text", ["[/]", "[/odd]", "[bold]b", "[link=x]y[/link]", "\x1b[31mred", "\ud800"]
)
def test_names_and_reasons_of_dead_letters_may_be_any_text(text, capsys):
    letter = DeadLetter(TopicPartition(text, 0), 0, text, "d", None, None, (), 0)
    stored = StoredDeadLetter(letter, text, "1", "", 0, (TopicPartition("t.dead", 0), 0), 0)
    ConsoleOutput().show(DeadLetterList((stored,)))
    ConsoleOutput().show(DeadLetterContents((stored,)))
    ConsoleOutput().show(DeadLetterCounts((TopicDeadLetters(text, 1, 1, 1, {text: 1}, {}, 0),)))
    shown = capsys.readouterr().out
    assert all(character.isprintable() or character == "\n" for character in shown)
    printed = text if text.isprintable() else text.encode("unicode_escape").decode()
    assert f"{printed} 1" in shown


@pytest.mark.parametrize("text", ["\x1b]0;owned\x07", "\x1b[2J", "\r", "\u202e", "\ud800"])
def test_texts_of_users_never_reach_the_terminal_as_commands(text, capsys):
    reason = replace(MIRROR, refused={"clicks/2": f"gone {text}\n[again]"})
    ConsoleOutput().show(ProjectStatus(SERVICES, {STATUSES["mirrors"]: (reason,)}))
    ConsoleOutput().failed(ProjectError([Problem("flow.py", 1, f"the field {text}\nis odd")]))
    ConsoleOutput().crashed(ValueError(text), Path("/x/headrace.log"))
    shown = "".join(capsys.readouterr())
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert shown.count(text.encode("unicode_escape").decode()) == 3


def test_an_unexpected_error_names_its_log(capsys):
    ConsoleOutput().crashed(ValueError("odd"), Path("/x/headrace.log"))
    assert "/x/headrace.log" in capsys.readouterr().err


def test_errors_for_people_leave_stdout_alone(capsys):
    ConsoleOutput().failed(TopicRecreatedError("clicks", "a", "b", "p"))
    assert capsys.readouterr().out == ""


def test_what_rejected_a_record_may_be_a_worker_or_a_pipeline(capsys):
    for shown in (DeadLetterList((LETTER,)), DeadLetterContents((LETTER,))):
        ConsoleOutput().show(shown)
        text = capsys.readouterr().out
        assert "rejected by" in text
        assert "pipeline" not in text


def test_into_a_file_nothing_is_wrapped_or_cut(capsys):
    """Programs search it, and people paste it into issues."""
    screen, place = Screen(), "orders/3 " * 100
    shown = table("place", "state")
    shown.add_row(place.strip(), "unbalanced")
    screen.out.print(with_remarks(shown, [("orders", place)]))
    screen.out.print(place)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    words = place.split()
    assert lines == [["place", "state"], [*words, "unbalanced"], ["orders:", *words], words]


def test_in_a_file_no_line_of_a_table_ends_with_the_spaces_that_fill_its_columns(capsys):
    shown = table("topic", "why", right=(0,))
    for row in (("clicks", "a reason that is longer than others"), ("x", "short"), ("views", "")):
        shown.add_row(*row)
    Screen().out.print(shown)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[2:]] == [["x", "short"], ["views"]]
    assert lines == [line.rstrip() for line in lines]
    assert lines[2].startswith("     x")


def test_dead_letters_that_belong_to_no_record_are_counted_apart(capsys):
    ConsoleOutput().show(DeadLetterCounts((COUNTS, replace(COUNTS, topic="b", without_record=0))))
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "clicks: 1 belong to no record, and can't be replayed"
