"""Where workers on this machine write their status, for others to read."""

from __future__ import annotations

from headrace.settings import Settings
from headrace.workers.monitoring.progress import WorkerStatusFolder


def worker_folder(settings: Settings) -> WorkerStatusFolder:
    """Returns the folder of the statuses of instances of workers."""
    return WorkerStatusFolder(settings.state / "status" / "workers")
