"""Routes HTTP requests for standing queries, below ``/v1/queries``."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs, urlencode

import msgspec
from confluent_kafka import KafkaException

from headrace.errors import HeadraceError
from headrace.ingest.events.splitting import is_lines
from headrace.ingest.http.body import BodyLimits, BodyReader
from headrace.ingest.http.budget import MemoryBudget
from headrace.ingest.http.problem import RETRY_AFTER, refused
from headrace.ingest.http.request import Answer, Request, Sendable, json_answer, require_method
from headrace.ingest.http.request_guard import RequestGuard
from headrace.ingest.queries.backend import KnownQuery, QueryBackend, ResultsBegin
from headrace.ingest.queries.refusals import bad_query, no_such_query, queries_unavailable, refusal
from headrace.ingest.queries.stream import ResultStream, StreamLife
from headrace.ingest.tokens.token import Token, TokenScope
from headrace.settings import IngestSettings

PREFIX = "/v1/queries"
MAX_STREAMS, MAX_TOKEN_STREAMS = 100, 10
"""The greatest numbers of result streams in one process: of all tokens, and of one token."""
MAX_RESULTS = 10_000

_RESULTS_SUFFIX = "results"
_DEFAULT_RESULTS = 1_000
_MAX_BODY_BYTES = 131_072  # a text has 20,000 characters at most
_THREADS = 4
_MAX_TTL_SECONDS = 1e10  # what a timedelta can hold; the registry has a limit of its own
_NUMBER_CHARACTERS = 10
_EVENT_ID = re.compile(r"-1|\d{1,18}", re.ASCII)
_NDJSON = b"application/x-ndjson"
_CUT = (b"headrace-results-cut", b"true")

Result = TypeVar("Result")


class QueryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that registers or updates a query."""

    query: str | None = None
    id: str | None = None
    ttl_seconds: Annotated[float, msgspec.Meta(gt=0, le=_MAX_TTL_SECONDS)] | None = None

    @property
    def ttl(self) -> timedelta | None:
        """The time to live; ``None`` for the longest possible."""
        return None if self.ttl_seconds is None else timedelta(seconds=self.ttl_seconds)


# Made at import: msgspec crashes if several threads decode a class for the first time at once.
_REQUEST = msgspec.json.Decoder(QueryRequest)


