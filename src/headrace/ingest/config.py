"""What an ingest worker is started with: it is pickled on its way to the worker's process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.events.written import WrittenWith
from headrace.ingest.queries.backend import QueryLoader
from headrace.model import Topic
from headrace.settings import IngestSettings


@dataclass(frozen=True)
class IngestConfig:
    """The service of one project.

    Attributes:
        settings: address, limits, deadlines.
        topics: those it serves, by name; each has an event class.
        client: librdkafka's configuration of the cluster.
        state: folder shared by the workers of this host.
        project: its name.
        log: file that every process of the service logs to, beside stderr.
        log_format: of the lines, ``text`` or ``json``.
        written_with: what events of registered formats are written with, by topic.
        queries: makes the backend of standing queries; ``None``: the project declares none.
    """

    settings: IngestSettings
    topics: Mapping[str, Topic]
    client: Mapping[str, str]
    state: Path
    project: str
    log: Path
    log_format: str = "text"
    written_with: Mapping[str, WrittenWith] = field(default_factory=dict)
    queries: QueryLoader | None = None
