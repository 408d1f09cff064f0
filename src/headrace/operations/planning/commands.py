"""plan, apply: compares a project with its clusters, and changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.session import CHANGES, REFUSED, Session, command

if TYPE_CHECKING:
    from headrace.operations.planning.plan import AppliedPlan, Plan


@command("headrace plan --exit-code")
@click.option("--exit-code", is_flag=True, help="Exit with 5 when there are changes.")
def plan(session: Session, *, exit_code: bool) -> Plan:
    """Show what `apply` would change, and execution paths.

    Shows the execution path of each pipeline, and why it takes it. Changes nothing. The exit code
    is 3 when something is refused.
    """
    from headrace.operations.planning.plan import make_plan

    planned = make_plan(session.project)
    # A refusal wins over --exit-code: `apply` could not make all changes.
    if planned.refused:
        session.exit_code = REFUSED
    elif exit_code and planned.changes:
        session.exit_code = CHANGES
    return planned


@command("headrace apply")
def apply(session: Session) -> AppliedPlan:
    """Create declared topics, update those that differ.

    Topics of standing queries that are missing are created, too, and so are the targets of sinks
    that headrace makes itself.

    A change that Kafka does not allow is refused with the reason (exit code 3); the others are
    made.
    """
    from headrace.operations.planning.plan import apply_plan

    applied = apply_plan(session.project)
    if applied.refused:
        session.exit_code = REFUSED
    return applied
