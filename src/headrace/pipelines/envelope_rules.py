"""What must hold for pipelines that use topics whose records are envelopes."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.model import Metadata, Source, Topic
from headrace.model.fault import Fault, is_a
from headrace.pipelines.declaration import Pipeline
from headrace.topics.envelope_rules import no_envelope


def envelope_use_faults(pipeline: Pipeline) -> Iterator[Fault]:
    """Yields what a pipeline can't do with the envelopes of the topics that it uses."""
    for topic in pipeline.references:
        yield from no_envelope(topic, f"pipeline {pipeline.name!r} looks values up in")
    for sink in pipeline.sinks:
        for topic in sink.topics:
            if is_a(topic, Topic):
                yield from no_envelope(topic, f"pipeline {pipeline.name!r} writes single events to")
    for source in pipeline.sources:
        if source.topic.envelope is not None:
            yield from _source_faults(pipeline, source)


def _source_faults(pipeline: Pipeline, source: Source) -> Iterator[Fault]:
    name = source.topic.name
    if pipeline.join is not None:
        yield from no_envelope(source.topic, f"the Join of pipeline {pipeline.name!r} reads")
    if Metadata.OFFSET in source.metadata and Metadata.EVENT_INDEX not in source.metadata:
        yield Fault(
            f"pipeline {pipeline.name!r}: events of an envelope of topic {name!r} have the same "
            f"{Metadata.OFFSET}",
            "add Metadata.EVENT_INDEX to Source.metadata",
        )
    for sink in pipeline.sinks:
        columns = sink.wanted_metadata
        if Metadata.OFFSET in columns and Metadata.EVENT_INDEX not in columns:
            yield from no_envelope(
                source.topic, f"{sink.label} identifies rows by their offset, in"
            )
