"""query check, register, list, show, update, cancel: standing queries and their registry.

What runs and shows their results is in :mod:`headrace.queries.results.commands`.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.session import Session, command, epilog
from headrace.errors import QueryTextError
from headrace.queries.results import commands as query_answers
from headrace.runtime.arrow import keep_pandas_out

if TYPE_CHECKING:
    from headrace.queries.views import (
        CancelledQueries,
        QueryDetails,
        QueryList,
        ShownQuery,
        WrittenQuery,
    )

_EXAMPLE = 'headrace query check "SELECT count(*) FROM clicks FACET country WINDOW 1 minute"'
_REGISTER = 'headrace query register "SELECT count(*) FROM clicks" --id clicks-a-minute --ttl 1h'

_ttl = click.option(
    "--ttl",
    type=parameters.Duration(),
    help="Lifetime, such as 30m, if it is not updated; by default the longest, max_ttl.",
)


@click.group(epilog=epilog("Example", _REGISTER))
def query() -> None:
    """Register, answer and show standing queries."""


@command(_EXAMPLE, extra="queries")
@click.argument("text")
def check(session: Session, text: str) -> ShownQuery:
    """Check the text of a query; `-` reads it from standard input.

    Shows the query as it is understood, and the columns of its results with their types. Looks at
    the project alone, and registers nothing. The exit code is 2 if the query is not valid.
    """
    from headrace.queries.registry.statements import checked_query
    from headrace.queries.views import ShownQuery

    return ShownQuery(checked_query(session.project, _read(text), is_new=True))


@command(_REGISTER, extra="queries")
@click.argument("text")
@click.option("--id", "query_id", help="Its id; by default a random one.")
@_ttl
@parameters.queries_name
def register(
    session: Session,
    text: str,
    *,
    query_id: str | None,
    ttl: timedelta | None,
    queries: str | None,
) -> WrittenQuery:
    """Register a query; `-` reads its text from standard input.

    With the id and text of a live query, renews that one. The exit code is 2 if the query is not
    valid, and 3 if its id is taken or no pipeline matches the events of its topic.
    """
    from headrace.queries.registry.registrations import QueryRegistry, declared_queries
    from headrace.queries.views import WrittenQuery

    keep_pandas_out()
    written = QueryRegistry(session.project, queries).register(_read(text), query_id, ttl)
    return WrittenQuery(written, declared_queries(session.project, queries).queries_topic)


@command("headrace query list --json", name="list", extra="queries")
@parameters.queries_name
def list_(session: Session, *, queries: str | None) -> QueryList:
    """Show all registered queries, the earliest registration first.

    Live ones are checked against the project: a query that no longer fits its topic is faulty.
    Expired ones are shown until their records are deleted.
    """
    from headrace.queries.registry.registrations import QueryRegistry
    from headrace.queries.views import QueryList

    return QueryList(tuple(QueryRegistry(session.project, queries).entries()))


@command("headrace query show clicks-a-minute", extra="queries")
@click.argument("query_id", metavar="ID")
@parameters.queries_name
def show(session: Session, query_id: str, *, queries: str | None) -> QueryDetails:
    """Show a registered query, and whether it still fits its topic.

    The exit code is 2 if the id is unknown.
    """
    from headrace.queries.registry.registrations import QueryRegistry
    from headrace.queries.views import QueryDetails

    return QueryDetails(QueryRegistry(session.project, queries).entry(query_id))


@command("headrace query update clicks-a-minute --ttl 1h", extra="queries")
@click.argument("query_id", metavar="ID")
@click.argument("text", required=False)
@_ttl
@parameters.queries_name
def update(
    session: Session,
    query_id: str,
    text: str | None,
    *,
    ttl: timedelta | None,
    queries: str | None,
) -> WrittenQuery:
    """Renew a live query, with another text if one is named.

    `-` reads the text from standard input. The lifetime of the query starts over, and with another
    text its revision is one more. The exit code is 2 if the id is unknown, or the query expired.
    """
    from headrace.queries.registry.registrations import QueryRegistry, declared_queries
    from headrace.queries.views import WrittenQuery

    keep_pandas_out()
    changed = None if text is None else _read(text)
    written = QueryRegistry(session.project, queries).update(query_id, changed, ttl)
    return WrittenQuery(written, declared_queries(session.project, queries).queries_topic)


@command("headrace query cancel clicks-a-minute", extra="queries")
@click.argument("query_ids", metavar="ID...", nargs=-1, required=True)
@parameters.queries_name
def cancel(
    session: Session, query_ids: tuple[str, ...], *, queries: str | None
) -> CancelledQueries:
    """Cancel queries.

    Where an id is unknown, none is cancelled, and the exit code is 2.
    """
    from headrace.queries.registry.registrations import QueryRegistry, declared_queries
    from headrace.queries.views import CancelledQueries

    cancelled = QueryRegistry(session.project, queries).cancel(*query_ids)
    topic = declared_queries(session.project, queries).queries_topic
    return CancelledQueries(topic, tuple(cancelled))


def _read(text: str) -> str:
    if text != "-":
        return text
    read = sys.stdin.buffer.read()
    try:
        return read.decode()
    except UnicodeDecodeError as error:
        line = read[: error.start].count(b"\n") + 1
        raise QueryTextError(line, 1, "the text is not UTF-8") from error


for subcommand in (
    check,
    register,
    list_,
    show,
    update,
    cancel,
    query_answers.run,
    query_answers.emit,
    query_answers.results,
    query_answers.explain,
    query_answers.instances,
):
    query.add_command(subcommand)
