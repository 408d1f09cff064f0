"""Shows pipelines while they run: a live table on a terminal, lines every 5 s elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headrace.cli.screen import LINE_SECONDS, with_remarks

if TYPE_CHECKING:
    from headrace.pipelines.run.runner import Observe
    from headrace.pipelines.status import PipelineStatus

_COLOURS = {
    "running": "green",
    "finished": "green",
    "restarting": "yellow",
    "failed": "red",
    "refused": "red",
}
_FIGURES = (
    ("rows in", "rows_in"),
    ("rows out", "rows_out"),
    ("late", "late_rows"),
    ("duplicates", "duplicate_rows"),
    ("dropped", "dropped_by_watermark_rows"),
    ("dead", "dead_letters"),
)


def summary(pipelines: Sequence[PipelineStatus]) -> Group:
    """Returns a table of figures, and remarks below it."""
    table = Table(box=None, pad_edge=False)
    table.add_column("pipeline", overflow="fold")
    table.add_column("state")
    for title, _ in _FIGURES:
        table.add_column(title, justify="right")
    for title in ("rate/s", "backlog", "behind s", "batch ms"):
        table.add_column(title, justify="right")
    table.add_column("sink", overflow="fold")
    for progress in pipelines:
        colour = _COLOURS.get(progress.state, "default")
        table.add_row(
            escape(progress.name),
            f"[{colour}]{progress.state}",
            *(f"{getattr(progress, name):,}" for _, name in _FIGURES),
            f"{progress.records_per_second:,.0f}",
            _number(progress.backlog_records),
            _number(progress.backlog_seconds),
            f"{progress.batch_seconds * 1000:,.0f}",
            escape(own_figures(progress)),
        )
    remarks = ((progress.name, note) for progress in pipelines for note in notes(progress))
    return with_remarks(table, remarks)


def notes(progress: PipelineStatus) -> list[str]:
    """Returns what figures do not show: reasons, restarts, paused and idle partitions."""
    remarks = [progress.reason] if progress.reason else []
    for name, value in progress.figures.items():
        if isinstance(value, str) and value:
            remarks.append(f"{name.replace('_', ' ')}: {value}")
    if progress.tombstones:
        remarks.append(f"{progress.tombstones:,} tombstone(s) left out")
    if progress.restarts:
        remarks.append(f"restarted {progress.restarts} time(s)")
    if progress.paused_partitions:
        remarks.append(f"paused: {', '.join(progress.paused_partitions)}")
    if progress.idle_partitions:
        remarks.append(f"idle: {', '.join(progress.idle_partitions)}")
    return remarks


def own_figures(progress: PipelineStatus) -> str:
    """Returns what its sink and its steps count, those above 0: ``12 files written``."""
    counts = {name: n for name, n in progress.figures.items() if isinstance(n, int) and n}
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())


def line(progress: PipelineStatus) -> str:
    """Returns the figures and remarks as a line of plain text."""
    figures = ", ".join(f"{title} {getattr(progress, name):,}" for title, name in _FIGURES)
    if own := own_figures(progress):
        figures += f", {own}"
    text = (
        f"{progress.name} {progress.state}: {figures}, "
        f"rate/s {progress.records_per_second:,.0f}, "
        f"backlog {_backlog(progress)}, "
        f"batch ms {progress.batch_seconds * 1000:,.0f}"
    )
    return "; ".join((text, *notes(progress)))


def _backlog(progress: PipelineStatus) -> str:
    if progress.backlog_records is None:
        return "unknown"
    seconds = progress.backlog_seconds
    age = "age unknown" if seconds is None else f"{seconds:,.0f} s"
    return f"{progress.backlog_records:,} ({age})"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def reporting(console: Console) -> AbstractContextManager[Observe]:
    """Shows progress for as long as the context lasts."""
    return _live(console) if console.is_terminal else _lines(console)


@contextmanager
def _live(console: Console) -> Iterator[Observe]:
    """Shows a table; while Spark starts, which nothing observes, a line with the time it takes."""
    from headrace.spark.session import SPARK_STARTS

    since = time.monotonic()

    def wait() -> Text:
        return Text(f"{SPARK_STARTS} ({time.monotonic() - since:.0f} s)")

    clock = Live(get_renderable=wait, console=console, refresh_per_second=1, transient=True)
    # Drawn at each observation: rich would otherwise redraw old figures on a thread of its own.
    live = Live(console=console, auto_refresh=False, transient=True)

    def observe(pipelines: Mapping[str, PipelineStatus]) -> None:
        statuses = list(pipelines.values())
        if not live.is_started and all(status.reason == SPARK_STARTS for status in statuses):
            clock.start(refresh=True)
            return
        clock.stop()  # rich draws one of them at a time
        live.start()
        live.update(summary(statuses), refresh=True)

    try:
        yield observe
    finally:
        clock.stop()
        live.stop()


@contextmanager
def _lines(console: Console) -> Iterator[Observe]:
    """Prints a line for each pipeline every 5 s, and at once when its state changes."""
    shown: dict[str, tuple[str, float]] = {}

    def observe(pipelines: Mapping[str, PipelineStatus]) -> None:
        now = time.monotonic()
        for name, progress in pipelines.items():
            state, at = shown.get(name, ("", 0.0))
            # A state that lasts less than 5 s is shown too, and that of the end once.
            if state != progress.state or (now - at >= LINE_SECONDS and not progress.has_ended):
                shown[name] = (progress.state, now)
                console.print(line(progress), markup=False, highlight=False, soft_wrap=True)

    yield observe
