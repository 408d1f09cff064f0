"""The project's HTTP service, and the tokens that may use it."""

from __future__ import annotations

import contextlib
import functools
import http.client
import importlib.util
import json
import logging
import pkgutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from headrace.errors import (
    BrokerUnreachableError,
    Problem,
    ProjectError,
    TokenInvalidError,
    TokenNotTakenError,
    TokenUnknownError,
)
from headrace.ingest.config import IngestConfig
from headrace.ingest.queries.backend import QueryLoader
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
from headrace.project.loaded import LoadedProject
from headrace.project.services import INGEST_FOLDER, broker_config, ingest_address
from headrace.runtime.extras import require_extra
from headrace.runtime.servers.ports import require_free
from headrace.service.reservation import allow_connections, only_service
from headrace.settings import PROJECT_FILE, IngestSettings, Rate, Secret, Settings
from headrace.topics.schemas import written_with

_ASK_SECONDS = 0.1
# Which worker answers is chance: with this many answers for each of them, it is unlikely that one
# was never asked.
_ASKED_EACH = 8

_LOG = logging.getLogger("headrace.ingest")


@dataclass(frozen=True)
class TokenSpec:
    """What a new token is to be.

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


@dataclass(frozen=True)
class Overrides:
    """Settings that replace those of the project file, where they are not ``None``."""

    workers: int | None = None
    host: str | None = None
    port: int | None = None


def ingest_config(project: LoadedProject, overrides: Overrides | None = None) -> IngestConfig:
    """What the service is told.

    Raises:
        ProjectError: if no topic has an event class, Redis is wanted without its client, or an
            environment variable of ``[ingest]`` is not set.
        ExtraMissingError: if standing queries are declared, and their extra is not installed.
        BrokerUnreachableError: if the embedded broker is down, and no topic has a spool.
        RegistryUnreachableError: if the schema registry of a topic does not answer.
        SchemaRejectedError: if it rejects the schema of an event class.
    """
    overridden = {name: value for name, value in vars(overrides or Overrides()).items() if value}
    settings = replace(project.settings.require_ingest(), **overridden)
    where = str(project.settings.root / PROJECT_FILE)
    if settings.redis is not None and importlib.util.find_spec("redis") is None:
        message = f"ingest.redis is {str(settings.redis)!r}, and the client for it is not installed"
        raise ProjectError([Problem(where, 1, message, "pip install 'headrace[redis]'")])
    topics = {
        name: topic
        for name, topic in project.topics.items()
        if topic.event is not None and topic.envelope is None and not topic.is_keyed_elsewhere
    }
    if not topics:
        remedy = "served are topics with an event class, without envelopes, with a key if compacted"
        raise ProjectError([Problem(where, 1, "there is no topic to serve", remedy)])
    spooled = any(topic.spool for topic in topics.values())
    # With a spool the service starts without Kafka, and clients connect once it is there.
    client = broker_config(project.settings, may_be_down=spooled)
    state = project.settings.state / INGEST_FOLDER
    return IngestConfig(
        settings,
        topics,
        client,
        state,
        project.settings.name,
        project.settings.log,
        written_with=written_with(topics.values(), project.settings),
        queries=_query_loader(project),
    )


def _query_loader(project: LoadedProject) -> QueryLoader | None:
    if not any(kind.label == "standing queries" for kind, _ in project.by_kind):
        return None
    require_extra("queries")
    # By name: queries lie above ingest. Declarations need not be picklable, so each worker loads
    # the project.
    load_project_queries = pkgutil.resolve_name("headrace.queries.serve:load_project_queries")
    return functools.partial(load_project_queries, project.settings)


@contextlib.contextmanager
def reserved(config: IngestConfig) -> Iterator[None]:
    """Holds what a service needs for itself on this host, once nothing stands in its way.

    Raises:
        ServiceRunningError: if another service of the project is running here.
        ServerStartError: if the port is taken, or the system allows too few open files.
        BrokerUnreachableError: if Kafka does not answer, and no topic has a spool.
    """
    # In this order: a second service is refused as that, not for a port that is in use.
    with only_service(config.state, ingest_address(config.settings)):
        require_free("ingest", [config.settings.port], config.settings.host)
        allow_connections(config.settings)
        _ensure_registry(config)
        yield


def serve(config: IngestConfig) -> None:
    """Serves until SIGTERM or SIGINT. Call it while it is :func:`reserved`.

    Raises:
        IngestFailedError: if workers can't start.
    """
    from headrace.ingest.server import serve as run

    run(config)


def _ensure_registry(config: IngestConfig) -> None:
    """Without Kafka, topics with a spool can be served: with the tokens that are known here."""
    try:
        registry.ensure_registry(config.client)
    except BrokerUnreachableError as error:
        if not any(topic.spool for topic in config.topics.values()):
            raise
        _LOG.warning("Starting without Kafka, only topics with a spool are served: %s", error)


def create_token(settings: Settings, spec: TokenSpec) -> tuple[Token, str]:
    """Creates a token. Returns it with its text, which is stored nowhere.

    Raises:
        TokenInvalidError: its name, project or account is empty or too long; or a public key is to
            be for all topics, without a limit of events, or with another scope than ``write``; or a
            webhook is to be for another number of topics than one, or there is no key for it.
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
    """Public ids of the active tokens of this name."""
    now = datetime.now(UTC)
    tokens, _ = list_tokens(settings)
    return [
        token.public_id for token in tokens if token.name == name and token.state(now) == ACTIVE
    ]


def list_tokens(settings: Settings) -> tuple[list[Token], list[str]]:
    """Every token, oldest first; and the ids of those whose record can't be read."""
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
    token, now = _token(settings, public_id), datetime.now(UTC)
    state = token.state(now)
    if state != ACTIVE:
        raise TokenUnknownError(public_id, f"it is {state}; create another one")
    key = _webhook_key(settings, token.kind)
    token = registry.with_former(token, now, overlap)
    return registry.create_token(broker_config(settings), token, key)


def revoke_token(settings: Settings, public_id: str) -> Token:
    """End a token for good; harmless when it has ended.

    Raises:
        TokenUnknownError: there is none; or its record can't be read, and it is ended all the same.
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
        TokenNotTakenError: not within ``max_wait_seconds``, or there is no service.
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


def _token(settings: Settings, public_id: str) -> Token:
    table = registry.read_tokens(broker_config(settings))
    token = table.get(public_id)
    if token is None:
        raise _unknown(public_id, is_unreadable=public_id in table.unreadable)
    return token


def _unknown(public_id: str, *, is_unreadable: bool) -> TokenUnknownError:
    reason = "its record can't be read" if is_unreadable else "there is none of this id"
    return TokenUnknownError(public_id, reason)
