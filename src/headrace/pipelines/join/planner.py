"""Decides on the driver which offsets of two topics a batch of a join takes, and their event time.

**Time.** The clock of a partition of a topic is its event clock
(:mod:`headrace.pipelines.late_data`). Where the last look at the topic has found it read to its
end, the wall clock from when it last moved to that look is added: an idle topic does not delay
events that wait for it, and an unreachable one does. Where a run ends at what the topics hold when
it begins, the wall clock ends there, too. A partition that never had an event goes by its
counterpart of the other topic.

**Partitions.** One that only one of the topics has is not read: it waits for its counterpart, where
it began.

**Keeping together.** A topic with a backlog is not read ahead of the other one by more than the
join's times: later events would wait, and earlier ones would be kept, in great numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.pipelines.join.matching import JoinWindow
from headrace.pipelines.join.offsets import JoinOffset, JoinPosition
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.source.planning.feedback import Feedback
from headrace.pipelines.source.planning.planner import Planner
from headrace.pipelines.source.reading.reader import ReadRange
from headrace.pipelines.source.spec import SourceSpec
from headrace.pipelines.source.state import SourceState
from headrace.runtime.clock import now_in_ms


@dataclass(frozen=True)
class PartitionWork:
    """What a task of a join does: a partition of both topics, between two positions.

    Attributes:
        partition: its number in both topics.
        start: where it begins.
        end: where it ends.
        initial: where the checkpoint began.
        ranges: of the topics, later before earlier; none of one that does not move.
    """

    partition: int
    start: JoinPosition
    end: JoinPosition
    initial: JoinPosition
    ranges: tuple[ReadRange, ...]


class JoinPlanner:
    """Plans the batches of two topics. Deterministic for a given start and end.

    Raises what :class:`~headrace.pipelines.source.planning.planner.Planner` does.
    """

    def __init__(self, later: SourceSpec, earlier: SourceSpec, window: JoinWindow) -> None:
        self._spec = later
        self._state = SourceState(later.files.state)
        self._later, self._earlier = Planner(later), Planner(earlier)
        self._window = window
        self._stopped_ms: int | None = None

    def initial_offset(self) -> JoinOffset:
        """Position of the first batch; identical when that batch is replayed."""
        return JoinOffset(self._later.initial_offset(), self._earlier.initial_offset())

    def stop_at_latest(self) -> None:
        """Plans from now on only up to what the topics hold, and what is due, at this moment."""
        self._stopped_ms = now_in_ms()
        self._later.stop_at_latest()
        self._earlier.stop_at_latest()

    def plan_next(self, start: JoinOffset) -> JoinOffset:
        """End of the next batch; ``start`` itself while there is nothing to do."""
        ends = {at.topic: at.partitions for at in (start.later, start.earlier)}
        # Only if it is of the batch that ended here: a restored checkpoint must not get later
        # clocks.
        feedback = self._state.feedback_at(self._spec.files.checkpoint, ends)
        reached = self._reached(start, feedback)
        # Decided by the last look at the topics, since this look plans the batch.
        self._hold(start, reached)
        later, earlier = self._planned(start)
        end = replace(start, later=later, earlier=earlier)
        # By this look: what it has found unread must not be passed over.
        reached = self._reached(start, feedback)
        if end == start and not self._is_due(start, reached):
            return start
        return self._timed(start, end, reached)

    def tasks(self, start: JoinOffset, end: JoinOffset) -> list[PartitionWork]:
        """The tasks of a batch: one for each partition with records, or with events that are due.

        Raises:
            BrokerUnreachableError: if the broker does not respond, also about replayed records.
        """
        initial = self.initial_offset()
        ranges: dict[int, tuple[ReadRange, ...]] = {}
        for planner, begin, until in (
            (self._later, start.later, end.later),
            (self._earlier, start.earlier, end.earlier),
        ):
            # A topic that does not move has no ranges, so it need not be looked at.
            if begin.partitions != until.partitions:
                for read in planner.tasks(begin, until):
                    if read.range is not None:
                        number = read.range.partition.partition
                        ranges[number] = (*ranges.get(number, ()), read)
        known = {*end.later.partitions, *end.earlier.partitions}
        moved = [p for p in known if start.position(p) != end.position(p)]
        return [
            PartitionWork(
                p, start.position(p), end.position(p), initial.position(p), ranges.get(p, ())
            )
            for p in sorted(moved)
        ]

    def _planned(self, start: JoinOffset) -> tuple[SourceOffset, SourceOffset]:
        """Returns the ends of both topics; where one is read, the other waits for no more records.

        Else live topics would take turns, and a later event would come a batch later.
        """
        later = self._later.plan_next(start.later)
        earlier = self._earlier.plan_next(start.earlier, at_once=later != start.later)
        if later == start.later and earlier != start.earlier:
            later = self._later.plan_next(start.later, at_once=True)
        return later, earlier

    def _is_due(self, start: JoinOffset, reached: Mapping[int, Reached]) -> bool:
        """Whether the time alone ends the wait of an event, or may: it is not known at a start."""
        # None: no event waits. A missing partition is not known yet, so an event of it may be due.
        waiting = self._state.waiting(self._spec.files.checkpoint)
        return any(
            (oldest_us := waiting.get(p, 0)) is not None
            and self._window.has_expired(oldest_us, times.earlier_us)
            for p, times in reached.items()
            if start.clock_us.get(p, 0) < times.earlier_us
        )

    def _reached(self, start: JoinOffset, feedback: Feedback) -> dict[int, Reached]:
        later = self._clocks(self._later, start.later, start.moved_ms, feedback)
        earlier = self._clocks(self._earlier, start.earlier, start.moved_ms, feedback)
        return {
            p: Reached.of(later[p], earlier[p])
            for p in start.later.partitions
            if p in start.earlier.partitions
        }

    def _clocks(
        self,
        planner: Planner,
        at: SourceOffset,
        moved_ms: Mapping[str, int],
        feedback: Feedback,
    ) -> dict[int, TopicClock]:
        # What batches have said since is lost with a crash; the offset has what came before.
        event_us = dict(at.event_us) | dict(feedback.event_us(at.topic))
        clocks = {}
        looked_ms = planner.looked_ms
        if self._stopped_ms is not None:
            looked_ms = min(looked_ms, self._stopped_ms)
        for p, position in at.partitions.items():
            is_read = planner.latest.get(p) == position
            # A partition that never moved has no known idle time, so none is added to its clock.
            since_ms = moved_ms.get(f"{at.topic}/{p}", looked_ms)
            idle_us = (looked_ms - since_ms) * 1000 if is_read else 0
            ends = planner.is_at_target(p, position)
            clocks[p] = TopicClock(event_us.get(p), max(0, idle_us), is_read=is_read, ends=ends)
        return clocks

    def _hold(self, start: JoinOffset, reached: Mapping[int, Reached]) -> None:
        """Holds the partitions of each topic that wait for the other one, or that it lacks."""
        window = self._window
        later, earlier = start.later.partitions.keys(), start.earlier.partitions.keys()
        # Its events would only wait: the earlier ones that they name may not be read yet.
        later_ahead = {
            p
            for p, times in reached.items()
            if not times.is_earlier_read and times.later_us > times.earlier_us + window.wait_us
        }
        # Its events would only be kept, for later ones that are not read yet.
        earlier_ahead = {
            p
            for p, times in reached.items()
            if not times.is_later_read
            and times.earlier_us > times.later_us + window.within_us + window.wait_us
        }
        self._later.held = frozenset(later_ahead | (later - earlier))
        self._earlier.held = frozenset(earlier_ahead | (earlier - later))

    def _timed(
        self, start: JoinOffset, end: JoinOffset, reached: Mapping[int, Reached]
    ) -> JoinOffset:
        """Returns ``end`` with the time that was reached; no time goes back."""
        now_ms = now_in_ms()
        clock_us, horizon_us = dict(start.clock_us), dict(start.horizon_us)
        for p, times in reached.items():
            clock_us[p] = max(clock_us.get(p, 0), times.earlier_us)
            # By the slower topic: later events that are not read yet may still need these earlier
            # ones.
            both_us = min(times.earlier_us, times.later_us)
            horizon_us[p] = max(horizon_us.get(p, 0), self._window.horizon_us(both_us))
        moved = {
            f"{until.topic}/{p}": now_ms
            for begin, until in ((start.later, end.later), (start.earlier, end.earlier))
            for p, at in until.partitions.items()
            if at != begin.partitions.get(p)
        }
        return replace(
            end, clock_us=clock_us, horizon_us=horizon_us, moved_ms={**start.moved_ms, **moved}
        )


@dataclass(frozen=True)
class TopicClock:
    """How far a partition of a topic is.

    Attributes:
        event_us: its event clock, in microseconds since 1970; None: not known.
        idle_us: for how many microseconds nothing came.
        is_read: whether it is read to its end.
        ends: whether this run reads no more of it.
    """

    event_us: int | None
    idle_us: int
    is_read: bool
    ends: bool


@dataclass(frozen=True)
class Reached:
    """How far both topics of a partition are, microseconds since 1970; 0: not known.

    The other topic does not wait for one that is read, to its end or as far as this run goes.
    """

    later_us: int
    earlier_us: int
    is_later_read: bool
    is_earlier_read: bool

    @classmethod
    def of(cls, later: TopicClock, earlier: TopicClock) -> Reached:
        """Returns the times; a topic without an event goes by the other one once it is read."""
        return cls(
            _time_of(later, earlier),
            _time_of(earlier, later),
            later.is_read or later.ends,
            earlier.is_read or earlier.ends,
        )


def _time_of(own: TopicClock, other: TopicClock) -> int:
    if own.event_us is not None:
        return own.event_us + own.idle_us
    if own.is_read and other.event_us is not None:
        return other.event_us + other.idle_us
    return 0
