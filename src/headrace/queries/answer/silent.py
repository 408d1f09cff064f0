"""The queries that have results of windows without events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.errors import QueryTextError
from headrace.model.partitioning import partition_of_key
from headrace.queries.aggregate.plan import AggregatePlan, Plans
from headrace.queries.language import parse_query
from headrace.queries.language.tree import ClosedBy, Query
from headrace.queries.registry.record import RegisteredQuery, decode_query

_LOG = logging.getLogger("headrace.queries")
# Canonical texts have them so; a text in quotation marks may have them too, and is only parsed.
_MARKS = ("EMPTY WINDOWS EMIT", "LOSS OF SIGNAL")


@dataclass(frozen=True, slots=True)
class WatchedQuery:
    """A query whose windows are looked at even without events.

    Attributes:
        registered: its record.
        query: its tree.
        plan: of its text.
        since: when its text was registered; a renewal does not change it.
        partition: of the results.
    """

    registered: RegisteredQuery
    query: Query
    plan: AggregatePlan
    since: datetime
    partition: int

    @property
    def topic(self) -> str:
        """The topic whose time ends its windows; empty: the clock does."""
        return self.query.topic if self.query.closing.by is ClosedBy.EVENT_TIME else ""

    @property
    def is_renewed_by(self) -> tuple[str, datetime, int]:
        """What a record has in common with this one that renews it."""
        registered = self.registered
        return registered.id, registered.registered_at, registered.revision


class WatchedQueries:
    """The registered queries that ask for windows without events. Used on any thread.

    Args:
        plans: of the texts of queries.
        partitions: of the results.
    """

    def __init__(self, plans: Plans, partitions: int) -> None:
        self._plans, self._partitions = plans, partitions
        self._watched: dict[bytes, WatchedQuery] = {}
        self._lock = threading.Lock()

    def take(self, key: bytes, value: bytes | None) -> None:
        """Takes the next record of the topic of queries.

        A query that does not fit its topic is left out: ``query list`` shows it.
        """
        watched = None if value is None else self._read(key, value)
        with self._lock:
            if watched is None:
                self._watched.pop(key, None)
            else:
                self._watched[key] = watched

    def live(self, partition: int, at_ms: int) -> Iterator[WatchedQuery]:
        """Yields those with results in a partition that have not expired.

        Args:
            partition: of the results.
            at_ms: the time, in milliseconds since 1970.
        """
        with self._lock:
            watched = list(self._watched.values())
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        for each in watched:
            if each.partition == partition and each.registered.is_live(at):
                yield each

    def _read(self, key: bytes, value: bytes) -> WatchedQuery | None:
        try:
            registered = decode_query(key, value)
            if not any(mark in registered.text for mark in _MARKS):
                return None
            query = parse_query(registered.text)
            plan = self._plans.of(registered.text)
        except (ValueError, QueryTextError) as error:
            _LOG.warning("Query %r has no results of windows without events: %s", key, error)
            return None
        by_quiet_time = query.closing.by is ClosedBy.QUIET_TIME
        if by_quiet_time or not (query.emits_empty or query.loss_after):
            return None
        since = registered.registered_at if registered.revision == 1 else registered.updated_at
        partition = partition_of_key(key, self._partitions)
        watched = WatchedQuery(registered, query, plan, since, partition)
        with self._lock:
            known = self._watched.get(key)
        if known is not None and known.is_renewed_by == watched.is_renewed_by:
            return WatchedQuery(registered, query, plan, known.since, partition)
        return watched
