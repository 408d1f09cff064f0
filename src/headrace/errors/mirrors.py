"""Partitions of a mirror that can't be copied on, and commands on mirrors that are refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors.base import RefusedError
from headrace.errors.transfers import TransferRecordError, way_to_keep


@dataclass(eq=False)
class MirrorRunningError(RefusedError):
    """Instances of the mirror are running."""

    code = "MIRROR_RUNNING"
    mirror: str
    instances: int

    @property
    def remedy(self) -> str:
        return "Stop them first; a killed one is a member of the group for ten seconds more."


@dataclass(eq=False)
class MirrorNotRefusedError(RefusedError):
    """The partition is mirrored without loss: there is nothing to accept."""

    code = "MIRROR_NOT_REFUSED"
    mirror: str
    partition: str

    @property
    def remedy(self) -> str:
        return f"`headrace mirror list` shows what {self.mirror} can't copy on."


@dataclass(eq=False)
class MirrorRecordError(TransferRecordError):
    """A record can't be copied as it is.

    Attributes:
        copy: name of the topic that it is copied to.
        setting: of that topic, by which brokers refuse the record; empty: none does.
    """

    code = "MIRROR_RECORD"
    mirror: str
    site: str
    partition: str
    offset: int
    reason: str
    copy: str = field(default="", repr=False)
    setting: str = ""

    @property
    def remedy(self) -> str:
        kept = way_to_keep(self.copy, self.setting)
        lost = f"{self.partition} --to {self.offset + 1}"
        left_out = (
            f"To leave it out: stop the instances of {self.mirror}, then "
            f"`headrace mirror accept {self.mirror} {lost}`."
        )
        return f"{kept} {left_out}".lstrip()


@dataclass(eq=False)
class MirrorOffsetError(RefusedError):
    """A partition can't go on at an offset that its log does not have."""

    code = "MIRROR_OFFSET"
    mirror: str
    site: str
    partition: str
    offset: int
    earliest_offset: int
    end_offset: int

    @property
    def remedy(self) -> str:
        return f"Give --to an offset from {self.earliest_offset} to {self.end_offset}."


@dataclass(eq=False)
class MirrorRefusedError(RefusedError):
    """A partition can't be mirrored on; the others of its mirror can.

    Attributes:
        mirror: its name.
        site: the source, or the target where the copy is at fault.
        partition: there, as ``topic/partition``.
    """

    mirror: str
    site: str
    partition: str


@dataclass(eq=False)
class MirrorTopicMissingError(MirrorRefusedError):
    """A topic of the source does not exist, or was deleted."""

    code = "MIRROR_TOPIC_MISSING"

    @property
    def remedy(self) -> str:
        return (
            f"Create it, or take it out of Mirror {self.mirror!r}. It is looked for every "
            "30 seconds."
        )


@dataclass(eq=False)
class MirrorNoLeaderError(MirrorRefusedError):
    """A partition has no leader: all brokers with an in-sync replica of it are down."""

    code = "MIRROR_NO_LEADER"

    @property
    def remedy(self) -> str:
        return "It is mirrored on within 30 seconds after it has a leader: start its brokers."


@dataclass(eq=False)
class MirrorNoCopyError(MirrorRefusedError):
    """A partition of the source is not mirrored, because its copy does not exist."""

    code = "MIRROR_NO_COPY"
    copy: str

    @property
    def remedy(self) -> str:
        topic = self.copy.rpartition("/")[0]
        return f"Declare as many partitions for {topic} as the source has, then `headrace apply`."


@dataclass(eq=False)
class MirrorLossError(MirrorRefusedError):
    """A partition can't be mirrored on without losing or repeating records.

    Attributes:
        next_offset: the next record to mirror.
    """

    next_offset: int

    @property
    def accepted_offset(self) -> int:
        """The next record to mirror, if the loss is accepted."""
        raise NotImplementedError

    @property
    def _ways_on(self) -> str:
        return (
            "To go on with what the source has: "
            f"`headrace mirror accept {self.mirror} {self.partition}`. To copy everything again: "
            "delete the copy, `headrace apply`, and run the mirror."
        )


@dataclass(eq=False)
class MirrorGapError(MirrorLossError):
    """Records were deleted before they were mirrored."""

    code = "MIRROR_GAP"
    last_offset: int

    @property
    def accepted_offset(self) -> int:
        return self.last_offset + 1

    @property
    def remedy(self) -> str:
        # Offsets, not records: in a compacted or transactional topic there are fewer records.
        lost = self.last_offset - self.next_offset + 1
        return (
            f"{lost:,} offsets are gone, {self.next_offset:,} to {self.last_offset:,}. "
            f"{self._ways_on}"
        )


@dataclass(eq=False)
class MirrorRecreatedError(MirrorLossError):
    """The topic was deleted and created again since it was last mirrored."""

    code = "MIRROR_RECREATED"
    mirrored_topic_id: str
    live_topic_id: str
    first_offset: int

    @property
    def accepted_offset(self) -> int:
        return self.first_offset

    @property
    def remedy(self) -> str:
        return (
            f"Records of the old topic from offset {self.next_offset:,} on are gone, where there "
            f"were any; the offsets of the new one mean other records. {self._ways_on}"
        )


@dataclass(eq=False)
class MirrorTruncatedError(MirrorLossError):
    """The source's log was truncated before a record that has been mirrored."""

    code = "MIRROR_TRUNCATED"
    truncated_at: int

    @property
    def accepted_offset(self) -> int:
        return self.truncated_at

    @property
    def remedy(self) -> str:
        return (
            "The brokers lost acknowledged records (unclean leader election, lost disk), which the "
            f"copy still has; what follows there now is other records. {self._ways_on}"
        )
