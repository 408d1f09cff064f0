"""How far the time of one input is: below which time nothing more of it will come."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.merger.order import OrderKey


@dataclass(slots=True)
class InputClock:
    """The time of a partition of a source.

    It moves by records, and by the time at which all that the site had was read. A record whose
    timestamp has not come yet moves nothing, or one producer with a wrong clock would make the
    records of the others late.

    Attributes:
        place: of the topic in the sources.
        disorder_ms: how far a record may be behind the time that its partition has reached.
        time_ms: that was reached; -1: nothing is known.
        moved_at: when it moved last, by the monotonic clock, in seconds.
        is_idle: whether the others do not wait for it any more.
    """

    place: int
    disorder_ms: int
    time_ms: int
    moved_at: float
    is_idle: bool = False

    @property
    def bound(self) -> OrderKey:
        """The time before which nothing more of this input will come, and its place."""
        return OrderKey(max(self.time_ms - self.disorder_ms, -1), self.place)

    def move(self, time_ms: int, now: float) -> None:
        """Moves it on, never back; an input that was idle is waited for again."""
        self.time_ms = max(self.time_ms, time_ms)
        self.moved_at, self.is_idle = now, False

    def rest(self, idle_seconds: float, now: float) -> bool:
        """Declares it idle, where it has not moved for so long; whether it has just become so."""
        if self.is_idle or now - self.moved_at < idle_seconds:
            return False
        self.is_idle = True
        return True
