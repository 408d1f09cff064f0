"""Bad records of one range, on their way to the end of the batch: no more than memory has room for.

A producer that starts to fail fills whole batches with bad records. They would fill the task and
the driver before the batch's end looks at the dead-letter limit, so beyond it they are only
counted.

The driver has the bad records of all ranges of a batch at once: they share what it has room for.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.model import DeadLetter, DeadLetterLimit

MAX_BYTES = 16 * 1024 * 1024
MAX_BATCH_BYTES = 256 * 1024 * 1024  # a quarter of the memory that Spark's driver has by default


class BadRecords:
    """Keeps dead letters until the limit is certain to stop the batch, or their bytes are many.

    Args:
        limit: of the pipeline.
        ranges: how many ranges or tasks of the batch share the driver's room.
        max_bytes: of this one; None: as many as one range or task may keep.
    """

    def __init__(
        self, limit: DeadLetterLimit, ranges: int = 1, max_bytes: int | None = None
    ) -> None:
        self._limit = limit
        self._max_bytes = min(max_bytes or MAX_BYTES, MAX_BATCH_BYTES // ranges)
        self._bytes = 0
        self.kept: list[DeadLetter] = []
        self.omitted = 0

    def take(self, letters: Iterable[DeadLetter], longest_run: int) -> None:
        """Adds ``letters``; ``longest_run`` is that of the range, with them."""
        for letter in letters:
            if self._bytes > self._max_bytes or self.omitted:
                self.omitted += 1
            else:
                self.kept.append(letter)
                self._bytes += _bytes(letter)
        # The run stops the pipeline for certain, and its message needs one example.
        if longest_run > self._limit.max_consecutive and len(self.kept) > 1:
            self.omitted += len(self.kept) - 1
            del self.kept[1:]


def _bytes(letter: DeadLetter) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in letter.headers)
    return len(letter.value or b"") + len(letter.key or b"") + headers
