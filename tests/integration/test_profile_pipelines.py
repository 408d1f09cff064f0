"""Pipelines into profiles of each database: fused, behind steps, repeated; and without Redis."""

import json
import signal
import threading
import uuid
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.integration.cassandra_server import CREATE_KEYSPACE
from tests.integration.flow import NOW_MS, Flow, click
from tests.integration.redis_server import RedisServer

from headrace import BatchLimits, Latest, OnNull, Profiles
from headrace.ledger.balance import Balance
from headrace.ledger.request import ReconcileRequest
from headrace.ledger.windows import WindowState
from headrace.operations.reconciling.reconcile import reconcile
from headrace.project.loaded import LoadedProject
from headrace.service.status import State
from headrace.settings import Secret
from headrace.settings.model import KafkaSettings
from headrace.sinks.profiles.registry import open_store

TTL = timedelta(days=1)
PROFILES = Profiles(
    "users",
    key="category",
    ttl=TTL,
    fields=("price",),
    lists={"clicks": Latest(3, columns=("n",))},
    event_id="event_id",
)
PATHS = ("fused", "stepped")
OLD = NOW_MS - 2 * 86_400_000


@pytest.fixture
def server(tmp_path, stop_at_end):
    folder = tmp_path / "redis"
    folder.mkdir()
    server = RedisServer(folder)
    stop_at_end(folder)
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["redis", "cassandra"])
def url(request):
    """The address of an empty store, in each database."""
    if request.param == "redis":
        yield request.getfixturevalue("server").url
        return
    cassandra, keyspace = request.getfixturevalue("cassandra"), f"k{uuid.uuid4().hex}"
    cassandra.query(CREATE_KEYSPACE.format(keyspace))
    yield cassandra.url(keyspace)
    cassandra.query(f"DROP KEYSPACE {keyspace}")


@pytest.fixture
def flow(broker, spark, tmp_path, server):
    made = Flow(broker, spark, tmp_path)
    made.sinks = {"profiles": {"url": Secret(f"{server.url.reveal()}?socket_timeout=1")}}
    return made


def profiles(url):
    with closing(open_store(url, "users", TTL)) as store:
        read = [store.read(f"c{number}") for number in range(3)]
    return [profile and (profile.fields, profile.lists, profile.expires) for profile in read]


def latest(url):
    return [
        profile and [entry.values["n"] for entry in profile[1]["clicks"]]
        for profile in profiles(url)
    ]


def built(flow, path, **changes):
    return getattr(flow, "pipeline" if path == "fused" else path)(path, sink=PROFILES, **changes)


@pytest.mark.parametrize("path", PATHS)
def test_profiles_are_those_of_the_topic_also_when_it_is_read_again(flow, path, url):
    flow.sinks = {"profiles": {"url": url}}
    pipeline = built(flow, path)
    events = [click(n) for n in range(600)]
    bad = [b"not json", click(7, event_id="x" * 1_000, category="")]
    flow.send([*events[::-1], *bad, click(0, event_time=OLD)])
    outcome = flow.run(pipeline)[path]
    assert outcome.state is State.FINISHED, outcome.reason
    assert (outcome.rows_out, outcome.dead_letters) == (600, 2)
    assert outcome.figures["profile_expired_rows"] == 1
    assert latest(url) == [[597, 594, 591], [598, 595, 592], [599, 596, 593]]
    assert [fields["price"].value for fields, _, _ in profiles(url)] == [149.25, 149.5, 149.75]
    assert {stored.letter.reason for stored in flow.dead()} == {"not-json", "bad-key"}
    before = profiles(url)
    flow.forget_newest_commit(path)
    assert flow.run(pipeline)[path].state is State.FINISHED
    assert profiles(url) == before
    flow.send(events)
    flow.reset(pipeline, "earliest")
    outcome = flow.run(pipeline)[path]
    assert (outcome.state, outcome.rows_out) == (State.FINISHED, 1_200)
    assert profiles(url) == before


