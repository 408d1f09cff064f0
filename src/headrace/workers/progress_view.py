"""Shows workers while they run: a live table on a terminal, lines every 5 s elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from headrace.cli.screen import LINE_SECONDS, with_remarks
from headrace.cli.service_progress import remark_names

if TYPE_CHECKING:
    from headrace.workers.monitoring.progress import Observe
    from headrace.workers.status import WorkerStatus

_COLOURS = {"running": "green", "draining": "yellow", "failed": "red"}
_FIGURES = (
    ("done", "processed"),
    ("failed", "failed"),
    ("dead", "dead_letters"),
    ("partitions", "partitions"),
    ("lanes", "lanes"),
    ("in process", "in_process"),
    ("waiting", "waiting"),
)
_LAG = ("lag", "behind s")


def summary(workers: Sequence[WorkerStatus], rate: float | None = None) -> Group:
    """Returns a table of figures, and remarks below it."""
    table = Table(box=None, pad_edge=False)
    table.add_column("worker", overflow="fold")
    table.add_column("instance", overflow="fold")
    table.add_column("state")
    for title in (*(title for title, _ in _FIGURES), *_LAG):
        table.add_column(title, justify="right")
    if rate is not None:
        table.add_column("rate/s", justify="right")
    for progress in workers:
        colour = _COLOURS.get(progress.state, "default")
        cells = [escape(progress.name), escape(progress.instance), f"[{colour}]{progress.state}"]
        cells += [f"{getattr(progress, name):,}" for _, name in _FIGURES]
        table.add_row(*cells, *_lag(progress), *([] if rate is None else [f"{rate:,.0f}"]))
    named = zip(remark_names(workers), workers, strict=True)
    remarks = ((name, note) for name, progress in named for note in notes(progress))
    return with_remarks(table, remarks)


def notes(progress: WorkerStatus) -> list[str]:
    """Returns what figures do not show: reasons, skipped records, blocked lanes, paused ones."""
    remarks = [progress.reason] if progress.reason else []
    if progress.skipped:
        remarks.append(f"skipped {progress.skipped:,}")
    if progress.tombstones:
        remarks.append(f"{progress.tombstones:,} tombstone(s) left out")
    if progress.rejected_references:
        remarks.append(f"{progress.rejected_references:,} record(s) of references rejected")
    if progress.references_behind:
        remarks.append(f"{progress.references_behind:,} reference(s) behind")
    if progress.blocked or progress.starved:
        remarks.append(f"{progress.blocked:,} lane(s) blocked, {progress.starved:,} starved")
    if progress.paused_partitions:
        paused = (f"{name} ({', '.join(why)})" for name, why in progress.paused_partitions.items())
        remarks.append(f"paused: {', '.join(paused)}")
    return remarks


def line(progress: WorkerStatus, rate: float) -> str:
    """Returns the figures and remarks as a line of plain text."""
    figures = ", ".join(f"{title} {getattr(progress, name):,}" for title, name in _FIGURES)
    lag = ", ".join(f"{title} {shown}" for title, shown in zip(_LAG, _lag(progress), strict=True))
    text = f"{progress.name} {progress.state}: {figures}, {lag}, rate/s {rate:,.0f}"
    return "; ".join((text, *notes(progress)))


def reporting(console: Console) -> AbstractContextManager[Observe]:
    """Shows progress for as long as the context lasts, and the last figures at its end."""
    return _live(console) if console.is_terminal else _lines(console)


def _without_error(progress: WorkerStatus) -> WorkerStatus:
    """Returns the last figures without why it failed: the command shows that as its error."""
    return replace(progress, reason="") if progress.state == "failed" else progress


class _Rate:
    """The rate of processed records between two updates."""

    def __init__(self) -> None:
        self._processed, self._at_ms = 0, 0
        self.value = 0.0

    def update(self, progress: WorkerStatus) -> float:
        milliseconds = progress.updated_ms - self._at_ms
        # By the time of the instance: its updates may come here late, and in bursts.
        if self._at_ms and milliseconds > 0 and not progress.has_ended:
            self.value = max(0.0, 1000 * (progress.processed - self._processed) / milliseconds)
        self._processed, self._at_ms = progress.processed, progress.updated_ms
        return self.value


@contextmanager
def _live(console: Console) -> Iterator[Observe]:
    rate = _Rate()
    last: list[WorkerStatus] = []
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def observe(progress: WorkerStatus) -> None:
            last[:] = [_without_error(progress)]
            live.update(summary(last, rate.update(progress)), refresh=True)

        yield observe
    # The live table is transient, and vanishes with its context.
    if last:
        console.print(summary(last))


@contextmanager
def _lines(console: Console) -> Iterator[Observe]:
    """Prints a line every 5 s, and at once when the state changes."""
    rate, shown_at, state = _Rate(), 0.0, ""

    def observe(progress: WorkerStatus) -> None:
        nonlocal shown_at, state
        per_second, now = rate.update(progress), time.monotonic()
        if state != progress.state or now - shown_at >= LINE_SECONDS:
            shown_at, state = now, progress.state
            text = line(_without_error(progress), per_second)
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    yield observe


def _lag(progress: WorkerStatus) -> tuple[str, str]:
    """Returns records and seconds, which an instance without partitions does not know."""
    if not progress.partitions:
        return "-", "-"
    return f"{progress.lag_records:,}", f"{progress.lag_seconds:,.0f}"
