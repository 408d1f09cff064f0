"""The registry of tokens: a compacted topic, so that there is no database to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from headrace.ingest.token_table import TokenTable, revocation
from headrace.ingest.tokens import Token, issue
from headrace.kafka.changelog import (
    ChangelogFollower,
    ensure_changelog,
    read_changelog,
    write_changelog,
)
from headrace.kafka.client import ClientConfig

TOKENS_TOPIC = "_headrace.tokens"


class TokenRegistry:
    """Every token, in one worker's memory, seconds behind the topic at most."""

    def __init__(self, config: ClientConfig) -> None:
        self._table = TokenTable()
        self._changes = 0
        self._follower = ChangelogFollower(config, TOKENS_TOPIC, self._take)

    @property
    def ready(self) -> bool:
        """The whole topic was read; before, any token looks unknown."""
        return self._follower.ready

    def get(self, public_id: str) -> Token | None:
        """A token, revoked and expired ones too."""
        return self._table.get(public_id)

    @property
    def changes(self) -> int:
        """How many records of the topic were taken."""
        return self._changes

    def tokens(self) -> Mapping[str, Token]:
        """Every token by its public id, revoked and expired ones too."""
        return self._table.tokens()

    def close(self) -> None:
        """Stop following."""
        self._follower.close()

    def _take(self, key: bytes, value: bytes | None) -> None:
        self._table.take(key, value)
        self._changes += 1


def ensure_registry(config: ClientConfig) -> None:
    """Make the topic unless it exists. Raises BrokerUnreachableError."""
    ensure_changelog(config, TOKENS_TOPIC)


def read_tokens(config: ClientConfig) -> TokenTable:
    """Every token, and the ids of records that can't be read. Raises BrokerUnreachableError."""
    table = TokenTable()
    for key, value in read_changelog(config, TOKENS_TOPIC).items():
        table.take(key, value)
    return table


def create_token(config: ClientConfig, wanted: Token) -> tuple[Token, str]:
    """Write a token with a secret of its own; the text is nowhere but in the answer."""
    ensure_registry(config)
    token, text = issue(wanted)
    write_changelog(config, TOKENS_TOPIC, {token.public_id.encode(): token.encoded()})
    return token, text


def rotate_token(
    config: ClientConfig, token: Token, now: datetime, overlap: timedelta | None
) -> tuple[Token, str]:
    """Give it another secret; the last one is good for ``overlap`` more."""
    former = (token.secret_sha256, now + overlap) if overlap else ("", None)
    return create_token(config, replace(token, former_sha256=former[0], former_until=former[1]))


def revoke_token(config: ClientConfig, public_id: str, now: datetime) -> None:
    """End it for good. Every worker that reaches Kafka knows within seconds."""
    write_changelog(config, TOKENS_TOPIC, dict([revocation(public_id, now)]))
