"""Output for programs: one JSON document a command; of a command that goes on, one a line."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import click

from headrace.cli.encoding import print_json
from headrace.cli.output import Live, Observer
from headrace.errors import HeadraceError, ProjectError


class JsonOutput:
    """See :class:`headrace.cli.output.Output`. Everything goes to stdout but warnings."""

    def show(self, result: object) -> None:
        print_json(result)

    def live(self, progress: Live[Observer]) -> AbstractContextManager[Observer]:
        return progress.in_json(print_json)

    def warn(self, text: str) -> None:
        click.echo(text, err=True)

    def failed(self, error: HeadraceError) -> None:
        kind = getattr(error, "code", type(error).__name__)
        problems = error.problems if isinstance(error, ProjectError) else ()
        print_json({"error": kind, "message": str(error), "problems": problems})

    def crashed(self, error: BaseException, log: Path) -> None:
        print_json({"error": type(error).__name__, "message": str(error), "log": log})
