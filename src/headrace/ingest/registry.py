"""The registry of tokens: a compacted topic, so that there is no database to run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from headrace.ingest.tokens import Token, issue
from headrace.kafka.changelog import (
    ChangelogFollower,
    ensure_changelog,
    read_changelog,
    write_changelog,
)
from headrace.kafka.client import ClientConfig

TOKENS_TOPIC = "_headrace.tokens"

_LOG = logging.getLogger("headrace.ingest")


class TokenRegistry:
    """Every token, in one worker's memory, seconds behind the topic at most."""

    def __init__(self, config: ClientConfig) -> None:
        self._tokens: dict[str, Token] = {}
        self._changes = 0
        self._follower = ChangelogFollower(config, TOKENS_TOPIC, self._take)

    @property
    def ready(self) -> bool:
        """The whole topic was read; before, any token looks unknown."""
        return self._follower.ready

    def get(self, public_id: str) -> Token | None:
        """A token, revoked and expired ones too."""
        return self._tokens.get(public_id)

    @property
    def changes(self) -> int:
        """How many records of the topic were taken."""
        return self._changes

    def tokens(self) -> dict[str, Token]:
        """Every token by its public id, revoked and expired ones too."""
        return dict(self._tokens)

    def close(self) -> None:
        """Stop following."""
        self._follower.close()

    def _take(self, key: bytes, value: bytes | None) -> None:
        public_id = key.decode(errors="replace")
        self._changes += 1
        if value is None:
            self._tokens.pop(public_id, None)
            return
        try:
            self._tokens[public_id] = Token.decoded(value)
        except ValueError as error:
            # What can't be read must not stay valid: it may be a revocation.
            self._tokens.pop(public_id, None)
            _LOG.warning("token %r in %s can't be read: %s", public_id, TOKENS_TOPIC, error)


def ensure_registry(config: ClientConfig) -> None:
    """Make the topic unless it exists. Raises BrokerUnreachableError."""
    ensure_changelog(config, TOKENS_TOPIC)


def list_tokens(config: ClientConfig) -> list[Token]:
    """Every token, oldest first. Raises BrokerUnreachableError."""
    values = read_changelog(config, TOKENS_TOPIC).values()
    return sorted((Token.decoded(value) for value in values), key=lambda one: one.created)


def create_token(config: ClientConfig, wanted: Token) -> tuple[Token, str]:
    """Write a token with a secret of its own; the text is nowhere but in the answer."""
    ensure_registry(config)
    token, text = issue(wanted)
    _write(config, [token])
    return token, text


def rotate_token(config: ClientConfig, token: Token) -> tuple[Token, str]:
    """Give it another secret; the last one ends at once."""
    return create_token(config, token)


def revoke_token(config: ClientConfig, token: Token, now: datetime) -> Token:
    """End it. Every worker knows within seconds."""
    revoked = replace(token, revoked=token.revoked or now)
    _write(config, [revoked])
    return revoked


def _write(config: ClientConfig, tokens: Sequence[Token]) -> None:
    changes: dict[bytes, bytes | None] = {
        token.public_id.encode(): token.encoded() for token in tokens
    }
    write_changelog(config, TOKENS_TOPIC, changes)
