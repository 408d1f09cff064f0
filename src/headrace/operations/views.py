"""Views of `init` and `check`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from headrace.cli.screen import Screen
from headrace.cli.view import view
from headrace.errors import Problem
from headrace.operations.new_project import NewProject
from headrace.project.kind import Kind


@dataclass(frozen=True)
class CheckResult:
    """A valid project: its name, the names of what it declares by kind, and warnings."""

    project: str
    declared: Mapping[Kind[Any], tuple[str, ...]]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]

    def to_json(self) -> dict[str, object]:
        """Returns a member for each kind beside the others."""
        names = {kind.plural: names for kind, names in self.declared.items()}
        problems = {"problems": self.problems, "warnings": self.warnings}
        return {"project": self.project, **names, **problems}


@view.register
def _created(project: NewProject, screen: Screen) -> None:
    folder = project.folder
    screen.out.print(f"Created in [bold]{escape(str(folder))}[/]: {', '.join(project.files)}")
    screen.out.print("\nNext:")
    if folder.resolve() != Path.cwd():
        place = f"./{folder}" if str(folder).startswith("-") else str(folder)
        screen.out.print(f"  cd {escape(shlex.quote(place))}", soft_wrap=True)
    for command in ("up", "apply", "run"):
        screen.out.print(f"  headrace {command}")
    screen.out.print("[dim]README.md says how to send events.")


@view.register
def _checked(result: CheckResult, screen: Screen) -> None:
    declared = [
        f"{len(names)} {kind.shown or f'{kind.label}(s)'}"
        for kind, names in result.declared.items()
        if names
    ]
    for warning in result.warnings:
        where = f"[bold]{escape(warning.file)}:{warning.line}[/]"
        screen.out.print(f"{where}: [yellow]{escape(warning.message)}", soft_wrap=True)
        screen.out.print(f"  [dim]{escape(warning.remedy)}", soft_wrap=True)
    screen.out.print(f"[green]Valid:[/] {', '.join(declared)}.")
