"""Pipelines that a run was asked to run, while Spark starts and until their turn comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, RefusedError
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.status import PipelineStatus
from headrace.service.status import State, StatusFolder
from headrace.spark.failures import headline
from headrace.spark.lock import CheckpointLock, lock_folder

if TYPE_CHECKING:
    from headrace.settings import Settings


@contextmanager
def announced(
    settings: Settings, pipelines: Sequence[Pipeline], lake: str
) -> Iterator[Mapping[str, CheckpointLock]]:
    """Holds the locks of pipelines, by name, which others see as starting.

    A pipeline whose lock can't be taken keeps its status, which is that of another run: its own
    start will be refused, or say why it failed.
    """
    folder = StatusFolder(settings.state, PipelineStatus)
    locks = {
        pipeline.name: CheckpointLock(lock_folder(settings.state, lake), pipeline.name)
        for pipeline in pipelines
    }
    held = set()
    try:
        for name, lock in locks.items():
            with suppress(RefusedError, OSError):
                lock.acquire()
                held.add(name)
                folder.write(PipelineStatus(name))
        yield locks
    except BaseException as error:
        _end(folder, held, error)
        raise
    finally:
        for lock in locks.values():
            lock.release()


def _end(folder: StatusFolder[PipelineStatus], names: set[str], error: BaseException) -> None:
    """Writes why pipelines have not started."""
    state, exit_code, reason = State.STOPPED, 0, ""
    if isinstance(error, Exception):
        exit_code = (error if isinstance(error, HeadraceError) else HeadraceError).exit_code
        state, reason = State.FAILED, headline(error)
    for status in folder.read():
        if status.name in names and not status.has_ended:
            folder.write(status.after(state=state, reason=reason, exit_code=exit_code))
