"""The live queries of a topic, as a process that matches the topic's events holds them."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeAlias

import msgspec
import pyarrow as pa

from headrace.errors import QueryTextError
from headrace.kafka.read.cluster import Cluster
from headrace.kafka.read.range_reader import Record
from headrace.kafka.table.topic_table import TopicPosition, held_table, live_positions
from headrace.model import EventSchema
from headrace.queries.hashing import HASH_BITS, text_hash
from headrace.queries.language import check_query, parse_query
from headrace.queries.language.tree import Expression
from headrace.queries.match.rules import RuleSet
from headrace.queries.match.shape import (
    Constants,
    QueryShape,
    Rule,
    ShapeTemplate,
    compile_query,
    operands_of,
)
from headrace.queries.registry.record import RegisteredQuery, decode_query
from headrace.runtime.clock import now_in_ms

_LOG = logging.getLogger("headrace.queries")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class RegistryPoint:
    """A point of the registry: the records before an offset, without queries expired at a time.

    Attributes:
        topic_id: id of the topic of queries, which has one partition.
        offset: the offset of the next record.
        at_ms: the time, in milliseconds since 1970.
        epoch: epoch of the leader that reported the offset; ``None`` if it is not known.
    """

    topic_id: str
    offset: int
    at_ms: int
    epoch: int | None = None

    @property
    def position(self) -> TopicPosition:
        """The offset, as a position in the topic of queries."""
        epochs = {} if self.epoch is None else {0: self.epoch}
        return TopicPosition(self.topic_id, {0: self.offset}, epochs)


@dataclass(frozen=True)
class RegistryReader:
    """Reads the registered queries of a topic's events; picklable.

    Attributes:
        pipeline: name of the pipeline that matches the events.
        registry: name of the topic of queries.
        topic: name of the topic of events.
        schema: schema of the events.
        cluster: the Kafka cluster with both topics.
    """

    pipeline: str
    registry: str
    topic: str
    schema: EventSchema
    cluster: Cluster

    def end(self) -> RegistryPoint:
        """Returns the point at which the topic of queries ends now.

        Raises:
            TopicMissingError: if there is no such topic.
            BrokerUnreachableError: if the broker does not respond.
        """
        position = live_positions(self.cluster, [self.registry])[self.registry]
        offset, epoch = position.partitions[0], position.epochs.get(0)
        return RegistryPoint(position.topic_id, offset, now_in_ms(), epoch)

    def at(self, point: RegistryPoint) -> LiveQueries:
        """Returns the live queries at a point. Raises as :meth:`live`."""
        return self.live(point.position, point.at_ms)

    def live(self, position: TopicPosition, at_ms: int) -> LiveQueries:
        """Returns the live queries at a position and a time, which the process holds from then on.

        Raises:
            HeadraceError: those of :meth:`headrace.kafka.table.topic_table.HeldTable.read_to`.
        """
        create = partial(LiveQueries, self.topic, self.schema)
        key = (self.pipeline, self.registry, self.topic, self.schema)
        with held_table(create, *key) as held:
            # The batch is an older one, such as a repeated one: queries that had not expired at its
            # time were removed.
            if at_ms < held.table.expired_ms:
                held.clear()
            queries = held.read_to(position, self.cluster, self.registry)
            queries.expire(at_ms)
            return queries


QueryIdentity: TypeAlias = tuple[str, int, int, str]
"""Id of a query, its first registration in milliseconds since 1970, its revision, and its text."""


class LiveQuery(msgspec.Struct, frozen=True, gc=False):
    """The parts of a live query's registration that matching needs.

    Attributes:
        text: text of the query.
        revision: revision of the query.
        registered_ms: when the query was first registered, in milliseconds since 1970.
        expires_ms: when the query expires, in milliseconds since 1970; ``None`` if it lives until
            it is cancelled.
    """

    text: str
    revision: int
    registered_ms: int
    expires_ms: int | None

    def identity(self, query_id: str) -> QueryIdentity:
        """Returns the identity of the query; another identity means other matches."""
        return query_id, self.registered_ms, self.revision, self.text

    def hash(self, query_id: str) -> int:
        """Returns a 64-bit hash of the query's id, registration, revision and text."""
        return int(text_hash(" ".join(map(str, self.identity(query_id)))), 16)


@dataclass(frozen=True)
class EmittingQuery:
    """A live query whose matched events are sent on.

    Attributes:
        rule: the rule of the query.
        query: the registration of the query.
        conditions: an expression for each operand of the shape; constants in the expressions may be
            those of another query of the shape.
        lookup: number of the operand that the query is looked up by; -1 if there is none.
    """

    rule: Rule
    query: LiveQuery
    conditions: tuple[Expression, ...]
    lookup: int


