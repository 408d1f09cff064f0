"""What an instance does with what a reader of its partitions is told."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError
from tests.waiting import LIMIT_SECONDS

from headrace.errors import (
    BrokerUnreachableError,
    MatchedRecordsDeletedError,
    QueryTopicTruncatedError,
)
from headrace.kafka.read.log_cuts import Seen
from headrace.queries.declaration import StandingQueries
from headrace.queries.windows.instance import instance as instance_module
from headrace.queries.windows.instance.instance import AggregatorInstance, InstanceTiming
from headrace.queries.windows.instance.owned import WrittenOutput
from headrace.queries.windows.instance.reader_check import ReaderCheck

AT_ONCE = InstanceTiming(wait_seconds=0)


def lease_of(**methods):
    return SimpleNamespace(partitions=range(1), heartbeat=lambda: None, **methods)


class Event:
    """An error of the reader, about a partition."""

    def __init__(self, code, topic, text=""):
        self._error, self._topic = KafkaError(code, text), topic

    def error(self):
        return self._error

    def topic(self):
        return self._topic

    def partition(self):
        return 3

    def offset(self):
        return 100


def test_an_instance_that_fails_three_times_in_a_row_leaves_its_partitions(monkeypatch):
    instance = AggregatorInstance({}, StandingQueries("ads"), {}, AT_ONCE)
    failures = []

    def fail(*_):
        failures.append(BrokerUnreachableError("b", "it does not answer"))
        raise failures[-1]

    monkeypatch.setattr(instance_module, "OwnedPartition", fail)
    given_back = []
    lease = lease_of(give_back=lambda: given_back.append(len(failures)))
    for _ in range(3):
        instance._run_or_wait(lease, None, lambda _: None)
    assert given_back == [3]


def test_an_instance_that_has_not_read_the_queries_claims_no_partitions(monkeypatch):
    follower = SimpleNamespace(ready=False, close=lambda: None)
    monkeypatch.setattr(instance_module, "ensure_query_topics", lambda *_: None)
    monkeypatch.setattr(instance_module, "TableFollower", lambda *_, **__: follower)
    monkeypatch.setattr(instance_module, "LeaseHolder", lambda *_, **__: pytest.fail("it claims"))
    instance = AggregatorInstance({}, StandingQueries("ads"), {})
    statuses = []

    def observe(status):
        statuses.append(status)
        instance.stop()

    instance.run(observe)
    assert [status.reason for status in statuses] == ["the registered queries are being read"]


@pytest.mark.parametrize("news", ["queries", "lease"])
def test_an_instance_continues_as_soon_as_queries_are_read_and_it_has_a_lease(monkeypatch, news):
    follower = SimpleNamespace(ready=news != "queries", close=lambda: None)
    lease = lease_of(uncovered=(), waiting="leases are being read", close=lambda: None)
    lease.partitions = range(1) if news != "lease" else None

    def change(on_change):
        follower.ready, lease.partitions = True, range(1)
        on_change()

    def follow(*_, on_ready):
        if news == "queries":
            threading.Timer(0.1, change, [on_ready]).start()
        return follower

    def hold(*_, on_change):
        if news == "lease":
            threading.Timer(0.1, change, [on_change]).start()
        return lease

    monkeypatch.setattr(instance_module, "ensure_query_topics", lambda *_: None)
    monkeypatch.setattr(instance_module, "TableFollower", follow)
    monkeypatch.setattr(instance_module, "LeaseHolder", hold)
    timing = InstanceTiming(wait_seconds=2 * LIMIT_SECONDS)
    instance = AggregatorInstance({}, StandingQueries("ads"), {}, timing)
    runs = threading.Event()

    def begin(*_):
        runs.set()
        instance.stop()
        raise BrokerUnreachableError("b", "it does not answer")

    monkeypatch.setattr(instance_module, "OwnedPartition", begin)
    thread = threading.Thread(target=instance.run, args=[lambda _: None], daemon=True)
    thread.start()
    assert runs.wait(LIMIT_SECONDS)
    thread.join(LIMIT_SECONDS)


def take_deleted(topic):
    """An instance is told that the next record of a topic is deleted."""
    instance = AggregatorInstance({}, StandingQueries("ads"), {}, AT_ONCE)
    stages = {
        "ads.matched": SimpleNamespace(offset=70, seen=Seen(70)),
        "ads.ended": SimpleNamespace(offset=9, seen=Seen(9)),
    }
    instance._owned[3] = SimpleNamespace(
        stage=stages.get,
        aggregator=SimpleNamespace(faulty={}, late={}, event_us={}, windows=0),
        written=WrittenOutput(),
        close=lambda: None,
    )
    event = Event(KafkaError._AUTO_OFFSET_RESET, topic)
    return instance, lambda *_: instance._take(event, ReaderCheck("ads.ended", [3]))


def test_matched_records_that_are_deleted_before_they_are_taken_are_not_skipped():
    _, take = take_deleted("ads.matched")
    with pytest.raises(MatchedRecordsDeletedError) as raised:
        take()
    assert (raised.value.partition, raised.value.offset) == ("ads.matched[3]", 70)
    assert raised.value.snapshots == "ads.snapshots[3]"


@pytest.mark.parametrize("topic", ["ads.matched", "ads.ended"])
def test_a_log_that_is_shorter_than_what_was_taken_was_truncated(monkeypatch, topic):
    """Its leader was behind: it answers as after a deletion, until the log is as long again."""
    monkeypatch.setattr(instance_module, "find_cuts", lambda *_: {3: 5})
    _, take = take_deleted(topic)
    with pytest.raises(QueryTopicTruncatedError) as raised:
        take()
    assert raised.value.cut_offset == 5


@pytest.mark.parametrize("topic", ["ads.matched", "ads.ended"])
def test_a_log_that_is_truncated_while_it_is_read_ends_the_instance(topic):
    instance = AggregatorInstance({}, StandingQueries("ads"), {}, AT_ONCE)
    text = "Partition log truncation detected: broker end offset is 60 (offset leader epoch 4)."
    event = Event(KafkaError._LOG_TRUNCATION, topic, text)
    with pytest.raises(QueryTopicTruncatedError) as raised:
        instance._take(event, ReaderCheck("ads.ended", [3]))
    assert (raised.value.partition, raised.value.cut_offset) == (f"{topic}[3]", 60)
    assert raised.value.snapshots == "ads.snapshots[3]"


def test_an_instance_begins_anew_where_ended_windows_are_deleted_before_they_are_taken(
    monkeypatch,
):
    instance, take = take_deleted("ads.ended")
    monkeypatch.setattr(instance_module, "OwnedPartition", take)
    seen = []
    instance._run_or_wait(lease_of(), None, seen.append)
    assert [status.reason for status in seen] == [
        "the record at offset 9 of ads.ended[3] is deleted"
    ]


def test_an_instance_says_that_it_waits_while_a_transaction_gets_no_answer(monkeypatch):
    """The thread that observes is the one that waits."""
    instance, reasons = AggregatorInstance({}, StandingQueries("ads", partitions=1), {}), []

    def started(*arguments):
        on_wait = arguments[-1]
        on_wait()
        raise BrokerUnreachableError("b", "it does not answer")

    monkeypatch.setattr(instance_module, "OwnedPartition", started)
    with pytest.raises(BrokerUnreachableError):
        instance._run(lease_of(), range(1), None, lambda status: reasons.append(status.reason))
    assert reasons == ["the brokers do not answer"]
