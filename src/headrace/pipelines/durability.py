"""Warns of pipelines whose settings are each valid, and lose records in combination."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.model import ByField, ByKey
from headrace.model.fault import Fault
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.join.rules import join_warnings
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.transforms.transform import Transform
from headrace.topics.durability import declared_retention


def pipeline_warnings(pipeline: Pipeline) -> Iterator[Fault]:
    """Warns if topics that are read together are partitioned differently or kept too briefly."""
    yield from _partition_counts(pipeline)
    yield from _strategies(pipeline)
    yield from _horizons(pipeline)
    yield from _lateness_of_steps(pipeline)
    yield from join_warnings(pipeline)


def _horizons(pipeline: Pipeline) -> Iterator[Fault]:
    """Warns if a topic deletes events that the pipeline still waits for."""
    lateness = pipeline.allowed_lateness
    for topic in (source.topic for source in pipeline.sources):
        retention = declared_retention(topic)
        if retention is not None and lateness > retention:
            yield Fault(
                f"pipeline {pipeline.name!r} waits {lateness} for late events, but topic "
                f"{topic.name!r} keeps them for {retention}: after a stop of that length "
                "they are deleted, and a replay can't read them either",
                "a smaller allowed_lateness of the pipeline, or a longer retention of its topic",
            )


def _lateness_of_steps(pipeline: Pipeline) -> Iterator[Fault]:
    """Warns of events that a step with state may reject: they are dead letters, or dropped."""
    transforms = (step for step in pipeline.steps if isinstance(step, Transform))
    # The first one sets the watermark of all.
    step = next(
        (transform for transform in transforms if transform.watermark_delay is not None), None
    )
    if step is None or step.watermark_delay is None:
        return
    name, allowed = type(step).__name__, pipeline.allowed_lateness
    if pipeline.late_data is LateData.KEEP:
        yield Fault(
            f"pipeline {pipeline.name!r}: late_data keeps late events, and {name} does not take "
            "those that come behind its watermark: they become dead letters (behind-watermark)",
            "against duplicates, Lake or Stats with unique=... in place of the step, or UPSERT; "
            "where the source is no Join, late_data=LateData.DEAD_LETTER or a sink, with an "
            "allowed_lateness that is shorter than `within`; otherwise a longer `within`",
        )
        return
    first, *others = pipeline.sources
    # The watermarks of several sources, and those that are declared, are checked elsewhere.
    if others or first.watermark is not None or step.watermark_delay > allowed:
        return
    is_dropped = pipeline.late_data is LateData.DROP
    fate = "dropped" if is_dropped else "dead letters (behind-watermark)"
    yield Fault(
        f"pipeline {pipeline.name!r}: {name} takes nothing that is {step.watermark_delay} behind "
        f"the newest event of all partitions; late_data takes what is {allowed} behind its own "
        f"partition: events between the two are {fate}",
        "a `within` that is longer than allowed_lateness by what partitions may differ",
    )


def _strategies(pipeline: Pipeline) -> Iterator[Fault]:
    topics = [source.topic for source in pipeline.sources]
    # Key and field are hashed alike, whatever the field's name is.
    first, *others = [
        None if isinstance(topic.partitioning, ByKey | ByField) else topic.partitioning
        for topic in topics
    ]
    if any(strategy != first for strategy in others):
        words = ", ".join(f"{topic.name} {type(topic.partitioning).__name__}" for topic in topics)
        yield Fault(
            f"pipeline {pipeline.name!r} reads topics that are partitioned differently: {words}",
            "with one partitioning, equal values lie in partitions of equal number",
        )


def _partition_counts(pipeline: Pipeline) -> Iterator[Fault]:
    topics = {source.topic.name: source.topic for source in pipeline.sources}
    keyed = {name: topic.partitions for name, topic in topics.items() if topic.key is not None}
    if len(set(keyed.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in keyed.items())
        yield Fault(
            f"pipeline {pipeline.name!r} reads topics with different partition counts: {counts}",
            "with as many partitions each, equal keys lie in partitions of equal number",
        )
