"""The windows of one partition of the matched topic: opened, added up, ended. Pure, one thread."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from headrace.errors import QueryTextError
from headrace.queries.aggregate.closing import MAX_REMEMBERED_MS, REMEMBERED_MS, is_long_over
from headrace.queries.aggregate.counts import PartitionCounts
from headrace.queries.aggregate.plan import AggregatePlan, Plans
from headrace.queries.aggregate.window import OpenWindow, time_text
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

_LOG = logging.getLogger("headrace.queries")
_MAX_LATE_QUERIES = 10_000
_MAX_FAULTY_QUERIES = 1_000
# A clock that goes back by less was corrected, as NTP does.
_SET_BACK_MS = 1_000


@dataclass
class WindowOutput:
    """What is to be written, in one transaction.

    Attributes:
        windows: what has ended, or has an early result, in this order.
        ended: markers of the windows that have ended.
        emitted: windows that have had an early result.
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


class PartitionAggregator:
    """The open windows of a partition.

    Args:
        number: of the partition.
        plans: of the texts of queries.
        restored: what the snapshots of the partition come to.

    Attributes:
        offset: of the next record.
        topic_id: of the topic that the offset is of; empty: not known.
        late: late events, by query; of queries beyond ten thousand under an empty name.
        faulty: records that can't be added, by query, with the last reason; of a thousand queries.
    """

    def __init__(self, number: int, plans: Plans, restored: Restored) -> None:
        self._number, self._plans = number, plans
        self._windows: dict[WindowId, OpenWindow] = {}
        # Records before these offsets are in the snapshot, or in the result, of their window.
        self._covered: dict[WindowId, int] = {}
        self._ended = dict(restored.ended)
        self._changed: set[WindowId] = set()
        # By topic whose event time ends them, or an empty name for the clock: when each open window
        # ends, at the earliest.
        self._due_us: dict[str, list[tuple[int, WindowId]]] = {}
        # When windows that wait for an early result have it, unless they end before.
        self._early_ms: list[tuple[int, WindowId]] = []
        # The latest time that the clock has said since it was set back.
        self._clock_ms = 0
        position = restored.position or SnapshotPosition(0, 0, {}, {})
        self._counts = PartitionCounts(position.counts, restored.ended_events)
        self.offset, self.topic_id = position.offset, position.topic_id
        # What others have been told does not go back, though records are taken once more.
        told_us = restored.answered.event_us if restored.answered else {}
        self._event_us = {**position.event_us, **told_us}
        self._ticks = {tick.topic: tick for tick in position.ticks}
        self.late = Counter(position.late)
        self.faulty: dict[str, str] = {}
        for snapshot in restored.windows.values():
            self._restore(snapshot)
        ended_ms = (marker.ended_ms for marker in self._ended.values())
        self._clock_ms = max([self._clock_ms, *ended_ms])
        # From this offset on, windows have no more than what was taken.
        markers = (marker.offset for marker in self._ended.values())
        self._whole_from = max([self.offset, *self._covered.values(), *markers])

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

    @property
    def counts(self) -> dict[str, TopicCounts]:
        """What has become of the matches, by topic."""
        if self.offset < self._whole_from:
            return self._counts.with_open(None)
        open_events: Counter[str] = Counter()
        for window in self._windows.values():
            open_events[window.plan.topic] += window.events
        return self._counts.with_open(open_events)

    def take(self, record: MatchedRecord, offset: int, now_ms: int) -> WindowOutput:
        """Takes the next record.

        Args:
            record: of the matched topic.
            offset: of the record.
            now_ms: the clock, in milliseconds since 1970.
        """
        self.offset = offset + 1
        self._clock_ms = max(self._clock_ms, now_ms)
        if isinstance(record, Tick):
            return self._tick(record, now_ms)
        counts = self._counts.of(record.topic)
        counts.begun += record.events
        try:
            self._add(record, offset, now_ms)
        except (QueryTextError, ValueError) as error:
            counts.faulty += record.events
            self._note_fault(record.query, error)
        return WindowOutput()

    def end_by_clock(self, now_ms: int) -> WindowOutput:
        """Ends the windows that end by the clock, and emits early results that are due.

        Args:
            now_ms: the clock, in milliseconds since 1970.
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
        """Ends the windows that end by event time, where it is ``event_us`` now."""
        output = WindowOutput()
        self._event_us[topic] = max(event_us, self._event_us.get(topic, event_us))
        self._end_due(topic, self._event_us[topic], now_ms, output)
        return output

    def changed(self, *, all_windows: bool = False) -> Iterator[WindowSnapshot]:
        """Yields the windows that have changed since the last call, or all of them."""
        changed, self._changed = self._changed, set()
        if all_windows:
            changed = set(self._windows)
        for window_id in sorted(changed):
            if window_id in self._windows:
                yield self._snapshot(self._windows[window_id])

    def position(self, base: int, now_ms: int, *, may_forget: bool = True) -> SnapshotPosition:
        """Returns how far it is; to be written after all that has changed.

        Windows that ended long ago are forgotten only here. Events that were late and events that
        begin the window anew then have a position between them, and a restart that takes both once
        more does not take the former for events of the new window.

        Args:
            base: an offset of the topic of snapshots, behind which every open window is.
            now_ms: the clock, in milliseconds since 1970.
            may_forget: False: records of windows that ended long ago may be still to come.
        """
        if may_forget:
            self._forget(now_ms)
        ticks = list(self._ticks.values())
        late = dict(self.late)
        return SnapshotPosition(
            self.offset, base, self.event_us, late, ticks, self.counts, self.topic_id
        )

    def remembered(self) -> list[PublishMarker]:
        """Returns the markers of windows that ended by the clock not long ago."""
        return list(self._ended.values())

    def _tick(self, tick: Tick, now_ms: int) -> WindowOutput:
        self._ticks[tick.topic] = tick
        self._counts.take(tick)
        if tick.event_us is None:
            return WindowOutput()
        return self.end_by_event_time(tick.topic, tick.event_us, now_ms)

    def _add(self, record: WindowPartial, offset: int, now_ms: int) -> None:
        window_id = WindowId.of(record)
        marker = self._ended.get(window_id)
        plan = self._plan_of(record)
        ended_before = 0 if marker is None else marker.offset
        if offset < max(ended_before, self._covered.get(window_id, 0)):
            # It was added before: or not, where it is damaged.
            OpenWindow(window_id, record.text, plan, now_ms).add(record, now_ms)
            return
        window = self._windows.get(window_id)
        if window is None:
            window = OpenWindow(window_id, record.text, plan, now_ms)
            if marker is not None or self._has_ended(window, now_ms):
                self._count_late(record)
                return
            window.add(record, now_ms)
            self._open(window)
        else:
            window.add(record, now_ms)
        self._changed.add(window_id)
        self._await_early(window)
        self.faulty.pop(record.query, None)

    def _plan_of(self, record: WindowPartial | WindowSnapshot) -> AggregatePlan:
        """Returns the plan by which a record can be added up.

        Raises:
            QueryTextError, ValueError: if there is none.
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

    def _count_late(self, record: WindowPartial) -> None:
        is_known = record.query in self.late or len(self.late) < _MAX_LATE_QUERIES
        self.late[record.query if is_known else ""] += record.events
        self._counts.of(record.topic).late += record.events

    def _has_ended(self, window: OpenWindow, now_ms: int) -> bool:
        """Whether a window that is not open, and has no marker, has ended."""
        closing = window.plan.closing
        planned_us = self._planned_us(closing.topic, now_ms)
        return closing.has_ended(window.due_us, self._event_us.get(closing.topic), planned_us)

    def _planned_us(self, topic: str, now_ms: int) -> int | None:
        """When the last batch of a topic was planned: the clock of a pipeline may be ahead."""
        tick = self._ticks.get(topic)
        return None if tick is None else min(tick.planned_ms, now_ms) * 1000

    def _open(self, window: OpenWindow) -> None:
        self._windows[window.id] = window
        heap = self._due_us.setdefault(window.plan.closing.ordered_by, [])
        heapq.heappush(heap, (window.due_us, window.id))

    def _await_early(self, window: OpenWindow) -> None:
        """Has a window that has changed emit an early result, where its query asks for them."""
        if window.plan.early_us and not window.awaits_early:
            window.awaits_early = True
            heapq.heappush(self._early_ms, (window.early_due_ms, window.id))

    def _set_back(self, now_ms: int) -> None:
        """The clock was set back: no window has changed, ended, or had a result, later than now.

        Windows would be open, have no early result, or have late events alone, until it is as late
        as it was before.
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
        self._due_us[""] = [(self._windows[each].due_us, each) for each in open_ids]
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
        """Ends the windows that end by a time that is ``reached_us`` now."""
        heap = self._due_us.get(ordered_by, [])
        while heap and heap[0][0] <= reached_us:
            window = self._windows[heapq.heappop(heap)[1]]
            if window.due_us <= reached_us:
                self._end(window, now_ms, output)
            else:
                # Events have come since: quiet time begins anew with each.
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
        # Of the others, event time says that they have ended, but not which records they have.
        if closing.needs_markers or marker.offset > self.offset:
            self._ended[window.id] = marker

    def _results(self, window: OpenWindow, kind: ResultKind) -> list[QueryResult] | None:
        """Returns the results of a window; None: they can't be made, and it is faulty.

        An exception would end each instance that comes to the window.
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
        """Returns the offset that a window covers: after a restart, records may be behind it."""
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

    def _forget(self, now_ms: int) -> None:
        """Forgets the markers of windows that ended long ago."""
        for window_id in list(self._over(now_ms)):
            del self._ended[window_id]

    def _over(self, now_ms: int) -> Iterator[WindowId]:
        """Yields the windows whose markers are needed no more: the oldest come first.

        A marker whose records are still to come, after a restart, is kept however old it is.
        """
        for marker in self._ended.values():
            if marker.ended_ms > now_ms - REMEMBERED_MS:
                return
            if marker.offset <= self.offset and self._is_long_over(marker, now_ms):
                yield marker.id

    def _is_long_over(self, marker: PublishMarker, now_ms: int) -> bool:
        """Whether events of the window are late, or begin it anew, without its marker, too.

        The clock of this instance alone may be ahead for a moment.
        """
        if marker.due_us is None or marker.ended_ms <= now_ms - MAX_REMEMBERED_MS:
            return True
        return is_long_over(marker.due_us, self._planned_us(marker.topic, now_ms))
