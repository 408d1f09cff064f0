"""`headrace query register`, `list`, `show`, `update` and `cancel`, on a topic in memory."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner
from tests.unit.queries.registry.flow import FLOW, write_project
from tests.unit.queries.registry.memory_topic import MemoryTopic

from headrace.cli import main

COUNT = "SELECT count(*) FROM clicks"


@pytest.fixture
def topic(monkeypatch):
    return MemoryTopic(monkeypatch)


@pytest.fixture
def query(tmp_path, monkeypatch, topic):
    """``query("list", ...)``: a command in a project of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_project(tmp_path)

    def run(*arguments, code=0, **changes):
        words = ["query", *arguments, "--project", str(tmp_path)]
        done = CliRunner().invoke(main, words, **changes)
        assert done.exit_code == code, done.output
        return done.output

    return run


def test_a_registration_says_where_its_record_is_and_how_long_it_lives(query):
    query("register", COUNT, "--id", "a")
    shown = query("register", COUNT, "--id", "b", "--ttl", "30m")
    assert "Query b, revision 1, registered at offset 1 of ads.queries.\n" in shown
    assert "It expires in 0:30:00 unless `headrace query update b` renews it." in shown


def test_a_registration_in_json(query):
    answer = json.loads(query("register", "-", "--id", "a", "--json", input=COUNT))
    assert {name: answer[name] for name in ("id", "text", "revision", "offset", "registry")} == {
        "id": "a",
        "text": "SELECT count(*)\nFROM clicks\nWINDOW 1 minute",
        "revision": 1,
        "offset": 0,
        "registry": "ads.queries",
    }
    assert answer["expires_at"] > answer["registered_at"]


def test_a_list_shows_each_query_in_a_line_and_what_is_faulty_below(query, topic):
    query("register", f"{COUNT} WHERE country IN ('{'x' * 80}', 'PL')", "--id", "long")
    topic.write({}, "ads.queries", b"\x1b[31m", b"junk")
    lines = query("list").splitlines()
    assert lines[0].split() == ["id", "topic", "state", "expires", "in", "revision", "query"]
    assert lines[1].startswith("long")
    assert "clicks" in lines[1]
    assert "live" in lines[1]
    assert lines[1].endswith("xxx...")
    assert lines[2].startswith(r"query '\x1b[31m' at offset 1 is faulty: JSON is malformed")


def test_a_list_in_json_has_one_object_for_each_entry(query, topic):
    query("register", COUNT, "--id", "a")
    topic.write({}, "ads.queries", b"b", b"junk")
    first, second = json.loads(query("list", "--json"))["queries"]
    assert (first["id"], first["state"], first["reason"]) == ("a", "live", "")
    assert (second["id"], second["state"], second["offset"]) == ("b", "faulty", 1)


def test_a_query_is_shown_with_its_text(query, tmp_path):
    query("register", f"{COUNT} WHERE price > 1", "--id", "a")
    shown = query("show", "a")
    assert shown.endswith("SELECT count(*)\nFROM clicks\nWHERE price > 1\nWINDOW 1 minute\n")
    write_project(tmp_path, FLOW.replace("price", "cost"))
    assert "is faulty: The query is not valid (line 3" in query("show", "a")
    assert json.loads(query("show", "a", "--json"))["state"] == "faulty"


def test_updates_and_cancellations_are_shown(query):
    query("register", COUNT, "--id", "a")
    query("register", COUNT, "--id", "b")
    assert "Query a, revision 1, registered at offset 2" in query("update", "a", "--ttl", "5m")
    changed = query("update", "a", "-", input="SELECT sum(price) FROM clicks")
    assert "revision 2" in changed
    assert query("cancel", "a", "b") == (
        "Query a cancelled at offset 4 of ads.queries.\n"
        "Query b cancelled at offset 5 of ads.queries.\n"
    )
    assert json.loads(query("list", "--json")) == {"queries": []}


def test_a_cancellation_in_json(query):
    query("register", COUNT, "--id", "a")
    assert json.loads(query("cancel", "a", "--json")) == {
        "registry": "ads.queries",
        "cancelled": [{"id": "a", "offset": 1}],
    }


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("register", "SELECT"), 2, "QueryTextError"),
        (("register", COUNT, "--ttl", "2h"), 2, "QueryInvalidError"),
        (("register", COUNT, "--in", "bds"), 2, "NotDeclaredError"),
        (("register", "SELECT sum(price) FROM clicks", "--id", "a"), 3, "QUERY_ID_TAKEN"),
        (("register", "SELECT count(*) FROM views"), 3, "QUERY_UNMATCHED"),
        (("show", "b"), 2, "QueryMissingError"),
        (("update", "b"), 2, "QueryMissingError"),
        (("cancel", "a", "b"), 2, "QueryMissingError"),
    ],
)
def test_exit_codes_say_what_is_wrong(query, arguments, code, error):
    query("register", COUNT, "--id", "a")
    answer = json.loads(query(*arguments, "--json", code=code))
    assert answer["error"] == error


def test_check_counts_declarations_of_standing_queries(tmp_path, query):
    done = CliRunner().invoke(main, ["check", "--project", str(tmp_path)])
    assert "1 declaration(s) of standing queries" in done.output
