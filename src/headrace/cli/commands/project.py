"""init, check, plan, apply: from nothing to live topics."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.session import CHANGES, REFUSED, Session, command


@command("headrace init ads && cd ads && headrace up")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def init(session: Session, directory: Path) -> None:
    """Write a small working project into DIRECTORY. Overwrites nothing."""
    from headrace.control.new_project import write_project

    files = write_project(directory)
    session.output.created(directory, files)


@command("headrace check --json")
def check(session: Session) -> None:
    """Validate the project as a whole: every problem at once, with file and line.

    Starts nothing and connects to nothing. Exit code 2 when there are problems.
    """
    session.output.checked(session.project)


@command("headrace plan --exit-code")
@click.option("--exit-code", is_flag=True, help="Exit with 5 when there are changes.")
def plan(session: Session, *, exit_code: bool) -> None:
    """Show what `apply` would do, and which way each pipeline's rows take and why.

    Changes nothing. Exit code 3 when something is refused.
    """
    from headrace.control.plan import make_plan

    found = make_plan(session.project)
    session.output.planned(found)
    if found.refused:
        session.exit_code = REFUSED
    elif exit_code and found.changes:
        session.exit_code = CHANGES


@command("headrace apply")
def apply(session: Session) -> None:
    """Create the declared topics and mend those that differ, where Kafka allows it.

    What it does not allow is refused with the reason, the rest is done, and the exit code is 3.
    """
    from headrace.control.plan import apply_plan

    done = apply_plan(session.project)
    session.output.applied(done)
    if done.refused:
        session.exit_code = REFUSED
