"""Gives the HTTP service access to the registered queries of a project and their results."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec

from headrace.errors import QueryMissingError
from headrace.events.times import iso_milliseconds
from headrace.ingest.queries.backend import (
    KnownQuery,
    Registration,
    ResultList,
    ResultPage,
    ResultsBegin,
)
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import consumer
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.read.range_reader import Record, read_ranges
from headrace.model import OffsetRange, TopicPartition
from headrace.project.check import load_project
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.queries.declaration import StandingQueries
from headrace.queries.language import parse_query
from headrace.queries.records.result import QueryResult, decode_result, result_of
from headrace.queries.registry.record import RegisteredQuery
from headrace.queries.registry.registrations import (
    QueryEntry,
    QueryRegistry,
    QueryState,
    declared_queries,
)
from headrace.queries.results.results import newest_results
from headrace.settings import Settings

MAX_SCANNED_RECORDS = 200_000
"""The greatest number of newest records of a partition that are read for a list of results."""

_SILENCE_SECONDS = 10.0  # reading fails if no record comes for this time
_OFFSETS_SECONDS = 0.5  # offsets that are older than this are fetched again
# While there are no results, a cursor checks at this interval whether the id is registered again.
_REGISTRATION_SECONDS = 15.0
# Reading ends with the page: records that were fetched beyond it are discarded.
_READING = {
    "fetch.wait.max.ms": "50",
    "queued.max.messages.kbytes": "2048",
    # Bytes of compressed batches, which may be many times as large in memory.
    "fetch.message.max.bytes": "131072",
    "fetch.queue.backoff.ms": "10",  # by default a full queue is refilled only after 1 s
}


def load_project_queries(settings: Settings) -> ProjectQueries:
    """Loads a project in this process and returns its queries.

    Raises:
        ProjectError: if the project is invalid.
    """
    return ProjectQueries(load_project(settings))


class ProjectQueries:
    """Implements :class:`~headrace.ingest.queries.backend.QueryBackend` with a project."""

    def __init__(self, project: LoadedProject) -> None:
        self._project = project
        self._registries = {
            name: QueryRegistry(project, name) for name in project.declared(StandingQueries)
        }
        self._reader = ResultReader(project.settings)

    def topic(self, text: str) -> str:
        return parse_query(text).topic

    def register(
        self, registry: str | None, text: str, query_id: str | None, ttl: timedelta | None
    ) -> Registration:
        query = self._registry(registry).register(text, query_id, ttl)
        return Registration(_live(query), is_new=query.registered_at == query.updated_at)

    def update(
        self, registry: str | None, query_id: str, text: str | None, ttl: timedelta | None
    ) -> KnownQuery:
        return _live(self._registry(registry).update(query_id, text, ttl))

    def cancel(self, registry: str | None, query_id: str) -> None:
        self._registry(registry).cancel(query_id)

    def queries(self, registry: str | None) -> Sequence[KnownQuery]:
        return [_known(entry) for entry in self._registry(registry).entries()]

    def query(self, registry: str | None, query_id: str) -> KnownQuery:
        return _known(self._registry(registry).entry(query_id))

    def results(self, registry: str | None, query: KnownQuery, limit: int) -> ResultList:
        return self.cursor(registry, query, "earliest").newest(limit)

    def cursor(self, registry: str | None, query: KnownQuery, begin: ResultsBegin) -> TopicCursor:
        declared = declared_queries(self._project, registry)
        if not query.topic:
            raise QueryMissingError(query.document["id"], declared.name, "its record is faulty")
        number = declared.partition_of(query.document["id"].encode())
        partition = TopicPartition(declared.results_topic, number)
        registration = partial(self._registration, declared.name, query.document["id"])
        return TopicCursor(self._reader, partition, query.document, begin, registration)

    def _registration(self, registry: str, query_id: str) -> RegistrationKey | None:
        try:
            query = self._registry(registry).entry(query_id).query
        except QueryMissingError:
            return None
        return None if query is None else RegistrationKey(query.registered_at, query.topic)

    def _registry(self, name: str | None) -> QueryRegistry:
        return self._registries[declared_queries(self._project, name).name]


class RegistrationKey(NamedTuple):
    """What the results of one stream have in common.

    Attributes:
        registered_at: when the query was first registered.
        topic: name of the topic that it is about. Only other programs change it: who may read
            results of the one topic may lack access to the other.
    """

    registered_at: datetime
    topic: str


@dataclass(frozen=True, slots=True)
class ResultRange:
    """The offsets of the partition that has the results of a query.

    Attributes:
        topic_id: id of the topic, which changes when the topic is recreated; empty if the
            partition does not exist.
        offsets: offsets of the partition from the first record to the end; empty if the partition
            does not exist.
    """

    topic_id: str
    offsets: OffsetRange


class TopicCursor:
    """A position in the results of one registration of a query.

    The cursor goes back only if the topic was recreated, to its first result. A broker or
    another process may report an end before the position: then the cursor waits where it is.

    Args:
        reader: the reader of results topics.
        partition: the partition that has the results.
        document: the query's document, with ``id``, ``registered_at``, ``topic`` and ``revision``.
        begin: offset to begin at, or earliest or latest.
        registration: returns that of the query that has the id now; ``None`` if there is no query.
            It is called when a result belongs to a later registration: of two clients that register
            one id at the same moment, the later one may have results until its record is corrected.
            It is called when a result is of a later revision, which may be about another topic; and
            every 15 seconds.

    Attributes:
        max_list_results, max_list_bytes: the results of a list, which are held in memory.
        page_bytes: the size of a page.
        min_offsets, max_offsets: offsets that one read of a page covers: few while most records
            belong to the query, as records beyond the end of the page are read in vain, and many
            while few records belong to it.
    """

    max_list_results, max_list_bytes = 20_000, 16 * 2**20
    page_bytes = 262_144
    min_offsets, max_offsets = 256, 16_384

    def __init__(
        self,
        reader: ResultReader,
        partition: TopicPartition,
        document: Mapping[str, Any],
        begin: ResultsBegin,
        registration: Callable[[], RegistrationKey | None],
    ) -> None:
        self._reader, self._partition, self._id = reader, partition, document["id"]
        self._registration, self._asked_at = registration, time.monotonic()
        registered_at = datetime.fromisoformat(document["registered_at"])
        self._key = RegistrationKey(registered_at, document["topic"])
        self._revision: int = document["revision"]
        self._topic_id, self._step = "", self.min_offsets
        self._move(begin if isinstance(begin, int) else 0)
        if begin == "latest":
            known = self._reader.known(self._partition, asked_since=self._moved_at)
            self._topic_id = known.topic_id
            self._move(known.offsets.end)

    @property
    def position(self) -> int:
        return self._position

    def read(self) -> ResultPage:
        known = self._known()
        offsets = known.offsets
        if known.topic_id and self._topic_id not in {"", known.topic_id}:
            self._move(offsets.start)
        self._topic_id = known.topic_id or self._topic_id
        if self._position > offsets.end:
            return ResultPage((), self._position, is_end=True)
        if self._is_registered_again(is_end=self._position == offsets.end):
            return ResultPage((), self._position, is_end=True, is_over=True)
        # Retention may have deleted the records at the position.
        begin = max(self._position, offsets.start)
        range_ = OffsetRange(offsets.partition, begin, min(begin + self._step, offsets.end))
        page = _Page(self._id, self._key, self._revision, self._registration, self.page_bytes)
        is_whole = self._reader.read(range_, page.take)
        self._revision = page.revision
        self._step = min(2 * self._step, self.max_offsets) if is_whole else self.min_offsets
        self._move(range_.end if is_whole else page.position)
        is_end = page.is_over or self._position == offsets.end
        return ResultPage(page.results, self._position, is_end, page.is_over)

    def newest(self, limit: int) -> ResultList:
        """Returns the newest result of each group from the newest records of the partition."""
        known = self._known().offsets
        begin = max(known.start, known.end - MAX_SCANNED_RECORDS)
        newest = _NewestResults(self.max_list_results, self.max_list_bytes)

        def take(record: Record) -> bool:
            result = result_of(self._id, record.key(), record.value())
            if result is not None and _registered(result) == self._key.registered_at:
                newest.add(record.value() or b"")
            return True

        self._reader.read(OffsetRange(known.partition, begin, known.end), take)
        counting = newest_results(map(decode_result, newest.results), self.max_list_results)
        is_cut = newest.is_cut or begin > known.start or len(counting) > limit
        return ResultList([msgspec.json.encode(result) for result in counting[-limit:]], is_cut)

    def _is_registered_again(self, *, is_end: bool) -> bool:
        """Returns whether the id belongs to another registration now; checked every 15 seconds.

        Before the end there may be results of this one, which are read unless the topic changed.
        """
        now = time.monotonic()
        if now - self._asked_at < _REGISTRATION_SECONDS:
            return False
        self._asked_at = now
        key = self._registration()
        return key is not None and key != self._key and (is_end or key.topic != self._key.topic)

    def _move(self, position: int) -> None:
        self._position, self._moved_at = position, time.monotonic()

    def _known(self) -> ResultRange:
        """Returns the partition's offsets, asked for again if they end before the position."""
        known = self._reader.known(self._partition)
        if self._position > known.offsets.end:
            known = self._reader.known(self._partition, asked_since=self._moved_at)
        return known


