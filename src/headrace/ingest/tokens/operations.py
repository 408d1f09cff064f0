"""The project's tokens: created, listed, rotated and revoked by operators."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from headrace.errors import TokenInvalidError, TokenNotTakenError, TokenUnknownError
from headrace.ingest.tokens import registry
from headrace.ingest.tokens.token import (
    ACTIVE,
    ALL_TOPICS,
    DEFAULT_SCOPES,
    MAX_NAME_BYTES,
    WEBHOOK_KINDS,
    Token,
    TokenKind,
    TokenScope,
    new_public_id,
)
from headrace.project.services import broker_config
from headrace.settings import IngestSettings, Rate, Secret, Settings

_ASK_SECONDS = 0.1
# Which worker answers is random: with this many answers for each, it is unlikely that one was never
# reached.
_ASKED_EACH = 8


@dataclass(frozen=True)
class TokenSpec:
    """What a new token may do, and for whom.

    Attributes:
        name: what its owner calls it.
        project: where its events belong; may be empty where it sends none.
        account: who answers for them, and the key of its events where the topic declares none; may
            be empty where it sends none.
        topics: those that its scopes are for; none means all, also those that are declared later.
        lifetime: until it ends by itself; ``None``: never.
        rate: its own limits, each instead of the service's.
        scopes: what it may do; none means ``write`` and ``describe``, of a public key ``write``.
        kind: what kind of credential it is.
    """

    name: str
    project: str = ""
    account: str = ""
    topics: Sequence[str] = ()
    lifetime: timedelta | None = None
    rate: Rate | None = None
    scopes: Sequence[str] = ()
    kind: TokenKind = TokenKind.PRIVATE


def create_token(settings: Settings, spec: TokenSpec) -> tuple[Token, str]:
    """Creates a token. Returns it with its text, which is stored nowhere.

    Raises:
        TokenInvalidError: if its name, project or account is empty or too long; or a public key is
            for all topics, has no limit of events, or another scope than ``write``; or a webhook is
            for another number of topics than one, or there is no key for it.
    """
    scopes = tuple(dict.fromkeys(spec.scopes)) or DEFAULT_SCOPES[spec.kind]
    for fact in ("name", "project", "account") if TokenScope.WRITE in scopes else ("name",):
        text = getattr(spec, fact)
        if not 0 < len(text.encode()) <= MAX_NAME_BYTES:
            raise TokenInvalidError(fact, text[:80], f"expected 1 to {MAX_NAME_BYTES} bytes")
    if spec.kind is TokenKind.PUBLIC:
        _require_bounded(spec)
    webhook_key = _webhook_key(settings, spec.kind)
    if webhook_key and (len(spec.topics) != 1 or ALL_TOPICS in spec.topics):
        reason = "a webhook sends to one topic: --topic"
        raise TokenInvalidError("topics", ", ".join(spec.topics) or "all", reason)
    now = datetime.now(UTC)
    token = Token(
        public_id=new_public_id(),
        name=spec.name,
        project=spec.project,
        account=spec.account,
        topics=tuple(spec.topics) or (ALL_TOPICS,),
        # Set by the registry, which makes the secret.
        secret_sha256="",
        created=now,
        expires=now + spec.lifetime if spec.lifetime else None,
        rate=spec.rate,
        scopes=scopes,
        kind=spec.kind,
    )
    return registry.create_token(broker_config(settings), token, webhook_key)


def namesakes(settings: Settings, name: str) -> list[str]:
    """Returns the public ids of the active tokens of this name."""
    now = datetime.now(UTC)
    tokens, _ = list_tokens(settings)
    return [
        token.public_id for token in tokens if token.name == name and token.state(now) == ACTIVE
    ]


def list_tokens(settings: Settings) -> tuple[list[Token], list[str]]:
    """Returns every token, oldest first; and the ids of those whose record can't be read."""
    table = registry.read_tokens(broker_config(settings))
    tokens = sorted(table.tokens().values(), key=lambda token: token.created)
    return tokens, sorted(table.unreadable)


