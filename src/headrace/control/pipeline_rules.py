"""What must hold for a declared pipeline before anything starts."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta

from headrace.control.topic_rules import RESCUED, SUBPARTITION, Fault, is_a, name_faults, schema_of
from headrace.model import (
    BatchLimits,
    DeadLetterLimit,
    FieldType,
    Lake,
    Metadata,
    Pipeline,
    Source,
    Start,
    TimeUnit,
    Topic,
    UnsafeValues,
)

RAW_VALUE = "value"
CODECS = ("zstd", "snappy", "gzip", "lz4", "uncompressed")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NAME_WORDS = "up to 100 letters, digits, '.', '_', '-': it names a consumer group and a folder"
_METADATA_TYPES = {
    Metadata.TOPIC: FieldType.STRING,
    Metadata.PARTITION: FieldType.LONG,
    Metadata.OFFSET: FieldType.LONG,
    Metadata.TIMESTAMP: FieldType.TIMESTAMP,
}
_DIRECTORY_TYPES = frozenset({FieldType.STRING, FieldType.LONG, FieldType.BOOLEAN})
_TIME_TYPES = frozenset({FieldType.TIMESTAMP, FieldType.MILLIS})


def pipeline_faults(pipeline: Pipeline) -> Iterator[Fault]:
    """Everything wrong with one pipeline by itself; wrong types hide the rest."""
    wrong = list(_type_faults(pipeline))
    yield from wrong
    if not wrong:
        yield from _name_faults(pipeline)
        yield from _source_faults(pipeline)
        yield from _step_faults(pipeline)
        yield from _limit_faults(pipeline.limits, pipeline.dead_letter_limit)
        yield from _lake_faults(pipeline.sink)
        yield from _partition_faults(pipeline)


def is_typed(pipeline: Pipeline) -> bool:
    """Whether its parts are what the model says, so that other rules can look at them."""
    return not any(_type_faults(pipeline))


def columns(pipeline: Pipeline) -> dict[str, FieldType] | None:
    """Columns that reach the sink, by name; None when steps or faulty events hide them."""
    if pipeline.steps:
        return None
    first, *_ = pipeline.sources
    return source_columns(first)


def source_columns(source: Source) -> dict[str, FieldType] | None:
    """Columns that a source gives, by name; None when its event class is faulty."""
    if source.topic.event is None:
        found = {RAW_VALUE: FieldType.BINARY}
    else:
        schema = schema_of(source.topic)
        if schema is None:
            return None
        found = {field.name: field.type for field in schema.fields}
    found |= {one: _METADATA_TYPES.get(one, FieldType.BINARY) for one in source.metadata}
    if source.subpartitions > 1:
        found[SUBPARTITION] = FieldType.LONG
    return found


def _type_faults(pipeline: Pipeline) -> Iterator[Fault]:
    if not is_a(pipeline.name, str):
        yield Fault(f"pipeline name {pipeline.name!r} is not text")
    if not is_a(pipeline.source, Topic | Source | list | tuple):
        yield Fault(f"{_label(pipeline)}: source is {pipeline.source!r}", "a declared Topic")
        return
    for source in pipeline.sources:
        if not is_a(source.topic, Topic) or not is_a(source.topic.name, str):
            yield Fault(f"{_label(pipeline)}: source {source.topic!r} is not a Topic")
    yield from _part_type_faults(pipeline)


def _part_type_faults(pipeline: Pipeline) -> Iterator[Fault]:
    parts = {"sink": Lake, "limits": BatchLimits, "dead_letter_limit": DeadLetterLimit}
    for attribute, kind in parts.items():
        value = getattr(pipeline, attribute)
        if not isinstance(value, kind):
            yield Fault(f"{_label(pipeline)}: {attribute} is {value!r}", f"a {kind.__name__}")
    if not isinstance(pipeline.steps, list | tuple) or not all(map(callable, pipeline.steps)):
        yield Fault(f"{_label(pipeline)}: steps must be a list of functions", "steps=[enrich]")
    elif isinstance(pipeline.sink, Lake) and not _is_texts(pipeline.sink.partition_by):
        yield Fault(f"{_label(pipeline)}: partition_by must be a list of column names")


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def _name_faults(pipeline: Pipeline) -> Iterator[Fault]:
    if not NAME.fullmatch(pipeline.name):
        yield Fault(
            f"{pipeline.name!r} is not a pipeline name",
            NAME_WORDS,
        )


def _source_faults(pipeline: Pipeline) -> Iterator[Fault]:
    if not pipeline.sources:
        yield Fault(f"{_label(pipeline)} has no source")
    for name, count in Counter(one.topic.name for one in pipeline.sources).items():
        if count > 1:
            yield Fault(f"{_label(pipeline)} reads topic {name!r} {count} times", "read it once")
    for source in pipeline.sources:
        yield from _one_source_faults(pipeline, source)
    yield from _union_faults(pipeline)


def _one_source_faults(pipeline: Pipeline, source: Source) -> Iterator[Fault]:
    if not is_a(source.start, Start):
        yield Fault(f"{_label(pipeline)}: start is {source.start!r}", "Start.EARLIEST or .LATEST")
    if not all(is_a(one, Metadata) for one in source.metadata):
        yield Fault(f"{_label(pipeline)}: metadata is {source.metadata!r}", "Metadata members")
    yield from _watermark_faults(pipeline, source)
    yield from at_least(source, "min_tasks", 0)
    yield from at_least(source, "subpartitions", 1)
    for fault in name_faults(source.topic.dead_letters):
        yield Fault(f"{_label(pipeline)}, dead letters: {fault.message}", fault.way_out)


def _watermark_faults(pipeline: Pipeline, source: Source) -> Iterator[Fault]:
    if source.watermark is None:
        return
    yield from duration(source, "watermark", timedelta(0))
    if source.topic.event_time is None:
        message = f"{_label(pipeline)}: Source.watermark needs the event time of its topic"
        yield Fault(message, "Topic(event_time=...)")
    if not pipeline.steps:
        yield Fault(f"{_label(pipeline)}: Source.watermark is for steps, and there are none")


def _union_faults(pipeline: Pipeline) -> Iterator[Fault]:
    if pipeline.steps or not pipeline.sources:
        return
    first, *others = (source_columns(source) for source in pipeline.sources)
    if any(other != first for other in others):
        yield Fault(
            f"{_label(pipeline)} has several sources with different columns and no steps",
            "add a step that takes one DataFrame per source and gives one",
        )


def _step_faults(pipeline: Pipeline) -> Iterator[Fault]:
    frames = len(pipeline.sources)
    for step in pipeline.steps:
        if not _takes(step, frames):
            name = getattr(step, "__name__", repr(step))
            yield Fault(f"{_label(pipeline)}: step {name} must take {frames} DataFrame(s)")
        frames = 1


def _takes(step: object, frames: int) -> bool:
    try:
        inspect.signature(step).bind(*range(frames))  # type: ignore[arg-type]
    except TypeError:
        return False
    except ValueError:  # no signature to look at
        return True
    return True


def _limit_faults(limits: BatchLimits, dead: DeadLetterLimit) -> Iterator[Fault]:
    yield from at_least(limits, "max_records", 1)
    yield from at_least(limits, "max_bytes", 1)
    yield from duration(limits, "max_wait", timedelta(microseconds=1))
    yield from dead_letter_limit_faults(dead)


def dead_letter_limit_faults(dead: DeadLetterLimit) -> Iterator[Fault]:
    """Numbers that mean something."""
    yield from at_least(dead, "max_consecutive", 1)
    yield from at_least(dead, "min_records", 1)
    if not is_a(dead.max_ratio, int | float) or not 0 <= dead.max_ratio <= 1:
        yield Fault(f"DeadLetterLimit.max_ratio is {dead.max_ratio!r}; it must be from 0 to 1")


def _lake_faults(lake: Lake) -> Iterator[Fault]:
    if not is_a(lake.table, str) or not NAME.fullmatch(lake.table):
        yield Fault(
            f"{lake.table!r} is not a table name",
            "up to 100 letters, digits, '.', '_', '-': it names a folder",
        )
    if not is_a(lake.unsafe_values, UnsafeValues):
        yield Fault(f"Lake.unsafe_values is {lake.unsafe_values!r}", "an UnsafeValues member")
    if lake.compression not in CODECS:
        yield Fault(f"Lake.compression is {lake.compression!r}", f"one of {', '.join(CODECS)}")
    yield from at_least(lake, "compact_files", 0)
    yield from duration(lake, "lateness", timedelta(0))
    for name, count in Counter(lake.partition_by).items():
        if count > 1:
            yield Fault(f"Lake.partition_by names {name!r} {count} times")


def at_least(value: object, attribute: str, least: int) -> Iterator[Fault]:
    """The attribute is a whole number, and not below ``least``."""
    given = getattr(value, attribute)
    if type(given) is not int or given < least:
        name = f"{type(value).__name__}.{attribute}"
        yield Fault(f"{name} is {given!r}; it must be a whole number of at least {least}")


def duration(value: object, attribute: str, least: timedelta) -> Iterator[Fault]:
    """The attribute is a timedelta, and not below ``least``."""
    given = getattr(value, attribute)
    if not isinstance(given, timedelta) or given < least:
        sign = "above zero" if least else "not negative"
        name = f"{type(value).__name__}.{attribute}"
        yield Fault(f"{name} is {given!r}; it must be a timedelta {sign}")


def _partition_faults(pipeline: Pipeline) -> Iterator[Fault]:
    if not pipeline.sources:
        return
    yield from _time_faults(pipeline)
    found = columns(pipeline)
    if found is not None:
        yield from _time_column_faults(pipeline, found)
        yield from _value_column_faults(pipeline.sink, found)


def _time_faults(pipeline: Pipeline) -> Iterator[Fault]:
    units = pipeline.sink.time_units
    if units and pipeline.event_time is None:
        yield Fault(
            f"{_label(pipeline)} is partitioned by {units[0].value}, but has no event time",
            "name it: Topic(event_time=...) or Lake(event_time=...)",
        )


def _time_column_faults(pipeline: Pipeline, found: dict[str, FieldType]) -> Iterator[Fault]:
    name = pipeline.event_time
    if name is not None and name not in found:
        yield Fault(f"{_label(pipeline)}: event time {name!r} is not a column", _known(found))
    elif name is not None and found[name] not in _TIME_TYPES:
        yield Fault(f"{_label(pipeline)}: event time {name!r} is a {found[name].value}")
    for unit in pipeline.sink.time_units:
        if unit.value in found:
            yield Fault(
                f"{_label(pipeline)}: the event has a field {unit.value!r}, which is also "
                "the partition taken from the event time",
                "rename the field",
            )


def _value_column_faults(lake: Lake, found: dict[str, FieldType]) -> Iterator[Fault]:
    for name in lake.value_columns:
        if name not in found and name != RESCUED:
            yield Fault(f"Lake.partition_by: {name!r} is not a column", _known(found))
        elif found.get(name) not in _DIRECTORY_TYPES:
            yield Fault(
                f"Lake.partition_by: {name!r} can't name folders",
                f"text, whole numbers, true or false; for a time: {', '.join(TimeUnit)}",
            )
    if found and set(found) <= set(lake.value_columns):
        yield Fault("Lake.partition_by names every column", "Delta keeps at least one in the files")


def _known(names: Sequence[str] | dict[str, FieldType]) -> str:
    return f"columns: {', '.join(names)}"


def _label(pipeline: Pipeline) -> str:
    return f"pipeline {pipeline.name!r}"
