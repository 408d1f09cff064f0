"""How all that has run on this machine is doing, from what it wrote last."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from headrace.links.dispatcher.status import DispatcherStatus
from headrace.links.merger.status import MergerStatus
from headrace.links.mirror.status import MirrorStatus
from headrace.pipelines.status import PipelineStatus
from headrace.project.services import status
from headrace.queries.emit.status import EmitterStatus
from headrace.queries.windows.instance.status import QueryInstanceStatus
from headrace.service.status import InstanceStatus, ServiceStatus, State, StatusFolder
from headrace.settings import Settings
from headrace.spark.lock import CheckpointLock, lock_folder
from headrace.workers.status import WorkerStatus

KINDS: Mapping[str, type[InstanceStatus]] = {
    "workers": WorkerStatus,
    "mirrors": MirrorStatus,
    "mergers": MergerStatus,
    "dispatchers": DispatcherStatus,
    "queries": QueryInstanceStatus,
    "matched_events": EmitterStatus,
}
"""The statuses of instances, by their names in the JSON of ``headrace status``."""


def all_statuses(
    settings: Settings, declared: Collection[str] | None
) -> dict[str, Sequence[ServiceStatus]]:
    """Returns the last statuses of pipelines and instances, by their names in JSON.

    Args:
        settings: the project's settings.
        declared: as of :func:`pipeline_progress`.
    """
    instances = {name: StatusFolder(settings.state, kind).read() for name, kind in KINDS.items()}
    return {"pipelines": pipeline_progress(settings, declared), **instances}


def pipeline_progress(
    settings: Settings, declared: Collection[str] | None = None
) -> list[PipelineStatus]:
    """Returns what every pipeline wrote last, by name. Connects to nothing.

    A pipeline whose driver was killed is shown as stopped. One that is missing in ``declared``
    has that as its reason; without ``declared``, it is not known which pipelines are declared.
    """
    # The system frees the lock of a driver that is killed, which wrote nothing of its end.
    locks = lock_folder(settings.state, status(settings).lake)
    killed = "its driver is gone; the next run goes on from the checkpoint"
    written = [
        progress
        if progress.has_ended or CheckpointLock(locks, progress.name).holder_lives()
        else replace(progress, state=State.STOPPED, reason=killed)
        for progress in StatusFolder(settings.state, PipelineStatus).read()
    ]
    gone = "no longer declared; to forget it, delete .headrace/status/{}.json"
    return [
        progress
        if declared is None or progress.name in declared
        else replace(progress, reason=gone.format(progress.name))
        for progress in written
    ]
