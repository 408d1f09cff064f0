"""What must hold for the late data of a declared pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from headrace.model.fault import Fault, duration
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.source_columns import source_columns, source_fields
from headrace.sinks.api import DeclaredRows, Sink


def late_data_faults(pipeline: Pipeline) -> Iterator[Fault]:
    """Yields everything wrong with where late events go, and with how late they are."""
    faults = [*duration(pipeline, "allowed_lateness", timedelta(0))]
    may_move = pipeline.late_data is not LateData.KEEP and pipeline.join is None
    if not faults and may_move and pipeline.sources:
        faults += _source_faults(pipeline)
        if pipeline.side_table is not None:
            first, *others = (source_columns(source) for source in pipeline.sources)
            if any(columns != first for columns in others):  # one table takes one set of them
                message = "late_data is one sink, and the sources have different columns"
                faults.append(Fault(message, "LateData.DEAD_LETTER, or a pipeline for each source"))
            faults += side_table_faults(pipeline, pipeline.side_table, "late_data")
    for fault in faults:
        yield replace(fault, message=f"pipeline {pipeline.name!r}: {fault.message}")


def _source_faults(pipeline: Pipeline) -> Iterator[Fault]:
    for source in pipeline.sources:
        if source.topic.event_time is None:
            message = f"late_data needs the event time of topic {source.topic.name!r}"
            yield Fault(message, "Topic(event_time=...)")
        delay, allowed = source.watermark, pipeline.allowed_lateness
        if pipeline.late_data is LateData.DROP:
            continue  # both go nowhere
        if isinstance(delay, timedelta) and delay < allowed:
            yield Fault(
                f"steps with state take nothing that is {delay} behind (Source.watermark of "
                f"{source.topic.name!r}), before late_data takes what is {allowed} behind",
                "a watermark of at least allowed_lateness",
            )


def side_table_faults(pipeline: Pipeline, side: Sink, argument: str) -> Iterator[Fault]:
    """Yields everything wrong with a side table, which gets rows as its source gives them."""
    sink = pipeline.sink
    if (side.kind, side.resolved_target({})) == (sink.kind, sink.resolved_target({})):
        yield Fault(f"{argument} is the pipeline's own {side.label}", "another sink")
    source = pipeline.sources[0]
    rows = DeclaredRows(source_columns(source), pipeline.event_time, fields=source_fields(source))
    for fault in side.faults(rows):
        yield replace(fault, message=f"{argument}: {fault.message}")
    for topic in (source.topic for source in pipeline.sources):
        if topic in side.topics:
            yield Fault(f"reads topic {topic.name!r}, and {argument} writes to it")
