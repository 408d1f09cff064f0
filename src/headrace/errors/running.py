"""Refused starts: another process does the same work."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import RefusedError


@dataclass(eq=False)
class WorkerRunningError(RefusedError):
    """The worker's group has members."""

    code = "WORKER_RUNNING"
    worker: str
    group: str
    members: str

    @property
    def remedy(self) -> str:
        return (
            "Stop its instances first. A static member leaves the group when its session expires, "
            "45 seconds after its last heartbeat."
        )


@dataclass(eq=False)
class ServiceRunningError(RefusedError):
    """Another HTTP service of this project is running on this host."""

    code = "INGEST_RUNNING"
    folder: str
    pid: str

    @property
    def remedy(self) -> str:
        return "Stop it first. For more load, start it with more --workers."


@dataclass(eq=False)
class LoaderRunningError(RefusedError):
    """Another loader of this source is running, or this one was suspended for a minute."""

    code = "LOADER_RUNNING"
    source: str

    @property
    def remedy(self) -> str:
        return "Wait for it, or stop it. Load files of another host with another --source."


@dataclass(eq=False)
class CounterReusedError(RefusedError):
    """Two different lines have one counter."""

    code = "COUNTER_REUSED"
    source: str
    counter: int

    @property
    def remedy(self) -> str:
        return (
            "Files of two hosts, or of a host whose counter was reset, need a --source each: lines "
            "with a counter that was loaded before are skipped."
        )


@dataclass(eq=False)
class ReplayRunningError(RefusedError):
    """Another replay of the topic's dead letters is running."""

    code = "REPLAY_RUNNING"
    topic: str
    group: str

    @property
    def remedy(self) -> str:
        return (
            "Nothing was sent. Wait for it; a replay that was killed leaves the group when its "
            "session expires, 45 seconds after its last heartbeat."
        )


@dataclass(eq=False)
class ReplayRefusedError(RefusedError):
    """Replayed and waiting dead letters are too mixed to remember which are which.

    It would take ``metadata_bytes`` beside a committed offset, more than the brokers allow.
    """

    code = "REPLAY_REFUSED"
    topic: str
    metadata_bytes: int

    @property
    def remedy(self) -> str:
        return "Nothing was sent. Replay without a filter, or replay the oldest first."
