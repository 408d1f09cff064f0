"""What `reconcile` shows on the screen, and what decides about its exit code."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.golden.documents import BALANCES
from tests.golden.files import golden

import headrace.operations.reconciling.views  # noqa: F401  registers the view
from headrace.cli.console import ConsoleOutput
from headrace.ledger.sums import Fate, Hop
from headrace.ledger.windows import Imbalance, WindowBalance, WindowState
from headrace.links.accepted import AcceptedRange
from headrace.links.ledger.book import LinkBook
from headrace.operations.reconciling.reconciliation import Reconciliation
from headrace.pipelines.ledger.book import PipelineBook, ReprocessedTimes
from headrace.pipelines.ledger.breaks import Break
from headrace.pipelines.ledger.counting.letters import LetterRecount
from headrace.queries.book import QueryBook
from headrace.queries.emit.book import MatchedEventsBook
from headrace.queries.records.counts import TopicCounts

_START = datetime(2026, 11, 30, 9, tzinfo=UTC)
_BALANCED = WindowState.BALANCED
_MISSING = Imbalance(Hop.TABLE, 2, 0, ids_differ=True)
_DIFFERENCES = (
    _MISSING,
    Imbalance(Hop.READ, -1, -9, ids_differ=True, partition="[clicks]/1"),
    Imbalance(Hop.SINK, 0, 0, ids_differ=True),
    Imbalance(Hop.SINK, 0, 5, ids_differ=False, partition="clicks/0"),
)
_LONG_AGO = AcceptedRange("clicks", "id1", "id2", 0, 0, 40, _START, "recreated")
_LOST = AcceptedRange("clicks", "id1", "id2", 1, 1_000, 3_000, _START, "[disk]", 30, 40)


def _window(
    hour: int | None = 0, state: WindowState = _BALANCED, number: int = 9, **more: object
) -> WindowBalance:
    start = None if hour is None else _START + timedelta(hours=hour)
    return WindowBalance(start, state, number, {Fate.OUT: number}, **more)


def _pipeline(*windows: WindowBalance, name: str = "sales", **more: object) -> PipelineBook:
    return PipelineBook(name, 3_600, more.pop("breaks", ()), windows, **more)


def _link(
    *windows: WindowBalance, kind: str = "mirror", topic: str = "clicks", **more: object
) -> LinkBook:
    names = (kind, "[warsaw]", f"{topic} at waw", f"waw.{topic} at central")
    return LinkBook(*names, 3_600, windows, **more)


def _query(queries: str, topic: str, state: WindowState, **more: object) -> QueryBook:
    counts = TopicCounts(sent=1_000, taken=1_000, ended=900, late=20, faulty=5, open=75)
    return QueryBook(queries, topic, state, more.pop("counts", counts), **more)


def _emitted(
    queries: str, topic: str, state: WindowState, *figures: int, **more: object
) -> MatchedEventsBook:
    return MatchedEventsBook(queries, topic, state, *figures, **more)


_LATE = replace(_window(1), fates={Fate.OUT: 7, Fate.LATE: 2, Fate.WAITING: 1})
_QUERY_MISSING = Imbalance(Hop.QUERY_WINDOWS, 6, 0, ids_differ=False, partition="ads.matched/3")

CASES = {
    "every kind": BALANCES.books,
    "nothing": (),
    "all balanced": (
        _pipeline(_window(None), *(_window(hour, rows=9, side_rows=0) for hour in range(30))),
        _link(*(_window(hour, rows=9) for hour in range(30))),
        *(_query("ads", f"topic{n}", _BALANCED, in_results=n, waiting=0) for n in range(26)),
        _emitted("ads", "topic1", _BALANCED, 9, 8, 8),
    ),
    "windows in every state": (
        _pipeline(
            *(_window(None, WindowState.OPEN), _window(0), _LATE),
            _window(2, WindowState.UNKNOWN, unknown="a [partition] was silent", rows=3),
            _window(3, WindowState.UNBALANCED, differences=_DIFFERENCES, side_rows=4),
            *(_window(4, WindowState.CLOSING), _window(5, WindowState.OPEN, 0)),
        ),
        _link(_window(None), _LATE, _window(2, WindowState.OPEN, rows=3), kind="merger"),
    ),
    "no windows": (_pipeline(), _link(left_out=(_LONG_AGO, _LOST))),
    "nothing is known": (
        PipelineBook("[sales]", 0, (), (), "it has [no] entries"),
        _link(unknown="no [broker] responds"),
        _link(topic="views", unknown="[x]", left_out=(_LOST,)),
        _query("ads", "clicks", WindowState.UNKNOWN, unknown="[no] report", waiting=None),
        _emitted("ads", "clicks", WindowState.UNKNOWN, unknown="not [sent] yet"),
    ),
    "several standing queries": (
        _query("ads", "clicks", _BALANCED, in_results=900),
        _query("ads", "views", WindowState.UNBALANCED, differences=(_QUERY_MISSING,) * 2),
        _emitted(
            *("ads", "clicks", WindowState.UNBALANCED, 5, 4, 3, 2, 1),
            differences=(replace(_QUERY_MISSING, hop=Hop.MATCHED_EVENTS),),
            unknown="[and] so",
        ),
        _query("[bids]", "clicks", WindowState.UNKNOWN, counts=TopicCounts(open=None)),
        _emitted("[bids]", "clicks", _BALANCED, 1_000, 2, 2),
        _query("none", "clicks", _BALANCED),
    ),
    "a gap": (_pipeline(breaks=(Break("clicks/0", 5, 7_000, is_gap=True),)),),
    "an overlap": (_pipeline(breaks=(Break("[c]/0", 5, 7, is_gap=False),)),),
    "letters are missing": (
        _pipeline(letters=LetterRecount((replace(_MISSING, hop=Hop.DEAD_LETTERS),))),
    ),
    "letters are unknown": (_pipeline(letters=LetterRecount(unknown="[deleted] by retention")),),
    "batches are not counted": (_pipeline(uncounted=("[offsets] 1 to 2", "and others")),),
    "sinks are not recounted": (
        _pipeline(_window(), not_recounted=("Kafka [sales]", "Profiles sales")),
    ),
    "reprocessed": (
        _pipeline(
            reprocessed=(
                ReprocessedTimes(_START, _START + timedelta(hours=1), 2, 3_000, 1, 2_000, 1),
            )
        ),
    ),
    "a query with a difference and a reason": (
        _query(*("a", "b", WindowState.UNBALANCED), differences=(_MISSING,), unknown="not shown"),
    ),
}


def test_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for name, books in CASES.items():
        result = Reconciliation(books)
        ConsoleOutput().show(result)
        flags = f"unbalanced: {result.is_unbalanced}, unknown: {result.is_unknown}"
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        texts += [f"== {name} ({flags})", *lines, ""]
    golden("screen/reconcile.txt", "\n".join(texts))
