"""Registers, updates, cancels and lists the standing queries of a project."""

from __future__ import annotations

import secrets
import string
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import partial

from headrace.errors import (
    NotDeclaredError,
    QueryIdTakenError,
    QueryInvalidError,
    QueryMissingError,
    QueryUnmatchedError,
)
from headrace.kafka.client.clients import ClientConfig
from headrace.model import Topic
from headrace.model.fault import is_a
from headrace.pipelines.declaration import Pipeline
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.queries.declaration import StandingQueries
from headrace.queries.language import print_query
from headrace.queries.language.tree import Query
from headrace.queries.registry.followed import FollowedRegistry
from headrace.queries.registry.record import QUERY_ID, QUERY_ID_WORDS, RegisteredQuery
from headrace.queries.registry.statements import checked_query
from headrace.queries.registry.table import FaultyQuery, FirstRecord, QueryTable
from headrace.queries.registry.writer import RegistryWriter
from headrace.queries.rules import queries_matched_by

MAX_CLOSE_IDS = 3
_MAX_COMPARED_IDS = 1_000
_CANCELLED = "it was cancelled; register it again"
_RANDOM_ID_LENGTH = 12
# No dash or underscore: an id is not taken for an option, and a double click selects all of it.
_RANDOM_ID_CHARACTERS = string.ascii_lowercase + string.digits


class QueryState(StrEnum):
    """The state of a registered query.

    ======= ======================================================
    live    the query has results
    expired its time to live has passed
    faulty  its record holds no query that fits its topic
    ======= ======================================================
    """

    LIVE = "live"
    EXPIRED = "expired"
    FAULTY = "faulty"


@dataclass(frozen=True)
class QueryEntry:
    """An entry of the registry.

    Attributes:
        id: id of the query.
        state: whether the query is live, expired or faulty.
        offset: offset of its newest record.
        query: the registered query; ``None`` if the record can't be read.
        reason: why the query is faulty; empty if it is not.
        first: the first record with the query's text; ``None`` if the record can't be read.
    """

    id: str
    state: QueryState
    offset: int
    query: RegisteredQuery | None = None
    reason: str = ""
    first: FirstRecord | None = None


@dataclass(frozen=True)
class CancelledQuery:
    """A query that was cancelled, with the offset of its tombstone."""

    id: str
    offset: int


def declared_queries(project: LoadedProject, name: str | None) -> StandingQueries:
    """Returns declared standing queries by name; ``None`` returns the only declaration.

    Raises:
        NotDeclaredError: if none has the name, or no name is given and there is not exactly one.
    """
    declared = project.declared(StandingQueries)
    if name is None and len(declared) == 1:
        return next(iter(declared.values()))
    if name is None or name not in declared:
        known = ", ".join(declared) or "none"
        raise NotDeclaredError("standing queries", name or "(none is named by --in)", known)
    return declared[name]


def event_topics(project: LoadedProject, name: str) -> dict[str, Topic]:
    """Returns the topics whose events a pipeline matches with these standing queries, by name."""
    return {
        source.topic.name: source.topic
        for pipeline in project.declared(Pipeline).values()
        if any(queries.name == name for queries in queries_matched_by(pipeline))
        for source in pipeline.sources
    }


