"""Sinks of declared pipelines, for commands and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import BrokerUnreachableError, NotDeclaredError
from headrace.pipelines.declaration import Pipeline
from headrace.project.services import broker_config, lake_uri, status
from headrace.runtime.extras import require_extra
from headrace.settings import Settings
from headrace.sinks.api import PositionStore, Readable, Sink, SinkContext
from headrace.sinks.lake.declaration import Lake

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.project.loaded import LoadedProject


def sink_context(settings: Settings, pipeline: Pipeline, sink: Sink) -> SinkContext:
    """Returns the context in which one of the sinks of ``pipeline`` runs.

    Only a sink that writes to the lake needs it: the others run without its extra, or its servers.

    Raises:
        ExtraMissingError: if the sink is a lake on S3, and the extra for that is not installed.
        ServerStartError: if the sink is a lake on the embedded HDFS, which is down.
    """
    lake = lake_uri(settings) if isinstance(sink, Lake) else status(settings).lake
    try:
        client = broker_config(settings.of("pipelines", pipeline.name), may_be_down=True)
    except BrokerUnreachableError:  # the embedded broker was never started: most sinks need none
        client = {}
    context = pipeline.sink_context(sink, lake, client, settings.sinks, settings.storage)
    return replace(context, registry=settings.schema_registry)


def position_store(settings: Settings, pipeline: Pipeline) -> PositionStore | None:
    """Returns the positions that the sink of ``pipeline`` records; ``None`` if it records none."""
    return pipeline.sink.position_store(sink_context(settings, pipeline, pipeline.sink))


def side_position_store(settings: Settings, pipeline: Pipeline) -> PositionStore | None:
    """Returns the batches that the side table of late events records; ``None`` if it has none."""
    sink = pipeline.side_table
    return None if sink is None else sink.position_store(sink_context(settings, pipeline, sink))


def read_project_table(
    project: LoadedProject, table: str, columns: Sequence[str] | None = None
) -> pa.Table:
    """Returns the rows of a table that a pipeline of the project writes, in no order.

    Raises:
        ExtraMissingError: if pyarrow is missing, which the extra ``spark`` installs.
        NotDeclaredError: if no pipeline writes such a table.
        SinkError: if the table is not there yet, or the lake can't be read.
        ServerStartError: if the lake is on the embedded HDFS, which is down.
    """
    require_extra("spark")
    sinks = {
        sink.target: (pipeline, sink)
        for pipeline in project.declared(Pipeline).values()
        for sink in pipeline.sinks
        if isinstance(sink, Readable)
    }
    if table not in sinks:
        raise NotDeclaredError("table", table, ", ".join(sorted(sinks)))
    pipeline, sink = sinks[table]
    return sink.read(sink_context(project.settings, pipeline, sink), columns)
