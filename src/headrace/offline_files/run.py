"""Offline files of the legacy service into a project's topics, or into tables of PostgreSQL."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace import __version__
from headrace.errors import OfflineFilesError, Problem, ProjectError
from headrace.ingest.events.json_limits import JsonLimits
from headrace.model import Json, Topic
from headrace.offline_files.destination import Destination
from headrace.offline_files.files import FileOrder, find_files
from headrace.offline_files.kafka_destination import KafkaDestination
from headrace.offline_files.loading import LoadPlan, LoadStats, OnBatch, load
from headrace.offline_files.postgres_destination import PostgresDestination
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.settings import PROJECT_FILE, IngestSettings, Secret

_SOURCE = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class LoadOptions:
    """What to load.

    Attributes:
        folder: of the files.
        source: whose counters these are; empty: the folder's name.
        into: destinations by table, where they are not called like it.
        order: which file was created first.
        pattern: of the names of the files.
        batch_lines: in a transaction.
        remove_done: delete files whose lines are all done.
        dry_run: write nothing.
    """

    folder: Path
    source: str = ""
    into: Mapping[str, str] = field(default_factory=dict)
    order: FileOrder = FileOrder.NAME
    pattern: str = "*"
    batch_lines: int = 1000
    remove_done: bool = False
    dry_run: bool = False

    @property
    def source_name(self) -> str:
        """The source.

        Raises:
            OfflineFilesError: if it can't be a name.
        """
        name = self.source or self.folder.resolve().name
        if not _SOURCE.fullmatch(name):
            reason = "no name for a source: up to 100 letters, digits, '.', '_', '-' (--source)"
            raise OfflineFilesError(name, reason)
        return name


def load_offline_files(
    options: LoadOptions, target: LoadedProject | Secret, figures: LoadStats, on_batch: OnBatch
) -> None:
    """Loads every line that is not done; ``figures`` are counted up as it goes.

    Args:
        options: what, and how.
        target: a project, into whose topics; or the URL of a database, into whose tables.
        figures: of this load.
        on_batch: called after each batch.

    Raises:
        OfflineFilesError: if the folder or a file can't be read, or no file is there.
        ProjectError: if a topic is not declared, or has no event class.
        SinkError: if the destination stays unreachable, or can't take a batch.
        RefusedError: if another loader of the source runs, or the counters are of two sources.
    """
    files = find_files(options.folder, options.order, options.pattern)
    # A dry run does no line, so no file is done.
    remove_done = options.remove_done and not options.dry_run
    if isinstance(target, Secret):
        limits, source = IngestSettings(), options.source_name
        destination: Destination = PostgresDestination(
            target, source, options.into, dry_run=options.dry_run
        )
    else:
        limits = target.settings.ingest or IngestSettings()
        destination = _into_topics(target, options, limits)
    load(
        LoadPlan(files, options.batch_lines, limits.max_decoded_bytes, remove_done),
        destination,
        figures,
        on_batch,
    )


def _into_topics(
    project: LoadedProject, options: LoadOptions, limits: IngestSettings
) -> Destination:
    return KafkaDestination(
        broker_config(project.settings),
        options.source_name,
        _topics(project, options.into),
        (JsonLimits(limits.max_depth, limits.max_keys, limits.max_string_bytes), time.time),
        __version__,
        dry_run=options.dry_run,
    )


def _topics(project: LoadedProject, into: Mapping[str, str]) -> dict[str, Topic]:
    typed = {
        name: topic
        for name, topic in project.topics.items()
        if isinstance(topic.record_format, Json) and topic.envelope is None
    }
    wrong = sorted(set(into.values()) - typed.keys())
    where = str(project.settings.root / PROJECT_FILE)
    if wrong:
        known = ", ".join(typed) or "none"
        message = f"no topic {wrong[0]!r} whose records are JSON events"
        raise ProjectError([Problem(where, 1, message, f"declared with one: {known}")])
    return typed | {table: typed[topic] for table, topic in into.items()}