def test_a_tombstone_forgets_the_user_of_its_key_up_to_its_own_time(flow, url):
    flow.sinks = {"profiles": {"url": url}}
    pipeline = flow.pipeline("fused", sink=replace(PROFILES, on_null=OnNull.DELETE))
    keys = [f"c{n % 3}".encode() for n in range(60)]
    flow.send([*(click(n) for n in range(60)), None, click(0)], keys=[*keys, b"c1", b'"c0"'])
    outcome = flow.run(pipeline)["fused"]
    assert (outcome.state, outcome.rows_out) == (State.FINISHED, 61), outcome.reason
    assert (outcome.dead_letters, outcome.figures["profile_forget_rows"]) == (1, 1)
    assert [stored.letter.reason for stored in flow.dead()] == ["bad-key"]
    with closing(open_store(url, "users", TTL)) as store:
        gone = store.read("c1")
    assert (gone.fields, gone.lists) == ({}, {})
    assert gone.forgotten.timestamp() * 1_000 >= NOW_MS
    assert [bool(profile) for profile in profiles(url)] == [True, True, True]
    flow.send([click(10), click(70, event_time=NOW_MS + 7_200_000)], keys=[b"c1", b"c1"])
    assert flow.run(pipeline)["fused"].state is State.FINISHED
    assert latest(url) == [[57, 54, 51], [70], [59, 56, 53]]


def test_a_server_that_hangs_is_waited_for_and_uses_up_no_restart(flow, server):
    limits = BatchLimits(max_wait=timedelta(milliseconds=200))
    pipeline, stop = built(flow, "fused", limits=limits), threading.Event()
    flow.send([click(n) for n in range(300)])
    reasons = []

    def observe(progress):
        current = progress["fused"]
        if current.rows_out == 300 and not reasons:
            server.signal(signal.SIGSTOP)
            reasons.append("")
            flow.send([click(n) for n in range(300, 600)])
        if "Redis" in (current.reason or "") and reasons == [""]:
            reasons.append(current.reason)
            server.signal(signal.SIGCONT)
        if current.rows_out == 600:
            stop.set()

    outcome = flow.run(pipeline, once=False, observe=observe, stop=stop)["fused"]
    assert (outcome.state, outcome.rows_out) == (State.STOPPED, 600), outcome.reason
    assert len(reasons) == 2
    assert latest(server.url) == [[597, 594, 591], [598, 595, 592], [599, 596, 593]]


def test_a_store_that_was_lost_comes_back_from_the_topic(flow, server):
    pipeline = built(flow, "fused")
    flow.send([click(n) for n in range(60)])
    assert flow.run(pipeline)["fused"].rows_out == 60
    before = profiles(server.url)
    server.kill()
    flow.send([click(n) for n in range(3)])
    outcome = flow.run(pipeline)["fused"]
    assert outcome.state is State.FAILED
    assert "Redis" in outcome.reason
    server.start()
    assert latest(server.url) == [None, None, None]
    flow.reset(pipeline, "earliest")
    assert flow.run(pipeline)["fused"].rows_out == 63
    assert profiles(server.url) == before


def test_a_field_says_which_event_set_it(flow, url):
    flow.sinks = {"profiles": {"url": url}}
    flow.send([click(n, category="c0", price=None if n == 9 else n) for n in range(10)])
    assert flow.run(built(flow, "fused"))["fused"].rows_out == 10
    [(fields, _, expires), *_] = profiles(url)
    assert (fields["price"].event_id, fields["price"].value) == ("e8", 8)
    newest = json.loads(click(9))["event_time"]
    assert expires.timestamp() == pytest.approx(newest / 1_000 + 86_400)


def test_the_ledger_accounts_for_rows_that_are_expired(flow, server):
    pipeline = built(flow, "fused")
    flow.send([*(click(n) for n in range(60)), *(click(n, event_time=OLD) for n in range(60, 65))])
    outcome = flow.run(pipeline)["fused"]
    assert outcome.figures["profile_expired_rows"] == 5
    settings = flow.settings(kafka=KafkaSettings(bootstrap_servers=flow.broker.bootstrap_servers))
    project = LoadedProject(settings, (pipeline,))
    [shown] = reconcile(project, [pipeline], ReconcileRequest()).books
    assert sum(window.read for window in shown.windows) == 65
    assert shown.windows[0].state is WindowState.BALANCED
    assert not Balance.of(shown).is_unbalanced
    [counted] = reconcile(project, [pipeline], ReconcileRequest(recount=True)).books
    assert counted.not_recounted == ("profiles users",)
    assert counted.windows == shown.windows
