"""Topics and groups for the time of a measurement, and what fills them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from confluent_kafka import KafkaError, KafkaException, Message

from headrace.kafka.admin.measuring import SampledRecord, present_topic, temporary_name
from headrace.kafka.admin.record_limits import MAX_MESSAGE_BYTES
from headrace.kafka.client.clients import ClientConfig, connected_producer
from headrace.kafka.group.groups import delete_group
from headrace.kafka.table.changelog import possible_replication
from headrace.model import Topic
from headrace.operations.measuring.sample import RecordSample

SCRATCH_PREFIX = "headrace-scratch-"
# What a measurement that was killed leaves behind holds no disk for long.
_KEPT = timedelta(hours=1)
_POLL_SECONDS = 0.1
MAX_FILL_BYTES = 256 * 1024 * 1024
"""Of records that wait for a round."""


@contextmanager
def scratch_group(config: ClientConfig) -> Iterator[str]:
    """Lends the name of a group, which is deleted in the end."""
    name = temporary_name(SCRATCH_PREFIX)
    try:
        yield name
    finally:
        delete_group(config, name)


@contextmanager
def scratch_topics(config: ClientConfig, topics: Sequence[Topic]) -> Iterator[list[Topic]]:
    """Creates a topic with one partition for each of ``topics``, and deletes all in the end.

    They are declared as their originals are, so that their records are read as theirs.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicChangeError: if Kafka refuses a topic.
    """
    replication = possible_replication(config)
    with ExitStack() as stack:
        yield [
            stack.enter_context(present_topic(config, _scratch(topic, replication)))
            for topic in topics
        ]


def _scratch(topic: Topic, replication: int) -> Topic:
    return replace(
        topic,
        name=temporary_name(SCRATCH_PREFIX),
        partitions=1,
        replication=replication,
        retention=_KEPT,
        compaction=False,
        config={"max.message.bytes": str(MAX_MESSAGE_BYTES)},
    )


def _repeated(records: Sequence[_Placed]) -> Iterator[_Placed]:
    """Yields the records again and again, each as its sample has it that time."""
    for number in itertools.count():
        for placed in records:
            yield replace(placed, record=placed.sample.repeated(placed.record, number))


@dataclass(frozen=True)
class _Placed:
    topic: str
    record: SampledRecord
    sample: RecordSample


class Filler:
    """Writes the records of samples to their topics, in turn, as often as is asked.

    Attributes:
        filled: records that were written.
        mean_bytes: of their keys and values.
        most: records that it writes at a time.
    """

    def __init__(self, config: ClientConfig, samples: Sequence[tuple[str, RecordSample]]) -> None:
        # Side by side, so that each topic has its share in each round.
        rows = itertools.zip_longest(
            *(
                [_Placed(name, record, sample) for record in sample.records]
                for name, sample in samples
            )
        )
        records = [placed for row in rows for placed in row if placed is not None]
        self._next = _repeated(records)
        self._producer = connected_producer(config)
        self._failures: list[KafkaError] = []
        self.filled = 0
        self.mean_bytes = sum(placed.record.size for placed in records) / len(records)
        self.most = max(1, int(MAX_FILL_BYTES / max(1.0, self.mean_bytes)))

    def fill(self, count: int) -> None:
        """Writes ``count`` records, as many as ``most``; returns when all brokers have them.

        Raises:
            KafkaException: if Kafka rejects a record.
        """
        number = min(count, self.most)
        for placed in itertools.islice(self._next, number):
            self._send(placed)
        while self._producer.flush(_POLL_SECONDS):  # in steps, so that Ctrl-C takes effect
            continue
        if self._failures:
            raise KafkaException(self._failures[0])
        self.filled += number

    def _send(self, placed: _Placed) -> None:
        record = placed.record
        while True:
            with suppress(BufferError):
                self._producer.produce(
                    placed.topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    partition=0,
                    on_delivery=self._report,
                )
                return
            self._producer.poll(_POLL_SECONDS)

    def _report(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(error)
