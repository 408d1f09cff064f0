"""init, check: writes and validates a project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.session import Session, command
from headrace.cli.signals import until_signal
from headrace.errors import ProjectError
from headrace.settings import environment

if TYPE_CHECKING:
    from headrace.operations.new_project import NewProject
    from headrace.operations.views import CheckResult
    from headrace.pipelines.steps.rules import StepFindings


@command("headrace init ads && cd ads && headrace up")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def init(_session: Session, directory: Path) -> NewProject:
    """Write a small working project into DIRECTORY. Overwrites nothing."""
    from headrace.operations.new_project import write_project

    return write_project(directory)


@command("headrace check --json")
def check(session: Session) -> CheckResult:
    """Validate the project, show all problems at once.

    Each has its file and line. Connects to nothing, and starts nothing but Spark's planner, if
    steps get several sources. The exit code is 2 when there are problems.
    """
    from headrace.operations.views import CheckResult
    from headrace.pipelines.declaration import Pipeline
    from headrace.pipelines.steps.rules import check_steps
    from headrace.project.kinds import kinds

    project = session.project
    steps: StepFindings = until_signal(
        check_steps, project.settings, session.declared(Pipeline), environment()
    )
    if steps.problems:
        raise ProjectError(list(steps.problems))
    names = {kind: tuple(project.declared(kind.type)) for kind in kinds()}
    return CheckResult(project.settings.name, names, (), (*project.warnings, *steps.warnings))
