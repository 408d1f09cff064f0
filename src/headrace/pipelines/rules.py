"""Checks declared pipelines before anything starts."""

from __future__ import annotations

import inspect
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

from headrace.model import (
    BatchLimits,
    ByField,
    ByKey,
    DeadLetterLimit,
    EventField,
    FieldType,
    Metadata,
    Source,
    Start,
    Topic,
)
from headrace.model.fault import Fault, at_least, duration, is_a
from headrace.model.source import dead_letter_limit_faults
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.envelope_rules import envelope_use_faults
from headrace.pipelines.join.declaration import Join
from headrace.pipelines.join.rules import join_faults, join_type_faults
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.late_data.rules import late_data_faults
from headrace.pipelines.source_columns import column_types, source_columns, source_fields
from headrace.pipelines.steps.metric_rules import metric_faults
from headrace.pipelines.transforms.transform import MAX_INTERVAL, Transform, watermark_faults
from headrace.runtime.error_text import error_text
from headrace.settings import Secret
from headrace.sinks.api import DeclaredRows, Sink
from headrace.topics.rules import name_faults, schema_of


def pipeline_faults(pipeline: Pipeline) -> Iterator[Fault]:
    """Yields what is wrong with one pipeline by itself."""
    yield from _source_faults(pipeline)
    step_faults = [*_asked(pipeline, "steps", _step_faults)]
    # Metrics are named by the arguments of steps.
    yield from step_faults or _asked(pipeline, "metrics", metric_faults)
    yield from at_least(pipeline.limits, "max_records", 1)
    yield from at_least(pipeline.limits, "max_bytes", 1)
    yield from duration(pipeline.limits, "max_wait", timedelta(microseconds=1))
    yield from dead_letter_limit_faults(pipeline.dead_letter_limit)
    yield from envelope_use_faults(pipeline)
    yield from join_faults(pipeline)
    yield from _asked(pipeline, "sink", _sink_faults)
    yield from late_data_faults(pipeline)


def _asked(
    pipeline: Pipeline, what: str, faults: Callable[[Pipeline], Iterator[Fault]]
) -> Iterator[Fault]:
    """Yields what steps and sinks say of themselves, which may be code of the project."""
    try:
        yield from faults(pipeline)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        raised = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{raised.filename}:{raised.lineno}"
        message = f"{_label(pipeline)}: its {what} can't be checked: {error_text(error)} ({at})"
        yield Fault(message, "`faults` yields a Fault, and `metrics` has a Metric, for each")


def settings_faults(
    pipeline: Pipeline, settings: Mapping[str, Mapping[str, Secret]]
) -> Iterator[Fault]:
    """Gives what the sinks of a pipeline need and headrace.toml does not set, or sets wrongly.

    Args:
        pipeline: declared.
        settings: tables ``[sinks.KIND]`` by kind.
    """
    for sink in pipeline.sinks:
        own = settings.get(sink.kind, {})
        missing = [key for key in sink.needed_settings if key not in own]
        for key in missing:
            yield Fault(
                f"{_label(pipeline)}: {sink.label} needs the setting {key!r}",
                f'[sinks.{sink.kind}] {key} = "..." in headrace.toml',
            )
        if not missing:
            yield from sink.settings_faults(own)


def columns(pipeline: Pipeline) -> dict[str, FieldType] | None:
    """Returns the columns that reach the sink; ``None`` when steps or faulty events hide them."""
    return None if pipeline.steps else _columns_read(pipeline)


def _columns_read(pipeline: Pipeline) -> dict[str, FieldType] | None:
    first, *_ = pipeline.sources
    known = source_columns(first)
    if pipeline.join is None or known is None:
        return known
    return known | {pipeline.join.column: FieldType.STRUCT}


