"""The thread that follows a changelog outlives whatever a record or a client does to it."""

import threading
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.errors import AuthorizationError, BrokerUnreachableError
from headrace.kafka.client import lost_brokers
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.read import polling
from headrace.kafka.table import topic_table as table_module
from headrace.kafka.table.topic_table import TableFollower


class Message:
    def __init__(self, key, value):
        self._key, self._value = key, value

    def error(self):
        return None

    def key(self):
        return self._key

    def value(self):
        return self._value


class End:
    """The end of a partition, or another of its errors."""

    def __init__(self, code=KafkaError._PARTITION_EOF):
        self._code = code

    def error(self):
        return KafkaError(self._code)

    def partition(self):
        return 0


class Reader:
    """Gives one at a time of what it was given, then nothing; raises what is an exception."""

    def __init__(self, given):
        self._given = given

    def list_topics(self, topic, timeout):
        pass

    def assign(self, _):
        pass

    def consume(self, number, seconds):
        given = self._given.pop(0) if self._given and number == 1 else None
        if isinstance(given, Exception):
            raise given
        return [] if given is None else [given]

    def close(self):
        pass


LIVE = LiveTopic("t", "id", partitions=1, replication=1)


@pytest.fixture
def follow(monkeypatch):
    """Follows a topic whose consumers give these messages; gives what was handed over."""
    followers = []

    def start(given, on_record, **options):
        monkeypatch.setattr(table_module, "describe", lambda *_: {"t": LIVE})
        monkeypatch.setattr(polling, "consumer", lambda *_: Reader(given))
        followers.append(TableFollower({}, "t", on_record, retry_seconds=0.01, **options))
        return followers[-1]

    yield start
    for one in followers:
        one.close()


@pytest.mark.parametrize("error", [RecursionError("deep"), TypeError("no"), ValueError("bad")])
def test_a_record_that_cannot_be_taken_keeps_no_other_from_being_read(follow, error, caplog):
    taken, done = [], threading.Event()

    def take(key, value):
        if key == b"bad":
            raise error
        taken.append(key)
        if key == b"last":
            done.set()

    follow([Message(b"a", b"1"), Message(b"bad", b"2"), Message(b"last", b"3")], take)
    assert done.wait(LIMIT_SECONDS)
    assert taken == [b"a", b"last"]
    assert "key b'bad'" in caplog.text


def test_an_unexpected_failure_is_logged_and_the_topic_followed_on(follow, caplog):
    done = threading.Event()
    follow([RuntimeError("of the client"), Message(b"a", b"1")], lambda *_: done.set())
    assert done.wait(LIMIT_SECONDS)
    assert "Cannot follow t, retrying in 0.01 s" in caplog.text


def test_a_client_that_has_lost_all_brokers_is_replaced(follow, monkeypatch, caplog):
    done = threading.Event()
    monkeypatch.setattr(lost_brokers, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(lost_brokers, "has_lost_brokers", lambda *_: not done.is_set())
    follow([None, Message(b"a", b"1")], lambda *_: done.set())
    assert done.wait(LIMIT_SECONDS)
    assert "the client reaches no broker" in caplog.text


def test_keys_that_are_gone_where_the_topic_is_read_again_are_deleted(follow):
    table, done = {}, threading.Event()

    def take(key, value):
        table[key] = value
        if key == b"last":
            done.set()

    before = [Message(b"kept", b"1"), Message(b"gone", b"1"), Message(b"deleted", None), End()]
    after = [Message(b"kept", b"2"), End(), Message(b"new", b"2"), End(), Message(b"last", b"2")]
    follow([*before, RuntimeError("the topic was deleted"), *after], take)
    assert done.wait(LIMIT_SECONDS)
    assert table == {
        b"kept": b"2",
        b"gone": None,
        b"deleted": None,
        b"new": b"2",
        b"last": b"2",
    }


def test_keys_are_kept_until_the_topic_is_read_to_its_end_again(follow):
    taken, done = [], threading.Event()

    def take(key, value):
        taken.append((key, value))
        if key == b"last":
            done.set()

    follow([Message(b"a", b"1"), RuntimeError("of the client"), Message(b"last", b"2")], take)
    assert done.wait(LIMIT_SECONDS)
    assert taken == [(b"a", b"1"), (b"last", b"2")]


def test_reads_from_the_first_offset_are_announced_and_so_are_their_ends(follow):
    said, done = [], threading.Event()

    def take(key, value):
        said.append((key, value))
        if key == b"last":
            done.set()

    before = [Message(b"a", b"1"), End(), End()]
    follow(
        [*before, RuntimeError("of the client"), End(), Message(b"last", b"2")],
        take,
        on_start=lambda: said.append("start"),
        on_ready=lambda: said.append("end"),
        value_of=lambda message: message.value() * 2,
    )
    assert done.wait(LIMIT_SECONDS)
    read_again = ["start", (b"a", None), "end", (b"last", b"22")]
    assert said == ["start", (b"a", b"11"), "end", *read_again]


@pytest.mark.parametrize("change", [{"topic_id": "other"}, {"partitions": 2}])
def test_a_topic_that_was_recreated_or_has_more_partitions_is_read_again(follow, change):
    starts, ends = [], []
    given = [End()]
    follower = follow(
        given,
        lambda *_: None,
        on_start=lambda: starts.append(1),
        on_ready=lambda: ends.append(1),
    )
    wait_for(lambda: follower.is_at_end)
    follower.compare(LIVE)
    follower.compare(replace(LIVE, **change))
    wait_for(lambda: len(starts) == 2)
    assert not follower.is_at_end
    given.append(End())
    wait_for(lambda: len(ends) == 2)  # it is called when all is set
    assert follower.is_at_end


def test_a_missing_permission_is_named_until_the_end_is_reached(follow, caplog):
    ended = threading.Event()
    given = [End(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    follower = follow(given, lambda *_: None, on_ready=ended.set)
    wait_for(lambda: follower.failure)
    assert isinstance(follower.failure, AuthorizationError)
    wait_for(lambda: "operation 'READ', resource 'topic t'" in caplog.text)
    given.append(End())
    assert ended.wait(LIMIT_SECONDS)
    assert follower.failure is None


def test_fewer_partitions_are_what_a_broker_says_that_has_just_started(follow):
    starts = []
    follower = follow([End()], lambda *_: None, on_start=lambda: starts.append(1))
    wait_for(lambda: follower.is_at_end)
    follower.compare(replace(LIVE, partitions=0))
    assert (len(starts), follower.is_at_end) == (1, True)


def test_a_topic_whose_end_is_not_reached_in_time_is_named(follow):
    follower = follow([], lambda *_: None)
    with pytest.raises(BrokerUnreachableError, match="t was not read to its end within 0"):
        follower.wait_ready(0.01)


def test_a_topic_that_must_not_be_read_is_waited_for_no_longer(follow):
    follower = follow([End(KafkaError.TOPIC_AUTHORIZATION_FAILED)], lambda *_: None)
    with pytest.raises(AuthorizationError, match="operation 'READ', resource 'topic t'"):
        follower.wait_ready(LIMIT_SECONDS)