class _NewestResults:
    """Keeps the newest results as JSON, up to a number of results and a total size."""

    def __init__(self, max_results: int, max_bytes: int) -> None:
        self._max_results, self._max_bytes = max_results, max_bytes
        self.results: deque[bytes] = deque()
        self.is_cut = False
        self._bytes = 0

    def add(self, result: bytes) -> None:
        """Adds a result that is newer than all results before it."""
        self.results.append(result)
        self._bytes += len(result)
        while len(self.results) > self._max_results or self._bytes > self._max_bytes:
            self._bytes -= len(self.results.popleft())
            self.is_cut = True


class _Page:
    """Gathers results of one registration until the page is full or another registration begins."""

    def __init__(
        self,
        query_id: str,
        key: RegistrationKey,
        revision: int,
        registration: Callable[[], RegistrationKey | None],
        max_bytes: int,
    ) -> None:
        self._id, self._key, self.revision = query_id, key, revision
        # One call per page is enough: its records were written, and their queries registered,
        # before the call.
        self._registration = cache(registration)
        self._left_bytes = max_bytes
        self.results: list[tuple[int, bytes]] = []
        self.position, self.is_over = 0, False

    def take(self, record: Record) -> bool:
        """Adds a record's result, and returns whether the page takes the next record as well."""
        result = result_of(self._id, record.key(), record.value())
        self.position = record.offset() + 1
        if result is None:
            return True
        registered_at = _registered(result)
        is_own = registered_at == self._key.registered_at
        if is_own:
            # A query that was deleted after an update keeps the results that it had until then.
            key = self._registration() if result.revision > self.revision else None
            self.is_over = key is not None and key.topic != self._key.topic
        else:
            is_later = registered_at > self._key.registered_at
            self.is_over = is_later and self._registration() != self._key
        if is_own and not self.is_over:
            self.revision = max(self.revision, result.revision)
            self.results.append((record.offset(), msgspec.json.encode(result)))
            self._left_bytes -= len(self.results[-1][1])
        return not self.is_over and self._left_bytes > 0