def pipeline_type_faults(pipeline: Pipeline) -> Iterator[Fault]:
    """Yields which parts of a pipeline are not what the model says."""
    if not is_a(pipeline.name, str):
        yield Fault(f"pipeline name {pipeline.name!r} is not text")
    if not is_a(pipeline.source, Topic | Source | Join | list | tuple):
        yield Fault(f"{_label(pipeline)}: source is {pipeline.source!r}", "a declared Topic")
        return
    yield from join_type_faults(pipeline)
    for source in pipeline.sources:
        if not is_a(source.topic, Topic) or not is_a(source.topic.name, str):
            yield Fault(f"{_label(pipeline)}: source {source.topic!r} is not a Topic")
    yield from _part_type_faults(pipeline)


def _part_type_faults(pipeline: Pipeline) -> Iterator[Fault]:
    parts = {"sink": Sink, "limits": BatchLimits, "dead_letter_limit": DeadLetterLimit}
    for attribute, kind in parts.items():
        value = getattr(pipeline, attribute)
        if not isinstance(value, kind):
            yield Fault(f"{_label(pipeline)}: {attribute} is {value!r}", f"a {kind.__name__}")
    if not is_a(pipeline.late_data, LateData | Sink):
        remedy = "a LateData, or a sink, which is the side table"
        yield Fault(f"{_label(pipeline)}: late_data is {pipeline.late_data!r}", remedy)
    if not isinstance(pipeline.steps, list | tuple) or not all(map(callable, pipeline.steps)):
        yield Fault(f"{_label(pipeline)}: steps must be a list of functions", "steps=[enrich]")


def _source_faults(pipeline: Pipeline) -> Iterator[Fault]:
    if not pipeline.sources:
        yield Fault(f"{_label(pipeline)} has no source")
    for name, count in Counter(source.topic.name for source in pipeline.sources).items():
        if count > 1:
            yield Fault(f"{_label(pipeline)} reads topic {name!r} {count} times", "read it once")
    for source in pipeline.sources:
        yield from _own_source_faults(pipeline, source)
    takes_lateness = any(source.watermark is None for source in pipeline.sources)
    if pipeline.steps and pipeline.join is None and len(pipeline.sources) > 1 and takes_lateness:
        what = "allowed_lateness, the watermark's delay of several sources,"
        yield from _delay_faults(pipeline, what, pipeline.allowed_lateness)
    yield from _union_faults(pipeline)


def _own_source_faults(pipeline: Pipeline, source: Source) -> Iterator[Fault]:
    if not is_a(source.start, Start):
        yield Fault(f"{_label(pipeline)}: start is {source.start!r}", "Start.EARLIEST or .LATEST")
    if not all(is_a(name, Metadata) for name in source.metadata):
        yield Fault(f"{_label(pipeline)}: metadata is {source.metadata!r}", "Metadata members")
    yield from _watermark_faults(pipeline, source)
    is_united = len(pipeline.sources) > 1 and pipeline.join is None
    if source.topic.event_time is not None and (is_united or source.watermark is not None):
        subject = f"{_label(pipeline)}: the event time of topic {source.topic.name!r}"
        yield from watermark_faults(subject, source.topic.event_time)
    yield from at_least(source, "min_tasks", 0)
    yield from at_least(source, "subpartitions", 1)
    for fault in name_faults(source.topic.dead_letters):
        yield Fault(f"{_label(pipeline)}, dead letters: {fault.message}", fault.remedy)


def _watermark_faults(pipeline: Pipeline, source: Source) -> Iterator[Fault]:
    if source.watermark is None:
        return
    yield from _delay_faults(
        pipeline, f"Source.watermark of {source.topic.name!r}", source.watermark
    )
    if source.topic.event_time is None:
        message = f"{_label(pipeline)}: Source.watermark needs the event time of its topic"
        yield Fault(message, "Topic(event_time=...)")
    if not pipeline.steps:
        yield Fault(f"{_label(pipeline)}: Source.watermark is for steps, and there are none")


