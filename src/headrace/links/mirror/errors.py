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
        ),
    },
    LinkLossError: {
        "gap": Words("MIRROR_GAP", "Records were deleted before they were mirrored."),
        "recreated": Words(
            "MIRROR_RECREATED",
            "The topic was deleted and created again since it was last mirrored.",
        ),
        "truncated": Words(
            "MIRROR_TRUNCATED",
            "The source's log was truncated before a record that has been mirrored.",
        ),
    },
}


@dataclass(eq=False)
class MirrorOffsetError(RefusedError):
    """A partition can't continue at an offset that its log does not have, or that was mirrored.

    Attributes:
        earliest_offset: of the log; of a truncated one, the offset at which it was truncated.
    """

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
