"""What errors of mirrors say, and the one that has a name of its own."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.links.copying.errors import LinkOffsetError, copy_words

WORDS = copy_words("mirror", "mirrored")


@dataclass(eq=False)
class MirrorOffsetError(LinkOffsetError):
    """A partition can't continue at an offset that its log does not have, or that was mirrored."""

    @classmethod
    def codes(cls) -> tuple[str, ...]:
        return (f"MIRROR_{cls._code}",)

    @property
    def mirror(self) -> str:
        """Returns the name of the mirror."""
        return self.link
