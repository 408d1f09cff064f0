"""The sinks of declared pipelines, as commands ask them."""

from __future__ import annotations

from headrace.control.services import broker_config, lake_uri
from headrace.errors import BrokerUnreachableError
from headrace.pipelines.pipeline import Pipeline
from headrace.settings import Settings
from headrace.sinks.api import PositionStore, SinkContext


def sink_context(settings: Settings, pipeline: Pipeline) -> SinkContext:
    """Returns what the sink of ``pipeline`` is told of where it runs."""
    lake, client = lake_uri(settings), _client(settings)
    return pipeline.sink_context(lake, client, settings.sinks, settings.storage)


def _client(settings: Settings) -> dict[str, str]:
    """Nothing while the embedded broker was never started: most sinks can be asked without it."""
    try:
        return broker_config(settings, may_be_down=True)
    except BrokerUnreachableError:
        return {}


def position_store(settings: Settings, pipeline: Pipeline) -> PositionStore | None:
    """Returns where the sink of ``pipeline`` records positions; None: nowhere."""
    return pipeline.sink.position_store(sink_context(settings, pipeline))
