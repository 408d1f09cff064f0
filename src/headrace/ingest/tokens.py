"""Access tokens: who may write what. Their text is shown once and never kept."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

import msgspec

from headrace.settings import Rate

ALL_TOPICS = "*"
ACTIVE = "active"

_ID_BYTES = 9
_SECRET_BYTES = 24
_TEXT = re.compile(r"hr_(?P<public_id>[A-Za-z0-9-]{12})_(?P<secret>[A-Za-z0-9_-]{32})")


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token: enough to recognise it, not enough to use it.

    Attributes:
        public_id: its name in the registry, and the first part of its text.
        name: what its owner calls it.
        project: where its events belong; an account has many.
        account: who answers for them.
        topics: those it may write to; ``*`` for all.
        secret_sha256: of the secret part, in hexadecimal.
        created: when.
        expires: when it ends by itself.
        revoked: when it was ended.
        rate: its own limits, instead of the service's.
    """

    public_id: str
    name: str
    project: str
    account: str
    topics: tuple[str, ...]
    secret_sha256: str
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None
    rate: Rate | None = None

    def may_write(self, topic: str) -> bool:
        """It is good for this topic."""
        return ALL_TOPICS in self.topics or topic in self.topics

    def state(self, now: datetime) -> str:
        """``active``, ``revoked`` or ``expired``."""
        if self.revoked is not None:
            return Refusal.REVOKED
        if self.expires is not None and self.expires <= now:
            return Refusal.EXPIRED
        return ACTIVE

    def encoded(self) -> bytes:
        """Its value in the registry."""
        return msgspec.json.encode(self)

    @classmethod
    def decoded(cls, value: bytes) -> Token:
        """The other way round. Raises ValueError."""
        return msgspec.json.decode(value, type=cls)


class Refusal(StrEnum):
    """Why a token is no good. Clients are not told which."""

    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    REVOKED = "revoked"
    EXPIRED = "expired"


def issue(token: Token) -> tuple[Token, str]:
    """The token with a new secret, and its text: 192 random bits."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    return replace(token, secret_sha256=_sha256(secret)), f"hr_{token.public_id}_{secret}"


def new_public_id() -> str:
    """Twelve random characters."""
    return secrets.token_urlsafe(_ID_BYTES).replace("_", "-")


def authenticate(
    text: str, lookup: Callable[[str], Token | None], now: datetime
) -> Token | Refusal:
    """The token of this text, or why there is none.

    What a wrong secret shares with the right one does not show in the time this takes.
    """
    parts = _TEXT.fullmatch(text)
    if parts is None:
        return Refusal.MALFORMED
    token = lookup(parts["public_id"])
    given = _sha256(parts["secret"])
    if not hmac.compare_digest(given, token.secret_sha256 if token else "") or token is None:
        return Refusal.UNKNOWN
    state = token.state(now)
    return token if state == ACTIVE else Refusal(state)


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
