"""Why a dispatcher does not go on."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import FactsError, RefusedError
from headrace.errors.transfers import TransferRecordError, way_to_keep


@dataclass(eq=False)
class DispatcherRecordError(TransferRecordError):
    """The topic of a target does not take a record.

    Attributes:
        site: the target.
        topic: at the target.
        setting: of that topic, by which brokers refuse the record.
    """

    code = "DISPATCHER_RECORD"
    dispatcher: str
    site: str
    partition: str
    offset: int
    topic: str
    reason: str
    setting: str = ""

    @property
    def remedy(self) -> str:
        return way_to_keep(f"{self.topic} at {self.site}", self.setting)


@dataclass(eq=False)
class DispatcherFailedError(FactsError):
    """The query of a target has failed, and its restarts are used up."""

    dispatcher: str
    site: str
    reason: str

    @property
    def remedy(self) -> str:
        return "The log has Spark's trace; `headrace dispatcher run` goes on where it was."


@dataclass(eq=False)
class DispatcherRefusedError(RefusedError):
    """A partition can't be dispatched on to a target; others can.

    Attributes:
        dispatcher: its name.
        site: the target.
        partition: of the source or of the target's topic, as ``topic/partition``.
    """

    dispatcher: str
    site: str
    partition: str


@dataclass(eq=False)
class DispatcherNoPartitionError(DispatcherRefusedError):
    """A topic does not exist, or does not have the partition."""

    code = "DISPATCHER_NO_PARTITION"

    @property
    def remedy(self) -> str:
        return (
            "The source and the topic of the target have the same partitions: `headrace apply` in "
            "the project of their site makes them. They are looked for every 30 seconds."
        )


@dataclass(eq=False)
class DispatcherNoLeaderError(DispatcherRefusedError):
    """No broker leads a partition now."""

    code = "DISPATCHER_NO_LEADER"

    @property
    def remedy(self) -> str:
        return "It is dispatched on within 30 seconds after it has a leader: start its brokers."


@dataclass(eq=False)
class DispatcherLossError(DispatcherRefusedError):
    """The source does not have the record that is to be dispatched next.

    Attributes:
        next_offset: of that record.
        accepted_offset: where it would go on.
        reason: what happened.
    """

    code = "DISPATCHER_LOSS"
    next_offset: int
    accepted_offset: int
    reason: str

    @property
    def remedy(self) -> str:
        return (
            f"To go on at offset {self.accepted_offset}: "
            f"`headrace dispatcher accept {self.dispatcher} {self.site} {self.partition}`."
        )


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


@dataclass(eq=False)
class DispatcherNotRefusedError(RefusedError):
    """The partition is dispatched without loss: there is nothing to accept."""

    code = "DISPATCHER_NOT_REFUSED"
    dispatcher: str
    site: str
    partition: str

    @property
    def remedy(self) -> str:
        return f"`headrace dispatcher list` shows what {self.dispatcher} can't dispatch on."
