"""Dead letters of rows that belong to no record: each is written once while the process lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from headrace.model import DeadLetter


class DerivedLetters:
    """The derived dead letters of the current batch, kept over the restarts of its query.

    The dead letter of a record is found in its topic by the record's offset, and is not written
    again. A derived one has no offset. While a database is unreachable, its batch is retried every
    few seconds, so what was written for it is remembered here. What a killed process has written is
    not remembered: the next one writes the letters of one batch again.

    Memory: 16 bytes and a count for each different letter of one batch.
    """

    def __init__(self) -> None:
        self._batch: tuple[str, int] = ("", -1)
        self._written: Counter[bytes] = Counter()
        self._left: Counter[bytes] = Counter()

    def begin(self, checkpoint: str, batch_id: int) -> None:
        """Starts an attempt of a batch; the letters of the batch before can't recur."""
        if self._batch != (checkpoint, batch_id):
            self._batch, self._written = (checkpoint, batch_id), Counter()
        # Rows can be equal, and a sink rejects some when tasks write and some when it commits: each
        # letter of an earlier attempt stands for one letter of this one, whichever call brings it.
        self._left = self._written.copy()

    def unwritten(self, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
        """Returns ``letters`` without derived ones that an earlier attempt has written."""
        return [letter for letter in letters if letter.offset >= 0 or not self._found(letter)]

    def remember(self, letters: Iterable[DeadLetter]) -> None:
        """Notes that ``letters`` are in their topics."""
        self._written.update(_digest(letter) for letter in letters if letter.offset < 0)

    def _found(self, letter: DeadLetter) -> bool:
        digest = _digest(letter)
        if not self._left[digest]:
            return False
        self._left[digest] -= 1
        return True


def _digest(letter: DeadLetter) -> bytes:
    """Returns a digest without the detail, which may name something of one attempt."""
    digest = blake2b(f"{letter.partition.topic} {letter.reason} ".encode(), digest_size=16)
    digest.update(letter.value or b"")
    return digest.digest()
