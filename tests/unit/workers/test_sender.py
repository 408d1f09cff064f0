"""What is handed to the producer: in the order of the calls, from any thread, with room or not."""

import asyncio
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.integration.instances import drill
from tests.waiting import until

from headrace.workers.lanes import sender
from headrace.workers.lanes.attempt import CURRENT, OwnCall
from headrace.workers.lanes.sender import Sender
from headrace.workers.timing import WorkerTiming

THERE = SimpleNamespace(offset=lambda: 7)


class Producer:
    """Takes ``room`` records; each is confirmed by hand."""

    def __init__(self):
        self.room, self.taken, self.reports = 100, [], []
        self.current = self

    def produce(self, topic, value, key, partition, *, headers, on_delivery):
        if not self.room:
            raise BufferError
        if value == b"too large":
            raise ValueError("too large")
        self.room -= 1
        self.taken.append(value)
        self.reports.append(on_delivery)

    def expect_reports(self):
        pass


@pytest.fixture
def producer(monkeypatch):
    made = Producer()
    monkeypatch.setattr(sender, "PolledProducer", lambda *_: made)
    return made


def test_what_finds_no_room_waits_and_keeps_its_order(producer):
    async def run():
        producer.room = 2
        sends = Sender({}, WorkerTiming(full_queue_seconds=0))
        for number in range(5):
            sends.send("out", b"%d" % number)
        assert producer.taken == [b"0", b"1"]
        producer.room = 2
        await until(lambda: len(producer.taken) == 4)
        producer.room = 9
        await until(lambda: len(producer.taken) == 5)

    drill(run())
    assert producer.taken == [b"0", b"1", b"2", b"3", b"4"]


def test_a_send_of_a_thread_counts_for_its_call_at_once(producer):
    async def run():
        call = OwnCall("init")
        CURRENT.set(call)
        sends = Sender({})
        await asyncio.to_thread(sends.send, "out", b"1")
        assert not call.sends.are_confirmed
        await until(lambda: producer.reports)
        producer.reports[0](None, THERE)
        await call.confirm_sends()

    drill(run())


def test_a_send_can_be_awaited_and_raises_what_failed(producer):
    async def run():
        call = OwnCall("init")
        CURRENT.set(call)
        sends = Sender({})
        fine = sends.send("out", b"1")
        waiting = asyncio.gather(fine, fine)
        await asyncio.sleep(0)
        producer.reports[0](None, THERE)
        await waiting
        with pytest.raises(ValueError, match="too large"):
            await sends.send("out", b"too large")
        with pytest.raises(ValueError, match="too large"):
            await call.confirm_sends()

    drill(run())


def test_a_send_that_failed_names_the_topic_that_it_was_for(producer):
    async def run():
        sent = Sender({}).send("receipts", b"1")
        producer.reports[0](
            KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), SimpleNamespace(topic=lambda: "receipts")
        )
        with pytest.raises(KafkaException, match="sent to topic receipts: "):
            await sent

    drill(run())


def test_a_send_that_is_reported_without_an_offset_failed(producer):
    async def run():
        sent = Sender({}).send("receipts", b"1")
        producer.reports[0](None, SimpleNamespace(topic=lambda: "receipts", offset=lambda: None))
        with pytest.raises(KafkaException, match=r"topic receipts: .* was not confirmed"):
            await sent

    drill(run())


def test_a_header_name_that_is_no_text_is_refused_where_it_is_sent(producer):
    async def run():
        with pytest.raises(UnicodeEncodeError):
            Sender({}).send("out", b"", headers=(("\ud800", b""),))

    drill(run())
    assert producer.taken == []
