"""The stream time of a partition: the highest timestamp of its records up to an offset."""

from __future__ import annotations

import bisect
from array import array

NEVER = -1
"""The stream time before the first record with a timestamp."""


class StreamTime:
    """Says what the stream time was at each record that is not done. It follows from the topic.

    It is kept where it rises: two numbers of eight bytes for each such record, until what was done
    before it is committed.
    """

    def __init__(self) -> None:
        self._before = NEVER
        self._offsets, self._times = array("q"), array("q")

    @property
    def latest(self) -> int:
        """That at the last record that was read, milliseconds since 1970."""
        return max(self._before, self._times[-1]) if self._times else self._before

    def restore(self, time_ms: int) -> None:
        """Begins at ``time_ms``: records that were committed have come so far."""
        self._before = max(self._before, time_ms)

    def read(self, offset: int, timestamp_ms: int) -> None:
        """A record was read, after those before it; one that is read again changes nothing."""
        if timestamp_ms > self.latest:
            self._offsets.append(offset)
            self._times.append(timestamp_ms)

    def at(self, offset: int) -> int:
        """Returns the stream time at the record of ``offset``, which counts itself."""
        last = bisect.bisect_right(self._offsets, offset)
        return max(self._before, self._times[last - 1]) if last else self._before

    def before(self, offset: int) -> int:
        """Returns the stream time of the records before ``offset``."""
        return self.at(offset - 1)

    def forget(self, offset: int) -> None:
        """Drops what is not needed for ``offset`` and those after it."""
        count = bisect.bisect_left(self._offsets, offset)
        if count:
            self._before = max(self._before, self._times[count - 1])
            del self._offsets[:count], self._times[:count]
