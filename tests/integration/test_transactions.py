"""What a producer of transactions raises at a real broker."""

from __future__ import annotations

import time

import pytest
from tests.kafka_topics import make_topic

from headrace.kafka.client import client_config
from headrace.kafka.sending import ProducerRecord
from headrace.kafka.transactions import TransactionalProducer, TransactionFencedError
from headrace.settings.model import KafkaSettings


@pytest.mark.parametrize("pause_seconds", [0, 1])
def test_a_transaction_that_is_longer_than_the_queue_and_is_overtaken_is_fenced(
    broker, topic, pause_seconds
):
    config, name = client_config(KafkaSettings(), broker.bootstrap_servers), topic()
    make_topic(config, name, 1)
    config["queue.buffering.max.messages"] = "10"
    first = TransactionalProducer(config, name)

    def records():
        for number in range(1_000):
            if number == 100:
                TransactionalProducer(config, name)
            if number == 101:
                time.sleep(pause_seconds)
            yield ProducerRecord(name, b"k", b"value", ())

    with pytest.raises(TransactionFencedError):
        first.send(records())
