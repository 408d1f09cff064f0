"""Pipelines, as a kind of declarations."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.model import Topic
from headrace.model.fault import Fault, is_a
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.durability import pipeline_warnings
from headrace.pipelines.late_data.retention_rules import retention_faults
from headrace.pipelines.rules import pipeline_faults, pipeline_type_faults, settings_faults
from headrace.pipelines.start.shared_targets import shared_targets, unknown_sinks
from headrace.project.kind import Kind, StatusKind
from headrace.settings import Settings


def _faults(pipeline: Pipeline, settings: Settings) -> Iterable[Fault]:
    own = list(pipeline_faults(pipeline)) or retention_faults(pipeline)
    return [*own, *settings_faults(pipeline, settings.sinks)]


def _read(pipeline: Pipeline) -> Iterable[Topic]:
    return [source.topic for source in pipeline.sources]


def _written(pipeline: Pipeline) -> Iterable[tuple[str, Topic]]:
    """Yields the topics of its sinks; a sink's own rules say that it has none of another type."""
    topics = (topic for sink in pipeline.sinks for topic in sink.topics)
    return (("writes to", topic) for topic in topics if is_a(topic, Topic))


def _statuses() -> tuple[StatusKind, ...]:
    # Inside: a check needs no statuses, which import clients of Kafka.
    from headrace.pipelines.run.last_status import pipeline_progress
    from headrace.pipelines.standby.status import DriverStatus
    from headrace.pipelines.status import PipelineStatus

    return (
        StatusKind(
            name="pipelines",
            type=PipelineStatus,
            view="headrace.pipelines.progress_view",
            read=pipeline_progress,
        ),
        StatusKind(
            name="drivers",
            type=DriverStatus,
            view="headrace.pipelines.standby.views",
        ),
    )


KIND = Kind(
    type=Pipeline,
    label="pipeline",
    plural="pipelines",
    hint="`headrace run` runs it",
    type_faults=pipeline_type_faults,
    faults=_faults,
    faults_between=shared_targets,
    settings_faults=unknown_sinks,
    warnings=pipeline_warnings,
    consumer_group=lambda pipeline: pipeline.consumer_group,
    reads=_read,
    looks_up=lambda pipeline: [topic for topic in pipeline.references if is_a(topic, Topic)],
    writes=_written,
    dead_lettered=_read,
    statuses=_statuses,
)
