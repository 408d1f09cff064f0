"""Commits are sent without waiting, and each hears its own answer."""

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.kafka.client.broker_errors import Meaning
from headrace.kafka.group.commits import Commits, OffsetCommit
from headrace.model import TopicPartition


class Consumer:
    """Takes commits, or refuses them."""

    def __init__(self, error=None):
        self.sent, self.error = [], error

    def commit(self, offsets, asynchronous):
        assert asynchronous
        if self.error is not None:
            raise KafkaException(self.error)
        self.sent.append(offsets)


def commit(offset, partition=0):
    return OffsetCommit(TopicPartition("clicks", partition), offset, "")


def test_each_commit_hears_its_own_answer_however_late_it_comes():
    commits, consumer, heard = Commits("group"), Consumer(), []
    for offset in (5, 7):
        commits.send(
            consumer, [commit(offset)], lambda error, offset=offset: heard.append((offset, error))
        )
    first, second = consumer.sent
    commits.answer(None, second)
    commits.answer(KafkaError(KafkaError.ILLEGAL_GENERATION), first)
    assert heard == [(7, None), (5, Meaning.REBALANCING)]


def test_an_answer_to_nothing_that_was_sent_is_left():
    Commits("group").answer(None, [confluent_kafka.TopicPartition("clicks", 0, 5)])


def test_an_error_of_one_partition_is_the_error_of_the_commit():
    class Answer:
        topic, partition, offset = "clicks", 0, 5
        error = KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE)

    commits, heard = Commits("group"), []
    commits.send(Consumer(), [commit(5)], heard.append)
    commits.answer(None, [Answer])
    assert heard == [Meaning.METADATA_TOO_LARGE]


def test_what_is_refused_at_once_is_answered_at_once():
    heard = []
    Commits("group").send(Consumer(KafkaError(KafkaError._STATE)), [commit(5)], heard.append)
    assert heard == [Meaning.PERMANENT]


def test_a_consumer_that_can_commit_no_more_raises():
    fatal = KafkaError(KafkaError._FATAL, "fenced", fatal=True)
    with pytest.raises(KafkaException):
        Commits("group").send(Consumer(fatal), [commit(5)], lambda _: None)
