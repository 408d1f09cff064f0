"""Delivery reports are fetched for as long as there is a producer, whatever a poll raises."""

from __future__ import annotations

import asyncio

from confluent_kafka import KafkaError, KafkaException
from tests.integration.instances import drill
from tests.waiting import until

from headrace.kafka.write import polled_producer
from headrace.kafka.write.polled_producer import PolledProducer

FATAL = KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))


class Client:
    def __init__(self, error=None):
        self.error, self.polls = error, 0

    def __len__(self):
        return 1

    def poll(self, seconds):
        self.polls += 1
        if self.error is not None:
            raise self.error

    def purge(self, *, blocking):
        self.error = None


def test_a_producer_that_cannot_be_replaced_at_once_is_replaced_later(monkeypatch):
    last = Client()
    made = [Client(FATAL), OSError("too many open files"), last]

    def make(*_):
        client = made.pop(0)
        if isinstance(client, Exception):
            raise client
        return client

    async def run():
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        client = PolledProducer({}, {})
        client.expect_reports()
        await until(lambda: last.polls > 1)
        assert client.current is last

    monkeypatch.setattr(polled_producer, "producer", make)
    drill(run())
