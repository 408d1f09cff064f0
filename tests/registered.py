"""Registers, updates, cancels and lists the queries of a project, in one call each."""

from headrace.queries.registry.registrations import QueryRegistry


def register_query(project, text, *, queries=None, query_id=None, ttl=None):
    return QueryRegistry(project, queries).register(text, query_id, ttl)


def update_query(project, query_id, text=None, ttl=None, *, queries=None):
    return QueryRegistry(project, queries).update(query_id, text, ttl)


def cancel_query(project, *query_ids, queries=None):
    return QueryRegistry(project, queries).cancel(*query_ids)


def registered_queries(project, *, queries=None):
    return QueryRegistry(project, queries).entries()


def registered_query(project, query_id, *, queries=None):
    return QueryRegistry(project, queries).entry(query_id)
