"""The outcome of records that several clients write for one query at the same moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.queries.registry.record import RegisteredQuery


def settled_query(
    query: RegisteredQuery | None, records: Iterable[RegisteredQuery | None]
) -> RegisteredQuery | None:
    """Returns the query that a registry has once every client has corrected its own records.

    A client that reads the registry before another client writes to it can write a record that is
    out of date. It then reads the records in between, and corrects its own. Until then:

    ============================================ =================================================
    record                                       effect
    ============================================ =================================================
    tombstone                                    no query is registered
    renewal or update while none is registered   no effect; its client writes the tombstone again
    registration while a query is live           an update: the time of the first registration stays
    registration of a query that has expired     a new registration
    a smaller revision                           a renewal: the text of the greater revision stays
    another text with an equal revision          an update: its client writes a greater revision
    ============================================ =================================================

    Args:
        query: the live query before the records; ``None`` if the id is free.
        records: the records of the query id, in the order of their offsets; ``None`` is a
            tombstone.
    """
    for record in records:
        query = None if record is None else _after(query, record)
    return query


def _after(query: RegisteredQuery | None, record: RegisteredQuery) -> RegisteredQuery | None:
    if query is None:
        return record if record.registered_at == record.updated_at else None
    if record.registered_at != query.registered_at and not query.is_live(record.updated_at):
        return record
    if record.revision < query.revision:
        return replace(query, updated_at=record.updated_at, expires_at=record.expires_at)
    registered_at = query.registered_at
    if record.revision > query.revision:
        return replace(record, registered_at=registered_at)
    if record.text != query.text:
        return replace(record, registered_at=registered_at, revision=record.revision + 1)
    return replace(record, registered_at=registered_at, text_changed_at=query.text_changed_at)
