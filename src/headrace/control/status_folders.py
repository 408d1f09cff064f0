"""Where workers, transfers and emitters on this machine write their status, for others to read."""

from __future__ import annotations

from headrace.dispatcher.status import DispatcherStatus
from headrace.merger.status import MergerStatus
from headrace.mirror.status import MirrorStatus
from headrace.queries.matched_events.status import EmitterStatus
from headrace.settings import Settings
from headrace.transfer.status import Status, TransferStatusFolder
from headrace.workers.monitoring.progress import WorkerStatusFolder


def worker_folder(settings: Settings) -> WorkerStatusFolder:
    """Returns the folder of the statuses of instances of workers."""
    return WorkerStatusFolder(settings.state / "status" / "workers")


def mirror_folder(settings: Settings) -> TransferStatusFolder[MirrorStatus]:
    """Returns the folder of the statuses of mirrors."""
    return TransferStatusFolder(settings.state / "status" / "mirrors", MirrorStatus)


def merger_folder(settings: Settings) -> TransferStatusFolder[MergerStatus]:
    """Returns the folder of the statuses of mergers."""
    return TransferStatusFolder(settings.state / "status" / "mergers", MergerStatus)


def refused_now(folder: TransferStatusFolder[Status], name: str) -> dict[str, str]:
    """Returns what instances that run on this machine can't move on, and why.

    Only they know of a record that their target does not take.

    Args:
        folder: of their statuses.
        name: of the mirror, merger or dispatcher.

    Returns:
        the reasons by ``topic/partition``, of a dispatcher by ``site/topic/partition``.
    """
    running = (status for status in folder.read() if status.name == name and not status.has_ended)
    return {partition: why for status in running for partition, why in status.refused.items()}


def dispatcher_folder(settings: Settings) -> TransferStatusFolder[DispatcherStatus]:
    """Returns the folder of the statuses of dispatchers."""
    return TransferStatusFolder(settings.state / "status" / "dispatchers", DispatcherStatus)


def matched_events_folder(settings: Settings) -> TransferStatusFolder[EmitterStatus]:
    """Returns the folder of the statuses of processes that send matched events."""
    return TransferStatusFolder(settings.state / "status" / "matched-events", EmitterStatus)