class LiveQueries:
    """The live queries of a topic's events, as rules. Used on one thread.

    Only one query of each shape is parsed; :mod:`~headrace.queries.match.shape` says how the others
    are read.

    Args:
        topic: name of the topic of events.
        schema: schema of the events.

    Attributes:
        rules: the rules of the queries.
        expired_ms: the last time of :meth:`expire`; 0 if it was not called.
        max_templates: the parsed queries, of different shapes, that are held.
        max_former_expiries: former expiries beyond two per query; with more, they are removed.
    """

    max_templates = 10_000
    max_former_expiries = 1_000

    def __init__(self, topic: str, schema: EventSchema) -> None:
        self.rules = RuleSet()
        self.expired_ms = 0
        self._topic, self._schema = topic, schema
        self._queries: dict[str, LiveQuery] = {}
        self._templates: dict[str, ShapeTemplate] = {}
        self._expiries: list[tuple[int, str]] = []
        self._hash = 0

    @property
    def hash(self) -> str:
        """Hash of the queries that have a rule, independent of their order; 16 hex digits."""
        return f"{self._hash % 2**HASH_BITS:0{HASH_BITS // 4}x}"

    def query(self, query_id: str) -> LiveQuery:
        """Returns the query with this id, which must have a rule."""
        return self._queries[query_id]

    def emitting(self, rows: pa.Table) -> Iterator[EmittingQuery]:
        """Yields the queries whose matched events are sent on.

        Args:
            rows: sample of events, by which the operand of each lookup is chosen.
        """
        for rule, lookup in self.rules.lookups(rows):
            if rule.shape.emits_events:
                query = self._queries[rule.query_id]
                template = self._templates.get(rule.shape.key)
                tree = parse_query(query.text) if template is None else template.query
                yield EmittingQuery(rule, query, operands_of(tree.where), lookup)

    def emitting_identities(self) -> set[QueryIdentity]:
        """Returns the identities of the queries whose matched events are sent on."""
        return {
            self._queries[rule.query_id].identity(rule.query_id)
            for rule in self.rules
            if rule.shape.emits_events
        }

    def take(self, records: Sequence[Record]) -> None:
        """Takes the next records of the topic of queries."""
        for record in records:
            self.apply(record.key(), record.value())

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Takes the next record of the topic of queries.

        A query that can't be matched gets no rule, and does not affect other queries; ``query
        list`` shows it.
        """
        query_id = (key or b"").decode(errors="backslashreplace")
        if value is None:
            self._remove(query_id)
            return
        try:
            query = decode_query(key, value)
            if query.topic != self._topic:
                self._remove(query_id)
                return
            self._put(query)
        except (ValueError, QueryTextError) as error:
            self._remove(query_id)
            _LOG.warning("Query %s can't be matched: %s", query_id, error)

    def expire(self, at_ms: int) -> None:
        """Removes the queries that have expired.

        Args:
            at_ms: the time of the batch, in milliseconds since 1970.
        """
        self.expired_ms = at_ms
        while self._expiries and self._expiries[0][0] <= at_ms:
            expires_ms, query_id = heapq.heappop(self._expiries)
            query = self._queries.get(query_id)
            # Renewed and cancelled queries leave their former expiries in the heap.
            if query is not None and query.expires_ms == expires_ms:
                self._remove(query_id)

    def _put(self, query: RegisteredQuery) -> None:
        known = self._queries.get(query.id)
        # A renewed query keeps its rule.
        if known is None or known.text != query.text:
            self.rules.put(Rule(query.id, *self._compiled(query)))
        live = LiveQuery(
            query.text,
            query.revision,
            milliseconds_since_1970(query.registered_at),
            None if query.expires_at is None else milliseconds_since_1970(query.expires_at),
        )
        if known is not None:
            self._hash -= known.hash(query.id)
        self._hash += live.hash(query.id)
        self._queries[query.id] = live
        if live.expires_ms is not None and (known is None or known.expires_ms != live.expires_ms):
            heapq.heappush(self._expiries, (live.expires_ms, query.id))
            self._limit_expiries()

    def _limit_expiries(self) -> None:
        """Removes former expiries from the heap once they are more than half of it."""
        if len(self._expiries) <= 2 * len(self._queries) + self.max_former_expiries:
            return
        self._expiries = [
            (query.expires_ms, query_id)
            for query_id, query in self._queries.items()
            if query.expires_ms is not None
        ]
        heapq.heapify(self._expiries)

    def _compiled(self, query: RegisteredQuery) -> tuple[QueryShape, Constants]:
        if query.shape in self._templates and query.constants is not None:
            template = self._templates[query.shape]
            if template.fits(query.text, query.constants):
                return template.shape, query.constants
        tree = parse_query(query.text)
        check_query(tree, self._schema, query.text)
        if tree.topic != query.topic:
            raise ValueError(f"its text is about {tree.topic!r}, and its topic is {query.topic!r}")
        shape, constants = compile_query(tree, self._schema)
        if len(self._templates) >= self.max_templates:
            self._templates.clear()
        template = self._templates.setdefault(shape.key, ShapeTemplate(shape, tree))
        return template.shape, constants

    def _remove(self, query_id: str) -> None:
        query = self._queries.pop(query_id, None)
        if query is not None:
            self._hash -= query.hash(query_id)
            self.rules.remove(query_id)
            self._limit_expiries()


def milliseconds_since_1970(at: datetime) -> int:
    """Returns a time as milliseconds since 1970."""
    return (at - _EPOCH) // _MILLISECOND
