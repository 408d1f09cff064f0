"""Why a merger does not go on."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors.base import RefusedError
from headrace.errors.transfers import TransferRecordError, way_to_keep


@dataclass(eq=False)
class MergerRecordError(TransferRecordError):
    """The target of a merger does not take a record.

    Attributes:
        topic: that does not take it.
        setting: of that topic, by which brokers refuse the record; empty: none does.
    """

    code = "MERGER_RECORD"
    merger: str
    partition: str
    offset: int
    reason: str
    topic: str = field(repr=False)
    setting: str = ""

    @property
    def remedy(self) -> str:
        return way_to_keep(self.topic, self.setting)


@dataclass(eq=False)
class MergerRefusedError(RefusedError):
    """A partition can't be merged on; the others of its merger can.

    Attributes:
        merger: its name.
        partition: of a source or of the target, as ``topic/partition``.
    """

    merger: str
    partition: str


@dataclass(eq=False)
class MergerNoPartitionError(MergerRefusedError):
    """A topic of the merger does not exist, or does not have the partition."""

    code = "MERGER_NO_PARTITION"

    @property
    def remedy(self) -> str:
        return "All its topics have the same partitions: `headrace apply` makes the declared ones."


@dataclass(eq=False)
class MergerNoLeaderError(MergerRefusedError):
    """No broker leads a partition of the merger now."""

    code = "MERGER_NO_LEADER"

    @property
    def remedy(self) -> str:
        return "It is merged on once a broker that has it is back."


@dataclass(eq=False)
class MergerLossError(MergerRefusedError):
    """A source does not have the record that is to be merged next.

    Attributes:
        next_offset: of that record.
        accepted_offset: where it would go on.
        reason: what happened.
    """

    code = "MERGER_LOSS"
    next_offset: int
    accepted_offset: int
    reason: str

    @property
    def remedy(self) -> str:
        return (
            f"To go on at offset {self.accepted_offset}: "
            f"`headrace merger accept {self.merger} {self.partition}`."
        )


@dataclass(eq=False)
class MergerRunningError(RefusedError):
    """Instances of the merger are running."""

    code = "MERGER_RUNNING"
    merger: str
    instances: int

    @property
    def remedy(self) -> str:
        return "Stop them first; a killed one is a member of the group for ten seconds more."


@dataclass(eq=False)
class MergerNotRefusedError(RefusedError):
    """The partition is merged without loss: there is nothing to accept."""

    code = "MERGER_NOT_REFUSED"
    merger: str
    partition: str

    @property
    def remedy(self) -> str:
        return f"`headrace merger list` shows what {self.merger} can't merge on."
