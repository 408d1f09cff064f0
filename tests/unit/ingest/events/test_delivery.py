"""Delivery over a producer that does as it is told: what each request hears."""

import asyncio
import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.ingest.events.delivery import (
    Delivery,
    QueueFullError,
    RejectedByKafkaError,
    UnknownOutcomeError,
)
from headrace.ingest.events.validation import Accepted
from headrace.model import Topic

EVENTS = [Accepted(text.encode(), b"k", text, -1) for text in "abc"]
TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
UNCONFIRMED = object()


class Message:
    def __init__(self, value, offset=0):
        self._value, self._offset = value, offset

    def value(self):
        return self._value

    def offset(self):
        return self._offset


class Producer:
    """Reports each event as ``errors`` says, or waits with those for which it says ``...``."""

    def __init__(self, errors=(), room=1000):
        self.errors, self.room = dict(errors), room
        self.held, self.raises, self.purged = [], [], 0

    def __len__(self):
        return len(self.held)

    def produce(self, topic, value, key, partition, headers, on_delivery):
        if len(self) == self.room:
            raise BufferError
        self.held.append((value, on_delivery))

    def poll(self, _):
        if self.raises:
            raise self.raises.pop()
        now = [one for one in self.held if self.errors.get(one[0]) is not ...]
        self.held = [one for one in self.held if one not in now]
        for value, report in now:
            error = self.errors.get(value)
            if error is UNCONFIRMED:
                report(None, Message(value, None))
            else:
                report(error, Message(value))

    def purge(self, blocking=True):
        self.purged += 1
        self.errors = {value: KafkaError(KafkaError._PURGE_QUEUE) for value, _ in self.held}


@pytest.fixture
def runner():
    with asyncio.Runner() as made:
        yield made


@pytest.fixture
def over(monkeypatch):
    """``over(producer, another)``: a delivery that takes the next when one ended."""

    def made(*producers):
        left = list(producers)
        monkeypatch.setattr("headrace.kafka.write.polled_producer.producer", lambda *_: left.pop(0))
        return Delivery({}, [Topic("t", spool=True)])

    return made


@pytest.fixture
def sent(runner):
    def sending(delivery, seconds=30):
        return runner.run(delivery.send("t", EVENTS, [], seconds))

    return sending


@pytest.fixture
def left(runner):
    def sending(delivery, seconds=30):
        taken_back = runner.run(delivery.send_or_reclaim("t", EVENTS, [], seconds))
        return [event.event_id for event in taken_back]

    return sending


def test_what_is_confirmed_is_sent(over, sent, left):
    sent(over(Producer()))
    assert left(over(Producer())) == []


def test_what_is_not_confirmed_is_unknown(over, sent):
    with pytest.raises(UnknownOutcomeError, match="timed out"):
        sent(over(Producer({b"b": TIMED_OUT})))
    with pytest.raises(UnknownOutcomeError, match="within"):
        sent(over(Producer({b"b": ...})), 0.01)


def test_what_is_reported_without_an_offset_is_unknown(over, sent, left):
    with pytest.raises(UnknownOutcomeError, match="was not confirmed"):
        sent(over(Producer({b"b": UNCONFIRMED})))
    assert left(over(Producer({b"b": UNCONFIRMED}))) == ["b"]


def test_what_waits_at_the_deadline_is_taken_back_and_what_was_confirmed_is_not(over, sent, left):
    producer = Producer({b"b": ..., b"c": ...})
    assert left(over(producer), 0.05) == ["b", "c"]
    assert producer.purged == 1


def test_what_kafka_failed_to_take_is_left_without_waiting(over, sent, left):
    assert left(over(Producer({b"a": TIMED_OUT}))) == ["a"]


def test_what_kafka_rejects_for_ever_is_not_left_to_the_spool(over, sent, left):
    with pytest.raises(UnknownOutcomeError, match="too large"):
        left(over(Producer({b"a": TIMED_OUT, b"b": TOO_LARGE, b"c": TIMED_OUT})))


def test_events_that_the_queue_had_no_room_for_are_left(over, sent, left):
    assert left(over(Producer(room=2))) == ["c"]
    with pytest.raises(QueueFullError):
        left(over(Producer(room=0)))


def test_a_failure_of_polling_ends_nothing(over, sent, caplog):
    producer = Producer()
    producer.raises.append(SystemError("a callback failed"))
    with caplog.at_level(logging.ERROR):
        sent(over(producer))
    assert "Cannot poll the producer, retrying" in caplog.text


def test_a_producer_that_ended_reports_what_it_held_and_another_takes_its_place(
    over, runner, sent, left, caplog
):
    ended = Producer(dict.fromkeys([b"a", b"b", b"c"], ...))
    delivery = over(ended, Producer())
    fatal = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "gone wrong", True)
    ended.raises.append(KafkaException(fatal))
    with caplog.at_level(logging.ERROR):
        assert left(delivery) == ["a", "b", "c"]
    assert ended.purged == 1
    sent(delivery)
    assert "creating a new producer" in caplog.text
    assert runner.run(delivery.close(1)) == 0


class Rejecting(Producer):
    """Rejects one event at once, as a producer does that finds it too large."""

    def produce(self, topic, value, key, partition, headers, on_delivery):
        if value == b"b":
            raise KafkaException(TOO_LARGE)
        super().produce(topic, value, key, partition, headers, on_delivery)


def test_an_event_that_the_producer_rejects_keeps_no_other_from_being_sent(over, sent):
    producer = Rejecting()
    with pytest.raises(RejectedByKafkaError) as caught:
        sent(over(producer))
    assert list(caught.value.reasons) == [b"b"]
    assert producer.held == []


def test_beside_an_event_of_unknown_outcome_a_rejection_is_unknown_too(over, sent):
    with pytest.raises(UnknownOutcomeError) as caught:
        sent(over(Rejecting({b"c": TIMED_OUT})))
    assert caught.value.code == "unknown-outcome"


def test_a_batch_that_a_broker_rejects_is_not_to_be_repeated(over, sent):
    with pytest.raises(UnknownOutcomeError, match="too large") as caught:
        sent(over(Producer({b"b": TOO_LARGE})))
    assert caught.value.code == "batch-rejected"
