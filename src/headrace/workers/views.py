"""Views of `workers run`, `list`, `pause`, `resume` and `reset`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rich.markup import escape

from headrace.cli.encoding import merged
from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, table
from headrace.cli.view import view
from headrace.workers.progress_view import reporting

if TYPE_CHECKING:
    from headrace.workers.monitoring.progress import Observe
    from headrace.workers.reset import Reset
    from headrace.workers.run import WorkerStanding
    from headrace.workers.status import WorkerStatus


@dataclass(frozen=True)
class InstanceEvent:
    """The progress of an instance, or its end."""

    event: Literal["progress", "ended"]
    worker: WorkerStatus


@dataclass(frozen=True)
class WorkerStandings:
    """The groups, lag and paused partitions of workers."""

    workers: tuple[WorkerStanding, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the standings, each with the names of its paused partitions."""
        return {
            "workers": [
                merged(standing, {"paused_partitions": standing.paused_partitions})
                for standing in self.workers
            ]
        }


@dataclass(frozen=True)
class ResetResult:
    """What a reset changes, or would change."""

    reset: Reset
    dry_run: bool

    def to_json(self) -> dict[str, Any]:
        """Returns the reset's members, and whether it was only tried."""
        return merged(self.reset, {"dry_run": self.dry_run})


@view.register
def _standings(result: WorkerStandings, screen: Screen) -> None:
    workers = table(
        "worker", "topics", "guarantee", "group", "members", "lag", "behind s", "paused"
    )
    for standing in result.workers:
        group = standing.group
        members = ", ".join(member.name for member in group.members)
        cells = (
            standing.worker,
            ", ".join(standing.topics),
            standing.guarantee,
            group.state,
            members,
        )
        lag, behind = f"{standing.lag_records:,}", f"{standing.lag_seconds:,.0f}"
        paused = escape(", ".join(standing.paused_partitions))
        workers.add_row(*map(escape, cells), lag, behind, paused)
    screen.out.print(workers)
    for standing in result.workers:
        if standing.missing_topics:
            screen.warning(f"{standing.worker}: no topic {', '.join(standing.missing_topics)} yet")


@view.register
def _reset(result: ResetResult, screen: Screen) -> None:
    reset, verb = result.reset, "would begin" if result.dry_run else "begins"
    offsets = table("partition", "committed", "begins at")
    for partition, offset in reset.begins.items():
        offsets.add_row(escape(partition), str(reset.committed.get(partition, "")), str(offset))
    screen.out.print(offsets)
    screen.line(
        f"{escape(reset.worker)} (group {escape(reset.group)}) {verb} there: {reset.repeated:,} "
        f"records are processed again, {reset.skipped:,} are skipped."
    )
    if reset.state:
        verb = "would be" if result.dry_run else "is"
        screen.line(f"The state of these partitions in {escape(reset.state)} {verb} deleted.")


@contextmanager
def _in_json(print_line: PrintLine) -> Iterator[Observe]:
    def observe(progress: WorkerStatus) -> None:
        print_line(InstanceEvent("ended" if progress.has_ended else "progress", progress))

    yield observe


working = Live(lambda screen: reporting(screen.out), _in_json)
