"""reconcile: shows whether every event is accounted for."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.session import UNBALANCED, Session, command, unknown
from headrace.cli.signals import until_signal
from headrace.settings.kinds import kinds_below

if TYPE_CHECKING:
    from headrace.operations.reconciling.reconciliation import Reconciliation


@command(
    "headrace reconcile impressions-to-lake --recount",
    extra="spark",
    words={"links": ", ".join(kinds_below("links"))},
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--window",
    "times",
    type=parameters.Time(),
    multiple=True,
    help="Show the window that holds this time only; can be repeated.",
)
@click.option("--since", type=parameters.Time(), help="Leave out windows that start before it.")
@click.option("--recount", is_flag=True, help="Count rows, records of links and matched events.")
@click.option("--strict", is_flag=True, help="Exit code 6 also when something is unknown.")
def reconcile(
    session: Session,
    names: tuple[str, ...],
    *,
    times: tuple[datetime, ...],
    since: datetime | None,
    recount: bool,
    strict: bool,
) -> Reconciliation:
    """Show whether all events are accounted for.

    NAME is a pipeline, a link ({links}) or standing queries; by default all. For each window of
    event time: events read, and what became of them. A difference is shown with the hop where
    events are missing or too many, and the exit code is 6. Works beside what runs, and changes
    nothing.

    Of links, --recount reads all records of both ends; of standing queries, the newest million
    events of a topic and all matched events.
    """
    from headrace.ledger.request import ReconcileRequest
    from headrace.links.kind import counted_ends, link_kinds
    from headrace.operations.reconciling.reconcile import reconcile as compare
    from headrace.pipelines.declaration import Pipeline
    from headrace.queries.declaration import StandingQueries
    from headrace.settings import environment
    from headrace.spark.kafka_session import jars_notice

    project = session.project
    links = counted_ends(project)
    link_names = (link.book.name for link in links)
    declared = {*project.declared(Pipeline), *link_names, *project.declared(StandingQueries)}
    for name in names:
        if name not in declared:
            counted = ", ".join(["pipeline", *(kind.label for kind in link_kinds())])
            raise unknown(f"{counted} or standing queries", name, sorted(declared))
    pipelines = [p for p in session.declared(Pipeline) if p.name in names or not names]
    queries = [q for q in session.declared(StandingQueries) if q.name in names or not names]
    links = [link for link in links if link.book.name in names or not names]
    if recount and links and (notice := jars_notice(environment())):
        session.output.warn(notice)
    request = ReconcileRequest(times, since, recount)
    result: Reconciliation = until_signal(compare, project, pipelines, request, links, queries)
    if result.is_unbalanced or (strict and result.is_unknown):
        session.exit_code = UNBALANCED
    return result
