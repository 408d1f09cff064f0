"""Checks that topics keep records for as long as a pipeline remembers them.

What a pipeline remembers is in its checkpoint. When the checkpoint is lost, or starts over after a
change of the declaration, the state is filled by reading the topic again, and what retention has
removed by then can't be remembered: clicks come out as unmatched, and duplicates are kept.

===================== ================================= ============================================
declared              topic                             must keep records for
===================== ================================= ============================================
``Join``              the earlier one                   ``within`` and two times ``wait``
``Join``              the later one                     ``wait``
``deduplicate``       every source                      ``within``
``Lake(unique=)``     none: the table is what is known
``Postgres(unique=)`` none: the index is what is known
``Stats(unique=)``    none: its keys are what is known
===================== ================================= ============================================

A topic whose ``cleanup.policy`` is ``compact`` alone has no retention. A topic that declares none
has that of the brokers, which only :func:`live_horizon_warnings` knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from headrace.model import Topic
from headrace.model.fault import Fault, is_a
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.transforms.deduplicate import deduplicate
from headrace.topics.durability import declared_retention, default_retention_ms

if TYPE_CHECKING:
    from headrace.kafka.admin.topics import TopicState


class Horizon(NamedTuple):
    """How long a pipeline remembers the events of a topic, and which arguments say so."""

    topic: Topic
    length: timedelta
    what: str


def retention_faults(pipeline: Pipeline) -> Iterator[Fault]:
    """Yields a fault for each topic that declares a retention that is too short."""
    for horizon in _horizons(pipeline):
        retention = declared_retention(horizon.topic)
        # A value that is no duration is a fault of the topic.
        if retention is not None and is_a(retention, timedelta):
            yield from _fault(pipeline, horizon, retention)


def live_horizon_warnings(
    pipeline: Pipeline, live: Mapping[str, TopicState], brokers: Mapping[str, str]
) -> Iterator[Fault]:
    """Yields a warning for each topic that declares no retention, and has one that is too short.

    Args:
        pipeline: valid by itself.
        live: the topics that exist, by name.
        brokers: settings of the brokers by Kafka's names, for topics that do not exist yet.
    """
    for horizon in _horizons(pipeline):
        topic = horizon.topic
        if "retention.ms" in topic.kafka_config or not topic.has_retention:
            continue
        state = live.get(topic.name)
        millis = default_retention_ms(brokers)
        if state is not None:
            value = state.config.get("retention.ms", "")
            millis = int(value) if value.isdecimal() else None  # -1: for ever
        if millis is not None:
            yield from _fault(pipeline, horizon, timedelta(milliseconds=millis))


def _horizons(pipeline: Pipeline) -> Iterator[Horizon]:
    if (join := pipeline.join) is not None:
        later, earlier = (source.topic for source in join.sources)
        kept = f"Join.within {join.within} and two times Join.wait {join.wait}"
        yield Horizon(earlier, join.within + 2 * join.wait, kept)
        yield Horizon(later, join.wait, f"Join.wait {join.wait}")
    for step in pipeline.steps:
        if isinstance(step, deduplicate):
            for source in pipeline.sources:
                yield Horizon(source.topic, step.within, f"deduplicate.within {step.within}")


def _fault(pipeline: Pipeline, horizon: Horizon, retention: timedelta) -> Iterator[Fault]:
    topic, length, what = horizon
    if length > retention:
        yield Fault(
            f"pipeline {pipeline.name!r}: {what} is longer than topic {topic.name!r} keeps records,"
            f" {retention}: a checkpoint that starts over could not read again what it must know",
            f"a retention of at least {length} of the topic, or a shorter time",
        )
