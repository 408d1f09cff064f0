"""What errors of mirrors say."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import RefusedError
from headrace.links.errors import (
    LinkLossError,
    LinkNoPartitionError,
    LinkRecordError,
    Words,
    WordsOfKind,
)

_AFTER_A_LOSS = (
    "To continue with what the source has: "
    "`headrace mirror accept {error.link} {error.partition}`. "
    "To copy everything again: delete the copy, `headrace apply`, and run the mirror."
)

WORDS: WordsOfKind = {
    LinkRecordError: {
        "": Words(
            remedy="{error.way_to_keep} To leave it out: stop the instances of {error.link}, then "
            "`headrace mirror accept {error.link} {error.partition} --to {error.next_offset}`.",
        )
    },
    LinkNoPartitionError: {
        "": Words(
            "MIRROR_TOPIC_MISSING",
            "A topic of the source does not exist, or was deleted.",
            "Create it, or take it out of Mirror {error.link!r}. It is looked for every "
            "30 seconds.",
        ),
        "copy": Words(
            "MIRROR_NO_COPY",
            "A partition of the source is not mirrored, because its copy does not exist.",
            "Declare as many partitions for {error.copied_topic} as the source has, then "
            "`headrace apply`.",
        ),
    },
    LinkLossError: {
        "gap": Words(
            "MIRROR_GAP",
            "Records were deleted before they were mirrored.",
            "{error.lost:,} offsets are lost, {error.next_offset:,} to {error.last_offset:,}. "
            + _AFTER_A_LOSS,
        ),
        "recreated": Words(
            "MIRROR_RECREATED",
            "The topic was deleted and created again since it was last mirrored.",
            "Records of the old topic from offset {error.next_offset:,} on are lost, if there "
            f"were any; the offsets of the new one mean other records. {_AFTER_A_LOSS}",
        ),
        "truncated": Words(
            "MIRROR_TRUNCATED",
            "The source's log was truncated before a record that has been mirrored.",
            "The brokers lost acknowledged records (unclean leader election, lost disk), which the "
            f"copy still has; what follows there now is other records. {_AFTER_A_LOSS}",
        ),
    },
}


@dataclass(eq=False)
class MirrorOffsetError(RefusedError):
    """A partition can't continue at an offset that its log does not have."""

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
