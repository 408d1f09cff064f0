"""The watermark of one source: the time before which no more of its records will arrive."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.links.merger.sorting.order import OrderKey


@dataclass(slots=True)
class InputClock:
    """The time of a partition of a source.

    It moves by records, and by the time up to which its site had sent all that was read. What is
    ahead of the clock of this machine moves nothing until its time has come, or one producer with a
    wrong clock would make the records of the others late.

    Attributes:
        place: of the topic in the sources.
        allowed_lateness_ms: how far a record may be behind the newest one of its partition.
        time_ms: the newest of its records; -1: none is known.
        complete_ms: the time up to which its site had sent all that was read; -1: it is not known.
        blocks_since: when it was first asked for while records waited for it, by the monotonic
            clock; ``None``: it has moved since.
        is_idle: whether the others do not wait for it any more.
    """

    place: int
    allowed_lateness_ms: int
    time_ms: int
    complete_ms: int = -1
    blocks_since: float | None = None
    is_idle: bool = False

    def watermark(self, now_ms: int) -> OrderKey:
        """Returns the time before which nothing more will come, with the place of the topic."""
        reached_ms = min(max(self.time_ms, self.complete_ms), now_ms)
        return OrderKey(max(reached_ms - self.allowed_lateness_ms, -1), self.place)

    def note_records(self, newest_ms: int) -> None:
        """Advances the time to the newest record; a source that was idle is waited for again.

        Records that are all ahead of the clock (-1) say nothing: a source that sends no others
        becomes idle, however many they are.
        """
        if newest_ms < 0:
            return
        self.time_ms = max(self.time_ms, newest_ms)
        self.blocks_since, self.is_idle = None, False

    def note_complete(self, time_ms: int) -> None:
        """Sets the time up to which all was read; it may go back, if a clock was set back."""
        if time_ms != self.complete_ms:
            self.complete_ms, self.blocks_since, self.is_idle = time_ms, None, False

    def note_blocking(self, idle_seconds: float, now: float) -> bool:
        """Records that others wait for it; returns whether it has just become idle."""
        if self.blocks_since is None:
            self.blocks_since = now
        if self.is_idle or now - self.blocks_since < idle_seconds:
            return False
        self.is_idle = True
        return True
