"""Access tokens: who may write what. Their text is shown once and never stored."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec

from headrace.events.times import with_times_in_utc
from headrace.settings import Rate, Secret

ALL_TOPICS = "*"
ACTIVE = "active"
MAX_NAME_BYTES = 256
"""Of a token's name, its project and its account: they are keys and headers of records."""

# Nine bytes are twelve characters of base64, 24 are 32: both without padding.
_ID_BYTES = 9
_SECRET_BYTES = 24
_TEXT = re.compile(
    r"(?P<prefix>hr|hrpub)_(?P<public_id>[A-Za-z0-9-]{12})_(?P<secret>[A-Za-z0-9_-]{32})"
)


_Sha256: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")]


class TokenKind(StrEnum):
    """What kind of credential it is.

    ======= ==========================================================================
    private its text is a secret, which programs send in the Authorization header
    public  its text may stand in a web page: it may send events to named topics, within
            a limit of its own, and is also taken in the address
    github  a webhook of GitHub: requests are signed with its secret and carry no token
    ======= ==========================================================================
    """

    PRIVATE = "private"
    PUBLIC = "public"
    GITHUB = "github"


WEBHOOK_KINDS = frozenset({TokenKind.GITHUB})
"""Credentials whose requests are signed; their secrets are derived, those of others are random."""

_PREFIXES = {TokenKind.PRIVATE: "hr", TokenKind.PUBLIC: "hrpub"}
_KINDS = {prefix: kind for kind, prefix in _PREFIXES.items()}


class TokenScope(StrEnum):
    """What a token may do.

    ============= ====================================================================
    write         send events to its topics
    metrics       read ``/metrics``: figures of all topics
    describe      read ``/openapi.json``, as far as its topics go
    read-queries  read standing queries of its topics, and their results
    write-queries register, update and cancel standing queries of its topics
    ============= ====================================================================
    """

    WRITE = "write"
    METRICS = "metrics"
    DESCRIBE = "describe"
    READ_QUERIES = "read-queries"
    WRITE_QUERIES = "write-queries"


DEFAULT_SCOPES = {
    TokenKind.PRIVATE: (TokenScope.WRITE, TokenScope.DESCRIBE),
    TokenKind.PUBLIC: (TokenScope.WRITE,),
    TokenKind.GITHUB: (TokenScope.WRITE,),
}


