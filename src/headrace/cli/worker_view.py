"""Workers while they run: a live table on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from headrace.cli.screen import LINE_SECONDS

if TYPE_CHECKING:
    from headrace.control.workers import Observe
    from headrace.workers.monitoring.progress import WorkerProgress

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


def summary(workers: Sequence[WorkerProgress], rate: float | None = None) -> Group:
    """A table of figures, and below it what figures do not say."""
    table = Table(box=None, pad_edge=False)
    table.add_column("worker", overflow="fold")
    table.add_column("instance", overflow="fold")
    table.add_column("state")
    for title in (*(title for title, _ in _FIGURES), *_LAG):
        table.add_column(title, justify="right")
    if rate is not None:
        table.add_column("rate/s", justify="right")
    for one in workers:
        table.add_row(*_cells(one), *([] if rate is None else [f"{rate:,.0f}"]))
    remarks = (f"[dim]{escape(f'{one.worker}: {note}')}" for one in workers for note in notes(one))
    return Group(table, *remarks)


def notes(one: WorkerProgress) -> list[str]:
    """What a row of figures does not say."""
    found = [one.reason] if one.reason else []
    if one.skipped:
        found.append(f"skipped {one.skipped:,}")
    if one.blocked or one.starved:
        found.append(f"{one.blocked:,} lane(s) blocked, {one.starved:,} starved")
    if one.paused_partitions:
        paused = (f"{name} ({', '.join(why)})" for name, why in one.paused_partitions.items())
        found.append(f"paused: {', '.join(paused)}")
    return found


def line(one: WorkerProgress, rate: float) -> str:
    """The same in one line of plain text."""
    figures = ", ".join(f"{title} {getattr(one, name):,}" for title, name in _FIGURES)
    lag = ", ".join(f"{title} {shown}" for title, shown in zip(_LAG, _lag(one), strict=True))
    text = f"{one.worker} {one.state}: {figures}, {lag}, rate/s {rate:,.0f}"
    return "; ".join((text, *notes(one)))


def reporting(console: Console) -> AbstractContextManager[Observe]:
    """Show progress for as long as the context lasts, and the last of it at its end."""
    return _live(console) if console.is_terminal else _lines(console)


class _Rate:
    """Records a second between two looks."""

    def __init__(self) -> None:
        self._processed, self._at_ms = 0, 0
        self.value = 0.0

    def look(self, one: WorkerProgress) -> float:
        milliseconds = one.updated_ms - self._at_ms
        if self._at_ms and milliseconds > 0 and not one.final:
            self.value = max(0.0, 1000 * (one.processed - self._processed) / milliseconds)
        self._processed, self._at_ms = one.processed, one.updated_ms
        return self.value


@contextmanager
def _live(console: Console) -> Iterator[Observe]:
    rate = _Rate()
    last: list[WorkerProgress] = []
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def observe(progress: WorkerProgress) -> None:
            last[:] = [progress]
            live.update(summary([progress], rate.look(progress)), refresh=True)

        yield observe
    if last:
        console.print(summary(last))


@contextmanager
def _lines(console: Console) -> Iterator[Observe]:
    """A line every few seconds, and at once when the state changes."""
    rate, told, state = _Rate(), 0.0, ""

    def observe(progress: WorkerProgress) -> None:
        nonlocal told, state
        per_second, now = rate.look(progress), time.monotonic()
        if state != progress.state or now - told >= LINE_SECONDS:
            told, state = now, progress.state
            text = line(progress, per_second)
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    yield observe


def _cells(one: WorkerProgress) -> list[str]:
    colour = _COLOURS.get(one.state, "default")
    return [
        escape(one.worker),
        escape(one.instance),
        f"[{colour}]{one.state}",
        *(f"{getattr(one, name):,}" for _, name in _FIGURES),
        *_lag(one),
    ]


def _lag(one: WorkerProgress) -> tuple[str, str]:
    """Records and seconds; an instance without partitions knows neither."""
    if not one.partitions:
        return "-", "-"
    return f"{one.lag_records:,}", f"{one.lag_seconds:,.0f}"