@dataclass(frozen=True, slots=True)
class _Answer:
    """The offsets of a topic as brokers reported them.

    Attributes:
        asked_at: time of the first request, by the monotonic clock.
        answered_at: time of the last response, by the monotonic clock.
        topic_id: id of the topic.
        ranges: offsets of all partitions; empty if the topic does not exist.
    """

    asked_at: float
    answered_at: float
    topic_id: str
    ranges: Mapping[TopicPartition, OffsetRange]


class ResultReader:
    """Reads results topics for many cursors, with one consumer per thread.

    The ends of a topic are fetched at most twice per second for all cursors together, and again for
    a cursor that begins at the latest, or whose position is beyond them.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._of_thread = threading.local()
        self._lock = threading.Lock()
        self._answers: dict[str, _Answer] = {}

    def known(self, partition: TopicPartition, *, asked_since: float = 0.0) -> ResultRange:
        """Returns the offsets of a partition.

        Args:
            partition: a partition of a results topic.
            asked_since: a time of the monotonic clock; brokers are asked again if they were last
                asked before it.

        Raises:
            AuthorizationError: if an ACL is missing.
            BrokerUnreachableError: if the brokers do not answer.
        """
        topic = partition.topic
        answer = self._answers.get(topic)
        if (
            answer is None
            or answer.asked_at < asked_since
            or time.monotonic() - answer.answered_at > _OFFSETS_SECONDS
        ):
            answer = self._newest(topic, self._ask(topic))
        if partition not in answer.ranges:
            return ResultRange("", OffsetRange(partition, 0, 0))
        return ResultRange(answer.topic_id, answer.ranges[partition])

    def read(self, range_: OffsetRange, take: Callable[[Record], bool]) -> bool:
        """Passes the records of a range to a function; returns whether it took all of them.

        Args:
            range_: the offsets to read.
            take: called with each record; returns whether to continue with the next record.
        """
        if range_.span == 0:
            return True
        config = broker_config(self._settings)
        # A consumer is not used again after an error: it may report some errors only once.
        reader, self._of_thread.reader = getattr(self._of_thread, "reader", None), None
        reader = reader or consumer(config, "headrace.results", _READING)
        chunks = read_ranges(reader, [range_], config, silence_limit_seconds=_SILENCE_SECONDS)
        is_whole = all(take(record) for chunk in chunks for record in chunk.records)
        reader.unassign()
        self._of_thread.reader = reader
        return is_whole

    def _newest(self, topic: str, answer: _Answer) -> _Answer:
        """Keeps an answer unless another thread has asked later; returns the kept answer."""
        with self._lock:
            kept = self._answers.get(topic)
            if kept is None or kept.asked_at < answer.asked_at:
                kept = self._answers[topic] = answer
            return kept

    def _ask(self, topic: str) -> _Answer:
        config, asked_at = broker_config(self._settings), time.monotonic()
        live = describe(config, [topic]).get(topic)
        if live is None:
            return _Answer(asked_at, time.monotonic(), "", {})
        known = watermarks(config, live.all_partitions)
        ranges = {
            partition: OffsetRange(partition, *known[partition])
            for partition in live.all_partitions
        }
        return _Answer(asked_at, time.monotonic(), live.topic_id, ranges)


def _known(entry: QueryEntry) -> KnownQuery:
    if entry.query is None:
        document = {"id": entry.id, "state": entry.state, "offset": entry.offset}
        return KnownQuery("", document | {"reason": entry.reason})
    return KnownQuery(entry.query.topic, _document(entry.query, entry.state, entry.reason))


def _live(query: RegisteredQuery) -> KnownQuery:
    return KnownQuery(query.topic, _document(query, QueryState.LIVE))


def _document(query: RegisteredQuery, state: QueryState, reason: str = "") -> dict[str, Any]:
    document = {
        "id": query.id,
        "state": state,
        "text": query.text,
        "topic": query.topic,
        "revision": query.revision,
        "registered_at": iso_milliseconds(query.registered_at),
        "updated_at": iso_milliseconds(query.updated_at),
        "expires_at": None if query.expires_at is None else iso_milliseconds(query.expires_at),
        "offset": query.offset,
    }
    return document | {"reason": reason} if reason else document


def _registered(result: QueryResult) -> datetime:
    return datetime.fromisoformat(result.registered)
