"""The windows of one partition of the matched topic: opened, added up, ended. Pure, one thread."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headrace.errors import QueryTextError
from headrace.queries.aggregate.plan import Plans
from headrace.queries.aggregate.snapshots import (
    Restored,
    SnapshotPosition,
    WindowEnded,
    WindowSnapshot,
)
from headrace.queries.aggregate.window import OpenWindow, WindowId
from headrace.queries.ended import WindowResults
from headrace.queries.language.tree import ClosedBy
from headrace.queries.matched import MatchedRecord, Tick, WindowPartial
from headrace.queries.result import QueryResult, ResultKind

_LOG = logging.getLogger("headrace.queries")
# Windows that ended by the clock are known for so long: what comes for them is late.
_REMEMBERED_MS = 3_600_000
_MAX_LATE_QUERIES = 10_000
_MAX_FAULTY_QUERIES = 1_000


@dataclass
class WindowOutput:
    """What is to be written, in one transaction.

    Attributes:
        windows: what has ended, or has an early result, in this order.
        ended: markers of the windows that have ended.
        emitted: windows that have had an early result.
    """

    windows: list[WindowResults] = field(default_factory=list)
    ended: list[WindowEnded] = field(default_factory=list)
    emitted: list[WindowSnapshot] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.windows or self.ended or self.emitted)

    @property
    def results(self) -> list[QueryResult]:
        """The results of all windows."""
        return [result for window in self.windows for result in window.results]


class PartitionAggregator:
    """The open windows of a partition.

    Args:
        plans: of the texts of queries.
        restored: what the snapshots of the partition come to.

    Attributes:
        offset: of the next record.
        late: late events, by query; of queries beyond ten thousand under an empty name.
        faulty: records that can't be added, by query, with the last reason; of a thousand queries.
    """

    def __init__(self, plans: Plans, restored: Restored) -> None:
        self._plans = plans
        self._windows: dict[WindowId, OpenWindow] = {}
        # Records before these offsets are in the snapshot, or in the result, of their window.
        self._covered: dict[WindowId, int] = {}
        self._ended = dict(restored.ended)
        self._changed: set[WindowId] = set()
        self._by_event_time: dict[str, list[tuple[int, WindowId]]] = {}
        self._by_clock: set[WindowId] = set()
        position = restored.position or SnapshotPosition(0, 0, {}, {})
        self.offset = position.offset
        # What others have been told does not go back, though records are taken once more.
        told_us = restored.answered.event_us if restored.answered else {}
        self._event_us = {**position.event_us, **told_us}
        self._ticks = {tick.topic: tick for tick in position.ticks}
        self.late = Counter(position.late)
        self.faulty: dict[str, str] = {}
        for snapshot in restored.windows.values():
            self._restore(snapshot)

    @property
    def windows(self) -> int:
        """How many windows are open."""
        return len(self._windows)

    @property
    def ticks(self) -> list[Tick]:
        """The last tick of each topic."""
        return list(self._ticks.values())

    @property
    def event_us(self) -> dict[str, int]:
        """The time of events, by topic, in microseconds since 1970."""
        return dict(self._event_us)

    def take(self, record: MatchedRecord, offset: int, now_ms: int) -> WindowOutput:
        """Takes the next record.

        Args:
            record: of the matched topic.
            offset: of the record.
            now_ms: the clock, in milliseconds since 1970.
        """
        self.offset = offset + 1
        if isinstance(record, Tick):
            return self._tick(record, now_ms)
        try:
            self._add(record, offset, now_ms)
        except (QueryTextError, ValueError) as error:
            self._note_fault(record.query, error)
        return WindowOutput()

    def advance(self, now_ms: int) -> WindowOutput:
        """Ends the windows that end by the clock, and emits early results that are due.

        Args:
            now_ms: the clock, in milliseconds since 1970.
        """
        written = WindowOutput()
        for window in [self._windows[window_id] for window_id in self._by_clock]:
            if _has_ended(window, now_ms):
                self._end(window, now_ms, written)
            elif _is_due(window, now_ms):
                window.emitted_ms = now_ms
                early = list(window.results(ResultKind.EARLY))
                written.windows.append(WindowResults("", 0, early))
                self._covered[window.id] = self._covers(window)
                written.emitted.append(self._snapshot(window))
        self._forget(now_ms)
        return written

    def go_on(self, topic: str, event_us: int, now_ms: int) -> WindowOutput:
        """Ends the windows that end by event time, where it is ``event_us`` now."""
        written = WindowOutput()
        self._event_us[topic] = max(event_us, self._event_us.get(topic, event_us))
        due = self._by_event_time.get(topic, [])
        while due and due[0][0] <= self._event_us[topic]:
            _, window_id = heapq.heappop(due)
            window = self._windows.get(window_id)
            if window is not None:
                self._end(window, now_ms, written)
        return written

    def changed(self, *, all_windows: bool = False) -> Iterator[WindowSnapshot]:
        """Yields the windows that have changed since the last call, or all of them."""
        changed, self._changed = self._changed, set()
        if all_windows:
            changed = set(self._windows)
        for window_id in sorted(changed):
            if window_id in self._windows:
                yield self._snapshot(self._windows[window_id])

    def position(self, base: int) -> SnapshotPosition:
        """Returns how far it is; to be written behind all that has changed.

        Args:
            base: an offset of the topic of snapshots, behind which every open window is.
        """
        ticks = list(self._ticks.values())
        return SnapshotPosition(self.offset, base, self.event_us, dict(self.late), ticks)

    def remembered(self) -> list[WindowEnded]:
        """Returns the markers of windows that ended by the clock not long ago."""
        return list(self._ended.values())

    def _tick(self, tick: Tick, now_ms: int) -> WindowOutput:
        self._ticks[tick.topic] = tick
        if tick.event_us is None:
            return WindowOutput()
        return self.go_on(tick.topic, tick.event_us, now_ms)

    def _add(self, record: WindowPartial, offset: int, now_ms: int) -> None:
        window_id = WindowId(record.query, record.registered_ms, record.revision, record.begin_us)
        marker = self._ended.get(window_id)
        if marker is not None and offset < marker.offset:
            return
        if offset < self._covered.get(window_id, 0):
            return
        plan = self._plans.of(record.text)
        window = self._windows.get(window_id)
        if window is None:
            window = OpenWindow(window_id, record.text, plan, now_ms)
            if marker is not None or self._is_past(window):
                self._count_late(record)
                return
            window.add(record, now_ms)
            self._open(window)
        else:
            window.add(record, now_ms)
        self._changed.add(window_id)

    def _note_fault(self, query: str, error: Exception) -> None:
        if query not in self.faulty:
            _LOG.warning("Query %s can't be added up: %s", query, error)
        if query in self.faulty or len(self.faulty) < _MAX_FAULTY_QUERIES:
            self.faulty[query] = str(error)

    def _count_late(self, record: WindowPartial) -> None:
        is_known = record.query in self.late or len(self.late) < _MAX_LATE_QUERIES
        self.late[record.query if is_known else ""] += record.events

    def _is_past(self, window: OpenWindow) -> bool:
        """Whether a window that is not open has ended."""
        plan = window.plan
        if plan.closed_by is ClosedBy.EVENT_TIME:
            reached = self._event_us.get(plan.topic)
            return reached is not None and window.due_us <= reached
        tick = self._ticks.get(plan.topic)
        if plan.closed_by is ClosedBy.QUIET_TIME or tick is None:
            return False
        # By the time of the batch: an instance that was away takes records of long ago. Markers of
        # windows that ended later are there.
        return window.due_us // 1000 + _REMEMBERED_MS <= tick.planned_ms

    def _open(self, window: OpenWindow) -> None:
        self._windows[window.id] = window
        if window.plan.closed_by is ClosedBy.EVENT_TIME:
            due = self._by_event_time.setdefault(window.plan.topic, [])
            heapq.heappush(due, (window.due_us, window.id))
        if window.plan.closed_by is not ClosedBy.EVENT_TIME or window.plan.early_us:
            self._by_clock.add(window.id)

    def _end(self, window: OpenWindow, now_ms: int, written: WindowOutput) -> None:
        by_event_time = window.plan.closed_by is ClosedBy.EVENT_TIME
        by_quiet_time = window.plan.closed_by is ClosedBy.QUIET_TIME
        written.windows.append(
            WindowResults(
                window.plan.topic if by_event_time else "",
                now_ms * 1000 if by_quiet_time else window.due_us,
                list(window.results(ResultKind.FINAL)),
            )
        )
        marker = WindowEnded(*window.id, self._covers(window), now_ms)
        written.ended.append(marker)
        del self._windows[window.id]
        self._by_clock.discard(window.id)
        self._covered.pop(window.id, None)
        self._changed.discard(window.id)
        # Of the others, event time says that they have ended, but not which records they have.
        if not by_event_time or marker.offset > self.offset:
            self._ended[window.id] = marker

    def _covers(self, window: OpenWindow) -> int:
        """Returns the offset that a window covers: after a restart, records may be behind it."""
        return max(self.offset, self._covered.get(window.id, 0))

    def _snapshot(self, window: OpenWindow) -> WindowSnapshot:
        return WindowSnapshot(
            *window.id,
            offset=self._covers(window),
            text=window.text,
            changed_ms=window.changed_ms,
            emitted_ms=window.emitted_ms,
            emission=window.emission,
            events=window.events,
            groups=window.groups(),
            other=window.other(),
        )

    def _restore(self, snapshot: WindowSnapshot) -> None:
        try:
            plan = self._plans.of(snapshot.text)
            window = OpenWindow(snapshot.id, snapshot.text, plan, snapshot.changed_ms)
            window.restore(snapshot.events, snapshot.groups, snapshot.other)
        except (QueryTextError, ValueError) as error:
            self._note_fault(snapshot.query, error)
            return
        window.emitted_ms, window.emission = snapshot.emitted_ms, snapshot.emission
        self._open(window)
        self._covered[window.id] = snapshot.offset

    def _forget(self, now_ms: int) -> None:
        """Forgets the markers of windows that ended long ago: the oldest come first.

        A marker whose records are still to come, after a restart, is kept however old it is.
        """
        for window_id in _older(self._ended.values(), now_ms - _REMEMBERED_MS, self.offset):
            del self._ended[window_id]


def _has_ended(window: OpenWindow, now_ms: int) -> bool:
    after_ms = window.plan.after_us // 1000
    if window.plan.closed_by is ClosedBy.QUIET_TIME:
        return now_ms >= window.changed_ms + after_ms
    if window.plan.closed_by is ClosedBy.CLOCK:
        return now_ms >= window.end_us // 1000 + after_ms
    return False


def _is_due(window: OpenWindow, now_ms: int) -> bool:
    early_us = window.plan.early_us
    has_changed = window.changed_ms >= window.emitted_ms
    return bool(early_us) and has_changed and now_ms >= window.emitted_ms + early_us // 1000


def _older(markers: Iterable[WindowEnded], than_ms: int, offset: int) -> list[WindowId]:
    older = []
    for marker in markers:
        if marker.ended_ms > than_ms or marker.offset > offset:
            break
        older.append(marker.id)
    return older
