"""What declared pipelines change in the targets of their sinks, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.control.sinks import sink_context
from headrace.errors import ExtraMissingError, ServerStartError, SinkError, TableMismatchError
from headrace.pipelines.pipeline import Pipeline
from headrace.pipelines.source.reader import row_columns
from headrace.runtime.extras import require_extra

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from headrace.settings import Settings


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
    """Returns the changes of pipelines on the fused path.

    The columns that steps give are known when Spark has them, so their tables are compared at the
    start of the pipeline.
    """
    fused = [pipeline for pipeline in pipelines if pipeline.is_fused]
    return tuple(change for pipeline in fused for change in _changes(settings, pipeline))


def _changes(settings: Settings, pipeline: Pipeline) -> list[SinkChange]:
    name, sink = pipeline.name, pipeline.sink.label
    try:
        require_extra("spark")  # rows are described by Arrow
        context = sink_context(settings, pipeline)
        details = pipeline.sink.changes(context, _rows(pipeline))
    except TableMismatchError as error:
        return [SinkChange(name, sink, error.reason, error.remedy, is_refused=True)]
    except (ExtraMissingError, SinkError, ServerStartError, OSError) as error:
        return [SinkChange(name, sink, f"can't be looked at: {error}")]
    return [SinkChange(name, sink, detail) for detail in details]


def _rows(pipeline: Pipeline) -> pa.Schema:
    (source,) = pipeline.sources
    metadata = pipeline.metadata(source)
    return row_columns(source.topic.schema, metadata)
