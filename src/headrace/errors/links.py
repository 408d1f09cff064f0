"""Why a mirror, a merger or a dispatcher can't continue, or a command on one is refused.

Each error is one of the three kinds of links, in the words of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from headrace.errors.base import FactsError, RefusedError

_ANY_TIME = 2**63 - 1
_MOVED = {"mirror": "mirrored", "merger": "merged", "dispatcher": "dispatched"}
_WAYS_ON = (
    "To go on with what the source has: `headrace mirror accept {error.link} {error.partition}`. "
    "To copy everything again: delete the copy, `headrace apply`, and run the mirror."
)


class _Case(NamedTuple):
    """The code, the message, and the remedy with fields of the error."""

    code: str
    message: str
    remedy: str


@dataclass(eq=False)
class LinkError(RefusedError):
    """A mirror, a merger or a dispatcher can't continue, or a command on it is refused.

    Attributes:
        kind: ``mirror``, ``merger`` or ``dispatcher``.
        link: its name.
    """

    kind: str = field(repr=False)
    link: str

    _CASES: ClassVar[Mapping[str, _Case]] = {}

    @classmethod
    def codes(cls) -> tuple[str, ...]:
        return tuple(case.code for case in cls._CASES.values())

    def __post_init__(self) -> None:
        self.code = self._case.code

    @property
    def _case(self) -> _Case:
        return self._CASES[self.kind]

    @property
    def message(self) -> str:
        return self._case.message

    @property
    def remedy(self) -> str:
        return self._case.remedy.format(error=self).strip()

    def facts(self) -> dict[str, object]:
        facts = super().facts()
        return {self.kind: facts.pop("link"), **facts}


_STOP = "Stop them first; a killed one is a member of the group for ten seconds more."


@dataclass(eq=False)
class LinkRunningError(LinkError):
    """Instances of a mirror or a merger are running."""

    instances: int

    _CASES: ClassVar[Mapping[str, _Case]] = {
        kind: _Case(f"{kind.upper()}_RUNNING", f"Instances of the {kind} are running.", _STOP)
        for kind in ("mirror", "merger")
    }


@dataclass(eq=False)
class LinkNotRefusedError(LinkError):
    """Nothing of a partition is lost: there is nothing to accept."""

    site: str
    partition: str

    _CASES: ClassVar[Mapping[str, _Case]] = {
        kind: _Case(
            f"{kind.upper()}_NOT_REFUSED",
            f"The partition is {moved} without loss: there is nothing to accept.",
            f"`headrace {kind} list` shows what {{error.link}} can't {verb} on.",
        )
        for (kind, moved), verb in zip(_MOVED.items(), ("copy", "merge", "dispatch"), strict=True)
    }


@dataclass(eq=False)
class LinkRecordError(LinkError):
    """A record can't be written as it is.

    Attributes:
        site: the source of a mirror, or the target of a dispatcher.
        partition: of the source, as ``topic/partition``.
        copy: the topic that does not take it, at this site.
        setting: of that topic, by which brokers refuse the record; empty: none does.
        topic: that does not take it, at another site.
    """

    site: str
    partition: str
    offset: int
    reason: str
    copy: str = field(default="", repr=False)
    topic: str = ""
    setting: str = ""

    _CASES: ClassVar[Mapping[str, _Case]] = {
        "mirror": _Case(
            "MIRROR_RECORD",
            "A record can't be copied as it is.",
            "{error.way_to_keep} To leave it out: stop the instances of {error.link}, then "
            "`headrace mirror accept {error.link} {error.partition} --to {error.next_offset}`.",
        ),
        "merger": _Case(
            "MERGER_RECORD",
            "The target of a merger does not take a record.",
            "{error.way_to_keep}",
        ),
        "dispatcher": _Case(
            "DISPATCHER_RECORD",
            "The topic of a target does not take a record.",
            "{error.way_to_keep}",
        ),
    }

    @property
    def source(self) -> tuple[str, int]:
        """Returns the topic and the number of the partition."""
        topic, _, number = self.partition.rpartition("/")
        return topic, int(number)

    @property
    def next_offset(self) -> int:
        """The offset after the record."""
        return self.offset + 1

    @property
    def way_to_keep(self) -> str:
        """How the topic takes the record that it refuses now; empty: by no setting of it."""
        topic = self.copy or f"{self.topic} at {self.site}"
        if self.setting == "max.message.bytes":
            return f"To keep it: give {topic} a larger max.message.bytes than its sources have."
        if self.setting == "cleanup.policy":
            return f"To keep it: let {topic} not be compacted, or no record would be without a key."
        if self.setting:
            return f'To keep it: give {topic} config={{"{self.setting}": "{_ANY_TIME}"}}.'
        return ""


@dataclass(eq=False)
class LinkNoPartitionError(LinkError):
    """A topic does not exist, or does not have a partition; other partitions continue.

    Attributes:
        site: of the topic; empty: this one.
        partition: as ``topic/partition``.
        copy: the partition that is missing at the target of a mirror; empty: another one is.
    """

    site: str
    partition: str
    copy: str = ""

    _CASES: ClassVar[Mapping[str, _Case]] = {
        "mirror": _Case(
            "MIRROR_TOPIC_MISSING",
            "A topic of the source does not exist, or was deleted.",
            "Create it, or take it out of Mirror {error.link!r}. It is looked for every "
            "30 seconds.",
        ),
        "copy": _Case(
            "MIRROR_NO_COPY",
            "A partition of the source is not mirrored, because its copy does not exist.",
            "Declare as many partitions for {error.copied_topic} as the source has, then "
            "`headrace apply`.",
        ),
        "merger": _Case(
            "MERGER_NO_PARTITION",
            "A topic of the merger does not exist, or does not have the partition.",
            "All its topics have the same partitions: `headrace apply` makes the declared ones.",
        ),
        "dispatcher": _Case(
            "DISPATCHER_NO_PARTITION",
            "A topic does not exist, or does not have the partition.",
            "The source and the topic of the target have the same partitions: `headrace apply` in "
            "the project of their site makes them. They are looked for every 30 seconds.",
        ),
    }

    @property
    def _case(self) -> _Case:
        return self._CASES["copy" if self.copy else self.kind]

    @property
    def copied_topic(self) -> str:
        """The topic of the missing copy."""
        return self.copy.rpartition("/")[0]


@dataclass(eq=False)
class LinkNoLeaderError(LinkError):
    """No broker leads a partition now; other partitions continue.

    Attributes:
        site: of the partition; empty: this one.
        partition: as ``topic/partition``.
    """

    site: str
    partition: str

    _CASES: ClassVar[Mapping[str, _Case]] = {
        "mirror": _Case(
            "MIRROR_NO_LEADER",
            "A partition has no leader: all brokers with an in-sync replica of it are down.",
            "It is mirrored on within 30 seconds after it has a leader: start its brokers.",
        ),
        "merger": _Case(
            "MERGER_NO_LEADER",
            "No broker leads a partition of the merger now.",
            "It is merged on once a broker that has it is back.",
        ),
        "dispatcher": _Case(
            "DISPATCHER_NO_LEADER",
            "No broker leads a partition now.",
            "It is dispatched on within 30 seconds after it has a leader: start its brokers.",
        ),
    }


@dataclass(eq=False)
class LinkLossError(LinkError):
    """The source of a partition does not have the record that comes next; others continue.

    Attributes:
        site: the source of a mirror, or the target of a dispatcher.
        partition: of the source, as ``topic/partition``.
        next_offset: of the record.
        accepted_offset: the next one, if the loss is accepted.
        reason: what happened, of mergers and dispatchers.
        loss: of mirrors: ``gap``, ``recreated`` or ``truncated``.
        mirrored_topic_id: of a topic that was recreated, before.
        live_topic_id: its id now.
    """

    site: str
    partition: str
    next_offset: int
    accepted_offset: int
    reason: str = ""
    loss: str = field(default="", repr=False)
    mirrored_topic_id: str = ""
    live_topic_id: str = ""

    _CASES: ClassVar[Mapping[str, _Case]] = {
        "gap": _Case(
            "MIRROR_GAP",
            "Records were deleted before they were mirrored.",
            "{error.lost:,} offsets are gone, {error.next_offset:,} to {error.last_offset:,}. "
            + _WAYS_ON,
        ),
        "recreated": _Case(
            "MIRROR_RECREATED",
            "The topic was deleted and created again since it was last mirrored.",
            "Records of the old topic from offset {error.next_offset:,} on are gone, where there "
            f"were any; the offsets of the new one mean other records. {_WAYS_ON}",
        ),
        "truncated": _Case(
            "MIRROR_TRUNCATED",
            "The source's log was truncated before a record that has been mirrored.",
            "The brokers lost acknowledged records (unclean leader election, lost disk), which the "
            f"copy still has; what follows there now is other records. {_WAYS_ON}",
        ),
        "merger": _Case(
            "MERGER_LOSS",
            "A source does not have the record that is to be merged next.",
            "To go on at offset {error.accepted_offset}: "
            "`headrace merger accept {error.link} {error.partition}`.",
        ),
        "dispatcher": _Case(
            "DISPATCHER_LOSS",
            "The source does not have the record that is to be dispatched next.",
            "To go on at offset {error.accepted_offset}: "
            "`headrace dispatcher accept {error.link} {error.site} {error.partition}`.",
        ),
    }

    @property
    def _case(self) -> _Case:
        return self._CASES[self.loss or self.kind]

    @property
    def last_offset(self) -> int:
        """The last one that is gone."""
        return self.accepted_offset - 1

    @property
    def lost(self) -> int:
        """The number of offsets that are gone. A compacted topic has fewer records."""
        return self.accepted_offset - self.next_offset

    def facts(self) -> dict[str, object]:
        facts = super().facts()
        if self.loss:
            del facts["accepted offset"]
        if self.loss == "gap":
            facts["last offset"] = self.last_offset
        elif self.loss:
            name = "first offset" if self.loss == "recreated" else "truncated at"
            facts[name] = self.accepted_offset
        return facts


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
class DispatcherFailedError(FactsError):
    """The query of a target has failed, and its restarts are used up."""

    dispatcher: str
    site: str
    reason: str

    @property
    def remedy(self) -> str:
        return "The log has Spark's trace; `headrace dispatcher run` goes on where it was."


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
