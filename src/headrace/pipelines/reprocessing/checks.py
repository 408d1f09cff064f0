"""What can't be reprocessed exactly: by its declaration, and by what its table records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from headrace.errors import ReprocessRefusedError
from headrace.pipelines.batch.positions import CheckpointIds
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.transforms.transform import Transform
from headrace.sinks.api import PositionStore, Reprocessable, Sink

OTHER_NAME = (
    "Declare the pipeline under another name and with another table: it begins at the earliest "
    "record."
)


class ReprocessableSink(Sink, Reprocessable):
    """A sink that is both."""


def refuse_inexact(pipeline: Pipeline, others: Sequence[str]) -> None:
    """Checks the declaration of a pipeline that must be reprocessed exactly.

    Args:
        pipeline: its declaration.
        others: names of pipelines that write to its target, too.

    Raises:
        ReprocessRefusedError: if the outcome could be another one than that of the live pipeline.
    """
    # Why each is refused: the table in :mod:`headrace.pipelines.reprocessing`.
    if pipeline.join is not None:
        raise _refused(pipeline, "its source is a Join, whose state depends on the records before")
    if len(pipeline.sources) > 1:
        topics = ", ".join(source.topic.name for source in pipeline.sources)
        raise _refused(pipeline, f"it has several sources ({topics}), which were read side by side")
    [source] = pipeline.sources
    if source.topic.is_compacted:
        reason = f"topic {source.topic.name} is compacted, so records of the range may be deleted"
        raise _refused(pipeline, reason)
    transforms = [step for step in pipeline.steps_for_topic if isinstance(step, Transform)]
    stateful = [step for step in transforms if step.state()]
    if stateful:
        name = type(stateful[0]).__name__
        raise _refused(pipeline, f"{name} keeps state, which depends on the records before")
    if pipeline.late_data is not LateData.KEEP:
        raise _refused(
            pipeline, "late_data is not KEEP, and which events were late is not recorded"
        )
    if others:
        raise _refused(pipeline, f"{pipeline.sink.label} has rows of {', '.join(others)}, too")
    if pipeline.steps:
        reprocessable_sink(pipeline, None)
    else:
        schema = source.topic.schema
        fields = ("value",) if schema is None else tuple(schema.names)
        names = [metadata.value for metadata in pipeline.metadata(source)]
        reprocessable_sink(pipeline, (*fields, *names))


def reprocessable_sink(pipeline: Pipeline, columns: Collection[str] | None) -> ReprocessableSink:
    """Returns the sink of a pipeline, if it takes rows again.

    Args:
        pipeline: its declaration.
        columns: names of those of its rows; None: they are not known yet.

    Raises:
        ReprocessRefusedError: if it does not, or not rows with these columns.
    """
    sink = pipeline.sink
    if not isinstance(sink, Reprocessable):
        reason = f"rows that are written to {sink.label} again would count twice"
        raise _refused(pipeline, reason)
    topic = pipeline.sources[0].topic
    fault = sink.reprocessing_fault(columns, topic.event_id)
    if fault is not None:
        raise ReprocessRefusedError(
            pipeline.name, fault.message, f"To change that: {fault.remedy}."
        )
    return sink  # type: ignore[return-value]


def refuse_older_topic(
    pipeline: Pipeline, store: PositionStore, topic: SourceOffset, newest: int
) -> None:
    """Refuses a table with rows of an earlier topic of this name: they have the same places.

    Each checkpoint reads one topic, and the table records its positions by the topic's id.

    Args:
        pipeline: that writes the table.
        store: what the table records.
        topic: as it is now; a partition that it lacks is not looked for.
        newest: number of the pipeline's newest checkpoint, from 1; 0: it has none.

    Raises:
        ReprocessRefusedError: if a checkpoint has committed a batch and no position in the topic.
        SinkError: if what the table records can't be read.
    """
    checkpoints = [CheckpointIds(pipeline.name, n + 1) for n in range(newest)]
    places = {ids.batch: [*ids.partitions({topic.topic: topic}).values()] for ids in checkpoints}
    names = [*places, *chain.from_iterable(places.values())]
    recorded = store.versions(names)
    for batch, positions in places.items():
        if batch in recorded and recorded.keys().isdisjoint(positions):
            reason = (
                f"{pipeline.sink.label} has rows of {batch}, which has read another topic or an "
                f"earlier one of the name {topic.topic!r}, and rows are found by offsets"
            )
            raise _refused(pipeline, reason)


def _refused(pipeline: Pipeline, reason: str) -> ReprocessRefusedError:
    return ReprocessRefusedError(pipeline.name, reason, OTHER_NAME)
