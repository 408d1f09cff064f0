"""The broker of a benchmark, and the topic that all its systems read."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.events import impressions_topic
from headrace.kafka.client import client_config, producer, watermarks
from headrace.kafka.embedded import EmbeddedCluster
from headrace.kafka.topics import apply_changes, plan_topics
from headrace.model import TopicPartition
from headrace.runtime.cache import cache_folder
from headrace.runtime.jars import fetch
from headrace.runtime.java import Java
from headrace.settings.model import EmbeddedKafka, KafkaSettings

HEAP_MB = 1024
_POLL_EVERY = 10_000


@dataclass(frozen=True)
class Broker:
    """One running broker: where it listens, and its process."""

    bootstrap: str
    pid: int


@contextmanager
def running_broker(
    folder: Path, java: Java, config: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """One embedded broker, gone when the block ends; ``config`` wins over headrace's own."""
    settings = EmbeddedKafka(brokers=1, heap_mb=HEAP_MB)
    cluster = EmbeddedCluster(folder, settings, java, jars("kafka", java), config=config)
    try:
        bootstrap = cluster.start()
        yield Broker(bootstrap, cluster.status().brokers[0].pid or 0)
    finally:
        cluster.stop()


def jars(group: str, java: Java) -> list[Path]:
    """A locked group of jars, from the per-user cache."""
    return fetch(group, java, cache=cache_folder(os.environ), on_progress=lambda *_: None)


def fill(
    bootstrap: str,
    topic: str,
    partitions: int,
    values: Iterable[bytes],
    on_progress: Callable[[int], None],
) -> None:
    """Creates the topic and writes ``values`` into its partitions in turn.

    Raises:
        RuntimeError: the topic does not hold as many records afterwards.
    """
    config = client_config(KafkaSettings(), bootstrap)
    apply_changes(config, plan_topics([impressions_topic(topic, partitions)], {}))
    sender = producer(config)
    sent = 0
    for sent, value in enumerate(values, start=1):
        while not _queued(sender, topic, sent % partitions, value):
            sender.poll(0.1)
        if sent % _POLL_EVERY == 0:
            sender.poll(0)
            on_progress(sent)
    sender.flush()
    _check(watermarks(config, _partitions(topic, partitions)), sent)


def _queued(sender: object, topic: str, partition: int, value: bytes) -> bool:
    try:
        sender.produce(topic, value, partition=partition)  # type: ignore[attr-defined]
    except BufferError:
        return False
    return True


def _partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(count)]


def _check(marks: dict[TopicPartition, tuple[int, int]], sent: int) -> None:
    held = sum(itertools.starmap(lambda earliest, latest: latest - earliest, marks.values()))
    if held != sent:
        raise RuntimeError(f"{sent} records were sent, the topic holds {held}")
