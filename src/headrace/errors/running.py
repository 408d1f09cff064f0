"""Refused starts: something else runs already, or has done it already."""

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
            "Stop its instances first. A static member counts until its session has ended, "
            "45 seconds after the last sign of it."
        )


@dataclass(eq=False)
class ServiceRunningError(RefusedError):
    """Another HTTP service of this project is running on this host."""

    code = "INGEST_RUNNING"
    folder: str
    pid: str

    @property
    def remedy(self) -> str:
        return "Stop it first. One service takes more with more --workers."


@dataclass(eq=False)
class LoaderRunningError(RefusedError):
    """Another loader of this source is running, or this one was suspended for a minute."""

    code = "LOADER_RUNNING"
    source: str

    @property
    def remedy(self) -> str:
        return "Wait for it, or stop it. Files of another host need a --source of their own."


@dataclass(eq=False)
class CounterReusedError(RefusedError):
    """Two different lines have one counter."""

    code = "COUNTER_REUSED"
    source: str
    counter: int

    @property
    def remedy(self) -> str:
        return (
            "Files of two hosts, or of a host whose counter began anew? Load each with a "
            "--source of its own, or its lines would be skipped as if they were done."
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
            "Nothing was sent. Wait for it; one that was killed counts until its session has "
            "ended, 45 seconds after the last sign of it."
        )


@dataclass(eq=False)
class ReplayRefusedError(RefusedError):
    """Replayed and waiting dead letters lie so mixed that it can't be remembered which is which.

    It would take ``metadata_bytes`` beside a committed offset, more than the brokers allow.
    """

    code = "REPLAY_REFUSED"
    topic: str
    metadata_bytes: int

    @property
    def remedy(self) -> str:
        return "Nothing was sent. Replay without a filter, or first those that wait the longest."
