"""The registry's records as tokens."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from headrace.events.times import in_utc
from headrace.ingest.tokens.token import Token

_REVOKED = "revoked/"
_LOG = logging.getLogger("headrace.ingest")
_read_time = msgspec.json.Decoder(datetime).decode


def revocation(public_id: str, when: datetime) -> tuple[bytes, bytes]:
    """The record that ends a token.

    It has a key of its own, which compaction keeps and no other record of the token replaces: a
    rotation that read the token before it was revoked can't bring it back.
    """
    return (_REVOKED + public_id).encode(), msgspec.json.encode(when)


class TokenTable:
    """Tokens by their public id, from records in any order. What was revoked once stays so.

    Attributes:
        unreadable: ids whose record is of another version of headrace, or of another program. They
            are no tokens: the record might have been written to end one.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}
        self._revoked: dict[str, datetime] = {}
        self.unreadable: set[str] = set()

    def get(self, public_id: str) -> Token | None:
        """Returns a token by its public id, also one that is revoked or has expired."""
        return self._tokens.get(public_id)

    def tokens(self) -> Mapping[str, Token]:
        """Returns all tokens by their public ids, also those revoked or expired."""
        return dict(self._tokens)

    def take(self, key: bytes, value: bytes | None) -> None:
        """Takes one record of the registry."""
        text = key.decode(errors="replace")
        if text.startswith(_REVOKED):
            public_id = text.removeprefix(_REVOKED)
            when = self._revoked.setdefault(public_id, _time(value))
            token = self._tokens.get(public_id)
            if token is not None and token.revoked is None:
                self._tokens[public_id] = replace(token, revoked=when)
        elif value is None:
            self._drop(text)
        else:
            self._put(text, value)

    def _drop(self, public_id: str) -> None:
        self._tokens.pop(public_id, None)
        self.unreadable.discard(public_id)

    def _put(self, public_id: str, value: bytes) -> None:
        self._drop(public_id)
        try:
            token = _token(public_id, value)
        except ValueError as error:
            self.unreadable.add(public_id)
            _LOG.warning("Cannot read the record of token %r: %s", public_id, error)
            return
        when = self._revoked.get(public_id)
        is_active = when is None or token.revoked is not None
        self._tokens[public_id] = token if is_active else replace(token, revoked=when)


def _token(public_id: str, value: bytes) -> Token:
    """Returns the token of a record; raises ValueError if it is none, or that of another id."""
    token = Token.decoded(value)
    if token.public_id != public_id:
        raise ValueError(f"public_id is {token.public_id!r:.100}")
    return token


def _time(value: bytes | None) -> datetime:
    """Returns when a token was revoked; a record that can't be read is a revocation, too."""
    try:
        return in_utc(_read_time(value or b""))
    except (ValueError, RecursionError):
        return datetime.fromtimestamp(0, UTC)
