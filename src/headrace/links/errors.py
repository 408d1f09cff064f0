"""Why a link can't continue, or a command on one is refused.

Where a kind of link has words of its own for these errors, ``WORDS`` of its module ``errors`` has
them; the words here are those of every kind.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

from headrace.errors.base import RefusedError

_ANY_TIME = 2**63 - 1
_AFTER_A_LOSS = (
    "To continue with what the source has: "
    "`headrace {error.kind} accept {error.link} {error.partition}`. "
    "To copy everything again: delete the copy, `headrace apply`, and run the {error.kind}."
)


class Words(NamedTuple):
    """What an error of one kind of link says; empty: what its class says of every kind.

    Attributes:
        code: in JSON.
        message: what happened.
        remedy: what to do, with fields of the error in the syntax of :meth:`str.format`.
    """

    code: str = ""
    message: str = ""
    remedy: str = ""


@dataclass(eq=False)
class LinkError(RefusedError):
    """A link can't continue, or a command on it is refused.

    Attributes:
        kind: the name of its folder, such as ``mirror``.
        link: its name.
    """

    kind: str = field(repr=False)
    link: str

    _code: ClassVar[str] = ""
    _remedy: ClassVar[str] = ""
    # What it says in a case, where the kind of link has no words for that.
    _cases: ClassVar[Mapping[str, Words]] = {}

    @classmethod
    def codes(cls) -> tuple[str, ...]:
        from headrace.settings.kinds import kinds_below  # of use to what lists errors alone

        return tuple(
            words.code or f"{kind.upper()}_{cls._code}"
            for kind in (sorted(kinds_below("links")) if cls._code else ())
            for words in _words_of(kind, cls).values()
        )

    def __post_init__(self) -> None:
        self.code = self._words.code or f"{self.kind.upper()}_{self._code}"

    @property
    def _case(self) -> str:
        return ""

    @property
    def _words(self) -> Words:
        own = _words_of(self.kind, type(self)).get(self._case, Words())
        shared = self._cases.get(self._case, Words())
        return Words(*(word or of_all for word, of_all in zip(own, shared, strict=True)))

    @property
    def message(self) -> str:
        return self._words.message or super().message

    @property
    def remedy(self) -> str:
        remedy = (self._words.remedy or self._remedy).format(error=self)
        return " ".join(remedy.split())  # An empty field leaves two spaces.

    def facts(self) -> dict[str, object]:
        facts = super().facts()
        return {self.kind: facts.pop("link"), **facts}


WordsOfKind: TypeAlias = Mapping[type[LinkError], Mapping[str, Words]]
"""The words of a kind of link, by error and the cases that the kind has.

