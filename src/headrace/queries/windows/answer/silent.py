"""The queries that have results for windows without events."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.errors import QueryTextError
from headrace.events.times import microseconds_since_1970
from headrace.model.partitioning import partition_of_key
from headrace.queries.language.clauses import CLAUSES
from headrace.queries.registry.record import RegisteredQuery, decode_query
from headrace.queries.windows.aggregate.plan import AggregatePlan, Plans
from headrace.queries.windows.aggregate.window import time_text
from headrace.queries.windows.answer.signals import next_begin

_LOG = logging.getLogger("headrace.queries")
# Most texts have none of these words: without such a clause, they need no plan.
_FIRST_WORDS = "|".join(sorted({clause.words[0] for clause in CLAUSES if clause.is_for_silence}))
_MAY_ASK = re.compile(rf"\b({_FIRST_WORDS})\b", re.IGNORECASE)
# An expired query is kept in memory for this time, because the clocks of instances differ.
_EXPIRED_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class WatchedQuery:
    """A query that has results for windows without events.

    Attributes:
        registered: the registered query.
        plan: the plan of its text.
        since_us: when its text was registered, in microseconds since 1970; a renewal does not
            change it.
        partition: the partition of its results.
        registered_text: when it was registered first, as its results write it.
    """

    registered: RegisteredQuery
    plan: AggregatePlan
    since_us: int
    partition: int
    registered_text: str

    @property
    def name(self) -> str:
        """The query's id, and when it was registered first: an id may be used again."""
        return f"{self.registered.id} {self.registered_text}"

    @property
    def place(self) -> tuple[int, str]:
        """The partition of the results, and the topic whose event clock sorts them, or empty."""
        return self.partition, self.plan.closing.ordered_by

    @property
    def version(self) -> tuple[str, datetime, int, str]:
        """The members that a renewal does not change."""
        registered = self.registered
        return registered.id, registered.registered_at, registered.revision, registered.text


class _Rhythm(NamedTuple):
    """When windows end: windows of queries with the same values start and close together."""

    slide_us: int
    length_us: int

    @classmethod
    def of(cls, plan: AggregatePlan) -> _Rhythm:
        return cls(plan.slide_us, plan.window_us + plan.closing.after_us)

    def begins(self, before_us: int, reached_us: int) -> range:
        """Returns the starts of windows that end after ``before_us`` and by ``reached_us``."""
        first = (before_us - self.length_us) // self.slide_us + 1
        last = (reached_us - self.length_us) // self.slide_us
        return range(first * self.slide_us, (last + 1) * self.slide_us, self.slide_us)


class WatchedQueries:
    """The registered queries that have results for windows without events. Used on any thread.

    Args:
        plans: the plans of query texts.
        partitions: the number of partitions of the results.
    """

    def __init__(self, plans: Plans, partitions: int) -> None:
        self._plans, self._partitions = plans, partitions
        self._watched: dict[bytes, WatchedQuery] = {}
        # By partition of the results, and by the topic whose event clock sorts them, or empty.
        self._rhythms: dict[tuple[int, str], dict[_Rhythm, dict[bytes, WatchedQuery]]] = {}
        self._lock = threading.Lock()

    def take(self, key: bytes, value: bytes | None) -> None:
        """Takes the next record of the registry.

        A query that does not fit its topic is left out: ``query list`` shows it.
        """
        watched = None if value is None else self._read(key, value)
        with self._lock:
            self._remove(key)
            if watched is not None:
                self._watched[key] = watched
                # Queries whose windows end at the same times, in the same partition, are together.
                rhythms = self._rhythms.setdefault(watched.place, {})
                rhythms.setdefault(_Rhythm.of(watched.plan), {})[key] = watched

    def forget_expired(self, at_ms: int) -> None:
        """Drops queries that expired over an hour ago: the registry may not record their end.

        Args:
            at_ms: the current time, in milliseconds since 1970.
        """
        at = datetime.fromtimestamp((at_ms - _EXPIRED_MS) / 1000, UTC)
        with self._lock:
            for key, watched in list(self._watched.items()):
                if not watched.registered.is_live(at):
                    self._remove(key)

    def live(self, partition: int, at_ms: int) -> Iterator[WatchedQuery]:
        """Yields the live queries that have their results in a partition.

        Args:
            partition: the partition of the results.
            at_ms: the current time, in milliseconds since 1970.
        """
        with self._lock:
            watched = list(self._watched.values())
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        for query in watched:
            if query.partition == partition and query.registered.is_live(at):
                yield query

    def ended(
        self, partition: int, ordered_by: str, before_us: int, reached_us: int, at_ms: int
    ) -> Iterator[tuple[WatchedQuery, range]]:
        """Yields the live queries that have ended windows, with the starts of these windows.

        Windows that started before the text of the query was registered are left out.

        Queries without an ended window cost nothing.

        Args:
            partition: the partition of the results.
            ordered_by: the topic whose event clock ends the windows; empty if the wall clock
                does.
            before_us: the time after which the windows have ended, in microseconds since 1970.
            reached_us: the time up to which they have ended, in microseconds since 1970.
            at_ms: the current time, in milliseconds since 1970.
        """
        with self._lock:
            rhythms = self._rhythms.get((partition, ordered_by), {})
            ended = [
                (list(queries.values()), begins)
                for rhythm, queries in rhythms.items()
                if (begins := rhythm.begins(before_us, reached_us))
            ]
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        for queries, begins in ended:
            for watched in queries:
                if watched.registered.is_live(at):
                    first = max(begins.start, next_begin(watched.since_us, begins.step))
                    yield watched, range(first, begins.stop, begins.step)

    def asks_for_loss(self, query_id: str, registered: str) -> bool:
        """Returns whether a query asks for loss of signal.

        Args:
            query_id: the id of the query.
            registered: when it was registered first, as its results write it.
        """
        with self._lock:
            watched = self._watched.get(query_id.encode())
        if watched is None or watched.registered_text != registered:
            return False
        return watched.plan.loss_after > 0

    def _remove(self, key: bytes) -> None:
        watched = self._watched.pop(key, None)
        if watched is None:
            return
        place, rhythm = watched.place, _Rhythm.of(watched.plan)
        queries = self._rhythms[place][rhythm]
        del queries[key]
        if not queries:
            del self._rhythms[place][rhythm]

    def _read(self, key: bytes, value: bytes) -> WatchedQuery | None:
        try:
            registered = decode_query(key, value)
            if not _MAY_ASK.search(registered.text):
                return None
            plan = self._plans.of(registered.text, registered.shape or "")
        except (ValueError, QueryTextError) as error:
            _LOG.warning("Query %r has no results of windows without events: %s", key, error)
            return None
        if not (plan.emits_empty or plan.loss_after):
            return None
        # A renewal keeps the text, and so the time from which windows without events have results.
        since = registered.registered_at
        if registered.revision > 1:
            since = registered.text_changed_at or registered.updated_at
        watched = WatchedQuery(
            registered,
            plan,
            microseconds_since_1970(since),
            partition_of_key(key, self._partitions),
            time_text(microseconds_since_1970(registered.registered_at)),
        )
        with self._lock:
            known = self._watched.get(key)
        if known is not None and known.version == watched.version:
            return replace(watched, since_us=known.since_us)
        return watched
