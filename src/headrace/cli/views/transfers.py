"""What `mirror run`, `merger run` and `dispatcher run` show while they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.markup import escape

from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, status_line

Status = TypeVar("Status")


def live_figures(text: Callable[[Status], str]) -> Live[Callable[[Status], None]]:
    """Returns a view of an instance: a line of figures, which stays at its end; or JSON.

    Args:
        text: gives the line of a status.
    """

    @contextmanager
    def on_screen(screen: Screen) -> Iterator[Callable[[Status], None]]:
        with status_line(screen.err, "Waits for partitions") as show:
            last = ""

            def observe(status: Status) -> None:
                nonlocal last
                last = text(status)
                show(last)

            yield observe
        screen.line(escape(last))

    @contextmanager
    def in_json(print_line: PrintLine) -> Iterator[Callable[[Status], None]]:
        yield print_line

    return Live(on_screen, in_json)
