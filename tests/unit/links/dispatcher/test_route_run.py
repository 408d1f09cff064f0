"""A target of a dispatcher: cores of its partitions, and records that it does not take."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from headrace.errors import DispatcherCoresError, LinkRecordError, LinkSameClusterError
from headrace.links import target as link_target
from headrace.links.dispatcher.declaration import DispatchMode
from headrace.links.dispatcher.routes import refused, route_run
from headrace.links.dispatcher.routes.refused import find_refused
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.links.dispatcher.routes.route_run import RouteRun
from headrace.links.dispatcher.routes.sent import SentRecords
from headrace.links.starts import Starts
from headrace.links.target import Rejection
from headrace.model import TopicPartition
from headrace.settings.model import RestartSettings
from headrace.spark import claimed_query
from headrace.spark.claimed_query import CommittedPosition


class Started(Exception):  # noqa: N818 - what it stands for is no error
    """It has come to the commit of its positions."""


POSITIONS = {TopicPartition("clicks", number): CommittedPosition(0) for number in range(3)}
REFUSED = TopicPartition("clicks", 1)
ROUTE = DispatcherRoute("d", "g", "central", "waw", {}, {}, "clicks", "events")


@pytest.mark.parametrize(
    ("mode", "cores", "once", "starts"),
    [
        (DispatchMode.REAL_TIME, 2, False, False),
        (DispatchMode.REAL_TIME, 3, False, True),
        (DispatchMode.REAL_TIME, 2, True, True),
        (DispatchMode.MICRO_BATCH, 2, False, True),
    ],
)
def test_a_target_does_not_start_where_partitions_would_wait_for_a_core(
    monkeypatch, tmp_path, mode, cores, once, starts
):
    monkeypatch.setattr(route_run, "check_clusters", lambda *_: None)
    monkeypatch.setattr(route_run, "find_starts", lambda _: Starts(POSITIONS, {}, frozenset()))
    monkeypatch.setattr(route_run, "live_topic", lambda *_: SimpleNamespace(topic_id="id"))

    def commit(*_):
        raise Started

    monkeypatch.setattr(route_run, "commit_positions", commit)
    route = DispatcherRoute("d", "g", "central", "waw", {}, {}, "clicks", "events", mode=mode)
    run = RouteRun(None, route, RestartSettings(), tmp_path / "d", lambda: cores, once=once)
    with pytest.raises(Started if starts else DispatcherCoresError):
        run._run_query()


def query(*, is_refused):
    """A query that has ended, or failed as Spark does where a broker refuses a record."""
    text = "Task 0 failed: org.apache.kafka.common.errors.RecordTooLargeException: It is large."
    failure = RuntimeError(f"{text}\n\tat org.apache.spark") if is_refused else None
    return SimpleNamespace(
        is_active=False, failure=failure, progress=lambda: None, stop=lambda: None
    )


def nothing_sent(_, positions):
    return {source: SentRecords(at.offset, b"") for source, at in positions.items()}


def test_of_partitions_that_are_sent_apart_the_refused_record_is_named(monkeypatch, tmp_path):
    apart = []

    def route_query(_spark, _route, sent, folder, **how):
        [(source, records)] = sent.items()
        apart.append((source, records.first, folder.name, how))
        return query(is_refused=source == REFUSED)

    monkeypatch.setattr(refused, "sent_since", nothing_sent)
    monkeypatch.setattr(refused, "route_query", route_query)
    monkeypatch.setattr(refused, "first_unsent", lambda *_: 7)
    assert find_refused(None, ROUTE, POSITIONS, tmp_path, lambda _: False) == {
        REFUSED: Rejection(7, "RecordTooLargeException: It is large.", "max.message.bytes")
    }
    how = {"once": True, "one_by_one": True}
    assert apart == [(source, 0, f"partition-{source.partition}", how) for source in POSITIONS]


def test_a_record_that_the_target_refuses_stops_its_partition_alone(monkeypatch, tmp_path):
    read = []

    def route_query(_spark, _route, sent, *_, **__):
        read.append({source.partition for source in sent})
        return query(is_refused=REFUSED in sent)

    rejection = Rejection(7, "It is large.", "max.message.bytes")
    for name, fake in {
        "check_clusters": lambda *_: None,
        "find_starts": lambda _: Starts(POSITIONS, {}, frozenset()),
        "live_topic": lambda *_: SimpleNamespace(topic_id="", partitions=len(POSITIONS)),
        "commit_positions": lambda *_: None,
        "sent_since": nothing_sent,
        "route_query": route_query,
        "find_refused": lambda *_: {REFUSED: rejection},
    }.items():
        monkeypatch.setattr(route_run, name, fake)
    for name, end in {"latest_offsets": (9, 0), "high_watermarks": 9}.items():
        ends = lambda _, partitions, end=end: dict.fromkeys(partitions, end)  # noqa: E731
        monkeypatch.setattr(claimed_query, name, ends)
    run = RouteRun(None, ROUTE, RestartSettings(), tmp_path / "d", lambda: 3, once=True)
    run.run()
    assert read == [{0, 1, 2}, {0, 2}]
    assert isinstance(run.failure, LinkRecordError)
    assert (run.failure.source, run.failure.offset) == (("clicks", 1), 7)
    assert run.status.refused == {"clicks/1": str(run.failure)}


def test_a_target_that_is_the_source_itself_is_refused_before_anything_is_sent(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(link_target, "cluster_id", lambda _: "one")
    itself = replace(ROUTE, target_topic=ROUTE.topic)
    run = RouteRun(None, itself, RestartSettings(), tmp_path / "d", lambda: 3, once=True)
    run.run()
    assert isinstance(run.failure, LinkSameClusterError)
    assert run.failure.code == "DISPATCHER_SAME_CLUSTER"
