"""The project's HTTP service: what it serves, and what it needs for itself on its host."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.errors import BrokerUnreachableError, Problem, ProjectError
from headrace.ingest.config import IngestConfig
from headrace.ingest.tokens import registry
from headrace.project.loaded import LoadedProject
from headrace.project.services import INGEST_FOLDER, broker_config, ingest_address
from headrace.runtime.servers.ports import require_free
from headrace.service.reservation import allow_connections, only_service
from headrace.settings import PROJECT_FILE
from headrace.topics.schemas import written_with

_LOG = logging.getLogger("headrace.ingest")


@dataclass(frozen=True)
class Overrides:
    """Settings that replace those of the project file, where they are not ``None``."""

    workers: int | None = None
    host: str | None = None
    port: int | None = None


def ingest_config(project: LoadedProject, overrides: Overrides | None = None) -> IngestConfig:
    """Returns the configuration of the service.

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
    query_loaders = (
        kind.query_backend(project.settings) for kind, _ in project.by_kind if kind.query_backend
    )
    return IngestConfig(
        settings,
        topics,
        client,
        project.settings.state / INGEST_FOLDER,
        project.settings.name,
        project.settings.log,
        written_with=written_with(topics.values(), project.settings),
        queries=next(query_loaders, None),
    )


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


def _ensure_registry(config: IngestConfig) -> None:
    """Without Kafka, topics with a spool can be served: with the tokens that are known here."""
    try:
        registry.ensure_registry(config.client)
    except BrokerUnreachableError as error:
        if not any(topic.spool for topic in config.topics.values()):
            raise
        _LOG.warning("Starting without Kafka, only topics with a spool are served: %s", error)
