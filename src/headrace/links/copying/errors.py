"""What errors of links say that copy, and those that only they have."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.links.errors import (
    LinkDamagedError,
    LinkError,
    LinkLossError,
    LinkNoPartitionError,
    LinkRecordError,
    Words,
    WordsOfKind,
)


@dataclass(eq=False)
class LinkOffsetError(LinkError):
    """A partition can't continue at an offset that its log does not have, or that was copied.

    Attributes:
        site: of the source.
        partition: of the source, as ``topic/partition``.
        earliest_offset: of the log; of a truncated one, the offset at which it was truncated.
    """

    site: str
    partition: str
    offset: int
    earliest_offset: int
    end_offset: int

    _code = "OFFSET"
    _remedy = "Give --to an offset from {error.earliest_offset} to {error.end_offset}."

    @classmethod
    def codes(cls) -> tuple[str, ...]:
        from headrace.links.copying.kind import CopyKind  # of use to what lists errors alone
        from headrace.project.kinds import kinds

        copying = (kind.label for kind in kinds() if isinstance(kind, CopyKind))
        return tuple(f"{label.upper()}_{cls._code}" for label in copying)


def copy_words(kind: str, done: str = "copied") -> WordsOfKind:
    """Returns the words of a kind of links that copy.

    Args:
        kind: the name of its folder.
        done: what was done to a record that is at the target.
    """
    code = kind.upper()
    return {
        LinkRecordError: {
            "": Words(
                remedy="{error.way_to_keep} To leave it out: stop the instances of {error.link}, "
                f"then `headrace {kind} accept {{error.link}} {{error.partition}} "
                "--to {error.next_offset}`.",
            )
        },
        LinkDamagedError: {
            "": Words(
                remedy="Another replica may have them whole: let it lead. To leave them out: stop "
                f"the instances of {{error.link}}, then `headrace {kind} accept {{error.link}} "
                "{error.partition} --to OFFSET` with the offset after the batch, which "
                "`kafka-dump-log.sh` shows.",
            )
        },
        LinkNoPartitionError: {
            "": Words(
                f"{code}_TOPIC_MISSING",
                "A topic of the source does not exist, or was deleted.",
                f"Create it, or take it out of {kind.capitalize()} {{error.link!r}}. It is looked "
                "for every 30 seconds.",
            ),
            "copy": Words(
                f"{code}_NO_COPY",
                f"A partition of the source is not {done}, because its copy does not exist.",
            ),
        },
        LinkLossError: {
            "gap": Words(f"{code}_GAP", f"Records were deleted before they were {done}."),
            "recreated": Words(
                f"{code}_RECREATED",
                f"The topic was deleted and created again since it was last {done}.",
            ),
            "truncated": Words(
                f"{code}_TRUNCATED",
                f"The source's log was truncated before a record that has been {done}.",
            ),
        },
    }
