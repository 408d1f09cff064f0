"""The registry of tokens: a compacted topic, so that there is no database to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from headrace.ingest.tokens.table import TokenTable, revocation
from headrace.ingest.tokens.token import Token, issue, webhook_secret
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.changelog import ensure_changelog, write_changelog
from headrace.kafka.table.topic_table import TableFollower, read_table
from headrace.settings import Secret

TOKENS_TOPIC = "_headrace.tokens"


class TokenRegistry:
    """Every token, in one worker's memory, seconds behind the topic at most."""

    def __init__(self, config: ClientConfig) -> None:
        self._table = TokenTable()
        self._changes = 0
        self._follower = TableFollower(config, TOKENS_TOPIC, self._take)

    @property
    def ready(self) -> bool:
        """Whether the whole topic was read; before, every token looks unknown."""
        return self._follower.ready

    def get(self, public_id: str) -> Token | None:
        """Returns a token by its public id, also one that is revoked or has expired."""
        return self._table.get(public_id)

    @property
    def changes(self) -> int:
        """The number of records that were read of the topic."""
        return self._changes

    def tokens(self) -> Mapping[str, Token]:
        """Returns all tokens by their public ids, also those revoked or expired."""
        return self._table.tokens()

    def close(self) -> None:
        """Stops following the topic."""
        self._follower.close()

    def _take(self, key: bytes, value: bytes | None) -> None:
        self._table.take(key, value)
        self._changes += 1


def ensure_registry(config: ClientConfig) -> None:
    """Creates the topic unless it exists.

    Raises:
        BrokerUnreachableError: if no broker responds.
    """
    ensure_changelog(config, TOKENS_TOPIC)


def read_tokens(config: ClientConfig) -> TokenTable:
    """Returns every token, and the ids of records that can't be read.

    Raises:
        BrokerUnreachableError: if no broker responds.
    """
    table = TokenTable()
    for key, value in read_table(config, TOKENS_TOPIC).items():
        table.take(key, value)
    return table


def create_token(
    config: ClientConfig, token: Token, webhook_key: Secret | None = None
) -> tuple[Token, str]:
    """Writes a token with a new secret. Returns it with the secret's text, which is stored nowhere.

    Args:
        config: of the cluster.
        token: without its secret.
        webhook_key: what the secret of a webhook is derived from.
    """
    ensure_registry(config)
    if webhook_key is None:
        token, text = issue(token)
    else:
        # A derived secret changes only with what it is derived from: here, its number.
        token = replace(token, generation=token.generation + 1)
        text = webhook_secret(webhook_key, token.public_id, token.generation)
    write_changelog(config, TOKENS_TOPIC, {token.public_id.encode(): token.encoded()})
    return token, text


def with_former(token: Token, now: datetime, overlap: timedelta | None) -> Token:
    """Returns the token for its rotation: its present secret is good for ``overlap`` more."""
    if overlap is None:
        return replace(token, former_sha256="", former_until=None)
    return replace(token, former_sha256=token.secret_sha256, former_until=now + overlap)


def revoke_token(config: ClientConfig, public_id: str, now: datetime) -> None:
    """Ends a token for good; every worker that reaches Kafka knows within seconds."""
    write_changelog(config, TOKENS_TOPIC, dict([revocation(public_id, now)]))
