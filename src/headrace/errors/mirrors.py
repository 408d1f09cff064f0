"""Refused partitions of a mirror: the source no longer has what comes next."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import RefusedError


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
class MirrorRecordError(RefusedError):
    """A record can't be copied as it is."""

    code = "MIRROR_RECORD"
    mirror: str
    site: str
    partition: str
    offset: int
    reason: str

    @property
    def remedy(self) -> str:
        behind = f"{self.partition} --to {self.offset + 1}"
        return f"To leave it out: `headrace mirror accept {self.mirror} {behind}`."


@dataclass(eq=False)
class MirrorRefusedError(RefusedError):
    """A partition can't be mirrored on without losing or repeating records.

    Attributes:
        mirror: its name.
        site: the source.
        partition: as ``topic/partition``.
        next_offset: the next record to mirror.
    """

    mirror: str
    site: str
    partition: str
    next_offset: int

    @property
    def accepted_offset(self) -> int:
        """The next record to mirror, if the loss is accepted."""
        raise NotImplementedError

    @property
    def _ways_on(self) -> str:
        return (
            "To go on with what the source has: "
            f"`headrace mirror accept {self.mirror} {self.partition}`. To copy everything anew: "
            "delete the copy, `headrace apply`, and run the mirror."
        )


@dataclass(eq=False)
class MirrorGapError(MirrorRefusedError):
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
class MirrorRecreatedError(MirrorRefusedError):
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
class MirrorTruncatedError(MirrorRefusedError):
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
