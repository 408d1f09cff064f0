"""Sinks of declared pipelines, for commands."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import BrokerUnreachableError
from headrace.pipelines.declaration import Pipeline
from headrace.project.services import broker_config, lake_uri, status
from headrace.settings import Settings
from headrace.sinks.api import PositionStore, Sink, SinkContext
from headrace.sinks.lake.declaration import Lake


def sink_context(settings: Settings, pipeline: Pipeline, sink: Sink) -> SinkContext:
    """Returns the context in which one of the sinks of ``pipeline`` runs.

    Only a sink that writes to the lake needs it: the others run without its extra, or its servers.

    Raises:
        ExtraMissingError: if the sink is a lake on S3, and the extra for that is not installed.
        ServerStartError: if the sink is a lake on the embedded HDFS, which is down.
    """
    lake = lake_uri(settings) if isinstance(sink, Lake) else status(settings).lake
    try:
        client = broker_config(settings, may_be_down=True)
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
