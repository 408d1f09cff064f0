"""The topic that a system writes its counts to: followed while they come, and read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import confluent_kafka
import msgspec

from bench.driver import OnCommit
from bench.peers.progress import follow
from bench.setup import Setup
from bench.windowed_count.traffic import Counts
from headrace import Topic
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig, client_config, consumer
from headrace.kafka.client.offsets import earliest_offsets, high_watermarks
from headrace.kafka.read.range_reader import read_ranges
from headrace.model import OffsetRange
from headrace.settings.model import KafkaSettings

Decode: TypeAlias = Callable[[bytes], tuple[tuple[str, int], int]]
"""Advertiser, begin of the window in ms, and count of a record."""
_FETCH_RECORDS = 10_000


class Counted(msgspec.Struct):
    """A count as the peers write it."""

    advertiser: str
    begin_ms: int
    count: int


_COUNTED = msgspec.json.Decoder(Counted)


def decode_counted(value: bytes) -> tuple[tuple[str, int], int]:
    """What the record of a peer says."""
    counted = _COUNTED.decode(value)
    return (counted.advertiser, counted.begin_ms), counted.count


def counts_topic(name: str, partitions: int) -> Topic:
    """A peer's topic. Some give records the time of their window, by which they would be old."""
    return Topic(name, event=Counted, partitions=partitions, config={"retention.ms": "-1"})


def follow_counts(
    setup: Setup, topic: str, results: int, on_commit: OnCommit, check: Callable[[], None]
) -> None:
    """Tells of how many events the topic has counts, until it has all ``results``.

    Each count stands for as many events. Raises as :func:`bench.peers.progress.follow`.
    """
    config = client_config(KafkaSettings(), setup.bootstrap)
    reader = consumer(config, tuning={"enable.partition.eof": "false"})
    places = describe(config, [topic])[topic].all_partitions
    reader.assign([confluent_kafka.TopicPartition(topic, at.partition, 0) for at in places])
    committed = 0

    def counted_events() -> int:
        nonlocal committed
        while records := reader.consume(_FETCH_RECORDS, 0.0):
            committed += len(records)
        return setup.messages * committed // results

    try:
        follow(counted_events, setup.messages, on_commit, check)
    finally:
        reader.close()


def compared(config: ClientConfig, topic: str, decode: Decode, expected: Counts) -> dict[str, int]:
    """How many committed results a topic has, and how many windows and keys have the right count.

    One that has two results has no right one.
    """
    found: dict[tuple[str, int], list[int]] = {}
    for value in _committed_values(config, topic):
        key, count = decode(value)
        found.setdefault(key, []).append(count)
    right = sum(found.get(key) == [count] for key, count in expected.items())
    return {"results": sum(map(len, found.values())), "right_results": right}


def _committed_values(config: ClientConfig, topic: str) -> Iterator[bytes]:
    places = describe(config, [topic])[topic].all_partitions
    begins, ends = earliest_offsets(config, places), high_watermarks(config, places)
    ranges = [OffsetRange(at, begins[at], ends[at]) for at in places if begins[at] < ends[at]]
    reader = consumer(config)
    try:
        for chunk in read_ranges(reader, ranges, config):
            yield from (record.value() or b"" for record in chunk.records)
    finally:
        reader.close()