@dataclass(frozen=True, slots=True)
class Token:
    """What the registry holds of a token: enough to recognise it, not enough to use it.

    Attributes:
        public_id: its name in the registry, and the first part of its text.
        name: what its owner calls it.
        project: where its events belong; an account has many.
        account: who answers for them.
        topics: those that its scopes are for; ``*`` for all, also those that are declared later.
        secret_sha256: of the secret part, in hexadecimal; empty for a webhook.
        created: when.
        expires: when it ends by itself.
        revoked: when it was ended.
        rate: its own limits, each instead of the service's.
        scopes: what it may do, of :class:`TokenScope`.
        former_sha256: of the secret before the last rotation; empty when that ended at once.
        former_until: when that secret ends.
        kind: what kind of credential it is.
        generation: number of a webhook's secret, which is not kept here; 1 for the first. The one
            before it is good until ``former_until``.
    """

    public_id: str
    name: str
    project: str
    account: str
    topics: tuple[str, ...]
    secret_sha256: _Sha256
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None
    rate: Rate | None = None
    scopes: tuple[str, ...] = DEFAULT_SCOPES[TokenKind.PRIVATE]
    former_sha256: _Sha256 = ""
    former_until: datetime | None = None
    kind: TokenKind = TokenKind.PRIVATE
    generation: int = 0

    def may(self, scope: TokenScope) -> bool:
        """Returns whether it has the scope."""
        return scope in self.scopes

    def is_for(self, topic: str) -> bool:
        """Returns whether the topic is one of its own."""
        return ALL_TOPICS in self.topics or topic in self.topics

    def may_write(self, topic: str) -> bool:
        """Returns whether it may send events to the topic."""
        return self.may(TokenScope.WRITE) and self.is_for(topic)

    @property
    def is_webhook(self) -> bool:
        """Whether requests are signed with its secret, and none carries it."""
        return self.kind in WEBHOOK_KINDS

    def state(self, now: datetime) -> str:
        """Returns ``active``, ``revoked`` or ``expired``."""
        if self.revoked is not None:
            return Refusal.REVOKED
        if self.expires is not None and self.expires <= now:
            return Refusal.EXPIRED
        return ACTIVE

    def encoded(self) -> bytes:
        """Returns its value in the registry."""
        return msgspec.json.encode(self)

    @classmethod
    def decoded(cls, value: bytes) -> Token:
        """Returns the token of a value in the registry, with times in UTC.

        Raises:
            ValueError: if it is none: also if a time has no zone or is beyond the years 1 to 9999,
                a limit is not above zero, or a webhook has another number of topics than one.
        """
        try:
            token = with_times_in_utc(_TOKEN.decode(value))
        except RecursionError as error:
            raise ValueError("JSON is nested too deep") from error
        if token.is_webhook and (len(token.topics) != 1 or ALL_TOPICS in token.topics):
            raise ValueError(f"a webhook sends to one topic, and topics are {token.topics!r:.100}")
        limits = () if token.rate is None else astuple(token.rate)
        if not all(limit is None or limit > 0 for limit in limits):
            raise ValueError(f"rate is {token.rate}: a limit is above zero")
        return token


# Made at import: msgspec crashes where several threads are the first to decode a class.
_TOKEN = msgspec.json.Decoder(Token)


class Refusal(StrEnum):
    """Why a token is refused. Answers to clients do not say which reason it is."""

    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    REVOKED = "revoked"
    EXPIRED = "expired"


def issue(token: Token) -> tuple[Token, str]:
    """Returns the token with a new secret, and its text: 192 random bits."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    text = f"{_PREFIXES[token.kind]}_{token.public_id}_{secret}"
    return replace(token, secret_sha256=_sha256(secret)), text


def webhook_secret(key: Secret, public_id: str, generation: int) -> str:
    """Returns the secret of a webhook: 256 bits, which can't be computed without the key."""
    message = f"headrace webhook {public_id} {generation}".encode()
    digest = hmac.digest(key.reveal().encode(), message, "sha256")
    return "hrwh_" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def new_public_id() -> str:
    """Returns twelve random characters; the first is no dash, as commands take it as argument."""
    while (public_id := secrets.token_urlsafe(_ID_BYTES).replace("_", "-")).startswith("-"):
        pass
    return public_id


def authenticate(
    text: str,
    lookup: Callable[[str], Token | None],
    now: datetime,
    only: TokenKind | None = None,
) -> Token | Refusal:
    """Returns the token of this text, or why there is none; of one kind only where it is given.

    What a wrong secret shares with the right one does not show in the time this takes.
    """
    parts = _TEXT.fullmatch(text)
    if parts is None:
        return Refusal.MALFORMED
    kind = _KINDS[parts["prefix"]]
    if only not in (None, kind):
        return Refusal.MALFORMED
    token = lookup(parts["public_id"])
    digest = _sha256(parts["secret"])
    # Both are compared whatever the first says, also for an unknown id: the time reveals nothing.
    is_current = hmac.compare_digest(digest, token.secret_sha256 if token else "")
    is_former = hmac.compare_digest(digest, token.former_sha256 if token else "")
    if token is None or token.kind is not kind:
        return Refusal.UNKNOWN
    if not is_current:
        until = token.former_until
        if not is_former or until is None or now >= until:
            return Refusal.UNKNOWN
    state = token.state(now)
    return token if state == ACTIVE else Refusal(state)


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
