"""Whatever a record has: it is none, or all its readers take it; and it hides no other record."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console
from tests.registered import registered_queries, update_query
from tests.unit.ingest.application import token_with
from tests.unit.queries.expected_results import result
from tests.unit.queries.match.clicks import CLICKS
from tests.unit.queries.registry.flow import write_project
from tests.unit.queries.registry.memory_topic import MemoryTopic
from tests.unit.queries.test_serve import MemoryReader, cursor
from tests.unit.record_extremes import variants

from headrace.cli.encoding import encoded, print_json
from headrace.cli.screen import Screen
from headrace.cli.view import view
from headrace.errors import HeadraceError
from headrace.ingest.http.problem import RefusedRequestError
from headrace.ingest.http.request_guard import RequestGuard
from headrace.ingest.limits import LocalLimiter
from headrace.ingest.tokens.known import KnownTokens
from headrace.ingest.tokens.table import TokenTable, revocation
from headrace.ingest.tokens.token import TokenKind, TokenScope
from headrace.ingest.views import TokenList
from headrace.links.copying import views as mirrors
from headrace.links.dispatcher import views as dispatchers
from headrace.links.dispatcher.status import DispatcherStatus, RouteStatus
from headrace.links.merger import views as mergers
from headrace.links.merger.status import MergerStatus
from headrace.links.mirror.status import MirrorStatus
from headrace.pipelines import progress_view
from headrace.pipelines.status import PipelineStatus
from headrace.project.check import load_project
from headrace.queries.emit import views as matched_events
from headrace.queries.emit.status import EmitterStatus
from headrace.queries.match.held import LiveQueries, milliseconds_since_1970
from headrace.queries.records.ended import PartitionClocks, WindowResults, decode_ended
from headrace.queries.records.matched import Tick, decode_matched
from headrace.queries.records.result import result_of
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.results.results import newest_results
from headrace.queries.results.views import listed_results
from headrace.queries.serve import ProjectQueries
from headrace.queries.views import QueryList
from headrace.queries.windows.aggregate.plan import Plans
from headrace.queries.windows.answer.silent import WatchedQueries
from headrace.queries.windows.instance import views as query_instances
from headrace.queries.windows.instance.status import QueryInstanceStatus
from headrace.service.leases import Claim, LeaseTable, read_claim
from headrace.service.metrics import exposition
from headrace.service.status import State, StatusFolder
from headrace.settings import IngestSettings, Rate, load_settings
from headrace.workers import progress_view as worker_view
from headrace.workers.status import PartitionStatus, WorkerStatus

NOW = datetime(2026, 5, 1, 10, 0, 0, 250_000, tzinfo=UTC)
NOW_MS = milliseconds_since_1970(NOW)
COUNT = "SELECT count(*)\nFROM clicks\nWINDOW 1 minute\nEMPTY WINDOWS EMIT"


@pytest.fixture
def screen():
    console = Console(file=io.StringIO(), width=160)
    return Screen(console, console)


@pytest.fixture
def runner():
    with asyncio.Runner() as runner:
        yield runner


def show(shown, screen):
    """Shows a value as commands do, for people and with ``--json``."""
    view(shown, screen)
    text = io.StringIO()
    print_json(shown, text)
    return json.loads(text.getvalue())


def query_record(query_id="bad"):
    times = NOW, NOW, NOW + timedelta(days=1)
    query = RegisteredQuery(
        query_id, COUNT, "clicks", 1, *times, shape="s", constants=((1,),), text_changed_at=NOW
    )
    return encode_query(query)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    return load_project(load_settings(write_project(tmp_path, bootstrap="k:9092"), {}))


def test_a_query_with_any_member_is_faulty_or_is_listed_matched_and_answered(
    project, monkeypatch, screen
):
    topic = MemoryTopic(monkeypatch)
    plans = Plans({"clicks": CLICKS})
    live, watched = LiveQueries("clicks", CLICKS), WatchedQueries(plans, 1)
    (key, value), listed = query_record(), []
    for what, changed in variants(json.loads(value)):
        topic.records.clear()
        queries = ProjectQueries(project)
        for record in (query_record("good"), (key, changed)):
            topic.write({}, "ads.queries", *record)
            live.apply(*record)
            watched.take(*record)
        documents = [known.document for known in queries.queries(None)]
        assert {"good", "bad"} <= {document["id"] for document in documents}, what
        assert json.loads(msgspec.json.encode(documents)), what
        assert queries.query(None, "good").document["state"] in {"live", "expired"}, what
        entries = registered_queries(project)
        assert {"good", "bad"} <= {entry.id for entry in entries}, what
        listed += entries
        live.expire(NOW_MS)
        assert "good" in {each.registered.id for each in watched.live(0, NOW_MS)}, what
        try:
            query = queries.query(None, "bad")
            queries.cursor(None, query, 0)
            update_query(project, "bad")
        except HeadraceError:
            pass
    assert show(QueryList(tuple(listed)), screen)


def test_a_result_with_any_member_is_none_or_is_listed_streamed_and_shown(screen):
    reader = MemoryReader()
    reader.add("a", 1)
    [good], shown = reader.stored, []
    for what, changed in variants(json.loads(good.content)):
        reader = MemoryReader()
        reader.add("a", 1)
        reader.add_value(b"a", changed)
        reader.add("a", 2)
        page = cursor(reader).read()
        offsets = [offset for offset, _ in page.results]
        assert {0, 2} <= set(offsets) or page.is_over, what
        listed = [json.loads(each) for each in cursor(reader).newest(10).results]
        assert {"2026-05-01T10:01:00Z", "2026-05-01T10:02:00Z"} <= {
            each["begin"] for each in listed
        }, what
        results = [
            found
            for record in reader.stored
            if (found := result_of("a", record.key(), record.value())) is not None
        ]
        newest = newest_results(results)
        assert json.dumps([encoded(msgspec.to_builtins(each)) for each in newest]), what
        shown += newest[-2:]
    with listed_results.on_screen(screen) as take:
        for each in shown:
            take(each)


def test_times_of_a_result_are_those_of_headrace_however_they_are_written():
    ours = result()
    for time in ("2026-05-01t10:00:00z", "2026-05-01T12:00:00+02:00", "2026-05-01 10:00:00.000Z"):
        members = msgspec.to_builtins(ours) | {"begin": time}
        assert result_of("a", b"a", msgspec.json.encode(members)) == ours


class Registry:
    """The tokens of a table, as a service has them."""

    ready = are_current = True

    def __init__(self, table):
        self.get, self.tokens, self.changes = table.get, table.tokens, 1


TOKENS = [
    {},
    {"kind": TokenKind.PUBLIC, "rate": Rate(5.0, 1_000.0)},
    {"kind": TokenKind.GITHUB, "generation": 1},
]


@pytest.mark.parametrize("facts", TOKENS, ids=["private", "public", "webhook"])
def test_a_token_with_any_member_is_none_or_is_listed_and_asked_for(
    tmp_path, runner, screen, facts
):
    times = {"expires": NOW, "former_until": NOW, "former_sha256": "1" * 64}
    bad, text = token_with(**facts, **times)
    good, _ = token_with(public_id="good-4567890")
    limiter = LocalLimiter(tmp_path / "limits")
    headers = {b"authorization": f"Bearer {text}".encode()}
    request, shown = SimpleNamespace(headers=headers, query=b""), []
    for what, changed in variants(json.loads(bad.encoded()), every=5):
        table = TokenTable()
        table.take(good.public_id.encode(), good.encoded())
        table.take(bad.public_id.encode(), changed)
        assert table.get(good.public_id) == good, what
        tokens, unreadable = table.tokens().values(), table.unreadable
        assert len(tokens) + len(unreadable) == 2, what
        shown += tokens
        guard = RequestGuard(Registry(table), limiter, IngestSettings())
        guard.is_allowed(request, TokenScope.WRITE, "clicks")
        for ask, asked in ((guard.token, request), (guard.webhook, bad.public_id)):
            try:
                token = ask(asked)
                runner.run(guard.admit(token, 1, 100))
                assert not token.is_webhook or len(token.topics) == 1
            except RefusedRequestError:
                pass
        table.take(*revocation(bad.public_id, NOW))
        shown += table.tokens().values()
    tokens = sorted(shown, key=lambda token: token.created)
    assert show(TokenList(tuple(tokens), ("\x1b",)), screen)


def test_a_token_that_is_none_is_left_out_of_the_file_of_known_tokens(tmp_path):
    file = tmp_path / "tokens"
    bad, good = token_with()[0], token_with(public_id="good-4567890")[0]
    for what, changed in variants(json.loads(bad.encoded()), every=5):
        file.write_bytes(changed + b"\n" + good.encoded() + b"\n")
        registry = SimpleNamespace(ready=False, changes=0)
        tokens = KnownTokens(registry, file, save_seconds=60.0)
        assert tokens.get(good.public_id) == good, what
        tokens.close()


def test_a_revocation_with_any_time_is_one(screen):
    token, shown = token_with()[0], []
    for what, changed in variants([msgspec.to_builtins(NOW)]):
        table = TokenTable()
        table.take(token.public_id.encode(), token.encoded())
        table.take(revocation(token.public_id, NOW)[0], json.dumps(json.loads(changed)[0]).encode())
        assert table.get(token.public_id).revoked is not None, what
        shown.append(table.get(token.public_id))
    assert show(TokenList(tuple(shown)), screen)


def test_a_claim_with_any_member_is_none_or_is_taken():
    value = msgspec.json.encode(Claim("holder", "host", is_release=False, sent_ms=1))
    for _, changed in variants(json.loads(value)):
        try:
            slot, claim = read_claim(b"0", changed)
        except ValueError:
            continue
        table = LeaseTable(1)
        table.take(slot, claim, NOW_MS, claim.sent_ms / 1000)
        table.free(0.0)


@pytest.mark.parametrize(
    "record",
    [
        Tick("clicks", "p", 1, 2, {0: 3}, 4),
        PartitionClocks(0, {"clicks": 1}, 2, 3, {"clicks": 4}),
        WindowResults(0, "clicks", "clicks", 7, [result()]),
    ],
    ids=["tick", "clocks", "window"],
)
def test_times_of_records_between_instances_are_times(record):
    def decode(value):
        return decode_matched(value) if isinstance(record, Tick) else decode_ended(value, 1)

    for _, changed in variants(json.loads(msgspec.json.encode(record))):
        try:
            taken = decode(changed)
        except ValueError:
            continue
        if isinstance(taken, Tick):
            times = (taken.planned_ms * 1000, taken.event_us or 0)
        elif isinstance(taken, PartitionClocks):
            times = (*taken.event_us.values(), taken.clock_us, taken.since_ms * 1000)
        else:
            times = [
                datetime.fromisoformat(text).timestamp()
                for each in taken.results
                for text in (each.registered, each.begin, each.end)
            ]
        for time in times:
            assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)


TRANSFER = {"lags": {"clicks/0": 3, "clicks/1": None}, "refused": {"clicks/0": "a gap"}}
ROUTE = RouteStatus("waw", committed_ms=NOW_MS, lags={"clicks/0": 3}, refused={"clicks/1": "a gap"})
WAITS = {"waits_for": {"all/0": ["clicks/0"]}, "idle": ["clicks/1"]}
ADS = QueryInstanceStatus(
    "ads",
    owned=(0,),
    uncovered=(1,),
    late={"a": 1},
    unbalanced={"clicks": 1},
    event_ms={"clicks": NOW_MS},
    faulty={"b": "why"},
)
WORKER = WorkerStatus(
    "w", State.RUNNING, instance="i", paused_partitions={"clicks/0": ("requested",)}
)
STATUSES = [
    (MirrorStatus("m", **TRANSFER), mirrors.summary),
    (MergerStatus("m", **TRANSFER, **WAITS, sorted_to_ms={"all/0": NOW_MS}), mergers.summary),
    (DispatcherStatus.of("d", {"waw": ROUTE}), dispatchers.summary),
    (EmitterStatus("e", **TRANSFER), matched_events.summary),
    (ADS, query_instances.summary),
    (PipelineStatus("p", idle_partitions=("t/0",), figures={"n": 3}), progress_view.summary),
    (WORKER, worker_view.summary),
]


@pytest.mark.parametrize(("status", "summary"), STATUSES, ids=lambda each: type(each).__name__)
def test_a_status_with_any_member_is_left_out_or_is_shown(tmp_path, screen, status, summary):
    folder = StatusFolder(tmp_path, type(status))
    folder.write(status)
    [file] = tmp_path.rglob("*.json")
    other = file.with_name("other.json")
    other.write_bytes(file.read_bytes())
    shown = []
    for what, changed in variants(json.loads(other.read_bytes()), every=8):
        file.write_bytes(changed)
        statuses = folder.read()
        assert statuses, what
        assert json.dumps(encoded(statuses)), what
        shown += statuses[:1]
    screen.out.print(summary(shown))


def test_progress_of_a_partition_with_any_member_is_none_or_is_measured():
    progress = PartitionStatus("clicks", 0, ("lane",), 1, 2, 3, NOW_MS, 4, 5, 6, 7.5)
    for _, changed in variants(asdict(progress)):
        try:
            taken = PartitionStatus.from_json(json.loads(changed))
        except ValueError:
            continue
        assert exposition(WorkerStatus, [replace(WORKER, own=(taken,))])