class QueryRegistry:
    """The registry of one declaration of standing queries, on the project's cluster.

    Records that were read are kept in memory, so each call reads only records that are new since
    the last call. Methods may be called on any thread.

    Args:
        project: the project that declares the standing queries.
        name: name of the standing queries; ``None`` if the project declares only one.

    Raises:
        NotDeclaredError: if there are no such standing queries.
    """

    def __init__(self, project: LoadedProject, name: str | None = None) -> None:
        self._project = project
        self._queries = declared_queries(project, name)
        self._followed = FollowedRegistry(self._queries.queries_topic, self._parse)
        self._lock = threading.Lock()

    @property
    def _config(self) -> ClientConfig:
        return broker_config(self._project.settings)

    def register(
        self, text: str, query_id: str | None = None, ttl: timedelta | None = None
    ) -> RegisteredQuery:
        """Registers a query, and returns it with the offset of its record.

        A live query with the same id and text is renewed: its time to live starts over, its
        revision stays. Clients that register one new id at the same time all succeed, and
        ``registered_at`` is that of the first record. If their texts differ and are about one
        topic, the text of the record with the greater offset counts, and has the greater revision.

        Args:
            text: text of the query.
            query_id: id of up to 100 letters, digits, ``-`` and ``_``; ``None`` for a random id.
            ttl: time to live if the query is not updated; ``None`` for the longest possible.

        Raises:
            QueryTextError: if the text is no query, or does not fit its topic.
            QueryInvalidError: if the id or the time to live is invalid.
            QueryIdTakenError: if a live query with another text has the id, or another client
                changes the text while the query is renewed.
            QueryUnmatchedError: if no pipeline matches the events of the topic.
            BrokerUnreachableError: if the brokers do not answer.
            TopicChangeError: if the topic of the registry has settings of another max_ttl.
        """
        random_id = (secrets.choice(_RANDOM_ID_CHARACTERS) for _ in range(_RANDOM_ID_LENGTH))
        chosen = "".join(random_id) if query_id is None else query_id
        if not QUERY_ID.fullmatch(chosen):
            raise QueryInvalidError("id", chosen, f"possible are {QUERY_ID_WORDS}")
        now = _now()
        query = self._with_text(RegisteredQuery(chosen, "", "", 1, now, now, None), text)
        query = replace(query, expires_at=self._expiry(now, ttl), text_changed_at=now)
        with self._lock:
            table = self._followed.table(self._config)
            live, next_offset = _live(table, chosen, now), table.next_offset
        change = partial(self._registered, query, is_live=live is not None)
        return RegistryWriter(self._config, self._queries).write(change, live, next_offset)

    def _registered(
        self, query: RegisteredQuery, before: RegisteredQuery | None, *, is_live: bool
    ) -> RegisteredQuery:
        if before is None:
            checked_query(self._project, query.text, is_new=True)
            return query
        is_taken = before.text != query.text
        is_other = before.topic != query.topic or before.revision > 1
        if is_taken and (is_live or is_other):
            raise QueryIdTakenError(query.id, before.revision)
        # Another client has registered the id meanwhile: the earlier registered_at counts.
        return replace(
            query,
            revision=before.revision + is_taken,
            registered_at=before.registered_at,
            text_changed_at=query.text_changed_at if is_taken else before.text_changed_at,
        )

    def update(
        self, query_id: str, text: str | None = None, ttl: timedelta | None = None
    ) -> RegisteredQuery:
        """Renews a live query, optionally with another text, which increments its revision.

        Without a text, the query keeps a text that another client gives it at the same time.

        Raises the errors of :meth:`register` other than QueryIdTakenError.

        Raises:
            QueryMissingError: if no live query has the id, or it is cancelled at the same time.
            QueryInvalidError: also if the text is about another topic.
        """
        now = _now()
        expires_at = self._expiry(now, ttl)
        with self._lock:
            table = self._followed.table(self._config)
            live, next_offset = _live(table, query_id, now), table.next_offset
            if live is None:
                raise self._missing(table, query_id)

        def change(before: RegisteredQuery | None) -> RegisteredQuery:
            if before is None:
                raise QueryMissingError(query_id, self._queries.name, _CANCELLED)
            renewed = self._with_text(before, before.text if text is None else text)
            if renewed.topic != before.topic:
                # A token that may read the query's results may lack access to the other topic.
                reason = f"an update keeps the topic, {before.topic!r}: register another query"
                raise QueryInvalidError("topic", renewed.topic, reason)
            is_updated = renewed.text != before.text
            if text is not None and is_updated:
                checked_query(self._project, text, is_new=True)
            # A renewal without a new text keeps the query's open windows.
            return replace(
                renewed,
                revision=before.revision + is_updated,
                updated_at=now,
                expires_at=expires_at,
                text_changed_at=now if is_updated else before.text_changed_at,
            )

        return RegistryWriter(self._config, self._queries).write(change, live, next_offset)

    def cancel(self, *query_ids: str) -> list[CancelledQuery]:
        """Cancels live, expired and faulty queries, or none if one of the ids is unknown.

        Raises:
            QueryMissingError: if an id is unknown.
            BrokerUnreachableError: if the brokers do not answer.
        """
        with self._lock:
            table = self._followed.table(self._config)
            for query_id in query_ids:
                if table.query(query_id) is None and query_id not in table.faulty:
                    raise self._missing(table, query_id)
        writer = RegistryWriter(self._config, self._queries)
        return [
            CancelledQuery(query_id, writer.write_record(query_id, None))
            for query_id in dict.fromkeys(query_ids)
        ]

    def entries(self) -> list[QueryEntry]:
        """Returns all entries of the registry, the earliest registration first.

        Live queries are checked against the project, some thousands per second. Records that can't
        be read come last.

        Raises:
            BrokerUnreachableError: if the brokers do not answer.
        """
        with self._lock:
            table, now = self._followed.table(self._config), _now()
            for query in table.live(now):
                table.check(query)
            registered, faulty = table.registered, table.faulty
            ordered = sorted(registered.values(), key=lambda query: (query.registered_at, query.id))
            return [_entry(table, query, faulty.get(query.id), now) for query in ordered] + [
                QueryEntry(fault.id, QueryState.FAULTY, fault.offset, reason=fault.reason)
                for fault in faulty.values()
                if fault.id not in registered
            ]

    def entry(self, query_id: str) -> QueryEntry:
        """Returns the registry's entry of a query, checked against the project.

        Raises:
            QueryMissingError: if the id is unknown.
            BrokerUnreachableError: if the brokers do not answer.
        """
        with self._lock:
            table = self._followed.table(self._config)
            query, now = table.query(query_id), _now()
            if query is not None:
                table.check(query)
            fault = table.faulty.get(query_id)
            if query is not None:
                return _entry(table, query, fault, now)
            if fault is None:
                raise self._missing(table, query_id)
            return QueryEntry(query_id, QueryState.FAULTY, fault.offset, reason=fault.reason)

    def ended(self, query_id: str) -> str:
        """Returns why a query has no further results, as a sentence; empty if it may have some."""
        with self._lock:
            table = self._followed.table(self._config)
            query, is_cancelled = table.query(query_id), table.is_cancelled(query_id)
            is_faulty = query_id in table.faulty
        if query is not None:
            how = "" if query.is_live(_now()) else f"expired at {query.expires_at}"
        elif is_faulty:
            how = ""
        else:
            how = "was cancelled" if is_cancelled else "was cancelled, or has expired"
        return f"Query {query_id!r} {how}: it has no further results." if how else ""

    def _with_text(self, query: RegisteredQuery, text: str) -> RegisteredQuery:
        """Returns the query with a text in the printer's form, its topic, shape and constants."""
        from headrace.queries.match.shape import compile_query

        tree = self._parse(text)
        matched = event_topics(self._project, self._queries.name)
        if tree.topic not in matched:
            known = ", ".join(sorted(matched)) or "none"
            raise QueryUnmatchedError(tree.topic, self._queries.name, known)
        schema = matched[tree.topic].schema
        if schema is None:  # refused by the parser
            raise TypeError(tree.topic)
        shape, constants = compile_query(tree, schema)
        return replace(
            query,
            text=print_query(tree),
            topic=tree.topic,
            shape=shape.key,
            constants=constants,
        )

    def _expiry(self, now: datetime, ttl: timedelta | None) -> datetime | None:
        """Returns when a query that is written now expires; ``None`` if it never does."""
        limit = self._queries.max_ttl
        if ttl is not None and not is_a(ttl, timedelta):
            raise QueryInvalidError("ttl", repr(ttl), "expected a timedelta")
        if ttl is not None and ttl <= timedelta(0):
            raise QueryInvalidError("ttl", str(ttl), "it must be above zero")
        if ttl is not None and limit is not None and ttl > limit:
            most = f"max_ttl of {self._queries.name!r} is {_seconds_text(limit)}"
            reason = f"{most}; renew the query before it ends"
            raise QueryInvalidError("ttl", _seconds_text(ttl), reason)
        lifetime = limit if ttl is None else ttl
        try:
            return None if lifetime is None else now + lifetime
        except OverflowError as error:
            raise QueryInvalidError("ttl", str(ttl), "it ends after the year 9999") from error

    def _missing(self, table: QueryTable, query_id: str) -> QueryMissingError:
        """Returns an error that says why an id is unusable: expired, faulty, cancelled, unknown."""
        query, fault = table.query(query_id), table.faulty.get(query_id)
        if query is not None:
            reason = f"it expired at {query.expires_at}; register it again"
        elif fault is not None:
            reason = f"its record is faulty: {fault.reason}; register it again"
        elif table.is_cancelled(query_id):
            reason = _CANCELLED
        else:
            close = get_close_matches(
                query_id, list(table.registered)[-_MAX_COMPARED_IDS:], n=MAX_CLOSE_IDS
            )
            reason = (
                f"did you mean {' or '.join(map(repr, close))}?" if close else "no id is like it"
            )
        return QueryMissingError(query_id, self._queries.name, reason)

    def _parse(self, text: str) -> Query:
        return checked_query(self._project, text).query


def _live(table: QueryTable, query_id: str, at: datetime) -> RegisteredQuery | None:
    query = table.query(query_id)
    return query if query is not None and query.is_live(at) else None


def _entry(
    table: QueryTable, query: RegisteredQuery, fault: FaultyQuery | None, now: datetime
) -> QueryEntry:
    state, reason = QueryState.LIVE if query.is_live(now) else QueryState.EXPIRED, ""
    if fault is not None:
        state, reason = QueryState.FAULTY, fault.reason
    return QueryEntry(query.id, state, query.offset, query, reason, table.first_record(query))


def _seconds_text(duration: timedelta) -> str:
    return f"{duration} ({duration.total_seconds():,g} s)"


def _now() -> datetime:
    """Returns the current time in whole milliseconds, the precision of records."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
