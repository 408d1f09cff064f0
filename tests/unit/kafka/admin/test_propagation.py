"""A topic that a broker does not know yet is asked for again."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace import StandingQueries
from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    TopicChangeError,
    TopicMissingError,
)
from headrace.kafka.admin import propagation
from headrace.kafka.admin.propagation import await_brokers, until_known
from headrace.kafka.admin.topics import TopicState
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.queries import topics
from headrace.queries.registry import topic as registry

MISSING = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))


def answering(*answers):
    """Gives the answers in turn, the last one again and again; raises those that are errors."""
    left = [*answers]

    def ask(*_):
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_brokers_are_asked_until_one_knows_all_topics():
    ask = answering({}, {"a": 1}, MISSING, TopicMissingError("b"), {"a": 1, "b": 2})
    assert until_known(ask, ["a", "b"], poll_seconds=0) == {"a": 1, "b": 2}


@pytest.mark.parametrize("answer", [{"a": 1}, MISSING])
def test_a_topic_that_no_broker_knows_in_time_is_missing(answer):
    with pytest.raises(TopicMissingError, match="b"):
        until_known(answering(answer), ["b"], timedelta(0), poll_seconds=0)


def test_other_failures_are_raised_at_once():
    error = BrokerUnreachableError("localhost:9092", "timed out")
    with pytest.raises(BrokerUnreachableError):
        until_known(answering(error), ["a"])


def test_topics_of_standing_queries_that_the_next_broker_does_not_know_are_waited_for(monkeypatch):
    """They were just created, or that broker has just started: it is no failure of a start."""
    queries = StandingQueries("ads", partitions=2)
    needed = topics.query_topics(queries, 1)
    live = {topic.name: LiveTopic(topic.name, "id", topic.partitions, 1) for topic in needed}
    first, *_ = needed
    state = TopicState(live[first.name], dict(first.kafka_config), frozenset())
    for module in (registry, topics):
        monkeypatch.setattr(module, "possible_replication", lambda _: 1)
        monkeypatch.setattr(module, "ensure_topics", lambda *_: None)
    monkeypatch.setattr(registry, "topic_states", answering({}, {first.name: state}))
    monkeypatch.setattr(topics, "describe", answering({}, live))
    topics.ensure_query_topics({}, queries)


@pytest.fixture
def show_after(monkeypatch):
    """Makes the only broker show a topic so many seconds from now, by a clock of the test's own."""
    clock = SimpleNamespace(now=0.0)

    def sleep(_seconds):
        clock.now += 1

    def patch(seconds, partitions):
        topic = SimpleNamespace(error=None, partitions=range(partitions))

        def list_topics(_name, **_):
            topics = {"clicks": topic} if clock.now >= seconds else {}
            brokers = {1: SimpleNamespace(id=1)}
            return SimpleNamespace(topics=topics, brokers=brokers, orig_broker_id=1)

        client = SimpleNamespace(list_topics=list_topics)
        own_time = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
        monkeypatch.setattr(propagation, "time", own_time)
        monkeypatch.setattr(propagation, "admin_request", lambda _, request: request(client))
        monkeypatch.setattr(propagation, "broker_client", lambda *_: client)

    return patch


def test_a_broker_has_longer_for_a_topic_of_thousands_of_partitions(show_after):
    show_after(270, partitions=5000)
    await_brokers({}, {"clicks": 5000})


def test_a_broker_that_does_not_show_a_small_topic_is_named_after_half_a_minute(show_after):
    show_after(35, partitions=4)
    with pytest.raises(TopicChangeError, match="broker 1 does not show it"):
        await_brokers({}, {"clicks": 4})


@pytest.mark.parametrize("topics", [2, 170])
@pytest.mark.parametrize("brokers", [1, 26])
def test_each_broker_is_asked_once_for_any_number_of_topics(monkeypatch, brokers, topics):
    partitions = {f"events-{number}": 30 for number in range(topics)}
    asked = []
    metadata = {
        name: SimpleNamespace(error=None, partitions=range(count))
        for name, count in partitions.items()
    }

    def connected(broker):
        def list_topics(name=None, **_):
            asked.append(broker)
            shown = metadata if name is None else {name: metadata[name]}
            known = {number: SimpleNamespace(id=number) for number in range(brokers)}
            return SimpleNamespace(topics=shown, brokers=known, orig_broker_id=broker)

        return SimpleNamespace(list_topics=list_topics)

    monkeypatch.setattr(propagation, "admin_request", lambda _, request: request(connected(0)))
    monkeypatch.setattr(propagation, "broker_client", lambda _, broker: connected(broker.id))
    await_brokers({}, partitions)
    assert sorted(asked) == list(range(brokers))


def test_a_topic_that_may_not_be_described_is_no_topic_that_is_waited_for(monkeypatch):
    """An answer for all topics leaves it out; one for it alone says why."""
    shown = {"clicks": SimpleNamespace(error=None, partitions=range(1))}
    denied = SimpleNamespace(error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), partitions={})

    def list_topics(name=None, **_):
        topics = shown if name is None else {name: denied}
        return SimpleNamespace(topics=topics, brokers={}, orig_broker_id=1)

    client = SimpleNamespace(list_topics=list_topics)
    monkeypatch.setattr(propagation, "admin_request", lambda _, request: request(client))
    with pytest.raises(AuthorizationError, match="orders"):
        await_brokers({}, {"clicks": 1, "orders": 1})
