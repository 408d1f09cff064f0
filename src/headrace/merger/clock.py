"""How far the time of one input is: below which time nothing more of it will come."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.merger.order import OrderKey


@dataclass(slots=True)
class InputClock:
    """The time of a partition of a source.

    It moves by records, and by the time up to which its site had sent all that was read. A record
    that is ahead of the clock moves nothing, or one producer with a wrong clock would make the
    records of the others late.

    Attributes:
        place: of the topic in the sources.
        allowed_lateness_ms: how far a record may be behind the newest one of its partition.
        time_ms: the newest of its records; -1: none is known.
        moved_at: when it moved last, by the monotonic clock, in seconds.
        complete_ms: the time up to which its site had sent all that was read; -1: it is not known.
        is_idle: whether the others do not wait for it any more.
    """

    place: int
    allowed_lateness_ms: int
    time_ms: int
    moved_at: float
    complete_ms: int = -1
    is_idle: bool = False

    @property
    def watermark(self) -> OrderKey:
        """The time before which nothing more of this input will come, and its place."""
        time_ms = max(self.time_ms, self.complete_ms) - self.allowed_lateness_ms
        return OrderKey(max(time_ms, -1), self.place)

    def note_records(self, newest_ms: int, now_ms: int, now: float) -> None:
        """Notes that records came, the newest of them of a time; an idle input is waited for again.

        A clock that was set back had told times that have not come: they count no more.
        """
        self.time_ms = max(self.time_ms, newest_ms)
        if self.complete_ms > now_ms:
            self.complete_ms = -1
        self.moved_at, self.is_idle = now, False

    def note_complete(self, time_ms: int, now: float) -> None:
        """Notes the time up to which all was read, be it before the last one: a clock was set."""
        if time_ms != self.complete_ms:
            self.complete_ms, self.moved_at, self.is_idle = time_ms, now, False

    def rest(self, idle_seconds: float, now: float) -> bool:
        """Declares it idle, where it has not moved for so long; whether it has just become so."""
        if self.is_idle or now - self.moved_at < idle_seconds:
            return False
        self.is_idle = True
        return True
