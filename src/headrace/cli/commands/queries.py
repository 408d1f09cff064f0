"""query check: what a standing query means, and whether it fits its topic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from headrace.cli.session import Session, command, epilog

if TYPE_CHECKING:
    from headrace.cli.views.queries import ShownQuery

_EXAMPLE = 'headrace query check "SELECT count(*) FROM clicks FACET country WINDOW 1 minute"'


@click.group(epilog=epilog("Example", _EXAMPLE))
def query() -> None:
    """Look at standing queries."""


@command(_EXAMPLE, extra="queries")
@click.argument("text")
def check(session: Session, text: str) -> ShownQuery:
    """Check the text of a query; `-` reads it from standard input.

    Shows the query as it is understood, and the columns of its results with their types. Looks at
    the project alone, and registers nothing. The exit code is 2 if the query is not valid.
    """
    from headrace.cli.views.queries import ShownQuery
    from headrace.control.standing_queries import checked_query

    return ShownQuery(checked_query(session.project, sys.stdin.read() if text == "-" else text))


query.add_command(check)
