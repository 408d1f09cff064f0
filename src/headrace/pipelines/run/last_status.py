"""The last status that pipelines on this machine wrote."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from headrace.pipelines.status import PipelineStatus
from headrace.project.services import status
from headrace.service.status import State, StatusFolder
from headrace.settings import Settings
from headrace.spark.lock import CheckpointLock, lock_folder


def pipeline_progress(
    settings: Settings, declared: Collection[str] | None = None
) -> list[PipelineStatus]:
    """Returns what every pipeline wrote last, by name. Connects to nothing.

    A pipeline whose driver was killed has failed. One that is missing in ``declared``
    has that as its reason; without ``declared``, it is not known which pipelines are declared.
    """
    # The system frees the lock of a driver that is killed, which wrote nothing of its end.
    locks = lock_folder(settings.state, status(settings).lake)
    killed = "its driver has died; the next run continues from the checkpoint"
    written = [
        progress
        if progress.has_ended or CheckpointLock(locks, progress.name).holder_lives()
        else replace(progress, state=State.FAILED, reason=killed)
        for progress in StatusFolder(settings.state, PipelineStatus).read()
    ]
    undeclared = "no longer declared; to forget it, delete .headrace/status/{}.json"
    return [
        progress
        if declared is None or progress.name in declared
        else replace(progress, reason=undeclared.format(progress.name))
        for progress in written
    ]
