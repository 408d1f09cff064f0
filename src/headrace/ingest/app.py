"""The ASGI application: what happens to a request, from its first byte to its answer."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from headrace.ingest.acceptance import Acceptance
from headrace.ingest.body import BodyLimits, BodyReader, ClientGoneError, Receive
from headrace.ingest.budget import MemoryBudget
from headrace.ingest.config import IngestConfig
from headrace.ingest.cors import Cors
from headrace.ingest.counters import Counters
from headrace.ingest.delivery import NotTakenError, RefusedByKafkaError, UnknownOutcomeError
from headrace.ingest.documents import is_lines, split_events
from headrace.ingest.gate import Gate
from headrace.ingest.openapi import openapi
from headrace.ingest.problem import CLOSE, RETRY_AFTER, Problem, RefusedRequestError, refused
from headrace.ingest.readiness import readiness
from headrace.ingest.request import (
    Answer,
    Header,
    Request,
    Scope,
    Send,
    json_answer,
    problem_answer,
    text_answer,
)
from headrace.ingest.service_metrics import (
    BYTES,
    EVENTS,
    REFUSALS,
    REQUESTS,
    UNAVAILABLE,
    count_latency,
    known_code,
    metric_lines,
    spool_lines,
)
from headrace.ingest.structure import StructureLimits
from headrace.ingest.tokens import Token, TokenKind, TokenScope
from headrace.ingest.validation import Accepted, EventCheck, Verdicts
from headrace.ingest.webhooks import Webhooks
from headrace.runtime.logs import REQUEST_ID

_LOG = logging.getLogger("headrace.ingest")
_SPOOLED = ((b"headrace-spooled", b"true"),)
_THREADS = 2
_LARGE_BYTES = 262_144
_BEFORE, _AFTER = "/v1/topics/", "/events"
_WEBHOOKS = "/v1/webhooks/"

RecordHeaders = list[tuple[str, bytes]]
Page = Callable[[], Awaitable[Answer]]
Probe = Callable[[bytes], Awaitable[Answer]]
"""Takes the query of its address."""


class Application:
    """Routes, and the path of a request for events.

    A 202 means that the in-sync replicas have the accepted events; a 4xx that nothing of what it
    refuses will ever appear; a 5xx that the outcome is unknown: the client sends the same events
    again, with the same ids.
    """

    def __init__(
        self, config: IngestConfig, gate: Gate, acceptance: Acceptance, counters: Counters
    ) -> None:
        settings = config.settings
        structure = StructureLimits(
            settings.max_depth, settings.max_keys, settings.max_string_bytes
        )
        self._settings = settings
        self._gate, self._acceptance, self._counters = gate, acceptance, counters
        self._checks = {
            name: EventCheck(topic, structure, time.time) for name, topic in config.topics.items()
        }
        # Of their own: what waits for Kafka or a disk in the default pool holds no body up.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="body")
        self._bodies = BodyReader(
            BodyLimits(
                settings.max_body_bytes,
                settings.max_decoded_bytes,
                settings.max_ratio,
                settings.body_seconds,
            ),
            self._threads,
        )
        self._budget = MemoryBudget(settings.max_memory_bytes)
        self._cors = Cors(settings.cors_origins)
        self._webhooks = Webhooks(settings.webhook_key, config.topics)
        self._config = config
        self._pages: dict[str, Callable[[Token], Awaitable[Answer]]] = {
            "/metrics": self._metrics,
            "/openapi.json": self._description,
        }
        self._probes: dict[str, Probe] = {"/healthz": self._health, "/readyz": self._readiness}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request (ASGI)."""
        request = Request(scope, receive)
        REQUEST_ID.set(request.id)
        try:
            answer = await self._answer(request)
        except RefusedRequestError as error:
            answer = problem_answer(error, instance=request.uri)
        except ClientGoneError:
            return
        except Exception:  # noqa: BLE001 - a client must hear that the outcome is unknown
            _LOG.exception("a request failed")
            answer = problem_answer(_failed(), instance=request.uri)
        self._counters.add((REQUESTS, str(answer.status)))
        headers: list[Header] = [(b"x-request-id", request.id.encode())]
        if request.origin is not None:
            headers += self._cors.headers(request.origin)
        await answer.send(send, *headers)

    async def _answer(self, request: Request) -> Answer:
        path = request.path
        try:
            request.check_headers(self._settings.max_header_bytes)
            if path in self._probes:
                probe = functools.partial(self._probes[path], request.query)
                return (await self._page(probe, request.method)).closing()
            preflight = None if request.origin is None else self._cors.preflight(request)
            if preflight is not None:
                return preflight
            if path.startswith(_WEBHOOKS):
                return await self._webhook(request, path[len(_WEBHOOKS) :])
            token = self._gate.token(request)
        except RefusedRequestError as error:
            # Who shows no token gets one answer per connection: answers can't pile up unread.
            error.headers += (CLOSE,)
            raise
        if token.kind is TokenKind.PUBLIC:
            self._cors.require(request.origin)
        if path.startswith(_BEFORE) and path.endswith(_AFTER):
            return await self._events(request, path[len(_BEFORE) : -len(_AFTER)], token)
        if path in self._pages:
            return await self._page(functools.partial(self._pages[path], token), request.method)
        raise refused(HTTPStatus.NOT_FOUND, "no-such-path", "see /openapi.json for what there is")

    async def _page(self, page: Page, method: str) -> Answer:
        _allow(method, "GET", "HEAD")
        answer = await page()
        return answer if method == "GET" else Answer(answer.status, b"", answer.headers)

    async def _events(self, request: Request, topic: str, token: Token) -> Answer:
        self._gate.may_write(token, topic)
        check = self._check(topic)
        _allow(request.method, "POST")
        self._gate.refuse_limited(token)
        content_type = request.header(b"content-type")
        with self._budget.share() as share:
            try:
                is_lines(content_type)
                body = await self._bodies.read(
                    request.receive,
                    request.header(b"content-length"),
                    request.header(b"content-encoding"),
                    share,
                )
                began = time.monotonic()
                events, as_batch = split_events(body, content_type, self._settings.max_events)
            except RefusedRequestError as error:
                await self._charge(token, error, share.sent_bytes)
                raise
            del body
            return await self._take(topic, token, check, events, as_batch=as_batch, began=began)

    async def _webhook(self, request: Request, public_id: str) -> Answer:
        """Takes the event of a signed request; a request without its signature costs nothing."""
        token = self._gate.webhook(public_id)
        (topic,) = token.topics
        check = self._check(topic)
        _allow(request.method, "POST")
        self._gate.refuse_limited(token)
        is_lines(request.header(b"content-type"))
        with self._budget.share() as share:
            body = await self._bodies.read(
                request.receive, request.header(b"content-length"), "", share
            )
            began = time.monotonic()
            self._webhooks.verify(request, token, body, datetime.now(UTC))
            event = self._webhooks.event(request, token, body)
            if event is None:
                return json_answer(HTTPStatus.OK, {"accepted": 0, "refused": []})
            return await self._take(topic, token, check, [event], as_batch=False, began=began)

    def _check(self, topic: str) -> EventCheck:
        try:
            return self._checks[topic]
        except KeyError:
            detail = _no_topic(topic, self._checks)
            raise refused(HTTPStatus.NOT_FOUND, "no-such-topic", detail) from None

    async def _charge(self, token: Token, error: RefusedRequestError, size: int) -> None:
        """What is refused as a whole costs its token one event, and the bytes that were sent."""
        if error.problem.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            await self._gate.admit(token, 1, size)

    async def _take(
        self,
        topic: str,
        token: Token,
        check: EventCheck,
        events: list[bytes],
        *,
        as_batch: bool,
        began: float,
    ) -> Answer:
        size = sum(map(len, events))
        await self._admit(token, topic, len(events), size)
        headers = _record_headers(token)
        if size <= _LARGE_BYTES:
            verdicts = check.batch(events, token.account, headers)
        else:
            verdicts = await self._checked_aside(check, events, token.account, headers)
        self._count_refused(topic, verdicts.refused)
        (accepted, problems), spooled = await self._deliver(topic, headers, verdicts)
        if not accepted:
            raise _none_accepted(problems, as_batch=as_batch)
        count_latency(self._counters, time.monotonic() - began)
        document = {
            "accepted": len(accepted),
            "refused": [problem.document() for problem in problems],
        }
        return json_answer(HTTPStatus.ACCEPTED, document, *(_SPOOLED if spooled else ()))

    async def _checked_aside(
        self, check: EventCheck, events: list[bytes], account: str, headers: RecordHeaders
    ) -> Verdicts:
        # The interpreter passes between threads, so that others get their answers meanwhile.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, check.batch, events, account, headers)

    async def _deliver(
        self, topic: str, headers: RecordHeaders, verdicts: Verdicts
    ) -> tuple[Verdicts, bool]:
        """What Kafka has, or the spool; and what Kafka will never take, among what is refused."""
        if not verdicts.accepted:
            return verdicts, False
        spooled = False
        try:
            spooled = await self._accept(topic, headers, verdicts.accepted)
        except RefusedByKafkaError as error:
            late = verdicts.late_problems(error.reasons)
            self._count_refused(topic, late)
            verdicts = verdicts.without(error.reasons, late)
        self._count_accepted(topic, verdicts.accepted, "spooled" if spooled else "accepted")
        return verdicts, spooled

    async def _admit(self, token: Token, topic: str, events: int, size: int) -> None:
        try:
            await self._gate.admit(token, events, size)
        except RefusedRequestError:
            self._counters.add((EVENTS, topic, "limited"), events)
            raise

    async def _accept(self, topic: str, headers: RecordHeaders, events: list[Accepted]) -> bool:
        seconds = self._settings.deadline_seconds
        try:
            spooled = await self._acceptance.accept(topic, events, headers, seconds)
        except (NotTakenError, UnknownOutcomeError) as error:
            outcome = "not-taken" if isinstance(error, NotTakenError) else "unknown"
            self._counters.add((EVENTS, topic, outcome), len(events))
            self._counters.add((UNAVAILABLE, topic, error.code))
            raise _not_confirmed(error) from error
        return spooled

    def _count_accepted(self, topic: str, events: list[Accepted], outcome: str) -> None:
        self._counters.add((EVENTS, topic, outcome), len(events))
        self._counters.add((BYTES, topic), sum([len(event.value) for event in events]))

    def _count_refused(self, topic: str, problems: list[Problem]) -> None:
        if problems:
            self._counters.add((EVENTS, topic, "refused"), len(problems))
        for problem in problems:
            self._counters.add((REFUSALS, topic, known_code(problem.code)))

    async def _health(self, _: bytes) -> Answer:
        return json_answer(HTTPStatus.OK, {"status": "alive"})

    async def _readiness(self, query: bytes) -> Answer:
        return readiness(
            query, self._checks.keys(), self._acceptance, tokens_known=self._gate.ready
        )

    async def _metrics(self, token: Token) -> Answer:
        self._gate.may(token, TokenScope.METRICS)
        lines = metric_lines(self._counters.totals())
        spools = await asyncio.to_thread(self._acceptance.spool_stats)
        return text_answer([*lines, *spool_lines(spools)])

    async def _description(self, token: Token) -> Answer:
        self._gate.may(token, TokenScope.DESCRIBE)
        topics = [topic for name, topic in self._config.topics.items() if token.is_for(name)]
        return json_answer(HTTPStatus.OK, openapi(topics, self._settings.max_events))


