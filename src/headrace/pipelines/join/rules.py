"""Checks declared joins before anything starts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta

from headrace.model import ByField, ByKey, FieldType, Source, Topic
from headrace.model.fault import Fault, duration, is_a
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.join.declaration import JOIN_METADATA, Join, Match
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.late_data.rules import side_table_faults
from headrace.sinks.api import Sink
from headrace.topics.rules import schema_of

MAX_WAITS = 8
"""Of so many times ``within``, ``wait`` makes an index of about 140 parts."""
_KEY_TYPES = (FieldType.STRING, FieldType.LONG)


def join_type_faults(pipeline: Pipeline) -> Iterator[Fault]:
    """Gives every part of a pipeline's join that is of another type than the model's."""
    if pipeline.join is not None:
        yield from _named(pipeline, _type_faults(pipeline.join))


def _type_faults(join: Join) -> Iterator[Fault]:
    for side in (join.later, join.earlier):
        if not is_a(side, Topic | Source):
            yield Fault(f"Join reads {side!r}", "a declared Topic")
    is_pair = isinstance(join.on, tuple) and len(join.on) == 2  # noqa: PLR2004  one of each side
    if not is_pair or not all(isinstance(name, str) for name in join.on):
        yield Fault(f"Join.on is {join.on!r}", 'on=("impression_id", "event_id")')
    if not is_a(join.match, Match):
        yield Fault(f"Join.match is {join.match!r}", "Match.ID or Match.LAST")
    if not is_a(join.unmatched, Sink | None):
        yield Fault(f"Join.unmatched is {join.unmatched!r}", "a sink or None")


def join_faults(pipeline: Pipeline) -> Iterator[Fault]:
    """Gives every fault of a pipeline's join, whose parts have the types of the model."""
    if pipeline.join is not None:
        yield from _named(pipeline, _faults(pipeline, pipeline.join))


def join_warnings(pipeline: Pipeline) -> Iterator[Fault]:
    """Warns of joins that are valid, and match little or keep many parts."""
    if pipeline.join is not None:
        yield from _partitioning_warnings(pipeline, pipeline.join)
        yield from _named(pipeline, _wait_warnings(pipeline.join))


def _named(pipeline: Pipeline, faults: Iterable[Fault]) -> Iterator[Fault]:
    """Yields faults with the name of their pipeline."""
    for fault in faults:
        yield replace(fault, message=f"pipeline {pipeline.name!r}: {fault.message}")


def _wait_warnings(join: Join) -> Iterator[Fault]:
    if join.wait / MAX_WAITS > join.within:
        yield Fault(
            f"Join.wait is {join.wait}, more than {MAX_WAITS} times within, {join.within}: events "
            "are kept for both, in slices of an eighth of within, and each batch looks into all",
            f"within=timedelta(seconds={math.ceil((join.wait / MAX_WAITS).total_seconds())}) or "
            "longer",
        )


def _partitioning_warnings(pipeline: Pipeline, join: Join) -> Iterator[Fault]:
    """Warns if one topic is partitioned by the field that is matched, and the other is not."""
    fields = [_partition_field(source.topic) for source in join.sources]
    is_matched = [field == name for field, name in zip(fields, join.on, strict=True)]
    if None not in fields and any(is_matched) and not all(is_matched):
        later, earlier = (source.topic.name for source in join.sources)
        yield Fault(
            f"pipeline {pipeline.name!r} joins topic {later!r}, whose partitions are by "
            f"{fields[0]!r}, with topic {earlier!r}, whose partitions are by {fields[1]!r}: events "
            f"with equal {join.on[0]!r} and {join.on[1]!r} are in different partitions, and most "
            "of them will not match",
            f"{later!r} by {join.on[0]!r} and {earlier!r} by {join.on[1]!r}, or both by a field "
            "that is equal for events that match, such as the user",
        )


def _partition_field(topic: Topic) -> str | None:
    """Returns the field that decides the partition of an event; None: no field does."""
    if isinstance(topic.partitioning, ByField):
        return topic.partitioning.field
    return topic.key if isinstance(topic.partitioning, ByKey) else None


def _faults(pipeline: Pipeline, join: Join) -> Iterator[Fault]:
    yield from duration(join, "within", timedelta(microseconds=1))
    yield from duration(join, "wait", timedelta(0))
    later, earlier = (source.topic for source in join.sources)
    if later.partitions != earlier.partitions:
        yield Fault(
            f"a Join needs the same key in the same partition: topic {later.name!r} has "
            f"{later.partitions} partitions, topic {earlier.name!r} has {earlier.partitions}",
            "the same number of partitions",
        )
    for source, field in zip(join.sources, join.on, strict=True):
        yield from _side_faults(source, field)
    yield from _key_faults(join)
    yield from _column_faults(pipeline, join)
    if pipeline.late_data is not LateData.KEEP:
        yield Fault(f"late_data is {pipeline.late_data}, and its source is a Join", "LateData.KEEP")
    if join.unmatched is not None:
        yield from side_table_faults(pipeline, join.unmatched, "Join.unmatched")


def _side_faults(source: Source, field: str) -> Iterator[Fault]:
    topic = source.topic
    if source.subpartitions > 1 or source.min_tasks:
        yield Fault(
            f"a Join reads topic {topic.name!r} in whole partitions",
            "a Source without subpartitions and min_tasks",
        )
    if topic.is_compacted:
        yield Fault(
            f"topic {topic.name!r} of a Join is compacted: of each key only the last event stays",
            "a topic without compaction",
        )
    if source.watermark is not None:
        yield Fault(f"Source.watermark of topic {topic.name!r} is not that of a Join", "wait=...")
    schema = schema_of(topic)
    if topic.event is None or topic.event_time is None:
        yield Fault(
            f"a Join needs the event class and the event time of topic {topic.name!r}",
            "Topic(event=..., event_time=...)",
        )
    elif schema is not None:
        for name in (field, topic.event_time):
            known = {member.name: member for member in schema.fields}
            if name not in known:
                missing = f"topic {topic.name!r} has no field {name!r} for a Join"
                yield Fault(missing, ", ".join(known))
            elif known[name].nullable:
                yield Fault(
                    f"field {name!r} of topic {topic.name!r} may be null, and a Join needs it"
                )


def _key_faults(join: Join) -> Iterator[Fault]:
    types = []
    for source, name in zip(join.sources, join.on, strict=True):
        schema = schema_of(source.topic) if source.topic.event is not None else None
        types += [member.type for member in schema.fields if member.name == name] if schema else []
    if len(types) == 2 and (types[0] != types[1] or types[0] not in _KEY_TYPES):  # noqa: PLR2004
        later, earlier = (type_.value for type_ in types)
        yield Fault(f"Join.on names fields of types {later} and {earlier}", "both str or int")


def _column_faults(pipeline: Pipeline, join: Join) -> Iterator[Fault]:
    later = join.sources[0]
    schema = schema_of(later.topic) if later.topic.event is not None else None
    if not isinstance(join.column, str) or not join.column.isidentifier():
        yield Fault(f"Join.column is {join.column!r}", "the name of a column")
    elif schema is not None and join.column.lower() in {f.name.lower() for f in schema.fields}:
        yield Fault(f"Join.column {join.column!r} is a field of topic {later.topic.name!r}, too")
    for name in dict.fromkeys((*pipeline.metadata(later), *pipeline.side_metadata(later))):
        if name not in JOIN_METADATA:
            yield Fault(
                f"a Join can't give column {name}: it is not kept of records that wait",
                ", ".join(JOIN_METADATA),
            )
