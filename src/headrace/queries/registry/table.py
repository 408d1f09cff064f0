"""The registry as a table: from records in order, the newest of each query."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from headrace.errors import QueryTextError
from headrace.queries.language.tree import Query
from headrace.queries.registry.record import RegisteredQuery, decode_query

MIN_REMEMBERED_TEXTS = 1_000
_DIGEST_BYTES = 8

ParseText = Callable[[str], Query]
"""Returns the tree of a text, checked against the topic that it names; raises QueryTextError."""


@dataclass(frozen=True, slots=True)
class FaultyQuery:
    r"""A record that is no query that can be answered.

    Attributes:
        id: key of the record, with bytes outside of UTF-8 as ``\xff``; empty: it has none.
        offset: of the record.
        reason: what is wrong with it.
    """

    id: str
    offset: int
    reason: str


class QueryTable:
    """Registered queries by id; the last record of an id counts.

    A record that is no query is kept apart with its reason. It replaces the query of its key all
    the same: compaction may have taken the records before it away, and instances that read the
    topic later must have the same queries. A record without a value deletes what its key has.

    Texts are parsed when :meth:`tree` asks for them, each distinct one once. Use it from one thread
    at a time.

    Args:
        parse: makes a tree of a text.
    """

    def __init__(self, parse: ParseText) -> None:
        self._parse = parse
        self._queries: dict[bytes | None, RegisteredQuery] = {}
        self._faulty: dict[bytes | None, FaultyQuery] = {}
        self._trees: dict[str, Query | str] = {}
        self.next_offset = 0

    @property
    def registered(self) -> Mapping[str, RegisteredQuery]:
        """Returns the newest record of each query by id, also of those that have expired."""
        return {query.id: query for query in self._queries.values()}

    @property
    def faulty(self) -> Mapping[str, FaultyQuery]:
        """Returns records that are no queries by id, and queries whose tree was asked in vain."""
        return {fault.id: fault for fault in self._faulty.values()}

    def apply(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Takes the next record of the topic; one that was taken already changes nothing.

        Args:
            key: id of the query; None: the record can't be one.
            value: JSON of the query; None: it is deleted.
            offset: of the record.
        """
        if offset < self.next_offset:
            return
        self.next_offset = offset + 1
        self._queries.pop(key, None)
        self._faulty.pop(key, None)
        if value is None:
            return
        try:
            self._queries[key] = replace(decode_query(key, value), offset=offset)
        except ValueError as error:
            self._faulty[key] = FaultyQuery(_shown(key), offset, str(error))

    def live(self, at: datetime) -> tuple[RegisteredQuery, ...]:
        """Returns the queries that have not expired at a time, in the order of registration."""
        live = (query for query in self._queries.values() if query.is_live(at))
        return tuple(sorted(live, key=lambda query: (query.registered_at, query.id)))

    def tree(self, query: RegisteredQuery) -> Query | None:
        """Returns the tree of a registered query.

        Returns ``None`` if its text is no query, or does not fit its topic; ``faulty`` has the
        reason then.
        """
        tree = self._tree(query.text)
        if isinstance(tree, Query) and tree.topic == query.topic:
            return tree
        reason = tree
        if isinstance(tree, Query):
            reason = f"topic is {query.topic!r}, and the text is about {tree.topic!r}"
        if self._queries.get(query.id.encode()) == query:
            self._faulty[query.id.encode()] = FaultyQuery(query.id, query.offset, str(reason))
        return None

    def forget_expired(self, at: datetime) -> None:
        """Frees the memory of queries that have expired at a time: nothing brings them back."""
        for key in [key for key, query in self._queries.items() if not query.is_live(at)]:
            del self._queries[key]
            self._faulty.pop(key, None)

    def digest(self, at: datetime) -> str:
        """Returns 16 hexadecimal digits that are the same for the same live queries.

        Ids, revisions and texts count, so instances whose digests differ answer other queries.
        """
        live = sorted((query.id, query.revision, query.text) for query in self.live(at))
        content = msgspec.json.encode(live)
        return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()

    def _tree(self, text: str) -> Query | str:
        """Returns the tree, or why there is none."""
        tree = self._trees.get(text)
        if tree is None:
            self._forget_texts()
            try:
                tree = self._parse(text)
            except QueryTextError as error:
                tree = str(error)
            self._trees[text] = tree
        return tree

    def _forget_texts(self) -> None:
        if len(self._trees) > max(MIN_REMEMBERED_TEXTS, 2 * len(self._queries)):
            texts = {query.text for query in self._queries.values()}
            self._trees = {text: tree for text, tree in self._trees.items() if text in texts}


def _shown(key: bytes | None) -> str:
    return (key or b"").decode(errors="backslashreplace")
