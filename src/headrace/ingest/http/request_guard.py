"""Tokens and rate limits: who may send what, and how much of it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Protocol

from headrace.ingest.http.problem import RETRY_AFTER, RefusedRequestError, refused
from headrace.ingest.http.request import Request
from headrace.ingest.limits import BucketRequest, Limiter
from headrace.ingest.tokens.token import (
    ACTIVE,
    Refusal,
    Token,
    TokenKind,
    TokenScope,
    authenticate,
)
from headrace.settings import IngestSettings, Rate

_SCHEME = b"bearer "
_KEY = re.compile(rb"(?:^|&)key=(?P<text>[^&]*)")
# Of a service or account without limits; compared, so that no bucket is consulted.
_NO_RATE = Rate()
_MAX_RETRY_SECONDS = 86_400  # a limit may be so small that it refills in no finite time
_CHALLENGE = (b"www-authenticate", b'Bearer realm="headrace"')


class Tokens(Protocol):
    """The tokens that a service knows, by their public ids."""

    @property
    def ready(self) -> bool:
        """Whether the tokens have been read."""
        ...

    @property
    def are_current(self) -> bool:
        """Whether they are those of Kafka, not those that this host knew last."""
        ...

    def get(self, public_id: str) -> Token | None:
        """Returns a token by its public id, also one that is revoked or has expired."""
        ...


class RequestGuard:
    """Checks tokens and rate limits before a body is read or an event is checked.

    Every refusal is a problem with its HTTP status.
    """

    def __init__(
        self,
        tokens: Tokens,
        limiter: Limiter,
        settings: IngestSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens, self._limiter, self._clock = tokens, limiter, clock
        self._limited_until: dict[str, float] = {}
        self._token_rate, self._account_rate = settings.token_rate, settings.account_rate
        self._burst = settings.burst_seconds
        self._is_unlimited = self._token_rate == self._account_rate == _NO_RATE

    @property
    def ready(self) -> bool:
        """Whether the tokens have been read."""
        return self._tokens.ready

    def token(self, request: Request) -> Token:
        """Returns the token of the Authorization header, or without one the key of the address.

        Raises:
            RefusedRequestError: 401, the same for every reason; 503 while tokens are being read,
                and for one that is not in the file of those that this host knew last.
        """
        self._require_ready()
        authorization = request.headers.get(b"authorization")
        if authorization is None:
            return self._token_in_address(request.query)
        if authorization[: len(_SCHEME)].lower() == _SCHEME:
            text = authorization[len(_SCHEME) :].strip().decode("latin-1")
            token = self._authenticated(text)
            if token is not None:
                return token
        raise _no_token("send a valid access token: `Authorization: Bearer hr_...`")

    def _token_in_address(self, query: bytes) -> Token:
        key = _KEY.search(query)
        if key is None:
            raise _no_token("send a valid access token: `Authorization: Bearer hr_...`")
        token = self._authenticated(key["text"].decode("latin-1"), TokenKind.PUBLIC)
        if token is not None:
            return token
        raise _no_token(
            "`key` is no valid public key; a secret token does not belong in an address, which "
            "logs keep: if you sent one, rotate it"
        )

    def _authenticated(self, text: str, only: TokenKind | None = None) -> Token | None:
        token = authenticate(text, self._tokens.get, datetime.now(UTC), only)
        if isinstance(token, Token):
            return token
        # Kafka may know a newer record of it than this host: then the answer is 503, not 401.
        if token in (Refusal.UNKNOWN, Refusal.EXPIRED):
            self.require_current()
        return None

    def webhook(self, public_id: str) -> Token:
        """Returns the credential of a webhook, before it is known whether the request is signed.

        Raises:
            RefusedRequestError: 401 where there is none; 503 while tokens are being read.
        """
        self._require_ready()
        token = self._tokens.get(public_id)
        if token and token.is_webhook and token.state(datetime.now(UTC)) == ACTIVE:
            return token
        if token is None:
            self.require_current()
        raise _no_token("no webhook has this address")

    def _require_ready(self) -> None:
        if not self.ready:
            detail = "the access tokens have not been read yet"
            raise refused(HTTPStatus.SERVICE_UNAVAILABLE, "not-ready", detail, RETRY_AFTER)

    def require_current(self) -> None:
        """Refuses until the tokens are read from Kafka: clients take a 401 for good.

        Raises:
            RefusedRequestError: 503.
        """
        if not self._tokens.are_current:
            detail = "this token is not known yet: the tokens are still being read from Kafka"
            raise refused(HTTPStatus.SERVICE_UNAVAILABLE, "not-ready", detail, RETRY_AFTER)

    def is_allowed(self, request: Request, scope: TokenScope, topic: str) -> bool:
        """Returns whether a request that was accepted would be accepted now, too.

        Its secret may have been rotated since, its token revoked or changed.
        """
        try:
            token = self.token(request)
            self.may(token, scope)
        except RefusedRequestError:
            return False
        return token.is_for(topic)

    def may(self, token: Token, scope: TokenScope) -> None:
        """Returns if the token has the scope.

        Raises:
            RefusedRequestError: 403.
        """
        if not token.may(scope):
            detail = f"this token has not the scope {scope.value!r}"
            raise refused(HTTPStatus.FORBIDDEN, "not-allowed", detail)

    def may_write(self, token: Token, topic: str) -> None:
        """Returns if the token may send events to the topic.

        Raises:
            RefusedRequestError: 403.
        """
        if not token.may_write(topic):
            detail = f"this token may not write to {topic[:80]!r}"
            raise refused(HTTPStatus.FORBIDDEN, "not-allowed", detail)

    def refuse_limited(self, token: Token) -> None:
        """Returns unless this worker knows that the token is over a limit.

        So a body that is beyond a limit is neither read nor decoded, nor split to be counted.

        Raises:
            RefusedRequestError: 429.
        """
        until = self._limited_until.get(token.public_id)
        if until is None:
            return
        wait = until - self._clock()
        if wait > 0:
            raise _limited(wait)
        # Removed once it has passed, so that the dictionary does not grow with every token.
        del self._limited_until[token.public_id]

    async def admit(self, token: Token, events: int, size: int) -> None:
        """Takes events and bytes from the limits of the token and of its account.

        Raises:
            RefusedRequestError: 429.
        """
        if self._is_unlimited and token.rate is None:  # of most services, every request
            return
        rate = _merged(token.rate, self._token_rate)
        charges = [
            *self._charges(f"token/{token.public_id}", rate, events, size),
            *self._charges(f"account/{token.account}", self._account_rate, events, size),
        ]
        if not charges:
            return
        wait = await self._limiter.acquire(charges)
        if wait > 0:
            # So that its next requests are refused before their bodies are read.
            self._limited_until[token.public_id] = self._clock() + wait
            raise _limited(wait)

    def _charges(self, owner: str, rate: Rate, events: int, size: int) -> Sequence[BucketRequest]:
        if rate == _NO_RATE:
            return ()
        limits = (
            ("events", events, rate.events_per_second),
            ("bytes", size, rate.bytes_per_second),
        )
        return [
            BucketRequest(f"{owner}/{unit}", amount, per_second, self._burst)
            for unit, amount, per_second in limits
            if per_second is not None
        ]


def _no_token(detail: str) -> RefusedRequestError:
    return refused(HTTPStatus.UNAUTHORIZED, "no-valid-token", detail, _CHALLENGE)


def _merged(own: Rate | None, service: Rate) -> Rate:
    """Returns a token's own limits, and the service's where it has none."""
    if own is None:
        return service
    events, size = own.events_per_second, own.bytes_per_second
    return Rate(
        service.events_per_second if events is None else events,
        service.bytes_per_second if size is None else size,
    )


def _limited(wait: float) -> RefusedRequestError:
    seconds = math.ceil(min(wait, _MAX_RETRY_SECONDS))
    return refused(
        HTTPStatus.TOO_MANY_REQUESTS,
        "rate-limited",
        f"over the limit of the token or its account; try again in {seconds} s",
        (b"retry-after", str(seconds).encode()),
    )
