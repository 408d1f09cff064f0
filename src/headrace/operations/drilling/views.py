"""Views of `drill`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.markup import escape

from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, status_line, table
from headrace.cli.view import view
from headrace.operations.drilling.drill import OnStep
from headrace.operations.drilling.report import DrillReport
from headrace.runtime.java.jars import Progress

Observers: TypeAlias = tuple[OnStep, Progress]


@view.register
def _drilled(report: DrillReport, screen: Screen) -> None:
    names = escape(", ".join(report.names))
    screen.line(
        f"{names}: {report.events:,} events, {len(report.faults)} faults, seed {report.seed}\n"
    )
    shown = table("fault", "stood still", "times", "median s", "longest s", right=(2, 3, 4))
    for still in report.standstills:
        median, longest = f"{still.median:.1f}", f"{still.longest:.1f}"
        shown.add_row(still.fault, escape(still.subject), str(len(still.seconds)), median, longest)
    screen.out.print(shown, highlight=False)
    screen.line("")
    importlib.import_module("headrace.operations.reconciling.views")
    view(report.reconciliation, screen)
    screen.line("\nNot checked:")
    for part in report.not_checked:
        screen.line(f"- {escape(part)}")
    for problem in report.problems:
        screen.warning(problem)
    verdict = (
        "[green]The promise held." if report.has_held else "[bold red]The promise did not hold."
    )
    screen.line(f"\n{verdict}")


@contextmanager
def _on_screen(screen: Screen) -> Iterator[Observers]:
    def on_step(text: str) -> None:
        screen.err.print(f"[dim]{escape(text)}", soft_wrap=True)

    with status_line(screen.err, "") as show:
        yield (
            on_step,
            lambda done, total, name: show(f"Fetching {name}: {done:,} of {total:,} bytes"),
        )


@contextmanager
def _silent(_print_line: PrintLine) -> Iterator[Observers]:
    yield (lambda _: None, lambda *_: None)


drilling = Live(_on_screen, _silent)
