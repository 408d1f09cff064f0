"""Pipelines while they run: a live table on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from headrace.cli.screen import LINE_SECONDS

if TYPE_CHECKING:
    from headrace.pipelines.progress import PipelineProgress
    from headrace.pipelines.runner import Observe

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


def summary(pipelines: Sequence[PipelineProgress]) -> Group:
    """A table of figures, and below it what figures do not say."""
    table = Table(box=None, pad_edge=False)
    table.add_column("pipeline", overflow="fold")
    table.add_column("state")
    for title, _ in _FIGURES:
        table.add_column(title, justify="right")
    for title in ("rate/s", "backlog", "behind s", "batch ms"):
        table.add_column(title, justify="right")
    table.add_column("sink", overflow="fold")
    for one in pipelines:
        table.add_row(*_cells(one))
    remarks = (
        f"[dim]{escape(f'{one.pipeline}: {note}')}" for one in pipelines for note in notes(one)
    )
    return Group(table, *remarks)


def notes(one: PipelineProgress) -> list[str]:
    """What a row of figures does not say."""
    found = [one.reason] if one.reason else []
    for name, value in one.figures.items():
        if isinstance(value, str) and value:
            found.append(f"{name.replace('_', ' ')}: {value}")
    if one.restarts:
        found.append(f"restarted {one.restarts} time(s)")
    if one.paused_partitions:
        found.append(f"paused: {', '.join(one.paused_partitions)}")
    if one.idle_partitions:
        found.append(f"idle: {', '.join(one.idle_partitions)}")
    return found


def own_figures(progress: PipelineProgress) -> str:
    """Returns what its sink and its steps count, those above 0: ``12 files written``."""
    counts = {name: n for name, n in progress.figures.items() if isinstance(n, int) and n}
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())


def line(one: PipelineProgress) -> str:
    """The same in one line of plain text."""
    figures = ", ".join(f"{title} {getattr(one, name):,}" for title, name in _FIGURES)
    if own := own_figures(one):
        figures += f", {own}"
    text = (
        f"{one.pipeline} {one.state}: {figures}, rate/s {one.records_per_second:,.0f}, "
        f"backlog {one.backlog_records:,} ({one.backlog_seconds:,.0f} s), "
        f"batch ms {one.batch_seconds * 1000:,.0f}"
    )
    return "; ".join((text, *notes(one)))


def reporting(console: Console) -> AbstractContextManager[Observe]:
    """Show progress for as long as the context lasts."""
    return _live(console) if console.is_terminal else _lines(console)


@contextmanager
def _live(console: Console) -> Iterator[Observe]:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda progress: live.update(summary(list(progress.values())), refresh=True)


@contextmanager
def _lines(console: Console) -> Iterator[Observe]:
    """A line a pipeline every few seconds, and at once when its state changes."""
    told: dict[str, tuple[str, float]] = {}

    def observe(progress: Mapping[str, PipelineProgress]) -> None:
        now = time.monotonic()
        for name, one in progress.items():
            state, at = told.get(name, ("", 0.0))
            if state != one.state or (now - at >= LINE_SECONDS and not one.final):
                told[name] = (one.state, now)
                console.print(line(one), markup=False, highlight=False, soft_wrap=True)

    yield observe


def _cells(one: PipelineProgress) -> list[str]:
    colour = _COLOURS.get(one.state, "default")
    return [
        escape(one.pipeline),
        f"[{colour}]{one.state}",
        *(f"{getattr(one, name):,}" for _, name in _FIGURES),
        f"{one.records_per_second:,.0f}",
        f"{one.backlog_records:,}",
        f"{one.backlog_seconds:,.0f}",
        f"{one.batch_seconds * 1000:,.0f}",
        escape(own_figures(one)),
    ]
