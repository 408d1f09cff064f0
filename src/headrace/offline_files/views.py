"""Views of `load-offline-files`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, status_line, table
from headrace.cli.service_progress import instances, live_figures
from headrace.cli.view import view
from headrace.service.status import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group

    from headrace.offline_files.loading import LoadStats, OnBatch
    from headrace.offline_files.status import LoaderStatus


MAX_SHOWN_HOLES = 5
# What is done is shown as holes; the file is of progress alone.
_INTERNAL = {"done", "file"}


@dataclass(frozen=True)
class LoadResult:
    """What a load of offline files did, or would do."""

    source: str
    figures: LoadStats
    dry_run: bool

    def to_json(self) -> dict[str, Any]:
        """Returns the counts, and the ranges of counters that were never seen."""
        counts = {
            name: count for name, count in vars(self.figures).items() if name not in _INTERNAL
        }
        holes = [{"first": start, "last": end - 1} for start, end in self.figures.done.holes]
        return {"source": self.source, "dry_run": self.dry_run, **counts, "holes": holes}


@view.register
def _loaded(result: LoadResult, screen: Screen) -> None:
    lines = table("lines", "how many", "which", right=(1,))
    for what, count, which in _rows(result.figures):
        lines.add_row(what, f"{count:,}", escape(which))
    screen.out.print(lines)
    for warning in _warnings(result.figures):
        screen.warning(warning)
    written = "Each counter is loaded once."
    if result.dry_run:
        written = "Nothing was written (--dry-run)."
    screen.out.print(f"Source [bold]{escape(result.source)}[/]. {written}", highlight=False)


def _rows(figures: LoadStats) -> Iterator[tuple[str, int, str]]:
    yield "read", figures.lines, f"{figures.files} of {figures.of_files} file(s)"
    for name, count in figures.loaded.most_common():
        yield "loaded", count, name
    for reason, count in figures.dead.most_common():
        yield "dead letters", count, reason
    if figures.skipped:
        yield "skipped", figures.skipped, "done before"
    if figures.left:
        yield "left", figures.left, "half written, at the end of the newest file"


def _warnings(figures: LoadStats) -> Iterator[str]:
    holes = figures.done.holes
    if holes:
        shown = ", ".join(f"{start} to {end - 1}" for start, end in holes[:MAX_SHOWN_HOLES])
        missing = sum(end - start for start, end in holes)
        more = f" and {len(holes) - MAX_SHOWN_HOLES} more" if len(holes) > MAX_SHOWN_HOLES else ""
        yield f"{missing:,} counter(s) were never seen: {shown}{more}"
    if figures.backwards:
        yield f"{figures.backwards:,} line(s) came after a higher counter: try the other --order"


@contextmanager
def _on_screen(screen: Screen) -> Iterator[OnBatch]:
    with status_line(screen.err, "Reading") as show:
        yield lambda figures: show(
            f"file {figures.files} of {figures.of_files} {figures.file}: {figures.lines:,} lines, "
            f"{figures.loaded.total():,} loaded, {figures.skipped:,} skipped, "
            f"{figures.dead.total():,} dead letters"
        )


@contextmanager
def _silent(_print_line: PrintLine) -> Iterator[OnBatch]:
    yield lambda _: None


loading = Live(_on_screen, _silent)


def summary(statuses: Sequence[LoaderStatus]) -> Group:
    """Returns a table of loaders, and below it why they wait or failed."""
    columns = {
        "loaded": "loaded",
        "dead letters": "dead_letters",
        "files": "files",
        "waiting": "files_waiting",
        "lag (s)": "lag_seconds",
    }
    return instances(statuses, columns, lambda _: ())


@live_figures
def following(status: LoaderStatus) -> str:
    """Returns the line of figures of a loader that follows a folder."""
    figures = [
        f"{status.files:,} files, {status.loaded:,} lines loaded",
        f"{status.dead_letters:,} dead letters",
        f"{status.files_waiting:,} files waiting",
        f"lag {status.lag_seconds:,.0f} s",
    ]
    if status.state is State.WAITING:
        figures.append(f"waits: {status.reason}")
    if status.missing_counters:
        figures.append(f"{status.missing_counters:,} counters were never seen")
    return ", ".join(figures)
