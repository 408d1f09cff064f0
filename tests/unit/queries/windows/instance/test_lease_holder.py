"""The thread that holds the lease of an instance: a reader that fails, or gets nothing more."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import confluent_kafka
import msgspec
import pytest
from confluent_kafka import KafkaError
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.kafka.read import polling
from headrace.queries.declaration import StandingQueries
from headrace.queries.windows.instance.lease_holder import LeaseHolder
from headrace.service import slot_lease
from headrace.service.leases import Claim, LeaseTiming

QUERIES = StandingQueries("ads", 4, 1)
TIMING = LeaseTiming(
    lease_ms=1_000,
    renew_seconds=0.05,
    margin_seconds=0.2,
    poll_seconds=0.01,
    retry_seconds=0.01,
    rest_seconds=0.5,
)


class Message:
    def __init__(self, topic, offset, error=None):
        self._topic, self._offset, self._error = topic, offset, error

    def error(self):
        return self._error

    def offset(self):
        return self._offset

    def key(self):
        return self._topic.records[self._offset][0]

    def value(self):
        return self._topic.records[self._offset][1]

    def timestamp(self):
        return confluent_kafka.TIMESTAMP_LOG_APPEND_TIME, self._topic.records[self._offset][2]


class Leases:
    """The topic of leases in memory, by the broker's clock.

    Attributes:
        records: key, value and time of each.
        is_deaf: readers get nothing more.
        error: that readers raise, once.
        max_records: that a reader gets; it is not at the end before.
        is_taken: others have all slots, and renew their leases before each read, however late.
        thaw: ends a freeze that begins after the next read; None: there is none, or it has begun.
        refusal: of what is sent.
        held: slot and claim of each that was sent, and is not in the topic yet; None: all are.
        reads: records that the last reader has got.
    """

    def __init__(self):
        self.records, self.readers = [], 0
        self.is_deaf, self.error, self.max_records = False, None, None
        self.is_taken = False
        self.thaw, self.refusal, self.held, self.reads = None, None, None, 0

    def write(self, slot, claim):
        time_ms = int(time.monotonic() * 1000)
        self.records.append((str(slot).encode(), msgspec.json.encode(claim), time_ms))

    def renew_others(self):
        """Writes claims of others to all slots, which begin or renew their leases."""
        for slot in range(4):
            self.write(slot, Claim(f"other-{slot}", "host"))

    def freeze(self):
        """Freezes the thread that reads; returns what lets it go on."""
        thaw = self.thaw = threading.Event()
        wait_for(lambda: self.thaw is None)
        return thaw

    def slots(self, holder=None):
        """Returns the slots that were claimed by others than a holder, in order."""
        claims = [
            (int(key), msgspec.json.decode(value)["holder"]) for key, value, _ in self.records
        ]
        return [slot for slot, name in claims if name != holder]

    def released(self):
        """Returns the slots that were released, in order."""
        return [
            int(key)
            for key, value, _ in self.records
            if msgspec.json.decode(value, type=Claim).is_release
        ]

    # What LeaseHolder calls.

    def reader(self, *_):
        self.readers += 1
        return _Reader(self)

    def sender(self, *_):
        return SimpleNamespace(poll=lambda _: None, flush=lambda _: None, produce=self._produce)

    def offset(self):
        return len(self.records)

    def _produce(self, _topic, value, key, *, partition, on_delivery):
        assert partition == 0
        on_delivery(self.refusal, self)
        claim = msgspec.json.decode(value, type=Claim)
        if self.held is not None:
            self.held.append((int(key), claim))
        elif self.refusal is None:
            self.write(int(key), claim)


class _Reader:
    def __init__(self, topic):
        self._topic, self._next = topic, 0
        self._is_deaf = False

    def list_topics(self, topic, timeout):
        pass

    def assign(self, _):
        pass

    def close(self):
        pass

    def consume(self, _, seconds):
        topic = self._topic
        error, topic.error = topic.error, None
        if error is not None:
            raise error
        self._is_deaf = self._is_deaf or topic.is_deaf
        is_whole = topic.max_records is None
        if topic.is_taken:
            time.sleep(seconds)
            topic.renew_others()
        end = len(topic.records) if is_whole else topic.max_records
        if self._is_deaf or self._next >= end:
            time.sleep(seconds)
        if self._is_deaf:
            return []
        messages = [Message(topic, offset) for offset in range(self._next, end)]
        self._next = topic.reads = max(end, self._next)
        if is_whole:
            eof = KafkaError(KafkaError._PARTITION_EOF)
            messages.append(Message(topic, self._next, eof))
        thaw, topic.thaw = topic.thaw, None
        if thaw is not None:
            thaw.wait(LIMIT_SECONDS)
            if topic.is_taken:
                topic.renew_others()
        return messages


@pytest.fixture
def topic(monkeypatch):
    topic = Leases()
    monkeypatch.setattr(polling, "consumer", topic.reader)
    monkeypatch.setattr(slot_lease, "producer", topic.sender)
    return topic


@pytest.fixture
def timing():
    return TIMING


@pytest.fixture
def holder(topic, timing):
    holder = LeaseHolder({}, QUERIES, timing)
    yield holder
    holder.close()


def first_slot(holder):
    """Waits until an instance has a slot; returns the slot, which may be lost a moment later."""
    return wait_for(lambda: holder.partitions).start


def test_an_instance_claims_a_slot_and_renews_it(topic, holder):
    slot = first_slot(holder)
    wait_for(lambda: len(topic.records) > 3)
    assert set(topic.slots()) == {slot}


def test_an_instance_is_told_once_it_has_a_slot(topic):
    has_news = threading.Event()
    holder = LeaseHolder({}, QUERIES, TIMING, has_news.set)
    while holder.partitions is None:
        assert has_news.wait(LIMIT_SECONDS)
        has_news.clear()
    holder.close()


def test_a_slot_is_not_claimed_before_the_topic_is_read_once_more(topic, holder):
    slot = first_slot(holder)
    topic.max_records = 0
    topic.error = RuntimeError("the reader is broken")
    wait_for(lambda: topic.readers == 2)
    claims = len(topic.records)
    wait_for(lambda: holder.partitions is None)
    assert "the reader is broken" in holder.waiting
    # A claim would have been made by now: other renewals come at this interval.
    time.sleep(0.3)
    assert len(topic.records) == claims
    topic.max_records = None
    wait_for(lambda: holder.partitions is not None)
    assert set(topic.slots()) == {slot}


def test_a_reader_that_gets_nothing_more_is_replaced_and_the_slot_kept(topic, holder):
    slot = first_slot(holder)
    topic.is_deaf = True
    wait_for(lambda: holder.partitions is None)
    topic.is_deaf = False
    wait_for(lambda: holder.partitions is not None)
    assert topic.readers > 1
    assert set(topic.slots()) == {slot}


def test_a_process_that_was_frozen_reads_who_has_its_slot_now(topic, holder):
    wait_for(lambda: holder.partitions is not None)
    thaw = topic.freeze()
    wait_for(lambda: holder.partitions is None)
    time.sleep(0.3)  # the lease is over
    topic.is_taken = True
    thaw.set()
    wait_for(lambda: holder.waiting == "other instances have all partitions")
    assert topic.readers == 1


def test_a_spare_claims_one_slot_until_it_has_read_who_has_it(topic):
    topic.held = []
    holder = LeaseHolder({}, QUERIES, TIMING)
    try:
        wait_for(lambda: len(topic.held) > 5)
        held, topic.held = topic.held, None
        assert len({slot for slot, _ in held}) == 1
        for slot, claim in held:
            topic.write(slot, claim)
        wait_for(lambda: holder.partitions is not None)
        assert set(topic.slots()) == {held[0][0]}
    finally:
        holder.close()


def test_a_renewal_that_is_read_late_does_not_make_the_lease_young(topic, holder):
    wait_for(lambda: holder.partitions is not None)
    topic.held = []  # nothing more is renewed
    wait_for(lambda: topic.held)
    slot, claim = topic.held[0]
    wait_for(lambda: time.monotonic() - claim.sent_ms / 1000 > TIMING.own_seconds)
    wait_for(lambda: holder.partitions is None)
    topic.write(slot, claim)
    read = len(topic.records)
    wait_for(lambda: topic.reads >= read)
    time.sleep(0.1)  # it is taken
    assert holder.partitions is None


def test_a_claim_that_can_not_be_sent_is_told(topic, caplog):
    topic.refusal = confluent_kafka.KafkaError(
        confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    )
    holder = LeaseHolder({}, QUERIES, TIMING)
    try:
        wait_for(lambda: "authorization failed" in holder.waiting)
        assert "authorization failed" in caplog.text
        topic.refusal = None
        wait_for(lambda: holder.partitions is not None)
    finally:
        holder.close()


@pytest.mark.parametrize("timing", [replace(TIMING, hung_seconds=5.5)])
def test_a_process_that_was_frozen_does_not_hang(topic, holder, caplog):
    wait_for(lambda: holder.partitions is not None)
    thaw = topic.freeze()
    time.sleep(6.0)
    assert holder.partitions is None
    thaw.set()
    wait_for(lambda: holder.partitions is not None)
    assert "hung" not in caplog.text


@pytest.mark.parametrize("timing", [replace(TIMING, rest_seconds=3_600)])
def test_a_slot_that_is_given_back_is_left_to_others_for_a_while(topic, holder):
    wait_for(lambda: holder.partitions is not None)
    holder.give_back()
    assert holder.partitions is None
    wait_for(lambda: holder._state.own is None)
    assert "leaves its partitions to others" in holder.waiting
    claims = len(topic.records)
    time.sleep(0.2)
    assert len(topic.records) == claims


def test_a_slot_that_was_given_back_and_that_nobody_has_taken_is_claimed_again(topic, holder):
    slot = first_slot(holder)

    def is_released():
        holder.give_back()  # again and again: the thread may come to it after the time to rest
        return slot in topic.released()

    wait_for(is_released)
    wait_for(lambda: holder.partitions is not None)


@pytest.mark.parametrize("timing", [replace(TIMING, hung_seconds=0.2)])
def test_an_instance_that_hangs_loses_its_lease_until_it_works_again(topic, holder, caplog):
    def has_partitions():
        holder.heartbeat()
        return holder.partitions is not None

    wait_for(has_partitions)
    wait_for(lambda: "test_an_instance_that_hangs" in caplog.text)
    wait_for(lambda: holder.partitions is None)
    claims = len(topic.records)
    # A renewal would have been sent by now: others come at this interval.
    time.sleep(0.3)
    assert len(topic.records) == claims
    wait_for(has_partitions)
    assert topic.readers == 1


def test_an_instance_says_why_it_has_no_partitions(topic):
    topic.max_records = 0
    holder = LeaseHolder({}, QUERIES, TIMING)
    try:
        assert holder.waiting == "leases are being read"
        topic.is_taken = True
        topic.max_records = None
        wait_for(lambda: holder.waiting == "other instances have all partitions")
    finally:
        holder.close()


def test_the_lease_of_a_process_that_has_died_is_taken_before_it_expires(topic):
    topic.renew_others()
    timing = replace(TIMING, lease_ms=3_600_000)
    holder = LeaseHolder({}, QUERIES, timing)
    try:
        wait_for(lambda: holder.waiting == "other instances have all partitions")
        holder.void("unknown")
        holder.void("other-2")
        wait_for(lambda: holder.slot == 2)
        assert topic.released() == [2]
        assert topic.slots(holder.holder) == [0, 1, 2, 3, 2]
        assert not holder.has_lost(holder.term)
    finally:
        holder.close()


def test_a_slot_that_another_process_had_meanwhile_is_another_term(topic, holder):
    slot = first_slot(holder)
    term = holder.term
    topic.write(slot, Claim(holder.holder, "host", is_release=True))
    wait_for(lambda: holder.has_lost(term))
    first_slot(holder)
    assert holder.has_lost(term)
    assert not holder.has_lost(holder.term)
