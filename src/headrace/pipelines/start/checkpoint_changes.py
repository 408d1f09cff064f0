"""Pipelines that would not start, since their checkpoint was started with another query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.errors import ExtraMissingError, QueryChangedError, ServerStartError, SinkError
from headrace.model import Guarantee
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.start.checkpoint import Checkpoint, CheckpointFolder, checkpoint_root
from headrace.pipelines.start.query_record import described_transforms, difference_of, read_query
from headrace.project.services import lake_uri
from headrace.runtime.extras import require_extra
from headrace.settings import Settings


@dataclass(frozen=True)
class CheckpointChange:
    """What differs between a declared pipeline and its checkpoint.

    Attributes:
        pipeline: its name.
        part: what differs: ``deduplicate.by``.
        recorded: the value that the checkpoint was started with, as JSON.
        declared: the value that is declared, as JSON.
        remedy: what to do.
    """

    pipeline: str
    part: str
    recorded: str
    declared: str
    remedy: str


def checkpoint_changes(
    settings: Settings, pipelines: Iterable[Pipeline]
) -> tuple[CheckpointChange, ...]:
    """Returns what is known without Spark: changes of headrace's transforms.

    Other steps with state, and the order of sources, are compared when the pipeline starts. A
    checkpoint that can't be read is left to the start, too.
    """
    return tuple(change for pipeline in pipelines for change in _changes(settings, pipeline))


def _changes(settings: Settings, pipeline: Pipeline) -> Iterator[CheckpointChange]:
    try:
        require_extra("spark")  # reads files by Arrow
        checkpoint = _checkpoint(settings, pipeline)
        recorded = None if checkpoint is None else read_query(checkpoint.uri)
    except (ExtraMissingError, ServerStartError, SinkError, OSError):
        return
    if recorded is None:
        return
    declared = described_transforms(pipeline)
    difference = difference_of("transforms with state", recorded.transforms, declared)
    if difference is not None:
        in_table = pipeline.sink.guarantee is Guarantee.EXACTLY_ONCE
        error = QueryChangedError(pipeline.name, *difference, in_table)
        yield CheckpointChange(pipeline.name, *difference, error.remedy)


def _checkpoint(settings: Settings, pipeline: Pipeline) -> Checkpoint | None:
    """Returns the checkpoint of a pipeline, if state may be in it."""
    folder = CheckpointFolder(checkpoint_root(lake_uri(settings), settings), pipeline.name)
    current = folder.current()
    checkpoint = None if current is None else folder.checkpoint(current)
    return checkpoint if checkpoint is not None and checkpoint.has_batches() else None
