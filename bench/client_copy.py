"""Copies partitions of a topic to another broker by the client library alone.

It does for each record only what the library takes to read and to send it with a header: what is
faster than this needs another library. It keeps no position, sends none again after a restart, and
looks at no delivery report.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from confluent_kafka import TopicPartition

from headrace.kafka.client.clients import client_config, consumer, producer
from headrace.settings.model import KafkaSettings

_RECORDS = 5_000
_SECONDS = 0.1
_READING = {"queued.min.messages": "50000", "fetch.queue.backoff.ms": "10"}
_WRITING = {"queue.buffering.max.messages": "500000"}


def copy(source: str, target: str, topic: str, to: str, partitions: Sequence[int]) -> None:
    """Copies partitions from their earliest record on, until the process is ended."""
    reader = consumer(client_config(KafkaSettings(), source), tuning=_READING)
    reader.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    writer = producer(client_config(KafkaSettings(), target), _WRITING)
    while True:
        for message in reader.consume(_RECORDS, _SECONDS):
            if message.error() is not None:  # the end of a partition
                continue
            headers = [("headrace-origin", b"source/%d" % message.offset())]
            record = (to, message.value(), message.key(), message.partition())
            _, timestamp_ms = message.timestamp()
            while True:
                try:
                    writer.produce(*record, None, None, timestamp_ms, headers)
                    break
                except BufferError:
                    writer.poll(_SECONDS)
        writer.poll(0)


if __name__ == "__main__":
    from_, to_, read, written, numbers = sys.argv[1:]
    copy(from_, to_, read, written, [int(number) for number in numbers.split(",")])
