"""The last status of everything that has run on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.project.kind import StatusKind
from headrace.project.kinds import kinds
from headrace.project.loaded import LoadedProject
from headrace.service.status import ServiceStatus, StatusFolder
from headrace.settings import Settings


def all_statuses(
    settings: Settings, project: LoadedProject | None
) -> dict[StatusKind, Sequence[ServiceStatus]]:
    """Returns the last statuses of what ran for declarations.

    Args:
        settings: the project's settings.
        project: what is declared; ``None``: it is not known.
    """
    return {
        status: StatusFolder(settings.state, status.type).read()
        if status.read is None
        else status.read(settings, None if project is None else project.declared(kind.type))
        for kind in kinds()
        for status in kind.statuses()
    }
