"""The last status of everything that has run on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.offline_files.status import LoaderStatus
from headrace.project.kind import StatusKind
from headrace.project.kinds import kinds
from headrace.project.loaded import LoadedProject
from headrace.service.status import ServiceStatus, StatusFolder
from headrace.settings import Settings

LOADERS = StatusKind(name="loaders", type=LoaderStatus, view="headrace.offline_files.views")


def all_statuses(
    settings: Settings, project: LoadedProject | None
) -> dict[StatusKind, Sequence[ServiceStatus]]:
    """Returns the last statuses of what ran for declarations.

    Args:
        settings: the project's settings.
        project: what is declared; ``None``: it is not known.
    """
    declared = {
        status: StatusFolder(settings.state, status.type).read()
        if status.read is None
        else status.read(settings, None if project is None else project.declared(kind.type))
        for kind in kinds()
        for status in kind.statuses()
    }
    return declared | {LOADERS: StatusFolder(settings.state, LoaderStatus).read()}


def status_kinds() -> Iterator[StatusKind]:
    """Yields the kinds of all statuses: of what is declared, and of loaders, which are not."""
    for kind in kinds():
        yield from kind.statuses()
    yield LOADERS
