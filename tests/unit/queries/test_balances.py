"""What `reconcile` shows of standing queries."""

from __future__ import annotations

import json

import headrace.operations.reconciling.views  # noqa: F401  registers the view
from headrace.cli.console import ConsoleOutput
from headrace.cli.json_output import JsonOutput
from headrace.ledger.sums import Hop
from headrace.ledger.windows import Imbalance, WindowState
from headrace.operations.reconciling.reconciliation import Reconciliation
from headrace.queries.book import QUERY_COLUMNS, QueryBook
from headrace.queries.emit.book import MatchedEventsBook
from headrace.queries.records.counts import TopicCounts

MISSING = Imbalance(Hop.MATCHED_RECORDS, 6, 0, ids_differ=False, partition="ads.matched/3")
BALANCES = (
    QueryBook(
        "ads",
        "clicks",
        WindowState.UNBALANCED,
        TopicCounts(sent=40_912, taken=40_906, ended=38_100, late=12, open=2_794),
        in_results=38_000,
        waiting=100,
        differences=(MISSING,),
    ),
    QueryBook(
        "ads",
        "views",
        WindowState.UNKNOWN,
        TopicCounts(open=None),
        waiting=None,
        unknown="nobody has reported",
    ),
)

EMITTED = (
    MatchedEventsBook(
        *("ads", "clicks", WindowState.UNBALANCED, 10_000, 1_204, 1_203, 7, 2),
        differences=(Imbalance(Hop.MATCHED_EVENTS, 1, 0, ids_differ=False, partition="clicks/2"),),
    ),
    MatchedEventsBook("ads", "views", WindowState.UNKNOWN, unknown="not sent yet"),
)


def test_topics_are_shown_with_what_has_become_of_their_matches(capsys):
    ConsoleOutput().show(Reconciliation(BALANCES))
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "standing queries ads"
    assert [" ".join(line.split()) for line in lines] == [
        " ".join(("topic", "state", *QUERY_COLUMNS)),
        "clicks unbalanced 40912 38000 100 2794 12 0 6 missing at matched records (ads.matched/3)",
        "views unknown 0 0 0 0 nobody has reported",
        "total, 2 topics 40912 38000 12 0",
    ]


def test_members_of_json_are_those_of_the_counts(capsys):
    JsonOutput().show(Reconciliation(BALANCES))
    clicks, views = json.loads(capsys.readouterr().out)["queries"]
    assert (clicks["state"], clicks["counts"]["sent"]) == ("unbalanced", 40_912)
    assert clicks["differences"][0]["hop"] == "matched records"
    assert (clicks["in_results"], clicks["waiting"]) == (38_000, 100)
    assert (views["counts"]["open"], views["waiting"]) == (None, None)


def test_what_is_unbalanced_or_unknown_has_an_exit_code():
    unbalanced, unknown = (Reconciliation((each,)) for each in BALANCES)
    assert (unbalanced.is_unbalanced, unbalanced.is_unknown) == (True, False)
    assert (unknown.is_unbalanced, unknown.is_unknown) == (False, True)


def test_matched_events_are_shown_below_their_queries(capsys):
    ConsoleOutput().show(Reconciliation((*BALANCES, *EMITTED)))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[-5:] == [
        "matched events of ads",
        "topic state events matches in topic lag skipped",
        "clicks unbalanced 10000 1204 1203 7 2 1 missing at matched events (clicks/2)",
        "views unknown 0 0 0 0 0 not sent yet",
        "total, 2 topics 10000 1204 1203 7 2",
    ]


def test_matched_events_have_an_exit_code():
    unbalanced, unknown = (Reconciliation((each,)) for each in EMITTED)
    assert (unbalanced.is_unbalanced, unbalanced.is_unknown) == (True, False)
    assert (unknown.is_unbalanced, unknown.is_unknown) == (False, True)
