"""`headrace query run`, `results`, `explain` and `instances`, with stand-ins for the cluster."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.unit.queries.expected_results import result
from tests.unit.queries.registry.flow import write_project
from tests.unit.queries.registry.memory_topic import MemoryTopic

from headrace import ResultKind
from headrace.cli import main
from headrace.cli.screen import Screen
from headrace.queries.results import explanation as query_explanation
from headrace.queries.results import results as query_results
from headrace.queries.results.explanation import MatchingPipeline
from headrace.queries.results.results import QueryResults
from headrace.queries.results.views import followed_results
from headrace.queries.sample import OperandFigures, QuerySample
from headrace.queries.windows.instance import owners as query_instances
from headrace.queries.windows.instance.owners import InstanceSlot
from headrace.queries.windows.instance.status import QueryInstanceStatus
from headrace.queries.windows.instance.views import summary
from headrace.service.status import State

NOW = datetime(2026, 5, 1, 10, tzinfo=UTC)
COVERED = InstanceSlot(0, (0, 1), "0123456789", "host-1", 0.5, is_covered=True)
LOST = InstanceSlot(1, (2,), "abcdef", "host-2", 61.0)
SAMPLE = QuerySample(
    events=1_000,
    rejected=2,
    untimed=3,
    operands=(OperandFigures("country = 'PL'", 997, 40, is_lookup=True),),
    lookup="country = 'PL'",
    candidates=40,
    matches=40,
    newest_match=NOW,
    groups=7,
    max_groups=1_000,
)


@pytest.fixture
def query(tmp_path, monkeypatch):
    """``query("results", ...)``: a command in a project of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    MemoryTopic(monkeypatch)
    write_project(tmp_path)

    def run(*arguments, code=0):
        words = ["query", *arguments, "--project", str(tmp_path)]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == code, done.output
        return done.output

    return run


@pytest.fixture
def results(monkeypatch):
    """The results that a query has; ``results.options``: what was asked for."""

    class Results(list):
        options, ended = None, ""

        def read(self, project, query_id, options, *, queries):
            self.options = options
            return QueryResults(iter(self), self.ended)

    results = Results()
    monkeypatch.setattr(query_results, "find_results", results.read)
    return results


@pytest.fixture
def cluster(monkeypatch):
    """What is known of a query's events, pipelines and instances."""

    pipeline = MatchingPipeline(
        "match-clicks", True, NOW, "0f", True, NOW - timedelta(seconds=2), 5
    )
    known = SimpleNamespace(slots=[COVERED], sample=SAMPLE, pipelines=(pipeline,))
    for module in (query_explanation, query_instances):
        monkeypatch.setattr(module, "broker_config", lambda settings: {})
        monkeypatch.setattr(module, "instance_slots", lambda *_: known.slots)
    monkeypatch.setattr(query_explanation, "event_sample", lambda *_: known.sample)
    monkeypatch.setattr(query_explanation, "matching_pipelines", lambda *_: known.pipelines)
    monkeypatch.setattr(query_explanation, "late_event_count", lambda *_: 1_234)
    return known


def test_results_are_a_table_or_lines_of_json(query, results):
    assert query("results", "a") == "There are no results yet; `headrace query explain` says why.\n"
    others = result(facets={}, is_other=True, values={"count(*)": 12_345, "mean": None})
    results += [result(values={"count(*)": 3, "mean": 1.25}), others]
    lines = [line.split() for line in query("results", "a").splitlines()]
    begin, end = "2026-05-01T10:00:00Z", "2026-05-01T10:01:00Z"
    assert lines == [
        ["window", "country", "count(*)", "mean", "kind"],
        [begin, "to", end, "PL", "3", "1.25", "final"],
        [begin, "to", end, "other", "12,345", "-", "final"],
    ]
    first, second = map(json.loads, query("results", "a", "--json").splitlines())
    assert (first["facets"], first["values"]["count(*)"]) == ({"country": "PL"}, 3)
    assert (second["is_other"], second["kind"]) == (True, "final")


@pytest.mark.parametrize("options", [[], ["--json"], ["--follow"]])
def test_a_line_on_standard_error_says_that_a_query_has_ended(tmp_path, query, results, options):
    results.append(result())
    shown = query("results", "a", *options)
    results.ended = "Query 'a' was cancelled: it has no further results."
    words = ["query", "results", "a", *options, "--project", str(tmp_path)]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stderr, done.stdout) == (0, results.ended + "\n", shown)


