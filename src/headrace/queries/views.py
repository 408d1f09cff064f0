"""Views of `query check`, `register`, `list`, `show`, `update` and `cancel`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from headrace.cli.encoding import encoded, merged
from headrace.cli.screen import Screen, safe, table
from headrace.cli.view import view
from headrace.queries.language import print_query
from headrace.queries.registry.statements import CheckedQuery

if TYPE_CHECKING:
    from headrace.queries.registry.record import RegisteredQuery
    from headrace.queries.registry.registrations import CancelledQuery, QueryEntry

_SHOWN_CHARACTERS = 60


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
            "notes": self.checked.notes,
        }


@dataclass(frozen=True)
class WrittenQuery:
    """A query that was registered or updated, and the topic that its record is in."""

    query: RegisteredQuery
    registry: str

    def to_json(self) -> dict[str, Any]:
        """Returns what is registered, and where."""
        return merged(self.query, {"registry": self.registry})


@dataclass(frozen=True)
class QueryList:
    """The entries of a registry."""

    queries: tuple[QueryEntry, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the entries, each as one object."""
        return {"queries": [entry_members(entry) for entry in self.queries]}


@dataclass(frozen=True)
class QueryDetails:
    """The entry of one query."""

    entry: QueryEntry

    def to_json(self) -> dict[str, Any]:
        """Returns the entry as one object."""
        return entry_members(self.entry)


@dataclass(frozen=True)
class CancelledQueries:
    """Queries that were cancelled, with the topic and the offsets of the records that say so."""

    registry: str
    cancelled: tuple[CancelledQuery, ...]


@view.register
def _query(result: ShownQuery, screen: Screen) -> None:
    _text(print_query(result.checked.query), screen)
    screen.line("")
    columns = table("column", "type")
    for name, kind in result.checked.columns.items():
        columns.add_row(safe(name), kind.name.lower())
    screen.out.print(columns, highlight=False)
    for note in result.checked.notes:
        screen.line(f"[yellow]Note:[/] {escape(note)}")


@view.register
def _written(result: WrittenQuery, screen: Screen) -> None:
    query = result.query
    where = f"at offset {query.offset:,} of {escape(result.registry)}"
    screen.line(f"Query [bold]{query.id}[/], revision {query.revision:,}, registered {where}.")
    if query.expires_at is not None:
        update = escape(f"`headrace query update {query.id}`")
        screen.line(f"It expires in {_left(query, query.updated_at)} unless {update} renews it.")


@view.register
def _queries(result: QueryList, screen: Screen) -> None:
    columns = ("id", "topic", "state", "expires in", "revision", "query")
    queries, now = table(*columns, right=(4,)), datetime.now(UTC)
    for entry in result.queries:
        if entry.query is not None:
            query = entry.query
            texts = (query.id, query.topic, entry.state.value, _left(query, now))
            line = " ".join(query.text.split())
            cells = (
                *texts,
                f"{query.revision:,}",
                line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 3]}...",
            )
            queries.add_row(*map(safe, cells))
    screen.out.print(queries, highlight=False)
    for entry in result.queries:
        if entry.reason:
            screen.line(f"[yellow]{_fault(entry)}")


@view.register
def _details(result: QueryDetails, screen: Screen) -> None:
    show_entry(result.entry, screen)


def show_entry(entry: QueryEntry, screen: Screen) -> None:
    """Shows the registration of a query, its text, and what is wrong with it."""
    query = entry.query
    if query is not None:
        now = datetime.now(UTC)
        facts = table("id", "topic", "state", "expires in", "revision", "registered", "updated")
        texts = (query.id, query.topic, entry.state.value, _left(query, now), f"{query.revision:,}")
        times = (_time(query.registered_at), _time(query.updated_at))
        facts.add_row(*map(safe, (*texts, *times)))
        screen.out.print(facts, highlight=False)
        screen.line("")
        _text(query.text, screen)
    if entry.reason:
        screen.line(f"[yellow]{_fault(entry)}")


@view.register
def _cancelled(result: CancelledQueries, screen: Screen) -> None:
    for query in result.cancelled:
        where = f"at offset {query.offset:,} of {escape(result.registry)}"
        screen.line(f"Query [bold]{safe(query.id)}[/] cancelled {where}.")


def entry_members(entry: QueryEntry) -> dict[str, Any]:
    """Returns an entry of the registry as one object."""
    facts = {"state": entry.state, "reason": entry.reason}
    if entry.query is None:
        return encoded({"id": entry.id, "offset": entry.offset} | facts)  # type: ignore[no-any-return]
    return merged(entry.query, facts)


def _fault(entry: QueryEntry) -> str:
    return safe(f"query {entry.id!r} at offset {entry.offset:,} is faulty: {entry.reason}")


def _text(text: str, screen: Screen) -> None:
    for line in text.splitlines():
        screen.line(safe(line))


def _left(query: RegisteredQuery, now: datetime) -> str:
    """Returns how long a query lives, to the second; a dash: it is expired, or does not expire."""
    if query.expires_at is None or query.expires_at <= now:
        return "-"
    return str(timedelta(seconds=int((query.expires_at - now).total_seconds())))


def _time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
