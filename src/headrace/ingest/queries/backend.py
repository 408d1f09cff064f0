"""The interface by which routes access standing queries, which are in a higher layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

ResultsBegin: TypeAlias = int | Literal["earliest", "latest"]
"""Start at an offset, at the first result that Kafka still has, or only with results from now."""


@dataclass(frozen=True, slots=True)
class KnownQuery:
    """A query of the registry.

    Attributes:
        topic: name of the topic that the query is about; empty if its record can't be read.
        document: the query as clients see it, as JSON values.
    """

    topic: str
    document: Mapping[str, Any]


class Registration(NamedTuple):
    """A registered query, and whether it is new or was renewed."""

    query: KnownQuery
    is_new: bool


class ResultList(NamedTuple):
    """The newest results of a query.

    Attributes:
        results: results as JSON without line breaks; those of the newest window come last.
        is_cut: whether older results may exist.
    """

    results: Sequence[bytes]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class ResultPage:
    """Some results of a query, in the order of their topic.

    Attributes:
        results: offset and JSON, without line breaks, of each result.
        position: offset of the record that is read next.
        is_end: whether there is no further record at the moment.
        is_over: whether no result will follow, as the id belongs to another registration now.
    """

    results: Sequence[tuple[int, bytes]]
    position: int
    is_end: bool
    is_over: bool = False


class ResultCursor(Protocol):
    """A position in the results of a query; used by one thread at a time."""

    @property
    def position(self) -> int:
        """The offset of the record that is read next."""
        ...

    def read(self) -> ResultPage:
        """Returns the next available results, about 256 KiB, without waiting for more."""
        ...


class QueryBackend(Protocol):
    """The registered queries of a project, and their results.

    Methods block while they wait for Kafka, are called on several threads at a time, and check no
    tokens. ``registry`` is the name of declared standing queries; ``None`` if there is only one.

    Any HeadraceError or KafkaException that is not listed means that Kafka does not answer or
    refuses; the change may still have been made.
    """

    def topic(self, text: str) -> str:
        """Returns the name of the topic that a text is about; the topic may not exist.

        Raises:
            QueryTextError: if the text is no query.
        """
        ...

    def register(
        self, registry: str | None, text: str, query_id: str | None, ttl: timedelta | None
    ) -> Registration:
        """Registers a query, or renews a live one with the same id and text.

        Raises:
            QueryTextError: if the text is no query, or does not fit its topic.
            QueryInvalidError: if the id or the time to live is invalid.
            QueryUnmatchedError: if no pipeline matches the events of the topic.
            QueryIdTakenError: if a live query with another text has the id.
            NotDeclaredError: if there are no such standing queries.
        """
        ...

    def update(
        self, registry: str | None, query_id: str, text: str | None, ttl: timedelta | None
    ) -> KnownQuery:
        """Renews a live query, optionally with another text, which increments its revision.

        Raises the errors of :meth:`register` other than QueryIdTakenError.

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
        """Returns the newest result of each group of a query, up to a limit.

        Raises:
            QueryMissingError: if the record of the query can't be read.
        """
        ...

    def cursor(self, registry: str | None, query: KnownQuery, begin: ResultsBegin) -> ResultCursor:
        """Returns a position in the results of the query's current registration.

        Raises:
            QueryMissingError: if the record of the query can't be read.
        """
        ...


QueryLoader: TypeAlias = Callable[[], QueryBackend]
"""Makes the backend in a worker's process; the loader is pickled to get there."""
