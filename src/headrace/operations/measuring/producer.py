"""Measures a producer: how fast events of a topic are encoded, checked and sent."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from headrace.errors import EventRejectedError, InvalidRecordError, MeasurementError
from headrace.events.instances import event_reader
from headrace.ingest.producing.event_producer import EventProducer
from headrace.model import Registered, Topic
from headrace.operations.measuring.result import (
    MeasuredDeclaration,
    Round,
    machine,
    memory,
    now,
    versions,
)
from headrace.operations.measuring.rounds import MeasureOptions, OnStep
from headrace.operations.measuring.sample import ACCOUNT, RecordSample, sample_of, used
from headrace.operations.measuring.scratch import scratch_topics
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.runtime.process_tree import Watch

NOT_MEASURED = (
    "your own code: events were made before, and sent in a loop",
    "other partitions: the topic had one, so one broker led it",
)
# The time is looked at once in so many events; it costs as much as a tenth of one.
_AT_ONCE = 50


class _Loop:
    """Sends events in turn, and counts."""

    def __init__(
        self, producer: EventProducer, topic: Topic, events: Sequence[object], watch: Watch
    ) -> None:
        self._producer, self._topic, self._watch = producer, topic, watch
        self._events = itertools.cycle(events)
        self._rejected = 0

    def round(self, seconds: float, mean_bytes: float) -> Round:
        """Sends for so long; the time ends with the last acknowledgement."""
        rejected, cpu, sent = self._rejected, self._watch.cpu_seconds(), 0
        begin = time.perf_counter()
        while not sent or time.perf_counter() < begin + seconds:
            for event in itertools.islice(self._events, _AT_ONCE):
                self._send(event)
            sent += _AT_ONCE
        self._producer.flush()
        elapsed = time.perf_counter() - begin
        failed = self._rejected - rejected
        return Round(
            elapsed,
            sent,
            failed,
            self._watch.cpu_seconds() - cpu,
            sent - failed,
            (sent - failed) * mean_bytes,
        )

    def _send(self, event: object) -> None:
        try:
            self._producer.send(self._topic, event)
        except EventRejectedError:
            self._rejected += 1


def measure_producer(
    project: LoadedProject, topic: Topic, options: MeasureOptions, on_step: OnStep
) -> MeasuredDeclaration:
    """Sends events of ``topic`` to another one by :class:`EventProducer`, and measures it.

    Raises:
        MeasurementError: if the topic has no event class, there is no sample, or none of its
            events fits the topic.
        TopicMissingError: if the topic does not exist.
        BrokerUnreachableError: if the brokers do not answer.
        EventsNotDeliveredError: if Kafka does not confirm.
    """
    _check(topic)
    config = broker_config(project.settings)
    sample = sample_of(config, project.settings, topic, options.records, options.file)
    events = list(_events(topic, sample))
    if not events:
        reason = f"no record of {sample.source} is an event of its class; --from FILE gives events"
        raise MeasurementError(topic.name, reason)
    steps, mean_bytes = options.rounds + 1, float(sample.mean_bytes)
    with ExitStack() as stack:
        watch = stack.enter_context(Watch(os.getpid()))
        [scratch] = stack.enter_context(scratch_topics(config, [topic]))
        alone = LoadedProject(project.settings, (scratch,))
        producer = stack.enter_context(EventProducer(alone, ACCOUNT))
        loop = _Loop(producer, scratch, events, watch)
        on_step(0, steps, f"warm-up, {options.warm_up_seconds:g} s")
        warm_up = loop.round(options.warm_up_seconds, mean_bytes)
        if warm_up.failed == warm_up.records:
            producer.send(scratch, events[0])  # raises why
        rounds = []
        for number in range(options.rounds):
            on_step(1 + number, steps, f"round {number + 1} of {options.rounds}")
            rounds.append(loop.round(options.round_seconds, mean_bytes))
    return MeasuredDeclaration(
        "producer",
        topic.name,
        options.command,
        now(),
        versions(),
        machine(),
        used({topic.name: sample}, mean_bytes),
        tuple(rounds),
        *memory(watch.usage),
        not_measured=NOT_MEASURED,
    )


def _check(topic: Topic) -> None:
    if topic.event is None:
        reason = "the topic has no event class, so nothing is encoded: `headrace size --measure`"
        raise MeasurementError(topic.name, reason)
    if isinstance(topic.record_format, Registered):
        kind = type(topic.record_format).__name__
        reason = f"its format is {kind}, whose schema would be registered for a temporary topic"
        raise MeasurementError(topic.name, reason)


def _events(topic: Topic, sample: RecordSample) -> Iterator[Any]:
    """Yields the sample as instances of the event class, without what can't be read as one."""
    read = event_reader(topic)
    for record in sample.records:
        try:
            yield read(record.value, record.headers)
        except InvalidRecordError:
            continue
