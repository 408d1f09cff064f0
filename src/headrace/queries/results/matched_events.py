"""Reads the matched events that `headrace query emit` has sent."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.project.loaded import LoadedProject
from headrace.queries.emit.matched_event import MatchedEvent, matched_event_of
from headrace.queries.registry.registrations import QueryRegistry, declared_queries
from headrace.topics.tail import TailOptions, tail_topic


def matched_events(
    project: LoadedProject,
    query_id: str | None,
    options: TailOptions,
    *,
    queries: str | None = None,
) -> Iterator[MatchedEvent]:
    """Returns matched events, without joining a consumer group or committing offsets.

    Events of one query and one partition come in the order of their offsets.

    Args:
        project: the project that declares the standing queries.
        query_id: id of the query; ``None`` for the events of all queries, also of those that are
            registered later.
        options: start and end of the read.
        queries: name of the StandingQueries; ``None`` if the project declares only one.

    Raises:
        QueryMissingError: if the id is unknown.
        NotDeclaredError: if there are no such standing queries.
        TopicMissingError: if there is no topic of matched events.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
        RecordsUnreadableError: if records are damaged.
    """
    topic = declared_queries(project, queries).matched_events_topic
    if query_id is not None:
        QueryRegistry(project, queries).entry(query_id)
    records = tail_topic(project.settings, topic, options)
    events = (event for record in records if (event := matched_event_of(record)) is not None)
    return (event for event in events if query_id in {None, event.query})
