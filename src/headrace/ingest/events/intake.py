"""Takes the events of a request, from its body to its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

from headrace.errors import SpreadsUnknownError
from headrace.ingest.config import IngestConfig
from headrace.ingest.events.delivery import NotTakenError, RejectedByKafkaError, UnknownOutcomeError
from headrace.ingest.events.event_store import EventStore
from headrace.ingest.events.figures import EventFigures
from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.splitting import is_lines, split_events
from headrace.ingest.events.validation import Accepted, EventCheck, Verdicts
from headrace.ingest.events.webhooks import Webhooks
from headrace.ingest.figures.account_slots import AccountSlots
from headrace.ingest.figures.counters import Counters
from headrace.ingest.http.body import BodyLimits, BodyReader
from headrace.ingest.http.budget import MemoryBudget
from headrace.ingest.http.problem import RETRY_AFTER, ProblemDetails, RefusedRequestError, refused
from headrace.ingest.http.request import Answer, Request, json_answer, require_method
from headrace.ingest.http.request_guard import RequestGuard
from headrace.ingest.tokens.token import Token
from headrace.topics.spreads.following import FollowedSpreads

_SPOOLED = ((b"headrace-spooled", b"true"),)
_SPREADS_UNKNOWN = "spreads-unknown"
_THREADS = 2
_LARGE_BYTES = 262_144  # checked within a few milliseconds, in which no other request is answered

Result = TypeVar("Result")
RecordHeaders = list[tuple[str, bytes]]


class _Route(NamedTuple):
    """What the requests of one token for one topic share."""

    topic: str
    token: Token
    check: EventCheck
    headers: RecordHeaders
    figures: EventFigures


class EventIntake:
    """Takes the events of requests, by the limits of their token, into Kafka or the spool."""

    def __init__(
        self,
        config: IngestConfig,
        gate: RequestGuard,
        acceptance: EventStore,
        counters: Counters,
        accounts: AccountSlots,
        spreads: FollowedSpreads,
    ) -> None:
        settings = config.settings
        structure = JsonLimits(settings.max_depth, settings.max_keys, settings.max_string_bytes)
        self._settings = settings
        self._gate, self._acceptance = gate, acceptance
        self._counters, self._accounts = counters, accounts
        self._checks = {
            name: EventCheck(
                topic, structure, time.time, config.written_with.get(name), spreads.of(topic)
            )
            for name, topic in config.topics.items()
        }
        # Threads of its own: what waits for Kafka or a disk in the default pool delays no body.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="body")
        limits = BodyLimits(
            settings.max_body_bytes,
            settings.max_decoded_bytes,
            settings.max_ratio,
            settings.body_seconds,
        )
        self._bodies = BodyReader(limits, self._threads)
        self._budget = MemoryBudget(settings.max_memory_bytes)
        # As many as there are pairs of a token and a topic that it may write to.
        self._routes: dict[tuple[str, str], _Route] = {}
        self._webhooks = Webhooks(settings.webhook_key, config.topics)

    async def events(self, request: Request, topic: str, token: Token) -> Answer:
        """Answers a request that shows a token."""
        route = self._route(request, topic, token)
        require_method(request, "POST")
        self._gate.refuse_limited(token)
        content_type = request.header(b"content-type")
        with self._budget.share() as share:
            try:
                as_lines = is_lines(content_type)
                body = await self._bodies.read(
                    request.receive,
                    request.header(b"content-length"),
                    request.header(b"content-encoding"),
                    share,
                )
                began = time.monotonic()
                events, as_batch = split_events(body, self._settings.max_events, as_lines=as_lines)
            except RefusedRequestError as error:
                # One event and the sent bytes, for a request that is refused as a whole.
                if error.problem.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    await self._gate.admit(token, 1, share.sent_bytes)
                raise
            finally:
                request.received_bytes = share.sent_bytes
            del body  # the events of an array or of lines are copies, so the whole can be freed
            return await self._take(request, route, events, as_batch=as_batch, began=began)

    async def webhook(self, request: Request, public_id: str) -> Answer:
        """Answers a request that must be signed; one that is not costs its webhook nothing."""
        require_method(request, "POST")
        request.token = token = self._gate.webhook(public_id)
        route = self._route(request, token.topics[0], token)
        self._gate.refuse_limited(token)
        # For its error: a body of another type is refused before it is read.
        is_lines(request.header(b"content-type"))
        with self._budget.share() as share:
            body = await self._bodies.read(
                request.receive, request.header(b"content-length"), "", share
            )
            began, request.received_bytes = time.monotonic(), share.sent_bytes
            now = datetime.now(UTC)
            try:
                if len(body) <= _LARGE_BYTES:
                    self._webhooks.verify(request, token, body, now)
                else:
                    await self._in_thread(self._webhooks.verify, request, token, body, now)
            except RefusedRequestError:
                self._gate.require_current()  # a new secret may not be known yet
                raise
            event = self._webhooks.event(request, token, body)
            if event is None:
                return json_answer(HTTPStatus.OK, {"accepted": 0, "rejected": []})
            return await self._take(request, route, [event], as_batch=False, began=began)

    def _route(self, request: Request, topic: str, token: Token) -> _Route:
        route = self._routes.get((topic, token.public_id))
        # A token that was changed, such as by a rotation, is another object.
        if route is None or route.token is not token:
            route = self._routes[topic, token.public_id] = self._new_route(topic, token)
        request.topic = topic
        return route

    def _new_route(self, topic: str, token: Token) -> _Route:
        """Returns the route of a token that may write to the topic; others get none.

        Raises:
            RefusedRequestError: 403, or 404 for a topic that is not served.
        """
        self._gate.may_write(token, topic)
        check = self._checks.get(topic)
        if check is None:
            served = ", ".join(self._checks)
            detail = f"no topic {topic[:80]!r} is served here, expected one of {served}"
            raise refused(HTTPStatus.NOT_FOUND, "no-such-topic", detail)
        headers = [("account", token.account.encode()), ("project", token.project.encode())]
        figures = EventFigures(self._counters, topic, self._accounts.slot(token.account))
        return _Route(topic, token, check, headers, figures)

    async def _take(
        self, request: Request, route: _Route, events: list[bytes], *, as_batch: bool, began: float
    ) -> Answer:
        size = sum(map(len, events))
        try:
            await self._gate.admit(route.token, len(events), size)
        except RefusedRequestError:
            route.figures.outcome("limited", len(events))
            raise
        arguments = events, route.token.account, route.headers
        try:
            if size <= _LARGE_BYTES:
                verdicts = route.check.batch(*arguments)
            else:
                verdicts = await self._in_thread(route.check.batch, *arguments)
        except SpreadsUnknownError as error:
            route.figures.unavailable("not-taken", _SPREADS_UNKNOWN, len(events))
            detail = f"{error.reason}; nothing of this request was taken"
            unavailable = HTTPStatus.SERVICE_UNAVAILABLE
            raise refused(unavailable, _SPREADS_UNKNOWN, detail, RETRY_AFTER) from error
        if verdicts.rejected:
            route.figures.rejected(verdicts.rejected)
        (accepted, problems), spooled = await self._deliver(route, verdicts)
        request.accepted, request.rejected = len(accepted), len(problems)
        if not accepted:
            raise _none_accepted(problems, as_batch=as_batch)
        route.figures.latency(time.monotonic() - began)
        document = {
            "accepted": len(accepted),
            "rejected": [problem.document() for problem in problems],
        }
        return json_answer(HTTPStatus.ACCEPTED, document, *(_SPOOLED if spooled else ()))

    async def _in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Calls a function on a thread: its work grows with the bytes of the request.

        The interpreter switches between threads, so other requests are answered meanwhile.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    async def _deliver(self, route: _Route, verdicts: Verdicts) -> tuple[Verdicts, bool]:
        """Returns what was taken, with what Kafka will never take among the rejected.

        The second value says whether the spool has some of it.
        """
        if not verdicts.accepted:
            return verdicts, False
        spooled = False
        try:
            spooled = await self._accept(route, verdicts.accepted)
        except RejectedByKafkaError as error:
            late = verdicts.late_problems(error.reasons)
            route.figures.rejected(late)
            verdicts = verdicts.without(error.reasons, late)
        route.figures.accepted("spooled" if spooled else "accepted", verdicts.accepted)
        return verdicts, spooled

    async def _accept(self, route: _Route, events: list[Accepted]) -> bool:
        seconds = self._settings.deadline_seconds
        try:
            return await self._acceptance.accept(route.topic, events, route.headers, seconds)
        except (NotTakenError, UnknownOutcomeError) as error:
            outcome = "not-taken" if isinstance(error, NotTakenError) else "unknown"
            route.figures.unavailable(outcome, error.code, len(events))
            raise _not_confirmed(error) from error


def _none_accepted(problems: list[ProblemDetails], *, as_batch: bool) -> RefusedRequestError:
    # The problem of an event that was sent alone is the answer to its request.
    if not as_batch:
        only = problems[0]
        return RefusedRequestError(ProblemDetails(only.status, only.code, only.detail))
    detail = f"none of the {len(problems)} events was accepted; see `rejected`"
    whole = ProblemDetails(HTTPStatus.BAD_REQUEST, "no-event-accepted", detail)
    return RefusedRequestError(whole, rejected=problems)


def _not_confirmed(error: NotTakenError | UnknownOutcomeError) -> RefusedRequestError:
    if isinstance(error, NotTakenError):
        what_now = "nothing of this request was taken"
    elif error.code == "batch-rejected":
        what_now = "do not repeat the request as it is: sent one at a time, each has its own answer"
    else:
        what_now = "it is unknown whether the events are there: send them again, with the same ids"
    detail = f"{error}; {what_now}"
    return refused(HTTPStatus.SERVICE_UNAVAILABLE, error.code, detail, RETRY_AFTER)
