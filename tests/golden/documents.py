"""What commands show with ``--json``, where it is not enough that each field has some value.

Most results are made by :mod:`tests.golden.samples` from the class that a command returns. What is
built here has the same document however its classes are cut: links, workers, queries and balances.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.golden import statuses
from tests.golden.samples import sample_of

from headrace.cli.output import Live
from headrace.cli.view import PausedPartitions, Stopping
from headrace.errors import Problem
from headrace.ingest.producing.produce import RejectedLine
from headrace.ingest.producing.views import producing
from headrace.ingest.views import NewToken, Serving
from headrace.kafka.group.groups import ConsumerGroup, Member
from headrace.kafka.read.tail import TailedHeader, TailedRecord
from headrace.ledger.sums import Fate, Hop
from headrace.ledger.windows import Imbalance, WindowBalance, WindowState
from headrace.links.accepted import AcceptedLoss, AcceptedRange
from headrace.links.copying.views import copying
from headrace.links.dispatcher.views import dispatching
from headrace.links.ledger.book import LinkBook
from headrace.links.merger.views import MergerStandings, merging
from headrace.links.standing import LinkedPartition, Standing
from headrace.links.views import LinkStandings
from headrace.model import OffsetRange, TopicPartition
from headrace.offline_files.loading import LoadStats
from headrace.offline_files.progress import CounterRange, LoadProgress
from headrace.offline_files.views import LoadResult
from headrace.operations.drilling.books import SentTopic, WorkerBook, WritingBook
from headrace.operations.drilling.report import DrillReport, HappenedFault, Standstill
from headrace.operations.measuring.result import Machine
from headrace.operations.reconciling.reconciliation import Reconciliation
from headrace.operations.views import CheckResult
from headrace.pipelines.ledger.book import PipelineBook, ReprocessedTimes
from headrace.pipelines.ledger.breaks import Break
from headrace.pipelines.ledger.counting.letters import LetterRecount
from headrace.pipelines.reprocessing.plan import ReprocessPlan, ReprocessProgress
from headrace.pipelines.reprocessing.ranges import PlannedRange, TimeRange
from headrace.pipelines.reprocessing.reprocess import ReprocessResult
from headrace.pipelines.reprocessing.views import reprocessing
from headrace.pipelines.views import Compacted, RunResult, running
from headrace.project.kinds import kinds
from headrace.queries.book import QueryBook
from headrace.queries.emit.book import MatchedEventsBook
from headrace.queries.emit.views import emitting
from headrace.queries.language import parse_query
from headrace.queries.language.functions import ValueType
from headrace.queries.records.counts import TopicCounts
from headrace.queries.records.result import QueryResult
from headrace.queries.registry.statements import CheckedQuery
from headrace.queries.results.views import InstanceSlots, followed_results
from headrace.queries.views import ShownQuery
from headrace.queries.windows.instance.owners import InstanceSlot
from headrace.queries.windows.instance.views import answering
from headrace.sinks.api import CompactionResult
from headrace.workers.reset import Reset
from headrace.workers.run import PartitionStanding, WorkerStanding
from headrace.workers.views import ResetResult, WorkerStandings, working

_TIME = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)
_GROUP = ConsumerGroup("stable", (Member("host-1", "static-1", 2, "host-1-4711"),))
_RANGE = AcceptedRange("clicks", "id1", "id2", 1, 10, 20, _TIME, "retention")

MIRRORS = LinkStandings(
    "mirror",
    (
        Standing(
            "mirror",
            "warsaw",
            {"source": "waw"},
            (
                LinkedPartition("clicks/0", 10, 17, 7, details={"copy": "waw.clicks/0"}),
                LinkedPartition("clicks/1", None, None, None, "a gap", {"copy": "waw.clicks/1"}),
            ),
            _GROUP,
            {"unreachable": ""},
        ),
        Standing(
            "mirror",
            "paris",
            {"source": "par"},
            (),
            ConsumerGroup("none", ()),
            {"unreachable": "no broker responds"},
        ),
    ),
)
MERGERS = MergerStandings(
    "merger",
    (
        Standing(
            "merger",
            "clicks",
            {"target": "clicks"},
            (
                LinkedPartition(
                    "waw.clicks/0", 10, 17, 7, details={"sorted_to_ms": statuses.NOW_MS}
                ),
                LinkedPartition("par.clicks/0", None, None, None, "a gap", {"sorted_to_ms": None}),
            ),
            _GROUP,
        ),
    ),
)
ROUTES = LinkStandings(
    "dispatcher",
    (
        Standing(
            "dispatcher",
            "sites",
            {"site": "waw", "instance": "host-1"},
            (
                LinkedPartition("clicks/0", 10, 17, 7),
                LinkedPartition("clicks/1", None, None, None, "a gap"),
            ),
            unknown={"refused": ""},
        ),
        Standing(
            "dispatcher",
            "sites",
            {"site": "par", "instance": ""},
            (),
            unknown={"refused": "no broker responds"},
        ),
    ),
)
WORKERS = WorkerStandings(
    (
        WorkerStanding(
            "enrich",
            ("clicks", "enrich.retry.1"),
            "at least once",
            _GROUP,
            7,
            1.25,
            (
                PartitionStanding("clicks/0", 10, 0, 17, paused=True),
                PartitionStanding("clicks/1", None, 0, 0, paused=False),
            ),
            ("enrich.retry.2",),
        ),
    )
)
SLOTS = InstanceSlots(
    (
        InstanceSlot(0, (0, 1), "a7f3c2", "host-1", 0.5, is_covered=True),
        InstanceSlot(1, (2, 3)),
    )
)

_DIFFERENCE = Imbalance(Hop.SINK, 3, 300, ids_differ=True, partition="clicks/1")
_WINDOW = WindowBalance(
    _TIME,
    WindowState.UNBALANCED,
    10,
    {Fate.IN: 10, Fate.OUT: 7},
    (_DIFFERENCE,),
    "not known",
    rows=7,
    side_rows=0,
)
BALANCES = Reconciliation(
    (
        PipelineBook(
            "sales",
            3_600,
            (Break("clicks/0", 5, 7, is_gap=True),),
            (_WINDOW, WindowBalance(None, WindowState.OPEN, 1, {})),
            unknown="",
            letters=LetterRecount((_DIFFERENCE,), "no dead-letter topic"),
            reprocessed=(ReprocessedTimes(_TIME, _TIME.replace(hour=10), 1, 2, 3, 4, 5),),
            not_recounted=("kafka sales",),
            uncounted=("a batch without an entry",),
        ),
        PipelineBook("views", 0, (), (), unknown="it has no entries"),
        LinkBook(
            "mirror",
            "warsaw",
            "waw clicks",
            "waw.clicks",
            3_600,
            (_WINDOW,),
            (AcceptedRange("clicks", "id1", "id2", 1, 10, 20, _TIME, "retention", 30, 40),),
            "",
        ),
        QueryBook(
            "ads",
            "clicks",
            WindowState.BALANCED,
            TopicCounts(1, 2, 3, 4, 5, 6, None),
            7,
            None,
            (_DIFFERENCE,),
            "no snapshot",
        ),
        MatchedEventsBook(
            "ads", "clicks", WindowState.UNKNOWN, 1, 2, 3, 4, 5, (_DIFFERENCE,), "no query"
        ),
    ),
)

_PLAN = ReprocessPlan(
    "sales",
    TimeRange(_TIME, _TIME.replace(hour=10)),
    "id1",
    2,
    (PlannedRange("clicks/1", 10, 20, 3, 4),),
    2,
    (OffsetRange(TopicPartition("clicks", 1), 12, 14),),
)
_DONE = ReprocessProgress(1, 10, 9, 8, 1, 2, 3, 4, 5)
_LOADED = LoadStats(
    files=1,
    file="a.log",
    lines=10,
    loaded=Counter({"errors": 6}),
    dead=Counter({"not-json": 1}),
    skipped=2,
    left=1,
    backwards=3,
    retries=4,
    of_files=5,
    done=LoadProgress("legacy", (CounterRange(1, 5, "a", "b"), CounterRange(7, 8, "c", "c"))),
)

_DRILL = DrillReport(
    command="headrace drill",
    drilled_at="2026-11-30T09:30:00Z",
    versions={"headrace": "0.1.0"},
    machine=sample_of(Machine, "machine"),
    seed=7,
    names=("enrich",),
    events=1200,
    faults=(HappenedFault("leader", "broker 2", 5.1, 12.4),),
    standstills=(Standstill("leader", "writing", (7.5, 8.5)),),
    books=(
        WritingBook("clicks", 1200, 1199, ("drill-0-000000005",), ("drill-0-000000007",)),
        WorkerBook(
            "enrich",
            "clicks",
            1200,
            3,
            is_exactly_once=True,
            sent=(SentTopic("enriched", 1196, (), ("drill-0-000000005",)),),
        ),
    ),
    problems=("300 s without all copies in sync after broker 2",),
    not_checked=("several machines",),
)
_QUERY = parse_query("SELECT count(*) FROM clicks WINDOW 1 hour FACET country")

_PROBLEM = (sample_of(Problem, "problem"),)
RESULTS: dict[str, list[object]] = {
    "check": [
        CheckResult("project", {kind: (kind.plural,) for kind in kinds()}, _PROBLEM, _PROBLEM)
    ],
    "compact": [Compacted("sales", CompactionResult(1, 2, 3))],
    "dispatcher accept": [AcceptedLoss("dispatcher", _RANGE, "waw")],
    "dispatcher list": [ROUTES],
    "drill": [_DRILL],
    "ingest": [Serving("127.0.0.1:8080", 2, ("clicks",))],
    "load-offline-files": [LoadResult("legacy", _LOADED, dry_run=True)],
    "merger accept": [AcceptedLoss("merger", replace(_RANGE, topic="waw.clicks"))],
    "merger list": [MERGERS],
    "mirror accept": [
        AcceptedLoss("mirror", _RANGE, counts_lost=True),
        AcceptedLoss("mirror", replace(_RANGE, end=5), counts_lost=True),
    ],
    "mirror list": [MIRRORS],
    "pause": [PausedPartitions("pipeline", "sales", ("clicks[0]",))],
    "query instances": [SLOTS],
    "reconcile": [BALANCES],
    "reprocess": [_PLAN, ReprocessResult(_PLAN, _DONE, "interrupted")],
    "run": [
        RunResult((statuses.PIPELINE, statuses.FAILED_PIPELINE)),
        Stopping(),
    ],
    "query check": [
        ShownQuery(CheckedQuery(_QUERY, {"country": ValueType.TEXT, "count": ValueType.INTEGER}))
    ],
    "tail": [
        TailedRecord(
            "clicks",
            1,
            17,
            statuses.NOW_MS,
            b"key",
            (TailedHeader("trace", b"\xff"), TailedHeader("empty", None)),
            b'{"price": 1}',
        ),
        TailedRecord("clicks", 1, 18, -1, None, None, None),
    ],
    "tokens create": [sample_of(NewToken, "result")],
    "workers list": [WORKERS],
    "workers pause": [PausedPartitions("worker", "enrich", ("clicks/0",))],
    "workers reset": [
        ResetResult(Reset("enrich", "enrich", {"clicks/0": 10}, {"clicks/0": 5}, 5, 0), True)
    ],
    "workers run": [Stopping("enrich")],
}
"""By command; the last documents of those that show several while they run."""

LIVE: dict[str, tuple[Live[Any], list[Any]]] = {
    "dispatcher run": (dispatching, [statuses.DISPATCHER]),
    "merger run": (merging, [statuses.MERGER]),
    "mirror run": (copying, [statuses.MIRROR]),
    "produce": (producing, [RejectedLine(3, "not-json", "it is not JSON", "{")]),
    "query emit": (emitting, [statuses.EMITTER]),
    "query run": (answering, [statuses.QUERIES]),
    "query results": (followed_results, [sample_of(QueryResult, "result")]),
    "reprocess": (reprocessing, [_DONE]),
    "run": (running, [{"clicks": statuses.PIPELINE}]),
    "workers run": (working, [statuses.WORKER, statuses.ENDED_WORKER]),
}
"""By command: what shows its progress, and the progress."""
