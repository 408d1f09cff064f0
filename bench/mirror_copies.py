"""What mirrors and mergers write to: topics that are followed and compared by records.

Offsets are no number of records here: each transaction puts a marker into each partition.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import confluent_kafka

from bench.driver import OnCommit, OutputWrongError
from bench.peers.progress import follow
from bench.setup import Setup
from headrace.kafka.client.clients import client_config, consumer
from headrace.kafka.client.offsets import latest_offsets
from headrace.model import TopicPartition
from headrace.settings.model import KafkaSettings

_FETCH_RECORDS = 10_000
_FETCH_SECONDS = 1.0
_SILENCE_SECONDS = 60.0


@dataclass
class Content:
    """Records of a partition: how many, and a digest of their times and values in their order."""

    records: int = 0
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, time_ms: int, value: bytes) -> None:
        """Adds the next one."""
        self.records += 1
        self.digest.update(b"%d %d " % (time_ms, len(value)))
        self.digest.update(value)

    @property
    def identity(self) -> tuple[int, str]:
        """The same for partitions of equal records in equal order."""
        return self.records, self.digest.hexdigest()


def contents(bootstrap: str, topic: str, partitions: int) -> list[Content]:
    """The committed records of a topic, by partition, to its end.

    Raises:
        OutputWrongError: it can't be read to its end.
    """
    reader = consumer(client_config(KafkaSettings(), bootstrap))
    reader.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
    found = [Content() for _ in range(partitions)]
    unread, deadline = set(range(partitions)), time.monotonic() + _SILENCE_SECONDS
    try:
        while unread:
            messages = reader.consume(_FETCH_RECORDS, _FETCH_SECONDS)
            if messages:
                deadline = time.monotonic() + _SILENCE_SECONDS
            elif time.monotonic() > deadline:
                raise OutputWrongError(f"topic {topic}: partitions {unread} can't be read")
            for message in messages:
                if message.error() is None:
                    found[message.partition()].add(message.timestamp()[1], message.value())
                else:
                    unread.discard(message.partition())
    finally:
        reader.close()
    return found


def check(copy: list[Content], source: list[Content]) -> None:
    """Raises OutputWrongError unless both hold the same records, by partition and in order."""
    wrong = [
        f"partition {number} has {ours.records} of {theirs.records} records"
        + (", or others, or in another order" if ours.records == theirs.records else "")
        for number, (ours, theirs) in enumerate(zip(copy, source, strict=True))
        if ours.identity != theirs.identity
    ]
    if wrong:
        raise OutputWrongError("; ".join(wrong))


@dataclass(frozen=True)
class Copy:
    """The topic of one run, looked at while records arrive."""

    bootstrap: str
    topic: str
    partitions: int
    messages: int

    def committed(self) -> int:
        """How many records are there; while some are missing, markers of transactions count, too.

        At the end records are counted: the system must not be stopped for a few markers.
        """
        config = client_config(KafkaSettings(), self.bootstrap)
        every = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        stable = sum(offset for offset, _ in latest_offsets(config, every).values())
        if stable < self.messages:
            return stable
        return sum(part.records for part in contents(self.bootstrap, self.topic, self.partitions))


def follow_copy(
    setup: Setup, target: str, name: str, on_commit: OnCommit, check: Callable[[], None]
) -> None:
    """Tells how far the copy of a run is, until it is complete; ``target`` is the other broker.

    Raises as :func:`bench.peers.progress.follow`.
    """
    follow_topic(setup, target, copy_name(name, setup.topic), on_commit, check)


def follow_topic(
    setup: Setup, bootstrap: str, topic: str, on_commit: OnCommit, check: Callable[[], None]
) -> None:
    """Tells how far a topic is, until it holds all messages. Raises as :func:`follow_copy`."""
    copy = Copy(bootstrap, topic, setup.partitions, setup.messages)
    follow(copy.committed, setup.messages, on_commit, check)


def copy_name(run: str, topic: str) -> str:
    """The topic that a run copies ``topic`` to, as MirrorMaker names it by default."""
    return f"{run}.{topic}"
