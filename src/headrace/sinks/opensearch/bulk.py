"""Documents by ``_bulk``: each item has an outcome of its own, and those not taken are sent again.

The answer is the one of OpenSearch 2 and 3 and of Elasticsearch 7 to 9.
"""

from __future__ import annotations

import re
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from headrace.errors import SinkError, SinkUnavailableError
from headrace.runtime.retrying import exponential_backoff
from headrace.sinks.api import RejectedRow
from headrace.sinks.opensearch.client import NAME, Client, ServerAnswer

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from headrace.sinks.opensearch.documents import Documents

    Places = NDArray[np.int64]

_PATH = (
    "_bulk?filter_path=errors%2Citems.%2A.status%2Citems.%2A.error.type"
    "%2Citems.%2A.error.reason%2Citems.%2A.error.caused_by"
)
# One is on its way while the next is built; more would only wait in the server's queue.
_IN_FLIGHT = 2
_MAX_BYTES, _MIN_BYTES, _MORE_BYTES = 8 << 20, 64 << 10, 256 << 10
DELAYS_SECONDS = (0.1, 5.0)
"""Before the first retry, and the longest before any."""
_CREATED, _TOO_LARGE, _BAD_REQUEST = (200, 201), 413, 400
_CONFLICT = "version_conflict_engine_exception"
# What a document is refused for. Others with status 400, such as that of a closed index, or of one
# that lacks a field of the rows, are about the index or the cluster: they are waited for.
_OF_DOCUMENT = frozenset(
    {
        "mapper_parsing_exception",
        "document_parsing_exception",  # of Elasticsearch since 8.8
        "mapper_exception",
    }
)
# Of a document where it names a field, else of an alias, an ingest pipeline or a limit.
_OF_MANY, _NAMED_FIELD = "illegal_argument_exception", re.compile(r"\bfield\b|DocValuesField")
_FIELD = re.compile(r"field \[(?P<name>[^]]*)\] of type \[(?P<kind>[^]]*)\]")
_LONG_TERM = re.compile(
    r"immense term in field=\"(?P<name>[^\"]*)\".*longer than the max length (\d+)"
)


class _Error(msgspec.Struct):
    type: str = ""
    reason: str | None = ""
    caused_by: _Error | None = None

    @property
    def sentences(self) -> list[str]:
        """What the server says, and what is behind that, to the first cause."""
        behind = [] if self.caused_by is None else self.caused_by.sentences
        return [self.reason or self.type, *behind]

    @property
    def is_of_document(self) -> bool:
        """Whether a value of the document is at fault, and not its index or the cluster."""
        if self.type == _OF_MANY:
            return _NAMED_FIELD.search(" ".join(self.sentences)) is not None
        return self.type in _OF_DOCUMENT


class _Item(msgspec.Struct):
    status: int
    error: _Error = msgspec.field(default_factory=_Error)


class _Outcome(msgspec.Struct):
    errors: bool


class _Bulk(msgspec.Struct):
    items: list[Annotated[dict[str, _Item], msgspec.Meta(min_length=1)]]


# Of a bulk that was taken whole, nothing else is decoded.
_OUTCOME, _BULK = msgspec.json.Decoder(_Outcome), msgspec.json.Decoder(_Bulk)


@dataclass
class BulkSize:
    """How many bytes a bulk may have: half as many where a server takes nothing, then slowly more.

    Where it takes a part, its queue is full, which counts bulks by shard: smaller ones would be
    more of them.

    Attributes:
        bytes: a bulk has no more, but for a single document.
        limit: the most that the server, or a proxy in front of it, is known to take.
    """

    bytes: int = _MAX_BYTES
    limit: int = _MAX_BYTES

    def taken(self) -> None:
        """Notes that a bulk was taken whole."""
        self.bytes = min(self.bytes + _MORE_BYTES, self.limit)

    def refused(self, size: int, *, is_too_large: bool) -> None:
        """Notes that a bulk of ``size`` bytes was refused."""
        half = min(size, self.bytes) // 2
        if is_too_large:
            self.limit = half
        self.bytes = min(max(half, _MIN_BYTES), self.limit)


@dataclass
class Loaded:
    """What became of documents.

    Attributes:
        conflicts: how many existed, or were older.
        resent: how many were sent again.
        rejected: rows of the others that are dead letters.
    """

    conflicts: int = 0
    resent: int = 0
    rejected: list[RejectedRow] = field(default_factory=list)


class BulkLoader:
    """Loads the documents of one task.

    Args:
        client: asks the cluster.
        schema: of the rows, for messages.
        max_wait_seconds: how long no document may be taken before the task fails.
    """

    def __init__(self, client: Client, schema: pa.Schema, max_wait_seconds: float) -> None:
        self._client, self._schema = client, schema
        self._max_wait_seconds = max_wait_seconds
        self._size = BulkSize()

    def load(self, documents: Documents) -> Loaded:
        """Returns once each document is taken or rejected.

        Raises:
            SinkUnavailableError: if none was taken for ``max_wait_seconds``; some may be there.
            SinkError: if the cluster refuses all of them.
        """
        load = _Load(self._client, documents, self._size, self._schema, self._max_wait_seconds)
        with ThreadPoolExecutor(_IN_FLIGHT, "headrace-bulk") as threads:
            running = [threads.submit(load.run) for _ in range(_IN_FLIGHT)]
        for thread in running:
            thread.result()
        load.loaded.rejected.sort(key=lambda row: row.index)
        return load.loaded


