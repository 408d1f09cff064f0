"""What the routes of standing queries ask: an interface, since queries are a layer above."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

ResultsBegin: TypeAlias = int | Literal["earliest", "latest"]
"""The offset of the first result; or the first ones that are there; or those from now on."""


@dataclass(frozen=True, slots=True)
class KnownQuery:
    """A query of the registry.

    Attributes:
        topic: that it is about; empty: its record can't be read.
        document: what clients see of it, as JSON has it.
    """

    topic: str
    document: Mapping[str, Any]


class Registration(NamedTuple):
    """A query that was registered, and whether it is new: otherwise it was renewed."""

    query: KnownQuery
    is_new: bool


class ResultList(NamedTuple):
    """The newest results of a query.

    Attributes:
        results: JSON of each, without line breaks; those of the newest window come last.
        is_cut: whether there can be older ones.
    """

    results: Sequence[bytes]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class ResultPage:
    """Some results of a query, in the order of their topic.

    Attributes:
        results: offset and JSON of each, without line breaks.
        position: offset of the record that is read next.
        is_end: no further record is there now.
        is_over: the id belongs to another registration now, and no result of this one will follow.
    """

    results: Sequence[tuple[int, bytes]]
    position: int
    is_end: bool
    is_over: bool = False


class ResultCursor(Protocol):
    """A place among the results of a query; used by one thread at a time."""

    @property
    def position(self) -> int:
        """Offset of the record that is read next."""
        ...

    def read(self) -> ResultPage:
        """Returns the next results that are there, about 256 KiB of them; waits for none."""
        ...


class QueryBackend(Protocol):
    """The registered queries of a project, and their results.

    Methods block while Kafka is asked, are called on several threads at a time, and know no tokens.
    ``registry`` is the name of declared standing queries; None: the only ones.

    What they raise beside what is listed, HeadraceError or KafkaException, means that Kafka does
    not answer or refuses; a change may have been made all the same.
    """

    def topic(self, text: str) -> str:
        """Returns the topic that a text is about, which may not be there.

        Raises:
            QueryTextError: if the text is no query.
        """
        ...

    def register(
        self, registry: str | None, text: str, query_id: str | None, ttl: timedelta | None
    ) -> Registration:
        """Registers a query, or renews a live one with the same id and text.

        Raises:
            QueryTextError, QueryInvalidError, QueryUnmatchedError: if it can't be registered.
            QueryIdTakenError: if a live query with another text has the id.
            NotDeclaredError: if there are no such standing queries.
        """
        ...

    def update(
        self, registry: str | None, query_id: str, text: str | None, ttl: timedelta | None
    ) -> KnownQuery:
        """Renews a live query, with another text if there is one; then its revision is one more.

        Raises what :meth:`register` does but for QueryIdTakenError.

        Raises:
            QueryMissingError: if no live query has the id.
        """
        ...

    def cancel(self, registry: str | None, query_id: str) -> None:
        """Cancels a query.

        Raises:
            QueryMissingError: if the id is unknown.
        """
        ...

    def queries(self, registry: str | None) -> Sequence[KnownQuery]:
        """Returns all queries of the registry.

        Raises:
            NotDeclaredError: if there are no such standing queries.
        """
        ...

    def query(self, registry: str | None, query_id: str) -> KnownQuery:
        """Returns a query of the registry.

        Raises:
            QueryMissingError: if the id is unknown.
            NotDeclaredError: if there are no such standing queries.
        """
        ...

    def results(self, registry: str | None, query: KnownQuery, limit: int) -> ResultList:
        """Returns the newest results of a query, the newest result of each group.

        Raises:
            QueryMissingError: if the record of the query can't be read.
        """
        ...

    def cursor(self, registry: str | None, query: KnownQuery, begin: ResultsBegin) -> ResultCursor:
        """Returns a place among the results of a query, as it is registered now.

        Raises:
            QueryMissingError: if the record of the query can't be read.
        """
        ...


QueryLoader: TypeAlias = Callable[[], QueryBackend]
"""Makes the backend in a worker's process; it is pickled on its way there."""
