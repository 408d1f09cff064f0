"""What declared pipelines change in the targets of their sinks, shown and made by commands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import ExtraMissingError, ServerStartError, SinkError, TableMismatchError
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.join.columns import joined_columns
from headrace.pipelines.sinks import sink_context
from headrace.pipelines.source.record_columns import row_columns
from headrace.runtime.extras import require_extra
from headrace.sinks.api import BatchPace, Provisionable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from headrace.model import Metadata
    from headrace.model.fault import Fault
    from headrace.settings import Settings
    from headrace.sinks.api import Sink, SinkContext


@dataclass(frozen=True)
class SinkChange:
    """What happens to the target of a pipeline's sink.

    Attributes:
        pipeline: its name.
        sink: kind and target of the sink: ``lake clicks``.
        detail: a sentence without its subject, which is the sink.
        remedy: what to do, where something is in the way.
        is_refused: whether the pipeline would not start.
    """

    pipeline: str
    sink: str
    detail: str
    remedy: str = ""
    is_refused: bool = False


def sink_changes(settings: Settings, pipelines: Iterable[Pipeline]) -> tuple[SinkChange, ...]:
    """Returns the changes of the sinks whose rows are known: of the fused path, and side tables.

    The columns that steps give are known when Spark has them, so their tables are compared at the
    start of the pipeline.
    """
    return tuple(
        change
        for pipeline in pipelines
        for sink, metadata in _described(pipeline)
        for change in _changes(settings, pipeline, sink, metadata)
    )


def require_sink_extras(settings: Settings, pipelines: Iterable[Pipeline]) -> None:
    """Checks that the extras of the sinks whose targets :func:`apply_sinks` makes are installed.

    Raises:
        ExtraMissingError: if one is not.
    """
    for pipeline in pipelines:
        for sink, _ in _described(pipeline):
            if isinstance(sink, Provisionable) and sink.is_provisioned:
                require_extra("spark")  # rows are described by Arrow
                if extra := sink.extra_for(settings.sinks.get(sink.kind, {})):
                    require_extra(extra)


def apply_sinks(settings: Settings, pipelines: Iterable[Pipeline]) -> tuple[SinkChange, ...]:
    """Makes the changes of the sinks that :func:`sink_changes` looks at, and returns them.

    Of sinks that are not provisioned there are none.

    Raises:
        ExtraMissingError: if the extra of a sink is not installed.
        SinkError: if a target can't be looked at or changed; those before it are changed.
    """
    return tuple(
        change
        for pipeline in pipelines
        for sink, metadata in _described(pipeline)
        if isinstance(sink, Provisionable) and sink.is_provisioned
        for change in _refusable(settings, pipeline, sink, metadata, sink.apply)
    )


def pace_warnings(pipeline: Pipeline) -> Iterator[Fault]:
    """Yields what the batches of a pipeline cost more than the targets of its sinks allow."""
    tasks = sum(max(s.topic.partitions, s.min_tasks) for s in pipeline.sources)
    pace = BatchPace(tasks, pipeline.limits.max_wait)
    for sink in pipeline.sinks:
        for fault in sink.pace_faults(pace):
            yield replace(fault, message=f"pipeline {pipeline.name!r}: {fault.message}")


def _described(pipeline: Pipeline) -> Iterator[tuple[Sink, Sequence[Metadata]]]:
    """Yields sinks with the columns of the Kafka record that they get beside the event's fields."""
    source, *_ = pipeline.sources
    if pipeline.is_fused:
        yield pipeline.sink, pipeline.metadata(source)
    if pipeline.side_table is not None:
        yield pipeline.side_table, pipeline.side_metadata(source)


def _changes(
    settings: Settings, pipeline: Pipeline, sink: Sink, metadata: Sequence[Metadata]
) -> list[SinkChange]:
    try:
        return _refusable(settings, pipeline, sink, metadata, sink.changes)
    except (ExtraMissingError, SinkError, ServerStartError, OSError) as error:
        return [SinkChange(pipeline.name, sink.label, f"can't be inspected: {error}")]


def _refusable(
    settings: Settings,
    pipeline: Pipeline,
    sink: Sink,
    metadata: Sequence[Metadata],
    changes_of: Callable[[SinkContext, pa.Schema], Sequence[str]],
) -> list[SinkChange]:
    name, label = pipeline.name, sink.label
    require_extra("spark")  # rows are described by Arrow
    try:
        context = sink_context(settings, pipeline, sink)
        details = changes_of(context, _row_schema(pipeline, sink, metadata))
    except TableMismatchError as error:
        return [SinkChange(name, label, error.reason, error.remedy, is_refused=True)]
    return [SinkChange(name, label, detail) for detail in details]


def _row_schema(pipeline: Pipeline, sink: Sink, metadata: Sequence[Metadata]) -> pa.Schema:
    """Returns the columns of a sink's rows, where no step makes them."""
    source, *others = pipeline.sources
    if pipeline.join is None or sink is not pipeline.sink:
        return row_columns(source.topic.schema, metadata)
    earlier = others[0].topic.schema
    return joined_columns(source.topic.schema, earlier, pipeline.join.column, metadata)
