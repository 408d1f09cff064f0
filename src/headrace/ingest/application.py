"""The ASGI application: routes requests, and makes an answer of whatever is raised."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from headrace.ingest.access_log import LINES, AccessLog
from headrace.ingest.config import IngestConfig
from headrace.ingest.events.event_store import EventStore
from headrace.ingest.events.intake import EventIntake
from headrace.ingest.figures.account_slots import SHARED_SLOT, AccountSlots
from headrace.ingest.figures.counters import Counters
from headrace.ingest.figures.service_metrics import (
    QUERY_STREAMS,
    REQUESTS,
    account_lines,
    metric_lines,
    spool_lines,
)
from headrace.ingest.http.body import ClientGoneError, Receive
from headrace.ingest.http.cors import Cors
from headrace.ingest.http.problem import CLOSE, RefusedRequestError, refused
from headrace.ingest.http.request import (
    Answer,
    Header,
    Request,
    Scope,
    Send,
    Sendable,
    json_answer,
    problem_answer,
    require_method,
    text_answer,
)
from headrace.ingest.http.request_guard import RequestGuard
from headrace.ingest.openapi import openapi
from headrace.ingest.queries.routes import PREFIX, QueryRoutes
from headrace.ingest.readiness import readiness
from headrace.ingest.tokens.token import Token, TokenKind, TokenScope
from headrace.runtime.logs import REQUEST_ID
from headrace.topics.spreads.following import FollowedSpreads

_LOG = logging.getLogger("headrace.ingest")
_BEFORE, _AFTER = "/v1/topics/", "/events"
_WEBHOOKS = "/v1/webhooks/"
_CLIENT_GONE = 499  # as nginx writes it: the client closed the connection before the answer

ACCESS_LOG = "access.log"

Page = Callable[[], Awaitable[Answer]]
Probe = Callable[[bytes], Awaitable[Answer]]
"""Takes the query of its address."""


class Application:
    """Routes requests, and answers each of them exactly once.

    A 202 means that the in-sync replicas have the accepted events; a 4xx that nothing of what it
    refuses will ever appear; a 5xx that the outcome is unknown: the client repeats the events, with
    the same ids.
    """

    def __init__(
        self,
        config: IngestConfig,
        gate: RequestGuard,
        acceptance: EventStore,
        counters: Counters,
        accounts: AccountSlots,
        spreads: FollowedSpreads,
    ) -> None:
        self._gate, self._acceptance = gate, acceptance
        self._counters, self._accounts = counters, accounts
        self._intake = EventIntake(config, gate, acceptance, counters, accounts, spreads)
        self._queries: QueryRoutes | None = None
        if config.queries is not None:
            self._queries = QueryRoutes(
                config.queries(),
                gate,
                config.settings,
                lambda: acceptance.kafka_answers,
                lambda count: counters.put((QUERY_STREAMS,), count),
            )
        self._access_log: AccessLog | None = None
        if config.settings.access_log:
            line = LINES[config.settings.access_log]
            max_lines = config.settings.access_log_lines_per_second
            self._access_log = AccessLog(config.state / ACCESS_LOG, line, max_lines)
        self._cors = Cors(config.settings.cors_origins)
        self._config = config
        self._pages: dict[str, Callable[[Token], Awaitable[Answer]]] = {
            "/metrics": self._metrics,
            "/openapi.json": self._description,
        }
        self._probes: dict[str, Probe] = {"/healthz": self._health, "/readyz": self._readiness}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request (ASGI)."""
        began = 0.0 if self._access_log is None else time.monotonic()
        request = Request(scope, receive)
        REQUEST_ID.set(request.id)
        try:
            answer: Sendable = await self._answer(request)
        except RefusedRequestError as error:
            answer = problem_answer(error, instance=request.uri)
        except ClientGoneError:
            if b"transfer-encoding" not in request.headers:
                if self._access_log is not None:
                    self._access_log.write(request, _CLIENT_GONE, time.monotonic() - began)
                return
            # The server reports the same for a closed connection and for chunks that can't be read.
            detail = "a chunk of the body can't be read, or the connection ended before the last"
            broken = refused(HTTPStatus.BAD_REQUEST, "undecodable-body", detail, CLOSE)
            answer = problem_answer(broken, instance=request.uri)
        except Exception:  # noqa: BLE001 - a client must hear that the outcome is unknown
            _LOG.exception("A request failed unexpectedly; the answer asks its client to repeat it")
            detail = (
                "the service failed; it is unknown whether the events are there: send them again"
            )
            failed = refused(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", detail)
            answer = problem_answer(failed, instance=request.uri)
        self._counters.add((REQUESTS, str(answer.status)))
        headers: list[Header] = [(b"x-request-id", request.id.encode())]
        if request.origin is not None:
            headers += self._cors.headers(request.origin)
        await answer.send(send, *headers)
        if self._access_log is not None:
            self._access_log.write(request, answer.status, time.monotonic() - began)

    def drain(self) -> None:
        """Ends answers that have no end of their own; the server waits for all open answers."""
        if self._queries is not None:
            self._queries.drain()

    def close(self) -> None:
        """Closes the access log, and the threads that ask for queries."""
        if self._queries is not None:
            self._queries.close()
        if self._access_log is not None:
            self._access_log.close()

    async def _answer(self, request: Request) -> Sendable:
        path = request.path
        try:
            request.check_headers(self._config.settings.max_header_bytes)
            if path in self._probes:
                probe = functools.partial(self._probes[path], request.query)
                return (await self._page(request, probe)).closing()
            preflight = None if request.origin is None else self._cors.preflight(request)
            if preflight is not None:
                return preflight
            if path.startswith(_WEBHOOKS):
                return await self._intake.webhook(request, path[len(_WEBHOOKS) :])
            request.token = token = self._gate.token(request)
        except RefusedRequestError as error:
            # A client without a token gets one answer per connection: answers can't pile up unread.
            error.headers += (CLOSE,)
            raise
        if token.kind is TokenKind.PUBLIC:
            self._cors.require(request.origin)
        if path.startswith(_BEFORE) and path.endswith(_AFTER):
            return await self._intake.events(request, path[len(_BEFORE) : -len(_AFTER)], token)
        if path in self._pages:
            return await self._page(request, functools.partial(self._pages[path], token))
        if self._queries is not None and (path == PREFIX or path.startswith(f"{PREFIX}/")):
            return await self._queries.answer(request, token)
        raise refused(HTTPStatus.NOT_FOUND, "no-such-path", "see /openapi.json for all paths")

    async def _page(self, request: Request, page: Page) -> Answer:
        require_method(request, "GET", "HEAD")
        answer = await page()
        return answer if request.method == "GET" else Answer(answer.status, b"", answer.headers)

    async def _health(self, _: bytes) -> Answer:
        return json_answer(HTTPStatus.OK, {"status": "alive"})

    async def _readiness(self, query: bytes) -> Answer:
        return readiness(
            query, self._config.topics.keys(), self._acceptance, tokens_known=self._gate.ready
        )

    async def _metrics(self, token: Token) -> Answer:
        self._gate.may(token, TokenScope.METRICS)
        totals = self._counters.totals()
        accounts = account_lines(totals, self._accounts.accounts(), SHARED_SLOT)
        # On a thread: it reads folders, and waits for the locks of the spools.
        spools = await asyncio.to_thread(self._acceptance.spool_stats)
        return text_answer([*metric_lines(totals), *accounts, *spool_lines(spools)])

    async def _description(self, token: Token) -> Answer:
        self._gate.may(token, TokenScope.DESCRIBE)
        topics = [topic for name, topic in self._config.topics.items() if token.is_for(name)]
        has_queries = self._queries is not None
        document = openapi(topics, self._config.settings, has_queries=has_queries)
        return json_answer(HTTPStatus.OK, document)
