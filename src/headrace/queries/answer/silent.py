"""The queries that have results of windows without events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.errors import QueryTextError
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
    """

    registered: RegisteredQuery
    query: Query

    @property
    def topic(self) -> str:
        """The topic whose time ends its windows; empty: the clock does."""
        return self.query.topic if self.query.closing.by is ClosedBy.EVENT_TIME else ""


class WatchedQueries:
    """The registered queries that ask for windows without events. Used on any thread."""

    def __init__(self) -> None:
        self._watched: dict[bytes, WatchedQuery] = {}
        self._lock = threading.Lock()

    def take(self, key: bytes, value: bytes | None) -> None:
        """Takes the next record of the topic of queries."""
        watched = None if value is None else _watched(key, value)
        with self._lock:
            if watched is None:
                self._watched.pop(key, None)
            else:
                self._watched[key] = watched

    def live(self, at_ms: int) -> Iterator[WatchedQuery]:
        """Yields those that have not expired at a time, in milliseconds since 1970."""
        with self._lock:
            watched = list(self._watched.values())
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        yield from (each for each in watched if each.registered.is_live(at))


def _watched(key: bytes, value: bytes) -> WatchedQuery | None:
    try:
        registered = decode_query(key, value)
        if not any(mark in registered.text for mark in _MARKS):
            return None
        query = parse_query(registered.text)
    except (ValueError, QueryTextError) as error:
        _LOG.warning("Query %r can't be answered: %s", key, error)
        return None
    by_quiet_time = query.closing.by is ClosedBy.QUIET_TIME
    asks = (query.emits_empty or query.loss_after > 0) and not by_quiet_time
    return WatchedQuery(registered, query) if asks else None