def test_results_of_several_texts_say_of_which_they_are(query, results):
    results += [result(), result(revision=2)]
    lines = [line.split() for line in query("results", "a").splitlines()]
    assert lines[0][-2:] == ["kind", "registered"]
    assert [line[-3:] for line in lines[1:]] == [
        [f"{result().registered},", "revision", number] for number in ("1", "2")
    ]
    followed = query("results", "a", "--follow").splitlines()
    assert [line.endswith(", revision 2") for line in followed] == [False, True]


def test_options_of_results_are_passed_on(query, results):
    query("results", "a", "--follow", "--from", "latest", "--limit", "5")
    options = results.options
    assert (options.follow, options.start, options.limit) == (True, "latest", 5)
    assert "--from latest needs --follow" in query("results", "a", "--from", "latest", code=2)


def test_followed_results_are_lines_where_there_is_no_terminal(query, results):
    results.append(result(kind=ResultKind.EARLY))
    line = "2026-05-01T10:00:00Z to 2026-05-01T10:01:00Z early, country=PL, count(*) 1\n"
    assert query("results", "a", "--follow") == line


def test_an_early_result_is_replaced_in_place_on_a_terminal():
    terminal = Console(force_terminal=True, width=120, record=True)
    with followed_results.on_screen(Screen(out=terminal)) as show:
        show(result(kind=ResultKind.EARLY))
        show(result(emission=2))
    last_table = terminal.export_text().rpartition("window")[2]
    assert (last_table.count("early"), last_table.count("final")) == (0, 1)


def test_an_interrupt_ends_following_with_success_and_a_read_without(query, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(query_results, "find_results", interrupted)
    query("results", "a", "--follow", code=0)
    query("results", "a", code=130)


def test_uncovered_partitions_are_named_and_have_an_exit_code(query, cluster):
    assert "host-1  0.5 s ago" in query("instances")
    cluster.slots = [COVERED, LOST]
    assert "No instance has partitions 2" in query("instances", code=3)
    shown = json.loads(query("instances", "--json", code=3))
    assert (shown["uncovered"], [slot["host"] for slot in shown["slots"]]) == (
        [2], ["host-1", "host-2"],
    )  # fmt: skip


def test_an_explanation_goes_from_the_registration_to_the_instances(query, cluster):
    query("register", "SELECT count(*) FROM clicks WHERE country = 'PL'", "--id", "a")
    text = query("explain", "a")
    for line in (
        "Of the newest 1,000 events, 40 match, the newest of 2026-05-01 10:00:00 UTC; 3 have no",
        "Looked up by country = 'PL': 40 candidates (4.01% of events), 1.0 for each match.",
        "Groups among these matches: 7, of at most 1,000 in a window.",
        "match-clicks  yes            as registered    2026-05-01 10:00:00 UTC  2026-05-01 09:59:5",
        "01234567  host-1  0.5 s ago",
        "1,234 events came after their window had ended.",
    ):
        assert line in text
    shown = json.loads(query("explain", "a", "--json"))
    assert shown["query"]["state"] == "live"
    assert shown["sample"]["candidates_per_match"] == 1
    assert (shown["pipelines"][0]["lag"], shown["uncovered"]) == (5, [])
    assert shown["late_events"] == 1_234


def test_an_explanation_says_what_is_not_known(query, cluster):
    query("register", "SELECT count(*) FROM clicks", "--id", "a")
    cluster.sample, cluster.pipelines = None, (MatchingPipeline("match-clicks"),)
    text = query("explain", "a")
    assert "Not known: which events match: the query can't be evaluated." in text
    assert "Not known: which queries pipeline 'match-clicks' has" in text
    query("explain", "unknown", code=2)


def test_the_table_of_instances_has_reasons_below_it():
    spare = QueryInstanceStatus(
        "ads", State.WAITING, "other instances have all partitions", instance="host-1"
    )
    ill = QueryInstanceStatus(
        "ads", instance="host-2", owned=(0, 1), uncovered=(5,), faulty={"q": "no field"}
    )
    console = Console(width=160, record=True)
    console.print(summary([spare, ill]))
    text = console.export_text()
    assert "ads (host-1): other instances have all partitions" in text
    assert "ads (host-2): no instance has partitions 5" in text
    assert "ads (host-2): query q can't be added up: no field" in text


def test_an_instance_needs_a_pipeline_that_matches_events(query, tmp_path):
    (tmp_path / "other.py").write_text(
        'from headrace import StandingQueries\nlogs = StandingQueries("logs")\n'
    )
    settings = (
        (tmp_path / "headrace.toml").read_text().replace("modules = [", 'modules = ["other", ')
    )
    (tmp_path / "headrace.toml").write_text(settings)
    assert 'Pipeline("match-TOPIC", TOPIC, MatchQueries(logs))' in query(
        "run", "--in", "logs", code=3
    )
