"""The broker of a benchmark, and the topic that all its systems read."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from confluent_kafka import TopicPartition as LedgerKey
from rich.console import Console
from rich.progress import Progress

from bench.driver import OutputWrongError
from bench.events import events, impressions_topic
from headrace.kafka.admin.topics import apply_changes, plan_topics, with_dead_letters
from headrace.kafka.client.clients import ClientConfig, client_config, consumer, producer
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.embedded.cluster import EmbeddedCluster
from headrace.model import Topic, TopicPartition
from headrace.runtime.files.cache import cache_folder
from headrace.runtime.java.installation import Java
from headrace.runtime.java.jars import fetch
from headrace.settings.model import EmbeddedKafka, KafkaSettings

HEAP_MB = 1024
WORK = Path(__file__).with_name(".work")
"""What a run writes, while there is a broker."""
_POLL_EVERY = 10_000
_FETCH_SECONDS = 60.0
_FETCH_RECORDS = 10_000
Placed: TypeAlias = tuple[int, bytes | None, bytes]
"""Partition, key and value of a record."""


@dataclass(frozen=True)
class Broker:
    """One running broker: where it listens, and its process."""

    bootstrap: str
    pid: int


@contextmanager
def opened(
    java: Java, console: Console, config: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """A broker, and the empty folder :data:`WORK`; both gone when the block ends.

    ``config`` wins over headrace's own.
    """
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    console.print("starting the broker")
    try:
        with opened_in(WORK, java, config) as broker:
            yield broker
    finally:
        shutil.rmtree(WORK, ignore_errors=True)


@contextmanager
def opened_in(
    folder: Path, java: Java, config: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """A broker with its data in a folder; stopped when the block ends.

    ``config`` wins over headrace's own.
    """
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


def fill(broker: Broker, topic: str, partitions: int, count: int, console: Console) -> None:
    """``count`` events into the partitions of a new topic, in turn. Raises as :func:`fill_with`."""
    fill_with(broker, impressions_topic(topic, partitions), events(count), count, console)


def fill_with(
    broker: Broker, topic: Topic, values: Iterable[bytes], count: int, console: Console
) -> None:
    """``values``, ``count`` of them, into the partitions of a new topic, in turn.

    Raises as :func:`fill_placed`.
    """
    places = itertools.cycle(range(topic.partitions))
    placed = ((partition, None, value) for partition, value in zip(places, values, strict=False))
    fill_placed(broker, topic, placed, count, console)


def fill_placed(
    broker: Broker, topic: Topic, records: Iterable[Placed], count: int, console: Console
) -> None:
    """``records``, ``count`` of them, into a new topic.

    Raises:
        RuntimeError: the topic does not hold as many records afterwards.
    """
    config = make_topic(broker, topic)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(f"{count:,} events into topic {topic.name}", total=count)
        send(
            config,
            topic.name,
            records,
            lambda sent: progress.update(task, completed=sent),
        )
    if (held := records_in(broker, topic.name, topic.partitions)) != count:
        raise RuntimeError(f"{count} records were sent, the topic holds {held}")


def make_topic(broker: Broker, topic: Topic) -> ClientConfig:
    """Makes a topic, and that of its dead letters; what a client is told of the broker."""
    config = client_config(KafkaSettings(), broker.bootstrap)
    apply_changes(config, plan_topics(with_dead_letters([topic], [topic]), {}))
    return config


def records_in(broker: Broker, topic: str, partitions: int) -> int:
    """How many records a topic holds that no transaction writes to."""
    config = client_config(KafkaSettings(), broker.bootstrap)
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    marks = watermarks(config, places).values()
    return sum(itertools.starmap(lambda earliest, latest: latest - earliest, marks))


def values_of(broker: Broker, topic: str, partitions: int) -> Iterator[bytes]:
    """The record values of a topic, to its end. Raises as :func:`timed_values_of`."""
    for _, value in timed_values_of(broker, topic, partitions):
        yield value


def timed_values_of(broker: Broker, topic: str, partitions: int) -> Iterator[tuple[int, bytes]]:
    """The records' times in ms, and their values, of a topic to its end.

    Raises:
        OutputWrongError: it can't be read to its end.
    """
    config = client_config(KafkaSettings(), broker.bootstrap)
    count = records_in(broker, topic, partitions)
    reader = consumer(config, tuning={"enable.partition.eof": "false"})
    reader.assign([LedgerKey(topic, number, 0) for number in range(partitions)])
    try:
        while count:
            records = reader.consume(min(count, _FETCH_RECORDS), _FETCH_SECONDS)
            if not records:
                raise OutputWrongError(f"topic {topic}: {count} records can't be read")
            count -= len(records)
            yield from ((record.timestamp()[1], record.value()) for record in records)
    finally:
        reader.close()


def send(
    config: ClientConfig,
    topic: str,
    records: Iterable[Placed],
    on_progress: Callable[[int], None],
) -> None:
    """Sends records to a topic; returns when the broker has them."""
    sender = producer(config)
    for sent, record in enumerate(records, start=1):
        while not _queued(sender, topic, record):
            sender.poll(0.1)
        if sent % _POLL_EVERY == 0:
            sender.poll(0)
            on_progress(sent)
    sender.flush()


def _queued(sender: object, topic: str, record: Placed) -> bool:
    partition, key, value = record
    try:
        sender.produce(topic, value, key, partition)  # type: ignore[attr-defined]
    except BufferError:
        return False
    return True
