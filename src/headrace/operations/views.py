"""Views of `init` and `check`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from headrace.cli.screen import Screen
from headrace.cli.view import view
from headrace.errors import Problem
from headrace.operations.new_project import NewProject


@dataclass(frozen=True)
class CheckResult:
    """A valid project: its name, the names of what it declares, and warnings."""

    project: str
    topics: tuple[str, ...]
    pipelines: tuple[str, ...]
    workers: tuple[str, ...]
    mirrors: tuple[str, ...]
    mergers: tuple[str, ...]
    dispatchers: tuple[str, ...]
    standing_queries: tuple[str, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


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
    declared = f"{len(result.topics)} topic(s), {len(result.pipelines)} pipeline(s)"
    for kind in ("worker", "mirror", "merger", "dispatcher"):
        if number := len(getattr(result, f"{kind}s")):
            declared += f", {number} {kind}(s)"
    if number := len(result.standing_queries):
        declared += f", {number} declaration(s) of standing queries"
    for warning in result.warnings:
        where = f"[bold]{escape(warning.file)}:{warning.line}[/]"
        screen.out.print(f"{where}: [yellow]{escape(warning.message)}", soft_wrap=True)
        screen.out.print(f"  [dim]{escape(warning.remedy)}", soft_wrap=True)
    screen.out.print(f"[green]Valid:[/] {declared}.")
