"""The registry as a table with the newest record of each query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from headrace.errors import QueryTextError
from headrace.queries.language.tree import Query
from headrace.queries.registry.record import RegisteredQuery, decode_query

MIN_REMEMBERED_TEXTS = 1_000  # with more, texts without a registered query are forgotten
MAX_CANCELLED_IDS = 10_000  # beyond that, an id may have been cancelled or have expired

ParseText = Callable[[str], Query]
"""Returns the tree of a text, checked against the topic that it names; raises QueryTextError."""


@dataclass(frozen=True, slots=True)
class FaultyQuery:
    r"""A record of the registry that holds no query that fits its topic.

    Attributes:
        id: key of the record, with bytes outside of UTF-8 as ``\xff``; empty if it has no key.
        offset: the offset of the record.
        reason: what is wrong with the record.
    """

    id: str
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The first record with the present text of a query; later records have renewed the query.

    Attributes:
        offset: the offset of the first such record that was read.
        is_certain: whether it is certainly the first; Kafka may have deleted earlier records.
    """

    offset: int
    is_certain: bool


@dataclass(frozen=True, slots=True)
class _CheckedText:
    """The topic that a text is about, or why the text is no query; the other field is empty."""

    topic: str
    reason: str


class QueryTable:
    """The registered queries by id; the last record of an id counts.

    A faulty record is kept apart, with the reason. It still replaces the query of its key, because
    compaction may have deleted earlier records, and instances that read the topic later must have
    the same queries. A tombstone deletes the query or faulty record of its key.

    Only :meth:`check` parses texts, each distinct text once. Used by one thread at a time.

    Args:
        parse: parses the text of a query into a tree.
    """

    def __init__(self, parse: ParseText) -> None:
        self._parse = parse
        self._queries: dict[bytes | None, RegisteredQuery] = {}
        self._first: dict[bytes | None, FirstRecord] = {}
        self._faulty: dict[bytes | None, FaultyQuery] = {}
        self._cancelled: dict[bytes | None, int] = {}
        self._checked: dict[str, _CheckedText] = {}
        self._first_offset = 0
        self.next_offset = 0

    @property
    def registered(self) -> Mapping[str, RegisteredQuery]:
        """Returns the newest record of each query by id, also of expired queries."""
        return {query.id: query for query in self._queries.values()}

    @property
    def faulty(self) -> Mapping[str, FaultyQuery]:
        """Returns by id the faulty records, and queries that :meth:`check` has found faulty."""
        return {fault.id: fault for fault in self._faulty.values()}

    def query(self, query_id: str) -> RegisteredQuery | None:
        """Returns the newest record of a query, also if it has expired; ``None`` if unknown."""
        return self._queries.get(_key(query_id))

    def first_record(self, query: RegisteredQuery) -> FirstRecord:
        """Returns the first record with the present text of a registered query."""
        return self._first[query.id.encode()]

    def is_cancelled(self, query_id: str) -> bool:
        """Returns whether an id was cancelled and is free; the last 10,000 such ids are known."""
        return _key(query_id) in self._cancelled

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Takes the next record of the topic; a record that was taken before changes nothing.

        Args:
            key: the query id; ``None`` if the record has no key, which makes it faulty.
            value: JSON of the query; ``None`` if it is cancelled.
            offset: the offset of the record.
        """
        if offset < self.next_offset:
            return
        self.next_offset = offset + 1
        before = self._queries.pop(key, None)
        first = self._first.pop(key, None)
        is_known = before is not None or key in self._faulty or key in self._cancelled
        self._faulty.pop(key, None)
        self._cancelled.pop(key, None)
        if value is None:
            self._cancelled[key] = offset
            if len(self._cancelled) > MAX_CANCELLED_IDS:
                del self._cancelled[next(iter(self._cancelled))]
            return
        try:
            query = self._queries[key] = replace(decode_query(key, value), offset=offset)
        except ValueError as error:
            shown = (key or b"").decode(errors="backslashreplace")
            self._faulty[key] = FaultyQuery(shown, offset, str(error))
            return
        # A renewal keeps the first record of its text. An id whose earlier records are deleted may
        # have had another text before, unless this record is its registration.
        if before is None or first is None or not _is_renewed(before, query):
            is_new = query.revision == 1 and query.updated_at == query.registered_at
            first = FirstRecord(offset, is_known or is_new)
        self._first[key] = first

    def forget_before(self, offset: int) -> None:
        """Removes the records before an offset, which Kafka has deleted."""
        if offset <= self._first_offset:
            return
        self._first_offset = offset
        for key in [key for key, query in self._queries.items() if query.offset < offset]:
            del self._queries[key], self._first[key]
        self._faulty = {
            key: record for key, record in self._faulty.items() if record.offset >= offset
        }
        self._cancelled = {key: at for key, at in self._cancelled.items() if at >= offset}

    def live(self, at: datetime) -> tuple[RegisteredQuery, ...]:
        """Returns the queries that are live at a time, in the order of registration."""
        live = (query for query in self._queries.values() if query.is_live(at))
        return tuple(sorted(live, key=lambda query: (query.registered_at, query.id)))

    def check(self, query: RegisteredQuery) -> bool:
        """Returns whether the text of a registered query is valid for its topic.

        If it is not, ``faulty`` has the reason.
        """
        checked = self._checked.get(query.text)
        if checked is None:
            # Texts that no query has now are dropped together: finding them walks all queries.
            if len(self._checked) > max(MIN_REMEMBERED_TEXTS, 2 * len(self._queries)):
                texts = {query.text for query in self._queries.values()}
                self._checked = {text: self._checked[text] for text in texts & set(self._checked)}
            try:
                checked = _CheckedText(self._parse(query.text).topic, "")
            except QueryTextError as error:
                checked = _CheckedText("", str(error))
            self._checked[query.text] = checked
        if checked.topic == query.topic:
            return True
        about = f"topic is {query.topic!r}, and the text is about {checked.topic!r}"
        key = query.id.encode()
        if self._queries.get(key) == query:
            self._faulty[key] = FaultyQuery(query.id, query.offset, checked.reason or about)
        return False


def _is_renewed(before: RegisteredQuery, query: RegisteredQuery) -> bool:
    """Returns whether a record only renews the query of the record before it."""
    return (before.registered_at, before.revision, before.text) == (
        query.registered_at,
        query.revision,
        query.text,
    )


def _key(query_id: str) -> bytes:
    # Half of a surrogate pair, which is in no valid id, becomes a question mark.
    return query_id.encode(errors="replace")