def _delay_faults(pipeline: Pipeline, what: str, delay: object) -> Iterator[Fault]:
    """Yields a fault for a delay below a millisecond, which Spark takes for 0, or too long."""
    if not isinstance(delay, timedelta) or delay < timedelta(milliseconds=1):
        yield Fault(
            f"{_label(pipeline)}: {what} is {delay!r}: with a delay of 0, Spark drops rows whose "
            "time equals the newest one of the batch before",
            "a timedelta of at least a millisecond",
        )
    elif delay > MAX_INTERVAL:
        yield Fault(
            f"{_label(pipeline)}: {what} is {delay!r}, too long for Spark",
            f"at most timedelta(days={MAX_INTERVAL.days})",
        )


def _union_faults(pipeline: Pipeline) -> Iterator[Fault]:
    if pipeline.steps or not pipeline.sources or pipeline.join is not None:
        return
    first, *others = (column_types(source) for source in pipeline.sources)
    if any(other != first for other in others):
        yield Fault(
            f"{_label(pipeline)} has several sources with different columns and no steps",
            "add a step that takes one DataFrame per source and gives one",
        )


def _step_faults(pipeline: Pipeline) -> Iterator[Fault]:
    frames = len(pipeline.sources) if pipeline.join is None else 1
    known: Mapping[str, FieldType] | None = _columns_read(pipeline) if frames == 1 else None
    for step in pipeline.steps_for_topic:
        if not _takes(step, frames):
            name = getattr(step, "__name__", repr(step))
            yield Fault(f"{_label(pipeline)}: step {name} must take {frames} DataFrame(s)")
        frames, taken, known = 1, known, None
        if isinstance(step, Transform):
            faults = [*step.faults(taken)]
            for fault in faults:
                yield replace(fault, message=f"{_label(pipeline)}: {fault.message}")
            known = None if taken is None or faults else step.columns_after(taken)


def _takes(step: object, frames: int) -> bool:
    try:
        inspect.signature(step).bind(*range(frames))  # type: ignore[arg-type]
    except TypeError:
        return False
    except ValueError:  # no signature to look at
        return True
    return True


def _sink_faults(pipeline: Pipeline) -> Iterator[Fault]:
    event_time = pipeline.event_time if pipeline.sources else None
    known = columns(pipeline) if pipeline.sources else None
    fields = _fields(pipeline) if known is not None else {}
    values = {name: field.values for name, field in fields.items() if field.values}
    rows = DeclaredRows(
        known, event_time, values, _ordered_by(pipeline), _record_key(pipeline), fields
    )
    for fault in pipeline.sink.faults(rows):
        yield replace(fault, message=f"{_label(pipeline)}: {fault.message}")
    for topic in (source.topic for source in pipeline.sources):
        if topic in pipeline.sink.topics:
            yield Fault(f"{_label(pipeline)} reads topic {topic.name!r} and writes to it")


def _fields(pipeline: Pipeline) -> dict[str, EventField]:
    """Returns the fields of the events by column, the joined ones in that of the join."""
    first, *others = pipeline.sources
    fields = source_fields(first)
    if pipeline.join is not None:
        column, schema = pipeline.join.column, schema_of(others[0].topic)
        fields[column] = EventField(column, FieldType.STRUCT, schema=schema)
    return fields


def _ordered_by(pipeline: Pipeline) -> str | None:
    """Returns the field whose events are in one partition, and reach the sink in its order."""
    if pipeline.steps or pipeline.join is not None or len(pipeline.sources) != 1:
        return None
    topic = pipeline.sources[0].topic
    match topic.partitioning:
        case ByKey() if topic.envelope is None:
            return topic.key
        case ByField(name) if topic.envelope is None:
            return name
    return None


def _record_key(pipeline: Pipeline) -> str | None:
    """Returns the field whose text is the key of the record that a row is of."""
    if len(pipeline.sources) != 1 or not pipeline.is_fused:
        return None
    topic = pipeline.sources[0].topic
    return topic.key if topic.envelope is None else None


def _label(pipeline: Pipeline) -> str:
    return f"pipeline {pipeline.name!r}"
