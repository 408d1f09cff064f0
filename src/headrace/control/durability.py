"""Settings that are allowed, each by itself, and do not add up to what is expected of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from headrace.control.topic_rules import Fault
from headrace.kafka.client import LARGEST_MESSAGE_BYTES
from headrace.model import Pipeline, Topic

DEFAULT_SEGMENT = timedelta(days=7)
_FAR_ABOVE = 4
_SAFE_COPIES = 3
_MIN_ISR = "min.insync.replicas"


def topic_contradictions(topic: Topic) -> Iterator[Fault]:
    """What can never work: an error."""
    in_sync = _number(topic, _MIN_ISR)
    if in_sync is not None and in_sync > topic.replication:
        yield Fault(
            f"topic {topic.name!r}: {_MIN_ISR} {in_sync} with replication {topic.replication}: "
            "no write would ever be confirmed",
            f"{_MIN_ISR} of {max(1, topic.replication - 1)}, or more copies",
        )
    largest = _number(topic, "max.message.bytes")
    if largest is not None and largest > LARGEST_MESSAGE_BYTES:
        yield Fault(
            f"topic {topic.name!r}: max.message.bytes {largest} is above the "
            f"{LARGEST_MESSAGE_BYTES} that headrace's clients send",
            "keep what is large elsewhere, and send where it is",
        )


def topic_warnings(topic: Topic) -> Iterator[Fault]:
    """What works, until something breaks: a warning."""
    yield from _copies(topic)
    yield from _segments(topic)


def pipeline_warnings(pipeline: Pipeline) -> Iterator[Fault]:
    """Topics that are read together are expected to keep equal keys in equal partitions."""
    topics = {source.topic.name: source.topic for source in pipeline.sources}
    keyed = {name: topic.partitions for name, topic in topics.items() if topic.key is not None}
    if len(set(keyed.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in keyed.items())
        yield Fault(
            f"pipeline {pipeline.name!r} reads topics with different partition counts: {counts}",
            "with as many partitions each, equal keys lie in partitions of equal number",
        )


def _copies(topic: Topic) -> Iterator[Fault]:
    in_sync = _number(topic, _MIN_ISR) or 1
    if topic.replication >= _SAFE_COPIES and in_sync == 1:
        yield Fault(
            f"topic {topic.name!r}: replication {topic.replication}, but {_MIN_ISR} is 1: a write "
            "is confirmed by one broker alone when the others are behind",
            f'config={{"{_MIN_ISR}": "{topic.replication - 1}"}}',
        )
    elif topic.replication > 1 and in_sync == topic.replication:
        yield Fault(
            f"topic {topic.name!r}: {_MIN_ISR} equals replication {topic.replication}: "
            "nothing can be written while any broker is down",
            f'config={{"{_MIN_ISR}": "{topic.replication - 1}"}}',
        )


def _segments(topic: Topic) -> Iterator[Fault]:
    segment = _duration(topic, "segment.ms") or DEFAULT_SEGMENT
    retention = topic.retention or _duration(topic, "retention.ms")
    if topic.compaction and _number(topic, "segment.ms") is None:
        yield Fault(
            f"topic {topic.name!r} is compacted, but its open segment is not, for "
            f"{DEFAULT_SEGMENT.days} days: who reads it from the beginning reads every change",
            'config={"segment.ms": "3600000"}',
        )
    elif retention is not None and segment > _FAR_ABOVE * retention:
        millis = retention // timedelta(milliseconds=1)
        yield Fault(
            f"topic {topic.name!r}: segment.ms is {segment}, retention {retention}: records stay "
            "until their segment is closed, and who reads from the beginning reads them",
            f'config={{"segment.ms": "{millis}"}}',
        )


def _number(topic: Topic, name: str) -> int | None:
    value = topic.config.get(name, "")
    return int(value) if isinstance(value, str) and value.isdecimal() else None


def _duration(topic: Topic, name: str) -> timedelta | None:
    millis = _number(topic, name)
    return None if millis is None else timedelta(milliseconds=millis)