Most errors have one case, the empty one. ``codes`` lists the cases that are here.
"""


# By its name: an error of another process is recreated from its fields, which are plain values.
def _words_of(kind: str, error: type[LinkError]) -> Mapping[str, Words]:
    words: WordsOfKind = importlib.import_module(f"headrace.links.{kind}.errors").WORDS
    return words.get(error, {"": Words()})


@dataclass(eq=False)
class LinkRunningError(LinkError):
    """Instances of the link are running."""

    instances: int

    _code = "RUNNING"
    _remedy = "Stop them first; a killed one is a member of the group for ten seconds more."


@dataclass(eq=False)
class LinkSameClusterError(LinkError):
    """The two sites of the link are one cluster: records would be copied without end.

    Attributes:
        site: the other site of the link.
        own_site: the project's own.
        cluster_id: of both.
    """

    site: str
    own_site: str
    cluster_id: str

    _code = "SAME_CLUSTER"
    _remedy = (
        "Set bootstrap_servers of [sites.{error.site}.kafka] in headrace.toml to brokers of "
        "{error.site}: they are those of {error.own_site}, which [kafka] has."
    )


@dataclass(eq=False)
class LinkNotRefusedError(LinkError):
    """Nothing of the partition is lost: there is nothing to accept."""

    site: str
    partition: str

    _code = "NOT_REFUSED"
    _remedy = "`headrace {error.kind} list` shows which partitions are refused, and why."


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

    _code = "RECORD"
    _remedy = "{error.way_to_keep}"

    @property
    def source(self) -> tuple[str, int]:
        """Returns the topic and the number of the partition."""
        topic, _, number = self.partition.rpartition("/")
        return topic, int(number)

    @property
    def next_offset(self) -> int:
        """Returns the offset after the record."""
        return self.offset + 1

    @property
    def way_to_keep(self) -> str:
        """Returns how the topic would take the record; empty: by no setting of it."""
        topic = self.copy or f"{self.topic} at {self.site}"
        if self.setting == "max.message.bytes":
            return f"To keep it: give {topic} a larger max.message.bytes than its sources have."
        if self.setting == "cleanup.policy":
            return f"To keep it: let {topic} not be compacted, or no record would be without a key."
        if self.setting:
            return f'To keep it: give {topic} config={{"{self.setting}": "{_ANY_TIME}"}}.'
        return ""


@dataclass(eq=False)
class LinkDamagedError(LinkRecordError):
    """Records of the source are damaged: brokers have them, and no client can read them."""

    _code = "DAMAGED"
    _remedy = (
        "Another replica may have them whole: let it lead. To leave them out: delete them with "
        "`kafka-delete-records.sh`, up to the offset after the batch, which `kafka-dump-log.sh` "
        "shows; stop the instances of {error.link}, then `headrace {error.kind} accept "
        "{error.link} {error.partition}`."
    )


@dataclass(eq=False)
class LinkNoPartitionError(LinkError):
    """A topic does not exist, or does not have the partition.

    Other partitions continue.

    Attributes:
        site: of the topic; empty: this one.
        partition: as ``topic/partition``.
        copy: the partition that is missing at the target of a mirror; empty: another one is.
    """

    site: str
    partition: str
    copy: str = ""

    _code = "NO_PARTITION"
    _cases: ClassVar[Mapping[str, Words]] = {
        "copy": Words(
            message="A partition of the source is not copied, because its copy does not exist.",
            remedy="Declare as many partitions for {error.copied_topic} as the source has, then "
            "`headrace apply`.",
        )
    }

    @property
    def _case(self) -> str:
        return "copy" if self.copy else ""

    @property
    def copied_topic(self) -> str:
        """Returns the topic of the missing copy."""
        return self.copy.rpartition("/")[0]


@dataclass(eq=False)
class LinkNoLeaderError(LinkError):
    """A partition has no leader: all brokers with an in-sync replica of it are down.

    Other partitions continue.

    Attributes:
        site: of the partition; empty: this one.
        partition: as ``topic/partition``.
    """

    site: str
    partition: str

    _code = "NO_LEADER"
    _remedy = "Start its brokers: the {error.kind} continues within 30 seconds after it has one."


@dataclass(eq=False)
class LinkLossError(LinkError):
    """The source does not have the record that comes next.

    Other partitions continue.

    Attributes:
        site: the source of a mirror, or the target of a dispatcher.
        partition: of the source, as ``topic/partition``.
        next_offset: of the record.
        accepted_offset: the next one, if the loss is accepted.
        reason: what happened, where ``loss`` does not say it.
        loss: ``gap``, ``recreated`` or ``truncated``; ``target``: that of a merger was recreated;
            empty: the kind has one case of losses.
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

    _code = "LOSS"
    _remedy = (
        "To continue at offset {error.accepted_offset}: "
        "`headrace {error.kind} accept {error.link} {error.site} {error.partition}`."
    )
    _cases: ClassVar[Mapping[str, Words]] = {
        "gap": Words(
            message="Records were deleted before they were copied.",
            remedy="{error.lost:,} offsets are lost, {error.next_offset:,} to "
            f"{{error.last_offset:,}}. {_AFTER_A_LOSS}",
        ),
        "recreated": Words(
            message="The topic was deleted and created again since it was last copied.",
            remedy="Records of the old topic from offset {error.next_offset:,} on are lost, if "
            f"there were any; the offsets of the new one mean other records. {_AFTER_A_LOSS}",
        ),
        "truncated": Words(
            message="The source's log was truncated before a record that has been copied.",
            remedy="The brokers lost acknowledged records (unclean leader election, lost disk), "
            "which the copy still has; what follows there now is other records. "
            f"{_AFTER_A_LOSS}",
        ),
    }

    @property
    def _case(self) -> str:
        return self.loss

    @property
    def last_offset(self) -> int:
        """Returns the last offset that is lost."""
        return self.accepted_offset - 1

    @property
    def lost(self) -> int:
        """Returns the number of offsets that are lost. A compacted topic has fewer records."""
        return self.accepted_offset - self.next_offset
