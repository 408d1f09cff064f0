"""Compares the books of a project: of pipelines, of links and of standing queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from headrace.kafka.client.brokers import describe_brokers
from headrace.ledger.balance import Balance, Book, Totals, totals_of
from headrace.ledger.request import ReconcileRequest
from headrace.links.ledger.balances import CountedEnds, link_books
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.ledger.making import pipeline_book
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.queries.declaration import StandingQueries

_SECTIONS = ("pipelines", "links", "queries", "matched_events")


@dataclass(frozen=True)
class Reconciliation:
    """The books that were compared.

    Attributes:
        books: of pipelines, then of links, then of standing queries, each with those of its
            matched events if there was a recount.
    """

    books: tuple[Book, ...]

    @cached_property
    def balances(self) -> tuple[Balance, ...]:
        """Returns the balance of each book."""
        return tuple(map(Balance.of, self.books))

    @property
    def is_unbalanced(self) -> bool:
        """Returns whether any book is unbalanced."""
        return any(balance.is_unbalanced for balance in self.balances)

    @property
    def is_unknown(self) -> bool:
        """Returns whether something was not counted, so that the books prove nothing."""
        return any(balance.is_unknown for balance in self.balances)

    @property
    def by_title(self) -> tuple[tuple[Balance, ...], ...]:
        """Returns the balances with one title together, as they follow one another."""
        groups = groupby(self.balances, key=lambda balance: balance.title)
        return tuple(tuple(balances) for _, balances in groups)

    def to_json(self) -> dict[str, Sequence[Book | Totals]]:
        """Returns the books by section, the first four also without any, and the totals."""
        sections: dict[str, list[Book]] = {name: [] for name in _SECTIONS}
        for book in self.books:
            sections.setdefault(book.section, []).append(book)
        totals = [total for group in self.by_title if (total := totals_of(group)) is not None]
        return {**sections, "totals": totals}


def reconcile(
    project: LoadedProject,
    pipelines: Sequence[Pipeline],
    request: ReconcileRequest,
    links: Sequence[CountedEnds] = (),
    queries: Sequence[StandingQueries] = (),
) -> Reconciliation:
    """Compares the hops of pipelines and standing queries, and both ends of links.

    Changes nothing.

    Raises:
        BrokerUnreachableError: if there is a recount, and the project's own brokers do not answer.
        SinkError: if a ledger or a table can't be read.
        ServerStartError: if the lake is on the embedded HDFS, which is down.
        AuthorizationError: if an ACL is missing at a site.
    """
    if request.recount:
        # What can't be counted would look like what does not exist, after a wait for each book.
        describe_brokers(broker_config(project.settings))
    books: list[Book] = [pipeline_book(project, pipeline, request) for pipeline in pipelines]
    books += link_books(project, links, request)
    if queries:  # their extra may not be installed
        from headrace.queries.books import books_of_queries

        books += books_of_queries(project, queries, request)
    return Reconciliation(tuple(books))
