"""View of `query check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.cli.screen import Screen, safe, table
from headrace.cli.views import view
from headrace.control.standing_queries import CheckedQuery
from headrace.queries.language import print_query


@dataclass(frozen=True)
class ShownQuery:
    """A query as it is understood, and what its results are."""

    checked: CheckedQuery

    def to_json(self) -> dict[str, Any]:
        """Returns text, topic, seconds of the window, and columns."""
        query = self.checked.query
        return {
            "query": print_query(query),
            "topic": query.topic,
            "window_seconds": query.window.total_seconds(),
            "slide_seconds": query.slide.total_seconds(),
            "columns": [
                {"name": name, "type": kind.name.lower()}
                for name, kind in self.checked.columns.items()
            ],
        }


@view.register
def _query(result: ShownQuery, screen: Screen) -> None:
    for line in print_query(result.checked.query).splitlines():
        screen.line(safe(line))
    screen.line("")
    columns = table("column", "type")
    for name, kind in result.checked.columns.items():
        columns.add_row(safe(name), kind.name.lower())
    screen.out.print(columns, highlight=False)