class QueryRoutes:
    """Answers requests for standing queries.

    A token sees and changes all queries of its topics, also those of other tokens. Each request is
    charged as one event, with the bytes of its body. Calls to Kafka have threads of their own, so
    they do not delay events.

    Attributes:
        max_waiting: requests that wait for Kafka; beyond that, they are refused.
    """

    max_waiting = 64

    def __init__(
        self,
        backend: QueryBackend,
        gate: RequestGuard,
        settings: IngestSettings,
        kafka_answers: Callable[[], bool],
        count_streams: Callable[[int], None],
    ) -> None:
        self._backend, self._gate = backend, gate
        self._kafka_answers, self._count_streams = kafka_answers, count_streams
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="queries")
        # Results take longer to read, so registrations do not wait for these threads.
        self._readers = ThreadPoolExecutor(_THREADS, thread_name_prefix="results")
        limits = BodyLimits(
            _MAX_BODY_BYTES, _MAX_BODY_BYTES, settings.max_ratio, settings.body_seconds
        )
        self._bodies = BodyReader(limits, self._threads)
        self._budget = MemoryBudget(self.max_waiting * _MAX_BODY_BYTES)
        self._waiting = 0
        self._streams: Counter[str] = Counter()
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Ends the result streams; clients resume them at another process or host."""
        self._draining.set()

    def close(self) -> None:
        """Ends the threads after their current calls; calls that have not started are dropped."""
        for threads in (self._threads, self._readers):
            threads.shutdown(wait=False, cancel_futures=True)

    async def answer(self, request: Request, token: Token) -> Sendable:
        """Answers a request whose path begins with :data:`PREFIX`.

        Raises:
            RefusedRequestError: if the request is refused.
        """
        query_id, *rest = request.path.removeprefix(PREFIX).removeprefix("/").split("/")
        if rest not in ([], [_RESULTS_SUFFIX]) or (rest and not query_id):
            raise refused(HTTPStatus.NOT_FOUND, "no-such-path", "see /openapi.json for all paths")
        if rest:
            return await self._results(request, token, query_id)
        if query_id:
            return await self._one_query(request, token, query_id)
        require_method(request, "GET", "POST")
        if request.method == "POST":
            return await self._register(request, token)
        await self._admit(token, TokenScope.READ_QUERIES)
        queries = await self._call(self._backend.queries, _registry(request))
        documents = [query.document for query in queries if token.is_for(query.topic)]
        return json_answer(HTTPStatus.OK, {"queries": documents})

    async def _one_query(self, request: Request, token: Token, query_id: str) -> Answer:
        require_method(request, "GET", "PUT", "DELETE")
        if request.method == "PUT":
            return await self._update(request, token, query_id)
        if request.method == "DELETE":
            return await self._cancel(request, token, query_id)
        await self._admit(token, TokenScope.READ_QUERIES)
        query = await self._query(token, _registry(request), query_id)
        return json_answer(HTTPStatus.OK, query.document)

    async def _register(self, request: Request, token: Token) -> Answer:
        body = await self._body(request, token)
        if body.query is None:
            raise bad_query("query", "the body has no query: its text is required")
        topic = await self._topic(body.query)
        if not token.is_for(topic):
            detail = f"this token may not query {topic[:80]!r}"
            raise refused(HTTPStatus.FORBIDDEN, "not-allowed", detail)
        registry = _registry(request)
        registration = await self._call(
            self._backend.register, registry, body.query, body.id, body.ttl
        )
        status = HTTPStatus.CREATED if registration.is_new else HTTPStatus.OK
        location = f"{PREFIX}/{registration.query.document['id']}"
        if registry is not None:
            location += f"?{urlencode({'in': registry})}"
        return json_answer(status, registration.query.document, (b"location", location.encode()))

    async def _update(self, request: Request, token: Token, query_id: str) -> Answer:
        body, registry = await self._body(request, token), _registry(request)
        if body.id is not None:
            raise bad_query("id", "id is in the path, and can't be changed")
        query = await self._query(token, registry, query_id)
        if body.query is not None and await self._topic(body.query) != query.topic:
            # A token that follows the query's results may lack access to the other topic.
            detail = f"an update keeps the topic, {query.topic!r}: register another query"
            raise bad_query("query", detail)
        updated = await self._call(self._backend.update, registry, query_id, body.query, body.ttl)
        return json_answer(HTTPStatus.OK, updated.document)

    async def _cancel(self, request: Request, token: Token, query_id: str) -> Answer:
        await self._admit(token, TokenScope.WRITE_QUERIES)
        registry = _registry(request)
        # For its check: the query must be of a topic of this token.
        await self._query(token, registry, query_id)
        await self._call(self._backend.cancel, registry, query_id)
        return Answer(HTTPStatus.NO_CONTENT, b"", ())

    async def _results(self, request: Request, token: Token, query_id: str) -> Sendable:
        require_method(request, "GET")
        await self._admit(token, TokenScope.READ_QUERIES)
        accept = request.headers.get(b"accept", b"")
        if b"text/event-stream" in accept:
            return await self._stream(request, token, query_id)
        registry, limit = _registry(request), _limit(request)
        query = await self._query(token, registry, query_id)
        results, is_cut = await self._call(
            self._backend.results, registry, query, limit, threads=self._readers
        )
        if _NDJSON in accept:
            lines = b"".join(result + b"\n" for result in results)
            answer = Answer(HTTPStatus.OK, lines, ((b"content-type", _NDJSON),))
        else:
            answer = Answer(HTTPStatus.OK, b'{"results":[' + b",".join(results) + b"]}")
        return replace(answer, headers=(*answer.headers, _CUT)) if is_cut else answer

    async def _stream(self, request: Request, token: Token, query_id: str) -> ResultStream:
        registry, begin = _registry(request), _begin(request)
        with self._stream_of(token) as ended:
            query = await self._query(token, registry, query_id)
            cursor = await self._call(
                self._backend.cursor, registry, query, begin, threads=self._readers
            )
            scope, topic = TokenScope.READ_QUERIES, query.topic
            is_allowed = functools.partial(self._gate.is_allowed, request, scope, topic)
            life = StreamLife(self._readers, self._draining, is_allowed, ended)
            return ResultStream(cursor, request.receive, life)

    async def _body(self, request: Request, token: Token) -> QueryRequest:
        """Returns the body of a request that changes queries, after charging its token."""
        self._gate.may(token, TokenScope.WRITE_QUERIES)
        self._gate.refuse_limited(token)
        if is_lines(request.header(b"content-type")):
            detail = "one JSON object is expected: application/json"
            raise refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unknown-content-type", detail)
        with self._budget.share() as share:
            body = await self._bodies.read(
                request.receive,
                request.header(b"content-length"),
                request.header(b"content-encoding"),
                share,
            )
            request.received_bytes = share.sent_bytes
            # Charged before it is decoded: an invalid body costs as much.
            await self._gate.admit(token, 1, len(body))
            if not body:
                detail = "the body is empty; send {} to set nothing"
                raise refused(HTTPStatus.BAD_REQUEST, "bad-query", detail)
            try:
                return _REQUEST.decode(body)
            except (ValueError, RecursionError) as error:
                raise refused(
                    HTTPStatus.BAD_REQUEST,
                    "bad-query",
                    f"the body has to be a JSON object of query, id and ttl_seconds: {error}",
                ) from None

    async def _admit(self, token: Token, scope: TokenScope) -> None:
        self._gate.may(token, scope)
        self._gate.refuse_limited(token)
        await self._gate.admit(token, 1, 0)

    async def _query(self, token: Token, registry: str | None, query_id: str) -> KnownQuery:
        query = await self._call(self._backend.query, registry, query_id)
        if not token.is_for(query.topic):
            raise no_such_query(query_id)
        return query

    async def _topic(self, text: str) -> str:
        return await self._call(self._backend.topic, text)

    async def _call(
        self,
        function: Callable[..., Result],
        *arguments: Any,
        threads: ThreadPoolExecutor | None = None,
    ) -> Result:
        """Calls the backend on a thread, or refuses if Kafka is unreachable or many calls wait."""
        if not self._kafka_answers():
            raise queries_unavailable("Kafka does not answer; nothing was done")
        if self._waiting >= self.max_waiting:
            detail = "too many requests wait for Kafka; nothing was done"
            raise refused(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", detail, RETRY_AFTER)
        self._waiting += 1
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(threads or self._threads, function, *arguments)
        except (HeadraceError, KafkaException) as error:
            raise refusal(error) from error
        finally:
            self._waiting -= 1

    @contextlib.contextmanager
    def _stream_of(self, token: Token) -> Iterator[Callable[[], None]]:
        """Counts a stream, and yields a function that uncounts it; does so itself on an error."""
        if self._streams.total() >= MAX_STREAMS:
            detail = f"{MAX_STREAMS} streams of results are open in this process"
            raise refused(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", detail, RETRY_AFTER)
        if self._streams[token.public_id] >= MAX_TOKEN_STREAMS:
            detail = f"{MAX_TOKEN_STREAMS} streams of this token are open in this process"
            raise refused(HTTPStatus.TOO_MANY_REQUESTS, "too-many-streams", detail, RETRY_AFTER)
        self._add_stream(token, 1)
        try:
            yield lambda: self._add_stream(token, -1)
        except BaseException:
            self._add_stream(token, -1)
            raise

    def _add_stream(self, token: Token, count: int) -> None:
        self._streams[token.public_id] += count
        if not self._streams[token.public_id]:
            del self._streams[token.public_id]
        self._count_streams(self._streams.total())


def _registry(request: Request) -> str | None:
    """Returns the name of standing queries in the URL; ``None`` if it has none."""
    return _parameter(request, "in")


def _limit(request: Request) -> int:
    text = _parameter(request, "limit")
    if text is None:
        return _DEFAULT_RESULTS
    if text.isdecimal() and len(text) < _NUMBER_CHARACTERS and 0 < int(text) <= MAX_RESULTS:
        return int(text)
    raise bad_query("limit", f"?limit={text[:80]}: expected a number from 1 to {MAX_RESULTS:,}")


def _begin(request: Request) -> ResultsBegin:
    """Returns where a stream begins: after the client's last event, if it names one."""
    last = request.header(b"last-event-id")
    if last:
        if _EVENT_ID.fullmatch(last):
            return int(last) + 1
        detail = f"Last-Event-ID is {last[:80]!r}, expected the id of an event of a stream"
        raise bad_query("Last-Event-ID", detail)
    match _parameter(request, "from"):
        case None | "earliest":
            return "earliest"
        case "latest":
            return "latest"
        case text:
            raise bad_query("from", f"?from={text[:80]}: expected earliest or latest")


def _parameter(request: Request, name: str) -> str | None:
    values = parse_qs(request.query.decode("latin-1"), keep_blank_values=True).get(name)
    return values[-1] if values else None
