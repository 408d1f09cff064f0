"""Views of `run`, `pause`, `resume`, `compact` and `checkpoint`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from headrace.cli.encoding import merged
from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, table
from headrace.cli.view import view
from headrace.pipelines.progress_view import reporting, summary

if TYPE_CHECKING:
    from headrace.pipelines.run.runner import Observe
    from headrace.pipelines.start.checkpoints import CheckpointStatus
    from headrace.pipelines.status import PipelineStatus
    from headrace.sinks.api import CompactionResult

REPORT_SECONDS = 1.0


@dataclass(frozen=True)
class RunProgress:
    """The progress of running pipelines."""

    event: str = field(default="progress", init=False)
    pipelines: tuple[PipelineStatus, ...]


@dataclass(frozen=True)
class RunResult:
    """The final progress of pipelines."""

    event: str = field(default="ended", init=False)
    pipelines: tuple[PipelineStatus, ...]


@dataclass(frozen=True)
class Compacted:
    """Files of a table that were merged and removed."""

    table: str
    result: CompactionResult

    def to_json(self) -> dict[str, Any]:
        """Returns the figures beside the table's name."""
        return merged({"table": self.table}, self.result)


@dataclass(frozen=True)
class PipelineCheckpoint:
    """The checkpoint of a pipeline."""

    pipeline: str
    standing: CheckpointStatus

    def to_json(self) -> dict[str, Any]:
        """Returns the members of the checkpoint beside the pipeline's name."""
        return merged({"pipeline": self.pipeline}, self.standing)


@view.register
def _ended(result: RunResult, screen: Screen) -> None:
    screen.out.print(summary(result.pipelines))


@view.register
def _compacted(compacted: Compacted, screen: Screen) -> None:
    result = compacted.result
    screen.out.print(
        f"Table {escape(compacted.table)}: {result.merged} small files merged into "
        f"{result.written}, {result.vacuumed} unreferenced files removed."
    )


@view.register
def _checkpoint(result: PipelineCheckpoint, screen: Screen) -> None:
    standing = result.standing
    where = standing.checkpoint or "none yet"
    start_note = f", begins at {standing.start}" if standing.start and not standing.begun else ""
    name = escape(result.pipeline)
    screen.out.print(f"[bold]{name}[/]: checkpoint {escape(where)}{start_note}")
    positions = table("partition", "table", "committed", "earliest", "latest")
    for position in standing.positions:
        offsets = (position.table, position.committed, position.earliest, position.latest)
        texts = ("none" if offset is None else str(offset) for offset in offsets)
        positions.add_row(position.partition, *texts)
    screen.out.print(positions)


@contextmanager
def _in_json(print_line: PrintLine) -> Iterator[Observe]:
    last = 0.0

    def observe(progress: Mapping[str, PipelineStatus]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_SECONDS:
            last = now
            print_line(RunProgress(tuple(progress.values())))

    yield observe


running = Live(lambda screen: reporting(screen.out), _in_json)
