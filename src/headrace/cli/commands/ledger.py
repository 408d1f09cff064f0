"""reconcile: shows whether every event of a pipeline is accounted for."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.session import UNBALANCED, Session, command

if TYPE_CHECKING:
    from headrace.control.reconcile import Reconciliation


@command("headrace reconcile impressions-to-lake --recount", extra="spark")
@click.argument("pipelines", nargs=-1, metavar="[PIPELINE]...")
@click.option(
    "--window",
    "times",
    type=parameters.Time(),
    multiple=True,
    help="Show the window that holds this time only; can be repeated.",
)
@click.option("--recount", is_flag=True, help="Count the rows of the tables, too.")
def reconcile(
    session: Session, pipelines: tuple[str, ...], *, times: tuple[datetime, ...], recount: bool
) -> Reconciliation:
    """Show whether all events are accounted for.

    For each window of event time: events read, and what became of them. A difference is shown with
    the hop where events are missing or too many, and the exit code is 6. Works beside a running
    pipeline, and changes nothing.
    """
    from headrace.control.reconcile import ReconcileRequest
    from headrace.control.reconcile import reconcile as compare

    chosen = session.pipelines(pipelines)
    result = compare(session.project, chosen, ReconcileRequest(times, recount))
    if result.is_unbalanced:
        session.exit_code = UNBALANCED
    return result
