"""How many rows a commit has taken out of a batch before it was tried again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

# They are held as JSON: a column that differs in each duplicate must not fill the memory.
MAX_DEAD_LETTERS = 100_000


class TakenOut:
    """Counts the rows of one batch after the other, by the names of figures.

    The pieces that are left of a batch say that a commit is another attempt at it.
    """

    def __init__(self) -> None:
        self._left: frozenset[str] = frozenset()
        self._counts: Counter[str] = Counter()

    def begin(self, pieces: Iterable[str]) -> None:
        """Starts a commit, of another batch unless its pieces are those that were left."""
        if not self._left.issuperset(pieces):
            self._counts = Counter()

    def add(self, counts: Mapping[str, int], left: Sequence[str]) -> None:
        """Adds rows that were taken out, which leaves these pieces."""
        self._counts.update(counts)
        self._left = frozenset(left)

    def committed(self) -> Mapping[str, int]:
        """Returns what was taken out of the batch that is committed now."""
        counts, self._counts = self._counts, Counter()
        return counts
