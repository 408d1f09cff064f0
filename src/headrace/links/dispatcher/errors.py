"""What errors of dispatchers say, and those that only a dispatcher has."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import FactsError, RefusedError
from headrace.links.errors import (
    LinkDamagedError,
    LinkNoPartitionError,
    LinkRunningError,
    Words,
    WordsOfKind,
)

WORDS: WordsOfKind = {
    LinkDamagedError: {},  # Spark reads the source.
    LinkRunningError: {},  # DispatcherRunningError names the instance.
    LinkNoPartitionError: {
        "": Words(
            remedy="The source and the topic of the target have the same partitions: `headrace "
            "apply` in the project of their site makes them. They are looked for every 30 seconds."
        )
    },
}


@dataclass(eq=False)
class DispatcherFailedError(FactsError):
    """The query of a target has failed, and its restarts are used up."""

    dispatcher: str
    site: str
    reason: str

    @property
    def remedy(self) -> str:
        return "The log has Spark's trace; `headrace dispatcher run` continues where it stopped."


@dataclass(eq=False)
class DispatcherCoresError(RefusedError):
    """Spark has fewer cores than the partitions of a target take in real-time mode.

    Attributes:
        partitions: of the source; each takes a core.
        cores: that there are for the target.
    """

    code = "DISPATCHER_CORES"
    dispatcher: str
    site: str
    partitions: int
    cores: int

    @property
    def remedy(self) -> str:
        return (
            "Start the dispatcher again, if the topic has grown; give Spark more cores; or declare "
            "DispatchMode.MICRO_BATCH. It is looked at every 30 seconds."
        )


@dataclass(eq=False)
class DispatcherRunningError(RefusedError):
    """The dispatcher runs already, or its positions were committed by another instance."""

    code = "DISPATCHER_RUNNING"
    runs_elsewhere = True
    dispatcher: str
    site: str
    instance: str

    @property
    def remedy(self) -> str:
        return (
            f"One instance dispatches to a site: {self.instance} does, or has done so until now. "
            "Stop the one that is not wanted."
        )