class _Load:
    """One load: threads take bulks from it until there are none."""

    def __init__(
        self,
        client: Client,
        documents: Documents,
        size: BulkSize,
        schema: pa.Schema,
        max_wait_seconds: float,
    ) -> None:
        self._client, self._documents, self._size = client, documents, size
        self._schema, self._max_wait_seconds = schema, max_wait_seconds
        self._sizes = documents.sizes
        self._ends = np.cumsum(self._sizes)
        self._next, self._lock, self._failed = 0, Lock(), Event()
        self.loaded = Loaded()

    def run(self) -> None:
        try:
            while (places := self._next_bulk()).size:
                self._send_all(places)
        except BaseException:
            self._failed.set()
            raise

    def _next_bulk(self) -> Places:
        with self._lock:
            start = self._next
            if self._failed.is_set() or start == len(self._ends):
                return np.arange(0)
            before = int(self._ends[start - 1]) if start else 0
            end = int(np.searchsorted(self._ends, before + self._size.bytes, side="right"))
            self._next = max(start + 1, end)
            return np.arange(start, self._next)

    def _send_all(self, places: Places) -> None:
        """Sends a bulk, and what is not taken of it again, until all is taken or rejected."""
        waiting, since = deque([places]), time.monotonic()
        delays = exponential_backoff(*DELAYS_SECONDS)
        while waiting and not self._failed.is_set():
            places = waiting.popleft()
            size = int(self._sizes[places].sum())
            if size > self._size.bytes and len(places) > 1:
                waiting.extendleft(reversed(np.array_split(places, 2)))
                continue
            resend, reason = self._send_once(places, size)
            if len(resend) < len(places):
                delays, since = exponential_backoff(*DELAYS_SECONDS), time.monotonic()
            if not len(resend):
                continue
            if time.monotonic() - since > self._max_wait_seconds:
                raise SinkUnavailableError(NAME, f"{reason}; {len(resend)} rows wait for it")
            self._failed.wait(next(delays))
            waiting.append(resend)

    def _send_once(self, places: Places, size: int) -> tuple[Places, str]:
        """Sends a bulk; returns which of it to send again, and why."""
        try:
            answer = self._client.ask("POST", _PATH, self._documents.body(places), "x-ndjson")
            if answer.status == _TOO_LARGE:
                return self._too_large(places, size), answer.reason
            return self._handle_items(places, size, answer)
        except SinkUnavailableError as error:
            # A server that takes no more may close the connection while a bulk is on its way.
            self._size.refused(size, is_too_large=False)
            return self._count_resent(places), error.reason

    def _too_large(self, places: Places, size: int) -> Places:
        if len(places) > 1:
            self._size.refused(size, is_too_large=True)
            return places
        detail = f"a document of {size} bytes, which the server, or a proxy, does not take"
        with self._lock:
            self.loaded.rejected.append(RejectedRow(self._row(places[0]), "row-too-large", detail))
        return places[:0]

    def _handle_items(self, places: Places, size: int, answer: ServerAnswer) -> tuple[Places, str]:
        if not answer.decoded(_OUTCOME).errors:
            self._size.taken()
            return places[:0], ""
        items = [next(iter(item.values())) for item in answer.decoded(_BULK).items]
        # Answers go by place alone: with one missing, no row's outcome is known.
        if len(items) != len(places):
            raise SinkError(NAME, f"a bulk of {len(places)} documents has {len(items)} answers")
        resend, reason, conflicts, rejected = [], "", 0, []
        for place, item in zip(places, items, strict=True):
            if item.status in _CREATED:
                continue
            # The index has a newer version of the row, or this one already: nothing is left to do.
            if item.error.type == _CONFLICT:
                conflicts += 1
            elif item.status == _BAD_REQUEST and item.error.is_of_document:
                rejected.append(self._rejected(place, item.error))
            else:
                resend.append(place)
                reason = f"{item.status} {item.error.type}: {item.error.reason}"
        with self._lock:
            self.loaded.conflicts += conflicts
            self.loaded.rejected += rejected
        if not resend:
            self._size.taken()
        # Some documents were taken: then the size is not what the server refuses.
        elif len(resend) == len(places):
            self._size.refused(size, is_too_large=False)
        return self._count_resent(np.array(resend, np.int64)), reason

    def _count_resent(self, places: Places) -> Places:
        with self._lock:
            self.loaded.resent += len(places)
        return places

    def _row(self, place: int) -> int:
        return int(self._documents.rows[place])

    def _rejected(self, place: int, error: _Error) -> RejectedRow:
        """Returns why a document is none of its index."""
        if long_term := _LONG_TERM.search(" ".join(error.sentences)):
            detail = f"field {long_term['name']!r} has more than the {long_term[2]} bytes of a term"
            return RejectedRow(self._row(place), "value-too-long", detail)
        return RejectedRow(self._row(place), "wrong-value", self._detail(error))

    def _detail(self, error: _Error) -> str:
        sentences = error.sentences
        why = sentences[-1].partition("\n")[0]
        if (at := _FIELD.search(sentences[0])) is None:
            return why
        column = at["name"].partition(".")[0]
        is_known = column in self._schema.names
        sent = f", and the row has {self._schema.field(column).type}" if is_known else ""
        return f"field {at['name']!r} is {at['kind']}{sent}: {why}"
