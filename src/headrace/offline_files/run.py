"""Offline files of the legacy service into a project's topics, or into tables of PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Mapping

from headrace import __version__
from headrace.errors import Problem, ProjectError
from headrace.ingest.events.json_limits import JsonLimits
from headrace.model import Json, Topic
from headrace.offline_files.destination import Destination
from headrace.offline_files.files import find_files
from headrace.offline_files.follow import OfflineFollower
from headrace.offline_files.kafka_destination import KafkaDestination
from headrace.offline_files.loading import LoadPlan, LoadStats, OnBatch, load
from headrace.offline_files.options import FollowOptions, LoadOptions
from headrace.offline_files.postgres_destination import PostgresDestination
from headrace.offline_files.status import LoaderStatus
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.service.run import RunOptions, ServiceRun
from headrace.service.status import StatusFolder
from headrace.settings import PROJECT_FILE, IngestSettings, RestartSettings, Secret, Settings


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
    options.check_move_folder()
    destination, max_body_bytes = _destination(options, target)
    load(
        files,
        LoadPlan(options.batch_lines, max_body_bytes, options.end_file),
        destination,
        figures,
        on_batch,
    )


def follow_run(
    options: FollowOptions,
    target: LoadedProject | Secret,
    settings: Settings | None,
    run_options: RunOptions,
) -> ServiceRun[LoaderStatus]:
    """Returns a loader that follows the folder, to be run in this process.

    Args:
        options: what, how, and when.
        target: as of :func:`load_offline_files`.
        settings: of the project that shows its status; ``None``: none does.
        run_options: options of the run.

    Raises:
        OfflineFilesError: if the source can't be a name.
        ProjectError: if a topic is not declared, or has no event class.
    """
    destination, max_body_bytes = _destination(options.load, target)
    plan = LoadPlan(options.load.batch_lines, max_body_bytes)
    restart = settings.restart if settings else RestartSettings()
    follower = OfflineFollower(options, plan, destination, restart)
    folder = StatusFolder(settings.state, LoaderStatus) if settings else None
    return ServiceRun(follower, folder, run_options)


def _destination(options: LoadOptions, target: LoadedProject | Secret) -> tuple[Destination, int]:
    """Returns where lines go, and the limit of a body in bytes."""
    if isinstance(target, Secret):
        tables = PostgresDestination(
            target, options.source_name, options.into, dry_run=options.dry_run
        )
        return tables, IngestSettings().max_decoded_bytes
    limits = target.settings.ingest or IngestSettings()
    return _into_topics(target, options, limits), limits.max_decoded_bytes


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
