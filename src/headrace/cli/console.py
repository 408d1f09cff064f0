"""Output for people: results on stdout, errors on stderr."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from rich.markup import escape

from headrace.cli.output import Live, Observer
from headrace.cli.screen import Screen
from headrace.cli.view import view
from headrace.errors import HeadraceError, ProjectError


class ConsoleOutput:
    """See :class:`headrace.cli.output.Output`. What is shown must have a view."""

    def __init__(self) -> None:
        self._screen = Screen()

    def show(self, result: object) -> None:
        view(result, self._screen)

    def live(self, progress: Live[Observer]) -> AbstractContextManager[Observer]:
        return progress.on_screen(self._screen)

    def warn(self, text: str) -> None:
        # Without soft_wrap, rich breaks paths and commands that people copy.
        self._screen.err.print(escape(text), soft_wrap=True)

    def failed(self, error: HeadraceError) -> None:
        err = self._screen.err
        if isinstance(error, ProjectError):
            for problem in error.problems:
                where = f"[bold]{escape(problem.file)}:{problem.line}[/]"
                err.print(f"{where}: {escape(problem.message)}", soft_wrap=True)
                if problem.remedy:
                    err.print(f"  [dim]{escape(problem.remedy)}", soft_wrap=True)
            count = len(error.problems)
            err.print(f"[red]{count} problem{'' if count == 1 else 's'}.")
        else:
            err.print(f"[red]{escape(str(error))}", soft_wrap=True)

    def crashed(self, error: BaseException, log: Path) -> None:
        err, kind = self._screen.err, type(error).__name__
        err.print(f"[red]Unexpected {kind}: {escape(str(error))}", soft_wrap=True)
        err.print(f"[dim]Details: {escape(str(log))}; or run again with --debug.")
