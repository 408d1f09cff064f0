"""The project's HTTP service, and the tokens that may use it."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from headrace.control.project import Project
from headrace.control.services import broker_config
from headrace.errors import BrokerUnreachableError, Problem, ProjectError, TokenUnknownError
from headrace.ingest import registry
from headrace.ingest.config import IngestConfig
from headrace.ingest.tokens import ALL_TOPICS, Token, new_public_id
from headrace.runtime.ports import require_free
from headrace.settings import PROJECT_FILE, IngestSettings, Rate, Settings

STATE = "ingest"

_LOG = logging.getLogger("headrace.ingest")


@dataclass(frozen=True)
class WantedToken:
    """What a new token is to be.

    Attributes:
        name: what its owner calls it.
        project: where its events belong.
        account: who answers for them, and the key of its events where the topic declares none.
        topics: those it may write to; none means all.
        lifetime: until it ends by itself; ``None``: never.
        rate: its own limits, instead of the service's.
    """

    name: str
    project: str
    account: str
    topics: Sequence[str] = ()
    lifetime: timedelta | None = None
    rate: Rate | None = None


def ingest_config(
    project: Project, *, workers: int | None = None, port: int | None = None
) -> IngestConfig:
    """What the service is told; ``workers`` and ``port`` in place of the project file's.

    Raises:
        ProjectError: no topic has an event class, or Redis is wanted without its client.
        BrokerUnreachableError: the embedded broker is down, and no topic has a spool.
    """
    settings = project.settings.ingest or IngestSettings()
    settings = replace(settings, workers=workers or settings.workers, port=port or settings.port)
    where = str(project.settings.root / PROJECT_FILE)
    if settings.redis is not None and importlib.util.find_spec("redis") is None:
        message = f"ingest.redis is {str(settings.redis)!r}, and the client for it is not installed"
        raise ProjectError([Problem(where, 1, message, "pip install 'headrace[redis]'")])
    topics = {name: topic for name, topic in project.topics.items() if topic.event is not None}
    if not topics:
        way_out = "only topics with an event class are served"
        raise ProjectError([Problem(where, 1, "there is no topic to serve", way_out)])
    spooled = any(topic.spool for topic in topics.values())
    client = broker_config(project.settings, may_be_down=spooled)
    state = project.settings.state / STATE
    return IngestConfig(
        settings, topics, client, state, project.settings.name, project.settings.log
    )


def serve(config: IngestConfig) -> None:
    """Serves until SIGTERM or SIGINT.

    Raises:
        ServerStartError: the port is taken.
        BrokerUnreachableError: Kafka does not answer, and no topic has a spool.
        IngestFailedError: workers can't start.
    """
    from headrace.ingest.server import serve as run

    require_free("ingest", [config.settings.port])
    _ensure_registry(config)
    run(config)


def _ensure_registry(config: IngestConfig) -> None:
    """Without Kafka, topics with a spool can be served: with the tokens that are known here."""
    try:
        registry.ensure_registry(config.client)
    except BrokerUnreachableError as error:
        if not any(topic.spool for topic in config.topics.values()):
            raise
        _LOG.warning("starting without Kafka: topics with a spool are served; %s", error)


def create_token(settings: Settings, wanted: WantedToken) -> tuple[Token, str]:
    """A new token, and its text, which is nowhere else."""
    now = datetime.now(UTC)
    token = Token(
        public_id=new_public_id(),
        name=wanted.name,
        project=wanted.project,
        account=wanted.account,
        topics=tuple(wanted.topics) or (ALL_TOPICS,),
        secret_sha256="",
        created=now,
        expires=now + wanted.lifetime if wanted.lifetime else None,
        rate=wanted.rate,
    )
    return registry.create_token(broker_config(settings), token)


def list_tokens(settings: Settings) -> list[Token]:
    """Every token, oldest first."""
    return registry.list_tokens(broker_config(settings))


def rotate_token(settings: Settings, public_id: str) -> tuple[Token, str]:
    """Another secret for a token; the last one ends within seconds.

    Raises:
        TokenUnknownError: there is none, or it is revoked.
    """
    token = _token(settings, public_id)
    if token.revoked is not None:
        raise TokenUnknownError(public_id, "it is revoked")
    return registry.rotate_token(broker_config(settings), token)


def revoke_token(settings: Settings, public_id: str) -> Token:
    """End a token; harmless when it has ended.

    Raises:
        TokenUnknownError: there is none.
    """
    token = _token(settings, public_id)
    return registry.revoke_token(broker_config(settings), token, datetime.now(UTC))


def _token(settings: Settings, public_id: str) -> Token:
    for token in list_tokens(settings):
        if token.public_id == public_id:
            return token
    raise TokenUnknownError(public_id, "there is none of this id")
