"""Opens, adds up and ends windows of one partition of the matched topic. Pure, one thread."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from headrace.errors import QueryTextError
from headrace.queries.records.counts import TopicCounts
from headrace.queries.records.ended import WindowResults
from headrace.queries.records.matched import MatchedRecord, Tick, WindowId, WindowPartial
from headrace.queries.records.result import QueryResult, ResultKind
from headrace.queries.records.snapshots import (
    PublishMarker,
    Restored,
    SnapshotPosition,
    WindowSnapshot,
)
from headrace.queries.windows.aggregate.closing import (
    MAX_REMEMBERED_MS,
    REMEMBERED_MS,
    is_long_over,
)
from headrace.queries.windows.aggregate.counts import PartitionCounts
from headrace.queries.windows.aggregate.plan import AggregatePlan, Plans
from headrace.queries.windows.aggregate.stage import Stage
from headrace.queries.windows.aggregate.window import OpenWindow, time_text

_LOG = logging.getLogger("headrace.queries")
# Late events of further queries are counted together, under an empty name.
_MAX_LATE_QUERIES = 10_000
# Faults of further queries are not kept.
_MAX_FAULTY_QUERIES = 1_000
# Smaller steps back of the wall clock are ignored: NTP corrects it in this way.
_SET_BACK_MS = 1_000


@dataclass
class WindowOutput:
    """Results, markers and snapshots to be written in one transaction.

    Attributes:
        windows: final and early results, in the order in which they are written.
        ended: publish markers of the windows that have ended.
        emitted: snapshots of the windows that have early results.
    """

    windows: list[WindowResults] = field(default_factory=list)
    ended: list[PublishMarker] = field(default_factory=list)
    emitted: list[WindowSnapshot] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.windows or self.ended or self.emitted)

    @property
    def results(self) -> list[QueryResult]:
        """The results of all windows."""
        return [result for window in self.windows for result in window.results]


class PartitionAggregator(Stage):
    """The open windows of a partition.

    Args:
        number: the number of the partition.
        plans: the plans of query texts.
        restored: the state that was read from the snapshots of the partition.

    Attributes:
        late: late events, by query; after ten thousand queries, under an empty name.
        faulty: the last reason why records can't be added up, by query; at most a thousand.
    """

    def __init__(self, number: int, plans: Plans, restored: Restored) -> None:
        self._number, self._plans = number, plans
        self._windows: dict[WindowId, OpenWindow] = {}
        # Records before these offsets are in the snapshot, or in the early result, of their window.
        self._covered: dict[WindowId, int] = {}
        self._ended = dict(restored.ended)
        self._changed: set[WindowId] = set()
        # The earliest time at which each open window ends, by the topic whose event clock ends
        # it, or under an empty name for the wall clock.
        self._due_us: dict[str, list[tuple[int, WindowId]]] = {}
        # When early results of windows are due, unless the windows end before.
        self._early_ms: list[tuple[int, WindowId]] = []
        # The latest time of the wall clock since it was set back.
        self._clock_ms = 0
        position = restored.position or SnapshotPosition(0, 0, {}, {})
        self._counts = PartitionCounts(position.counts, restored.ended_events)
        super().__init__(position.offset, position.topic_id, position.seen)
        # An event clock that other partitions have read does not go back, though records are
        # taken again.
        told_us = restored.answered.event_us if restored.answered else {}
        self._event_us = {**position.event_us, **told_us}
        self._ticks = {tick.topic: tick for tick in position.ticks}
        self.late = Counter(position.late)
        self.faulty: dict[str, str] = {}
        for snapshot in restored.windows.values():
            self._restore(snapshot)
        ended_ms = (marker.ended_ms for marker in self._ended.values())
        self._clock_ms = max([self._clock_ms, *ended_ms])
        # Before this offset, windows also hold matches of records that are still to be taken again.
        markers = (marker.offset for marker in self._ended.values())
        self._whole_from = max([self.offset, *self._covered.values(), *markers])

    @property
    def windows(self) -> int:
        """The number of open windows."""
        return len(self._windows)

    @property
    def ticks(self) -> list[Tick]:
        """The last tick of each topic."""
        return list(self._ticks.values())

    @property
    def event_us(self) -> dict[str, int]:
        """The event clocks, by topic, in microseconds since 1970."""
        return dict(self._event_us)

    @property
    def counts(self) -> dict[str, TopicCounts]:
        """The match counts, by topic."""
        if self.offset < self._whole_from:
            return self._counts.with_open(None)
        open_events: Counter[str] = Counter()
        for window in self._windows.values():
            open_events[window.plan.topic] += window.events
        return self._counts.with_open(open_events)

    def take(self, record: MatchedRecord, offset: int, now_ms: int) -> WindowOutput:
        """Takes the next record.

        Args:
            record: the record of the matched topic.
            offset: the offset of the record.
            now_ms: the wall clock, in milliseconds since 1970.
        """
        self.offset = offset + 1
        self._clock_ms = max(self._clock_ms, now_ms)
        if isinstance(record, Tick):
            self._ticks[record.topic] = record
            self._counts.take(record)
            if record.event_us is None:
                return WindowOutput()
            return self.end_by_event_time(record.topic, record.event_us, now_ms)
        counts = self._counts.of(record.topic)
        counts.begun += record.events
        try:
            self._add(record, offset, now_ms)
        except (QueryTextError, ValueError) as error:
            counts.faulty += record.events
            self._note_fault(record.query, error)
        return WindowOutput()

    def end_by_clock(self, now_ms: int) -> WindowOutput:
        """Ends the windows that are due by the wall clock, and emits early results that are due.

        Args:
            now_ms: the wall clock, in milliseconds since 1970.
        """
        output = WindowOutput()
        if now_ms < self._clock_ms - _SET_BACK_MS:
            self._set_back(now_ms)
        self._clock_ms = max(self._clock_ms, now_ms)
        self._end_due("", now_ms * 1000, now_ms, output)
        while self._early_ms and self._early_ms[0][0] <= now_ms:
            _, window_id = heapq.heappop(self._early_ms)
            window = self._windows.get(window_id)
            if window is not None:
                self._emit_early(window, now_ms, output)
        return output

    def end_by_event_time(self, topic: str, event_us: int, now_ms: int) -> WindowOutput:
        """Moves a topic's event clock up to ``event_us``, and ends the windows that are due."""
        output = WindowOutput()
        self._event_us[topic] = max(event_us, self._event_us.get(topic, event_us))
        self._end_due(topic, self._event_us[topic], now_ms, output)
        return output

    def changed(self, *, all_windows: bool = False) -> Iterator[WindowSnapshot]:
        """Yields snapshots of the open windows that changed since the last call, or of all."""
        changed, self._changed = self._changed, set()
        if all_windows:
            changed = set(self._windows)
        for window_id in sorted(changed):
            if window_id in self._windows:
                yield self._snapshot(self._windows[window_id])

    def position(self, base: int, now_ms: int, *, may_forget: bool = True) -> SnapshotPosition:
        """Returns the position, to be written after the snapshots of all changed windows.

        Markers of windows that ended long ago are dropped only here. So there is a position
        between the late events of a window and the events that open it again: a restart that takes
        all of them again does not add the late events to the new window.

        Args:
            base: an offset of the snapshots topic; the snapshot of every open window is after it.
            now_ms: the wall clock, in milliseconds since 1970.
            may_forget: whether markers may be dropped; ``False`` if records of windows that ended
                long ago may still come.
        """
        if may_forget:
            for window_id in list(self._over(now_ms)):
                del self._ended[window_id]
        ticks = list(self._ticks.values())
        late = dict(self.late)
        return SnapshotPosition(
            *(self.offset, base, self.event_us, late, ticks, self.counts, self.topic_id, self.seen)
        )

    def remembered(self) -> list[PublishMarker]:
        """Returns the publish markers that are kept."""
        return list(self._ended.values())

    def _add(self, record: WindowPartial, offset: int, now_ms: int) -> None:
        window_id = WindowId.of(record)
        marker = self._ended.get(window_id)
        plan = self._plan_of(record)
        ended_before = 0 if marker is None else marker.offset
        if offset < max(ended_before, self._covered.get(window_id, 0)):
            # The window has this record already, unless it is damaged: then it raises here, too.
            OpenWindow(window_id, record.text, plan, now_ms).add(record, now_ms)
            return
        window = self._windows.get(window_id)
        if window is None:
            window = OpenWindow(window_id, record.text, plan, now_ms)
            if marker is not None or self._has_ended(window, now_ms):
                is_known = record.query in self.late or len(self.late) < _MAX_LATE_QUERIES
                self.late[record.query if is_known else ""] += record.events
                self._counts.of(record.topic).late += record.events
                return
            window.add(record, now_ms)
            self._open(window)
        else:
            window.add(record, now_ms)
        self._changed.add(window_id)
        self._await_early(window)
        self.faulty.pop(record.query, None)

    def _plan_of(self, record: WindowPartial | WindowSnapshot) -> AggregatePlan:
        """Returns the plan by which a record is added up.

        Raises:
            QueryTextError, ValueError: if the record can't be added up.
        """
        plan = self._plans.of(record.text, record.shape)
        if record.types and record.types != plan.types:
            raise ValueError(f"the fields of topic {plan.topic!r} had other types in the record")
        return plan

    def _note_fault(self, query: str, error: Exception) -> None:
        if query not in self.faulty:
            _LOG.warning("Query %s can't be added up: %s", query, error)
        if query in self.faulty or len(self.faulty) < _MAX_FAULTY_QUERIES:
            self.faulty[query] = str(error)

    def _has_ended(self, window: OpenWindow, now_ms: int) -> bool:
        """Returns whether a window has ended that is not in memory and has no publish marker."""
        closing = window.plan.closing
        planned_us = self._planned_us(closing.topic, now_ms)
        return closing.has_ended(window.due_us, self._event_us.get(closing.topic), planned_us)

    def _planned_us(self, topic: str, now_ms: int) -> int | None:
        """Returns when the last batch of a topic was planned, or now if that is in the future.

        The clock of a pipeline may be ahead.
        """
        tick = self._ticks.get(topic)
        return None if tick is None else min(tick.planned_ms, now_ms) * 1000

    def _open(self, window: OpenWindow) -> None:
        self._windows[window.id] = window
        heap = self._due_us.setdefault(window.plan.closing.ordered_by, [])
        heapq.heappush(heap, (window.due_us, window.id))

    def _await_early(self, window: OpenWindow) -> None:
        """Schedules an early result of a window that has changed, if its query asks for it."""
        if window.plan.early_us and not window.awaits_early:
            window.awaits_early = True
            heapq.heappush(self._early_ms, (window.early_due_ms, window.id))

    def _set_back(self, now_ms: int) -> None:
        """Changes times in the future to now, after the wall clock was set back.

        Until the wall clock had caught up, windows would otherwise stay open, have no early
        results, or count every event as late.
        """
        self._clock_ms = now_ms
        self._early_ms.clear()
        self._ended = {
            window_id: msgspec.structs.replace(marker, ended_ms=min(marker.ended_ms, now_ms))
            for window_id, marker in self._ended.items()
        }
        for window in self._windows.values():
            window.changed_ms = min(window.changed_ms, now_ms)
            window.emitted_ms = min(window.emitted_ms, now_ms)
            if window.awaits_early:
                heapq.heappush(self._early_ms, (window.early_due_ms, window.id))
        open_ids = [window_id for _, window_id in self._due_us.get("", [])]
        self._due_us[""] = [(self._windows[window_id].due_us, window_id) for window_id in open_ids]
        heapq.heapify(self._due_us[""])

    def _emit_early(self, window: OpenWindow, now_ms: int, output: WindowOutput) -> None:
        window.awaits_early, window.emitted_ms = False, now_ms
        early = self._results(window, ResultKind.EARLY)
        if early is None:
            return
        output.windows.append(WindowResults(self._number, window.plan.topic, "", 0, early))
        self._covered[window.id] = self._covers(window)
        output.emitted.append(self._snapshot(window))

    def _end_due(self, ordered_by: str, reached_us: int, now_ms: int, output: WindowOutput) -> None:
        """Ends the windows that are due at ``reached_us``, by the clock of ``ordered_by``."""
        heap = self._due_us.get(ordered_by, [])
        while heap and heap[0][0] <= reached_us:
            window = self._windows[heapq.heappop(heap)[1]]
            if window.due_us <= reached_us:
                self._end(window, now_ms, output)
            else:
                # More events have come: the quiet time starts again with each.
                heapq.heappush(heap, (window.due_us, window.id))

    def _end(self, window: OpenWindow, now_ms: int, output: WindowOutput) -> None:
        closing, topic = window.plan.closing, window.plan.topic
        counts, events = self._counts.of(topic), window.events
        results = self._results(window, ResultKind.FINAL)
        if results is None:
            counts.faulty += events
            events = 0
        else:
            result_us = closing.result_us(window.due_us, now_ms * 1000)
            output.windows.append(
                WindowResults(self._number, topic, closing.ordered_by, result_us, results, events)
            )
            counts.ended += events
        marker = PublishMarker(
            **window.id._asdict(),
            offset=self._covers(window),
            ended_ms=now_ms,
            topic=topic,
            events=events,
            due_us=closing.marker_due_us(window.due_us),
        )
        output.ended.append(marker)
        del self._windows[window.id]
        self._covered.pop(window.id, None)
        self._changed.discard(window.id)
        # The event clock shows that other windows have ended, but not which records their results
        # cover: that matters while such records are taken again.
        if closing.needs_markers or marker.offset > self.offset:
            self._ended[window.id] = marker

    def _results(self, window: OpenWindow, kind: ResultKind) -> list[QueryResult] | None:
        """Returns the results of a window, or ``None`` if they can't be made: the query is faulty.

        An exception would stop every instance that reaches the window.
        """
        try:
            return list(window.results(kind))
        except Exception as error:  # noqa: BLE001 - see above
            _LOG.exception(
                "Cannot make the results of query %s for the window that begins at %s, it has none",
                *(window.id.query, time_text(window.id.begin_us)),
            )
            self._note_fault(window.id.query, error)
            return None

    def _covers(self, window: OpenWindow) -> int:
        """Returns the offset before which the window has its records.

        After a restart, it may be ahead of the next record.
        """
        return max(self.offset, self._covered.get(window.id, 0))

    def _snapshot(self, window: OpenWindow) -> WindowSnapshot:
        return WindowSnapshot(
            **window.id._asdict(),
            offset=self._covers(window),
            text=window.text,
            shape=window.plan.shape,
            types=window.plan.types,
            changed_ms=window.changed_ms,
            emitted_ms=window.emitted_ms,
            emission=window.emission,
            events=window.events,
            groups=window.groups(),
            other=window.other(),
        )

    def _restore(self, snapshot: WindowSnapshot) -> None:
        try:
            plan = self._plan_of(snapshot)
            window_id = snapshot.id
            window = OpenWindow(window_id, snapshot.text, plan, snapshot.changed_ms)
            window.restore(snapshot.events, snapshot.groups, snapshot.other)
        except (QueryTextError, ValueError) as error:
            self._note_fault(snapshot.query, error)
            return
        window.emitted_ms, window.emission = snapshot.emitted_ms, snapshot.emission
        self._clock_ms = max(self._clock_ms, window.changed_ms, window.emitted_ms)
        self._open(window)
        if window.changed_ms >= window.emitted_ms:
            self._await_early(window)
        self._covered[window.id] = snapshot.offset

    def _over(self, now_ms: int) -> Iterator[WindowId]:
        """Yields the windows whose publish markers are no longer needed, the oldest first.

        A marker that covers records which are still to be taken after a restart is kept at any age.
        """
        for marker in self._ended.values():
            if marker.ended_ms > now_ms - REMEMBERED_MS:
                return
            if marker.offset <= self.offset and self._is_long_over(marker, now_ms):
                yield marker.id

    def _is_long_over(self, marker: PublishMarker, now_ms: int) -> bool:
        """Returns whether the marker is no longer needed to recognize late events of its window.

        The wall clock of this instance does not decide alone: it may be ahead for a moment.
        """
        if marker.due_us is None or marker.ended_ms <= now_ms - MAX_REMEMBERED_MS:
            return True
        return is_long_over(marker.due_us, self._planned_us(marker.topic, now_ms))
