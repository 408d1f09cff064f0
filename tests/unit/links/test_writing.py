"""Transactions at the target: what each failure of the client means, and what brokers are sent."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import AuthorizationError, LinkRecordError
from headrace.kafka.client import broker_errors
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.read.resume import SourceChangedError
from headrace.kafka.write import transactions
from headrace.kafka.write.transactions import TransactionFencedError, TransactionUnsettledError
from headrace.links import target as target_module
from headrace.links import writing
from headrace.links.mirror.plan import MirrorPlan
from headrace.links.target import Rejection
from headrace.links.writing import LinkWriter, RejectedBatchError
from headrace.model import TopicPartition
from headrace.spark.header_columns import TIMESTAMP

TARGET = {"bootstrap.servers": "127.0.0.1:1"}
LINK = MirrorPlan("m", "headrace.mirror.m", "waw", "central", {}, TARGET, {"a": "waw.a"})
MIRROR = LINK.link_target
A, COPY = TopicPartition("a", 0), TopicPartition("waw.a", 0)


class Producer:
    """Confluent's producer, as far as the writer calls it; raises what is to be raised, by call."""

    def __init__(self):
        self.raises, self.calls, self.reports, self.records = {}, [], [], []

    def __getattr__(self, call):
        def act(*arguments):
            self.calls.append((call, *arguments))
            if call in self.raises:
                raise KafkaException(self.raises[call])
            return 0

        return act

    def produce(self, *arguments, **_):
        self.reports.append(arguments[4])
        self.records.append(arguments)
        self.act("produce")

    def act(self, call):
        if call in self.raises:
            raise KafkaException(self.raises[call])


class Message:
    def __init__(self, offset, topic="a", stored=None, time_ms=1):
        self.offset, self.topic = (lambda: stored or offset), (lambda: topic)
        self.value = self.key = lambda: b"v"
        self.timestamp = lambda: (1, time_ms)


@pytest.fixture
def client(monkeypatch):
    made = Producer()
    monkeypatch.setattr(transactions, "connected_producer", lambda *_: made)
    monkeypatch.setattr(writing, "topic_ids", lambda *_: {"waw.a": "id"})
    return made


def send(writer, offset=5, time_ms=1):
    writer.send(A, COPY, Message(offset, time_ms=time_ms), [])


def test_a_write_that_is_forbidden_names_the_acl_and_the_site(client):
    writer = LinkWriter(MIRROR, "id")
    send(writer)
    client.reports[0](KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), Message(5, "waw.a"))
    with pytest.raises(AuthorizationError) as raised:
        writer.flush()
    assert (raised.value.operation, raised.value.resource) == (
        "WRITE",
        "topic waw.a at site central",
    )


@pytest.mark.parametrize(
    ("code", "operation", "resource"),
    [
        ("TOPIC", "WRITE", "topic waw.a"),
        ("GROUP", "READ", "group headrace.mirror.m"),
        ("TRANSACTIONAL_ID", "WRITE", "transactional id id"),
        ("CLUSTER", "IDEMPOTENT_WRITE", "cluster"),
    ],
)
def test_an_acl_that_a_transaction_lacks_is_named(client, code, operation, resource):
    error = KafkaError(getattr(KafkaError, f"{code}_AUTHORIZATION_FAILED"))
    client.raises["commit_transaction"] = error
    with pytest.raises(AuthorizationError) as raised:
        LinkWriter(MIRROR, "id").commit([], None)
    assert raised.value.operation == operation
    assert raised.value.resource == f"{resource} at site central"


def test_records_that_are_not_acknowledged_tell_the_reason_of_the_transaction(client):
    writer = LinkWriter(MIRROR, "id")
    send(writer)
    client.flush = lambda _: 1
    client.raises["begin_transaction"] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError):
        writer.flush()
    client.raises["begin_transaction"] = KafkaError(KafkaError._STATE)
    with pytest.raises(TransactionUnsettledError, match="1 records were not acknowledged"):
        writer.flush()


def test_records_behind_one_that_is_refused_are_not_waited_for(client):
    writer = LinkWriter(MIRROR, "id", one_by_one=True)
    for offset in (5, 6):
        send(writer, offset)
    flushes = []

    def flush(seconds):
        flushes.append(seconds)
        client.reports[0](KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Message(0, "waw.a"))
        return 1

    client.flush = flush
    with pytest.raises(RejectedBatchError) as raised:
        writer.flush()
    assert raised.value.records[A].offset == 5
    assert len(flushes) == 1


def test_records_that_are_purged_tell_the_reason_of_the_transaction(client):
    writer = LinkWriter(MIRROR, "id")
    send(writer)
    client.reports[0](KafkaError(KafkaError._PURGE_QUEUE), Message(5, "waw.a"))
    client.raises["begin_transaction"] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError):
        writer.flush()


def test_a_record_that_the_client_refuses_is_named(client):
    writer = LinkWriter(MIRROR, "id")
    client.raises["produce"] = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    with pytest.raises(LinkRecordError) as raised:
        send(writer, 7)
    error = raised.value
    assert (error.site, error.partition, error.offset) == ("waw", "a/0", 7)
    assert "headrace mirror accept m a/0 --to 8" in error.remedy


def test_a_batch_that_brokers_refuse_names_no_record(client):
    writer = LinkWriter(MIRROR, "id")
    send(writer)
    client.reports[0](KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Message(5, "waw.a"))
    with pytest.raises(RejectedBatchError) as raised:
        writer.flush()
    assert raised.value.records == {}


