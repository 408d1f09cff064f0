"""Makes the books of standing queries and of their matched events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.ledger.balance import Book
from headrace.ledger.request import ReconcileRequest
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.project.site_clusters import own_cluster
from headrace.queries.book import query_books
from headrace.queries.declaration import StandingQueries
from headrace.queries.emit.book import matched_events_book
from headrace.queries.emit.plan import EmitterPlan
from headrace.queries.registry.registrations import event_topics


def books_of_queries(
    project: LoadedProject, queries: Sequence[StandingQueries], request: ReconcileRequest
) -> Iterator[Book]:
    """Yields the books of standing queries, each with those of its matched events."""
    for declared in queries:
        topics = sorted(event_topics(project, declared.name))
        yield from query_books(broker_config(project.settings), declared, topics)
        if request.recount:
            yield from matched_events_books(project, declared)


def matched_events_books(project: LoadedProject, declared: StandingQueries) -> Iterator[Book]:
    """Yields the books of the topics whose matched events are sent on.

    Raises:
        AuthorizationError: if an ACL is missing.
    """
    config, site = broker_config(project.settings), own_cluster(project.settings).site
    for _, topic in sorted(event_topics(project, declared.name).items()):
        matched = EmitterPlan(declared, topic, config, site)
        if (book := matched_events_book(matched, project.settings.schema_registry)) is not None:
            yield book