def _record_headers(token: Token) -> RecordHeaders:
    return [("account", token.account.encode()), ("project", token.project.encode())]


def _allow(method: str, *methods: str) -> None:
    if method not in methods:
        raise refused(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "method-not-allowed",
            f"the method is {method[:80]}, expected {' or '.join(methods)}",
            (b"allow", ", ".join(methods).encode()),
        )


def _no_topic(name: str, served: Mapping[str, Any]) -> str:
    return f"no topic {name[:80]!r} is served here, expected one of {', '.join(served)}"


def _none_accepted(problems: list[Problem], *, as_batch: bool) -> RefusedRequestError:
    if not as_batch:
        only = problems[0]
        return RefusedRequestError(Problem(only.status, only.code, only.detail))
    detail = f"none of the {len(problems)} events was accepted; see `refused`"
    whole = Problem(HTTPStatus.BAD_REQUEST, "no-event-accepted", detail)
    return RefusedRequestError(whole, refused=problems)


def _not_confirmed(error: NotTakenError | UnknownOutcomeError) -> RefusedRequestError:
    if isinstance(error, NotTakenError):
        what_now = "nothing of this request was taken"
    elif error.code == "batch-refused":
        what_now = "do not repeat the request as it is: sent one at a time, each has its own answer"
    else:
        what_now = "it is unknown whether the events are there: send them again, same ids"
    detail = f"{error}; {what_now}"
    return refused(HTTPStatus.SERVICE_UNAVAILABLE, error.code, detail, RETRY_AFTER)


def _failed() -> RefusedRequestError:
    detail = "the service failed; it is unknown whether the events are there: send them again"
    return refused(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", detail)