def test_a_record_in_a_batch_of_its_own_is_named_the_first_of_its_partition(client):
    writer = LinkWriter(MIRROR, "id", one_by_one=True)
    for offset in (5, 6, 7):
        send(writer, offset)
    client.reports[0](None, Message(5, "waw.a", stored=90))
    for report in client.reports[1:]:
        report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Message(0, "waw.a"))
    with pytest.raises(RejectedBatchError) as raised:
        writer.flush()
    reason = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE).str()
    assert raised.value.records == {A: Rejection(6, reason, "max.message.bytes")}


NOW_MS = 1_800_000_000_000


@pytest.fixture
def clock(monkeypatch):
    for module in (writing, broker_errors):
        monkeypatch.setattr(module, "now_in_ms", lambda: NOW_MS)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("name", "time_ms", "setting", "remedy"),
    [
        ("MSG_SIZE_TOO_LARGE", 1, "max.message.bytes", "give waw.a a larger max.message.bytes"),
        ("RECORD_LIST_TOO_LARGE", 1, "max.message.bytes", "a larger max.message.bytes"),
        (
            "INVALID_TIMESTAMP",
            NOW_MS + 7_200_000,
            "message.timestamp.after.max.ms",
            'config={"message.timestamp.after.max.ms": "9223372036854775807"}',
        ),
        (
            "INVALID_TIMESTAMP",
            NOW_MS - 1,
            "message.timestamp.before.max.ms",
            'config={"message.timestamp.before.max.ms": "9223372036854775807"}',
        ),
        ("INVALID_RECORD", 1, "cleanup.policy", "let waw.a not be compacted"),
        ("UNSUPPORTED_FOR_MESSAGE_FORMAT", 1, "", ""),
    ],
)
def test_the_setting_that_keeps_a_refused_record_comes_before_the_command_that_loses_it(
    client, name, time_ms, setting, remedy
):
    writer = LinkWriter(MIRROR, "id", one_by_one=True)
    send(writer, time_ms=time_ms)
    client.reports[0](KafkaError(getattr(KafkaError, name)), Message(0, "waw.a"))
    with pytest.raises(RejectedBatchError) as raised:
        writer.flush()
    rejection = raised.value.records[A]
    assert rejection.setting == setting
    text = str(MIRROR.record_error(A, rejection))
    assert remedy in text
    assert text.index(remedy) < text.index("headrace mirror accept m a/0 --to 6")


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("time_ms", "written_ms", "kept"),
    [(-1, NOW_MS, [(TIMESTAMP, b"-1")]), (0, 1, [(TIMESTAMP, b"0")]), (1, 1, []), (-2, -2, [])],
)
def test_a_record_without_a_timestamp_has_the_time_of_copying_and_a_header_that_says_so(
    client, time_ms, written_ms, kept
):
    LinkWriter(MIRROR, "id").send(A, COPY, Message(5, time_ms=time_ms), [("h", b"v")])
    assert client.records[0][-2:] == (written_ms, [("h", b"v"), *kept])


@pytest.mark.usefixtures("clock")
def test_a_timestamp_that_a_dispatcher_has_kept_stays(client):
    headers = [(TIMESTAMP, b"5")]
    LinkWriter(MIRROR, "id").send(A, COPY, Message(5, time_ms=-1), headers)
    assert client.records[0][-2:] == (NOW_MS, headers)


def test_offsets_are_sent_a_thousand_in_a_request(client):
    offsets = [confluent_kafka.TopicPartition("waw.a", n, n) for n in range(2_500)]
    LinkWriter(MIRROR, "id").commit(offsets, "member")
    sent = [call[1] for call in client.calls if call[0] == "send_offsets_to_transaction"]
    assert list(map(len, sent)) == [1_000, 1_000, 500]
    assert [offset for part in sent for offset in part] == offsets
    assert client.calls[-1][0] == "commit_transaction"


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("live", [{}, {"waw.a": LiveTopic("waw.a", "other", 1, 1)}])
def test_a_topic_of_the_target_that_was_recreated_since_its_start_is_noticed(monkeypatch, live):
    writer = LinkWriter(MIRROR, "id")
    monkeypatch.setattr(
        target_module, "describe", lambda *_: {"waw.a": LiveTopic("waw.a", "id", 1, 1)}
    )
    writer.check_topics(["waw.a"])
    monkeypatch.setattr(target_module, "describe", lambda *_: live)
    with pytest.raises(SourceChangedError, match=r"waw\.a was deleted or recreated"):
        writer.check_topics(["waw.a"])


def test_a_member_that_was_put_out_is_fenced(client):
    client.raises["send_offsets_to_transaction"] = KafkaError(KafkaError.UNKNOWN_MEMBER_ID)
    with pytest.raises(TransactionFencedError):
        LinkWriter(MIRROR, "id").commit([confluent_kafka.TopicPartition("waw.a", 0, 1)], "member")


def test_settings_of_a_project_do_not_outlast_a_transaction(monkeypatch):
    """The client library refuses a socket timeout that is longer than a transaction."""
    monkeypatch.setattr(writing, "TRANSACTION_SECONDS", 1)
    settings = {"socket.timeout.ms": "60000", "linger.ms": "60000", "client.id": "own"}
    link = MirrorPlan("m", "g", "waw", "central", {}, TARGET | settings, {"a": "waw.a"})
    with pytest.raises(TransactionUnsettledError):
        LinkWriter(link.link_target, "id")
