"""Compares the books of a project: of pipelines, of links and of standing queries."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.kafka.client.brokers import describe_brokers
from headrace.ledger.balance import Book
from headrace.ledger.request import ReconcileRequest
from headrace.links.ledger.balances import CountedEnds, link_books
from headrace.operations.reconciling.reconciliation import Reconciliation
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.ledger.making import pipeline_book
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.queries.declaration import StandingQueries


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
