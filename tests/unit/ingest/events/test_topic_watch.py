"""What is known of topics: from Kafka, from the file, and in which order."""

import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import AuthorizationError, BrokerUnreachableError
from headrace.ingest.events import topic_watch
from headrace.ingest.events.topic_watch import TopicPresence, TopicWatch, live_topics


class Kafka:
    """Answers with ``there``; ``None``: it is away."""

    def __init__(self, *there):
        self.there = set(there)

    def look(self):
        if self.there is None:
            raise BrokerUnreachableError("localhost:1", "Connection refused")
        return set(self.there)


@pytest.fixture
def kafka():
    return Kafka("a")


@pytest.fixture
def watch(tmp_path, kafka):
    now = [100.0]

    def opening():
        made = TopicWatch(["a", "b"], kafka.look, tmp_path / "topics", lambda: now[0])
        made.now = now
        return made

    return opening


def states(watch):
    return watch.state("a"), watch.state("b")


def test_before_the_first_look_nothing_is_known(watch):
    assert states(watch()) == (TopicPresence.UNKNOWN, TopicPresence.UNKNOWN)
    assert not watch().kafka_answers


def test_a_topic_is_there_or_missing_as_kafka_says(watch, kafka, caplog):
    watching = watch()
    watching.look()
    assert states(watching) == (TopicPresence.THERE, TopicPresence.MISSING)
    assert "do not exist, create them with `headrace apply`: b" in caplog.text
    kafka.there = {"b"}
    watching.look()
    assert states(watching) == (TopicPresence.MISSING, TopicPresence.THERE)


def test_what_is_missing_is_logged_once(watch, caplog):
    watching = watch()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            watching.look()
    assert caplog.text.count("do not exist") == 1


def test_a_broker_that_answers_again_is_logged_once(watch, kafka, caplog):
    watching = watch()
    caplog.set_level(logging.INFO, "headrace.ingest")
    kafka.there = None
    watching.look()
    kafka.there = {"a", "b"}
    watching.look()
    watching.look()
    assert [record.getMessage() for record in caplog.records] == [
        "Kafka does not respond: Connection refused",
        "Kafka responds again",
    ]


def test_what_kafka_said_last_is_what_is_known_while_it_is_away(watch, kafka):
    watching = watch()
    watching.look()
    assert watching.kafka_answers
    kafka.there = None
    watching.now[0] += 6
    watching.look()
    assert not watching.kafka_answers
    assert states(watching) == (TopicPresence.THERE, TopicPresence.MISSING)


def test_a_process_that_begins_while_kafka_is_away_knows_what_the_host_knew(watch, kafka):
    watch().look()
    kafka.there = None
    later = watch()
    later.look()
    assert states(later) == (TopicPresence.KEPT, TopicPresence.UNKNOWN)


def test_a_file_that_can_not_be_read_is_no_knowledge(watch, tmp_path, caplog):
    (tmp_path / "topics").write_text("{")
    assert states(watch()) == (TopicPresence.UNKNOWN, TopicPresence.UNKNOWN)
    assert "Cannot read" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
        AuthorizationError("describe", "topic forbidden", "User:ingest"),
    ],
    ids=["kafka", "headrace"],
)
def test_a_topic_of_which_the_cluster_says_nothing_may_be_there(monkeypatch, error):
    def describe(_, names):
        if "forbidden" in names:
            raise error
        return {name: None for name in names if name == "a"}

    monkeypatch.setattr(topic_watch, "describe", describe)
    assert live_topics({}, ["a", "gone", "forbidden"]) == {"a", "forbidden"}
    assert live_topics({}, ["a", "gone"]) == {"a"}