def rotate_token(
    settings: Settings, public_id: str, overlap: timedelta | None = None
) -> tuple[Token, str]:
    """Gives a token another secret; the last one ends within seconds, or after ``overlap``.

    Raises:
        TokenUnknownError: if there is none, or it is revoked, or has expired.
        TokenInvalidError: if it is a webhook, and there is no key for its secret.
    """
    table, now = registry.read_tokens(broker_config(settings)), datetime.now(UTC)
    token = table.get(public_id)
    if token is None:
        raise _unknown(public_id, is_unreadable=public_id in table.unreadable)
    state = token.state(now)
    if state != ACTIVE:
        raise TokenUnknownError(public_id, f"it is {state}; create another one")
    key = _webhook_key(settings, token.kind)
    token = registry.with_former(token, now, overlap)
    return registry.create_token(broker_config(settings), token, key)


def revoke_token(settings: Settings, public_id: str) -> Token:
    """Ends a token for good; harmless when it has ended.

    Raises:
        TokenUnknownError: if there is none; or its record can't be read, and it is ended
            nevertheless.
    """
    config, now = broker_config(settings), datetime.now(UTC)
    table = registry.read_tokens(config)
    token = table.get(public_id)
    if token is not None and token.revoked is not None:
        return token
    # Also without a readable record: another version of headrace may take it for a valid token.
    if token is not None or public_id in table.unreadable:
        registry.revoke_token(config, public_id, now)
    if token is None:
        raise _unknown(public_id, is_unreadable=public_id in table.unreadable)
    return replace(token, revoked=now)


def wait_until_known(
    settings: Settings, token: Token, text: str, max_wait_seconds: float = 30.0
) -> None:
    """Returns when every worker of this host's service takes a new token, whose text is given.

    Raises:
        TokenNotTakenError: if some worker does not within ``max_wait_seconds``, or there is no
            service.
    """
    ingest = settings.ingest or IngestSettings()
    agreed, deadline, reason = 0, time.monotonic() + max_wait_seconds, "no answer"
    # A new connection goes to any of the workers.
    while agreed < _ASKED_EACH * ingest.workers:
        if time.monotonic() > deadline:
            raise TokenNotTakenError(f"{ingest.host}:{ingest.port}", reason)
        reason = _refusal(ingest, token, text, max_wait_seconds)
        agreed = 0 if reason else agreed + 1
        if reason:
            time.sleep(_ASK_SECONDS)


def _refusal(ingest: IngestSettings, token: Token, text: str, timeout_seconds: float) -> str:
    """Returns why a worker does not take the token; "" when it does."""
    # No such page exists, and the request is not signed: only a valid token gets that answer.
    method, path, expected = "GET", "/", "no-such-path"
    headers = {"authorization": f"Bearer {text}", "content-type": "application/json"}
    if token.is_webhook:
        method, path, expected = "POST", f"/v1/webhooks/{token.public_id}", "no-valid-signature"
    connection = http.client.HTTPConnection(ingest.host, ingest.port, timeout=timeout_seconds)
    try:
        connection.request(method, path, headers=headers)
        code = json.load(connection.getresponse()).get("code")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return str(error)
    finally:
        connection.close()
    return "" if code == expected else f"it answers {code}"


def _webhook_key(settings: Settings, kind: TokenKind) -> Secret | None:
    """Returns the key that a credential's secret is derived from; ``None`` where it is random."""
    if kind not in WEBHOOK_KINDS:
        return None
    key = settings.require_ingest().webhook_key
    if key is None:
        raise TokenInvalidError("kind", kind, "set ingest.webhook_key in headrace.toml")
    return key


def _require_bounded(spec: TokenSpec) -> None:
    """Checks a public key, which anyone may have: what it may do is named when it is created."""
    if not spec.topics or ALL_TOPICS in spec.topics:
        raise TokenInvalidError("topics", "all", "a public key is for named topics: --topic")
    if spec.rate is None or spec.rate.events_per_second is None:
        reason = "a public key has a limit of its own: --events-per-second"
        raise TokenInvalidError("events_per_second", "none", reason)
    other = sorted(set(spec.scopes) - {TokenScope.WRITE})
    if other:
        raise TokenInvalidError("scopes", ", ".join(other), "a public key may only write")


def _unknown(public_id: str, *, is_unreadable: bool) -> TokenUnknownError:
    reason = "its record can't be read" if is_unreadable else "there is no token with this id"
    return TokenUnknownError(public_id, reason)
