"""Puts the results of the queries of one partition in order. Pure, one thread."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from headrace.events.times import LATEST_US, microseconds_since_1970
from headrace.queries.records.counts import ResultCounts
from headrace.queries.records.ended import (
    COPY_AFTER_MS,
    EndedRecord,
    MatchesByPartition,
    PartitionClocks,
    WindowResults,
)
from headrace.queries.records.result import QueryResult, ResultKind
from headrace.queries.records.snapshots import AnswerPosition
from headrace.queries.windows.aggregate.stage import Stage
from headrace.queries.windows.aggregate.window import time_text
from headrace.queries.windows.answer.counts import PartitionResultCounts
from headrace.queries.windows.answer.signals import QuerySignals
from headrace.queries.windows.answer.silent import WatchedQueries, WatchedQuery

_LOG = logging.getLogger("headrace.queries")
# At this interval, expired and cancelled queries are dropped from memory.
_FORGET_MS = 60_000
# If a clock jumps by months, only the last windows without events of a query have results.
_MAX_EMPTY_WINDOWS = 1_000


@dataclass(order=True, slots=True)
class _WaitingWindow:
    """An ended window that waits for its turn; it sorts as results do, also when read from a copy.

    Attributes:
        due_us: the time at which the results are written, by the clock that sorts the window, in
            microseconds since 1970.
        original: the offset of the first record that was written of the window.
        record: the results of the window.
        offset: the offset of the newest record that has been taken of the window.
        written_ms: when that record was written, in milliseconds since 1970.
        is_copied: whether a copy has been yielded that has not been taken yet.
    """

    due_us: int
    original: int
    record: WindowResults = field(compare=False)
    offset: int = field(compare=False)
    written_ms: int = field(compare=False)
    is_copied: bool = field(default=False, compare=False)


class PartitionAnswers(Stage):
    """The ended windows of a partition that wait for their turn in the results.

    Args:
        number: the number of the partition.
        partitions: the number of partitions of the matched topic.
        watched: the queries that have results for windows without events.
        position: the position to continue at; ``None`` to start at the beginning.
        silence: the loss-of-signal state of queries, from the snapshots.
    """

    def __init__(
        self,
        number: int,
        partitions: int,
        watched: WatchedQueries,
        position: AnswerPosition | None,
        silence: Mapping[str, tuple[int, bool]],
    ) -> None:
        known = position or AnswerPosition(0, 0, {}, {}, {})
        self._counts = PartitionResultCounts(known.counts)
        self._number, self._partitions, self._watched = number, partitions, watched
        self._clocks = dict(known.clocks)
        self._passed_us = dict(known.passed_us)
        self._signals = QuerySignals(silence)
        self._taken = known.offset
        self._began = None if position is None else position.began
        self._is_restored = position is None
        super().__init__(known.first_offset, known.topic_id, known.seen)
        self._waiting: dict[str, list[_WaitingWindow]] = {}
        self._by_original: dict[int, _WaitingWindow] = {}
        self._waiting_matches: Counter[str] = Counter()
        self._forgot_ms = self._written_ms = 0

    @property
    def waiting(self) -> int:
        """The number of waiting windows."""
        return len(self._by_original)

    def take(self, record: EndedRecord, offset: int, written_ms: int) -> list[QueryResult]:
        """Takes the next record, and returns the results that are due after it.

        Args:
            record: the record of the topic of ended windows.
            offset: the offset of the record.
            written_ms: when the record was written, by the clock of the brokers, in milliseconds
                since 1970. Queries expire by this clock, since that of an instance may be ahead.
        """
        if 0 <= written_ms <= LATEST_US // 1000:  # other programs may write times in another unit
            self._written_ms = written_ms
        if self._began is None:
            self._began = self.offset
        is_known = offset < self._taken
        if not is_known and not self._is_restored:
            self._is_restored = True
            self._log_lost()
        self.offset = offset + 1
        if isinstance(record, PartitionClocks):
            return [] if is_known else self._take_clocks(record)
        if record.is_early:
            return [] if is_known else record.results
        passed_us = self._passed_us.get(record.ordered_by)
        if passed_us is None or record.due_us > passed_us:
            if not is_known:
                self._count_waiting(record)
            self._wait(record, offset)
            return []
        if is_known or record.original is not None:
            return []  # its results are written already
        # The window's partition is late: the results are out of order.
        self._counts.take(record)
        self._counts.answer(record)
        self._note_events(record)
        return record.results

    def copies(self, now_ms: int) -> Iterator[WindowResults]:
        """Yields copies of the windows whose records Kafka will delete soon, the oldest first.

        Each copy is yielded once, to be written to the same partition. Until the copy is taken, the
        position stays before the older record. So an instance that starts meanwhile knows the
        window before it takes the clocks that precede the copy.

        Args:
            now_ms: the wall clock, in milliseconds since 1970.
        """
        written_until_ms = now_ms - COPY_AFTER_MS
        expiring = [
            window
            for window in self._by_original.values()
            if window.written_ms <= written_until_ms and not window.is_copied
        ]
        for window in sorted(expiring, key=lambda window: window.offset):
            window.is_copied = True
            yield msgspec.structs.replace(window.record, original=window.original)

    def changed_silence(self, *, all_queries: bool = False) -> dict[str, tuple[int, bool]]:
        """Returns loss-of-signal states that changed since the last call, or all, by query."""
        return self._signals.changed(all_queries=all_queries)

    @property
    def counts(self) -> dict[str, ResultCounts]:
        """The match counts of ended windows, by topic."""
        is_restored = self._is_restored or self.offset >= self._taken
        return self._counts.with_waiting(self._waiting_matches if is_restored else None)

    def position(
        self, event_us: Mapping[str, int], since_ms: int, sent: MatchesByPartition
    ) -> AnswerPosition:
        """Returns the position of the results.

        Args:
            event_us: the event clocks of the partition of the matched topic, by topic.
            since_ms: when that partition began to count the matches that it sends, in milliseconds
                since 1970.
            sent: matches in windows that have ended in that partition, by partition of the results
                and topic.
        """
        waiting = (window.offset for window in self._by_original.values())
        return AnswerPosition(
            min(waiting, default=self.offset),
            max(self.offset, self._taken),
            dict(self._passed_us),
            dict(self._clocks),
            event_us,
            self.offset if self._began is None else self._began,
            since_ms,
            sent,
            self.counts,
            self.topic_id,
            self.seen,
        )

    def _log_lost(self) -> None:
        """Logs that records of waiting windows were deleted, if matches are missing."""
        for topic, counts in self._counts.with_waiting(self._waiting_matches).items():
            if counts.missing_in_results > 0:
                _LOG.error(
                    "%d matches of %s have no results: the records of their windows, which waited "
                    "for their place, are deleted",
                    *(counts.missing_in_results, topic),
                )

    def _count_waiting(self, record: WindowResults) -> None:
        """Counts a waiting window once; a copy counts if its first record was never taken."""
        if record.original is None:
            self._counts.take(record)
            return
        was_taken = self._began is None or record.original >= self._began
        if not was_taken and record.original not in self._by_original:
            self._counts.take_copy(record)

    def _wait(self, record: WindowResults, offset: int) -> None:
        original = offset if record.original is None else record.original
        written_ms = self._written_ms
        window = self._by_original.get(original)
        if window is None:
            window = _WaitingWindow(record.due_us, original, record, offset, written_ms)
            self._by_original[original] = window
            self._waiting_matches[record.topic] += record.matches
            heapq.heappush(self._waiting.setdefault(record.ordered_by, []), window)
        else:
            window.offset, window.written_ms, window.is_copied = offset, written_ms, False

    def _take_clocks(self, clocks: PartitionClocks) -> list[QueryResult]:
        before = self._clocks.get(clocks.partition)
        if before is None and self._began == 0:
            before = PartitionClocks(clocks.partition, {}, 0)  # the partition had sent nothing
        self._counts.compare(clocks, before)
        self._clocks[clocks.partition] = clocks
        if len(self._clocks) < self._partitions:
            return []
        results: list[QueryResult] = []
        for topic, reached_us in self._reached().items():
            before_us = self._passed_us.get(topic)
            if before_us is not None and reached_us <= before_us:
                continue
            self._passed_us[topic] = reached_us
            ended = list(self._ended(topic, reached_us))
            silent = [] if before_us is None else self._silent(topic, before_us, ended)
            results += _in_order([result for window in ended for result in window.results], silent)
            for window in ended:
                self._note_events(window)
        self._forget()
        return results

    def _reached(self) -> dict[str, int]:
        """Returns the event clock that all partitions have reached, by topic.

        The wall clock that all have reached is under an empty name.
        """
        all_clocks = list(self._clocks.values())
        topics = set.intersection(*(set(clocks.event_us) for clocks in all_clocks))
        reached = {topic: min(clocks.event_us[topic] for clocks in all_clocks) for topic in topics}
        clock_us = min(clocks.clock_us for clocks in all_clocks)
        # It is 0 while a partition has not caught up since its first start.
        return reached | ({"": clock_us} if clock_us else {})

    def _ended(self, topic: str, reached_us: int) -> Iterator[WindowResults]:
        waiting = self._waiting.get(topic, [])
        while waiting and waiting[0].due_us <= reached_us:
            window = heapq.heappop(waiting)
            del self._by_original[window.original]
            self._waiting_matches[window.record.topic] -= window.record.matches
            self._counts.answer(window.record)
            yield window.record

    def _silent(
        self, topic: str, before_us: int, ended: Collection[WindowResults]
    ) -> list[QueryResult]:
        """Returns the results for windows without events that have ended since ``before_us``."""
        reached_us, at_ms = self._passed_us[topic], self._written_ms
        due = list(self._watched.ended(self._number, topic, before_us, reached_us, at_ms))
        with_events = _begins_and_ends(ended, {watched.name for watched, _ in due})
        results: list[QueryResult] = []
        for watched, begins in due:
            results += self._without_events(watched, begins, with_events.get(watched.name, {}))
        shortened = [
            begins
            for watched, begins in due
            if watched.plan.emits_empty and len(begins) > _MAX_EMPTY_WINDOWS
        ]
        if shortened:
            _LOG.warning(
                "Time advanced from %s to %s at once: only the last %d windows without events of a "
                "query have results; queries with more: %d",
                *(time_text(before_us), time_text(reached_us), _MAX_EMPTY_WINDOWS, len(shortened)),
            )
        return results

    def _without_events(
        self, watched: WatchedQuery, begins: range, with_events: Mapping[int, int]
    ) -> Iterator[QueryResult]:
        """Yields the results for windows without events of a query.

        Args:
            watched: the query.
            begins: the starts of its ended windows, in microseconds since 1970.
            with_events: the end of each ended window with events, by its start.
        """
        plan, name = watched.plan, watched.name
        if plan.emits_empty:
            for begin_us in begins[-_MAX_EMPTY_WINDOWS:]:
                if begin_us not in with_events:
                    yield _result_without_events(watched, begin_us, ResultKind.EMPTY)
        if not plan.loss_after:
            # An earlier text of the query may have asked for it, and a later text may ask again.
            self._signals.forget(name)
        elif begins:
            for begin_us in self._signals.lost(name, plan, begins, with_events.values()):
                yield _result_without_events(watched, begin_us, ResultKind.LOST)

    def _note_events(self, window: WindowResults) -> None:
        """Notes that a window had events, if its query asks for loss of signal."""
        result = window.results[0]
        if self._watched.asks_for_loss(result.query, result.registered):
            self._signals.note_events(_name(result), _microseconds(result.end))

    def _forget(self) -> None:
        """Drops expired queries, and the state of queries without loss of signal."""
        if 0 <= self._written_ms - self._forgot_ms < _FORGET_MS:
            return
        self._forgot_ms = self._written_ms
        self._watched.forget_expired(self._written_ms)
        live = self._watched.live(self._number, self._written_ms)
        names = {watched.name for watched in live if watched.plan.loss_after}
        self._signals.keep(names)


def _result_without_events(watched: WatchedQuery, begin_us: int, kind: ResultKind) -> QueryResult:
    registered, plan = watched.registered, watched.plan
    values = (aggregation.accumulator().value(plan.window) for aggregation in plan.aggregations)
    return QueryResult(
        query=registered.id,
        registered=watched.registered_text,
        revision=registered.revision,
        begin=time_text(begin_us),
        end=time_text(begin_us + plan.window_us),
        emission=0,
        kind=kind,
        facets={},
        is_other=False,
        values=dict(zip(plan.columns, values, strict=True)),
        events=0,
    )


def _in_order(ended: list[QueryResult], silent: list[QueryResult]) -> list[QueryResult]:
    """Returns results in order: by window end for queries that have windows without events."""
    if not silent:
        return ended
    names = {_name(result) for result in silent}
    others = [result for result in ended if _name(result) not in names]
    mixed = [*(result for result in ended if _name(result) in names), *silent]
    return others + sorted(mixed, key=lambda result: result.end)


def _begins_and_ends(
    windows: Collection[WindowResults], names: Collection[str]
) -> dict[str, dict[int, int]]:
    """Returns the end of each window of the named queries, by name and start of the window."""
    by_name: dict[str, dict[int, int]] = {}
    for window in windows:
        result = window.results[0]
        name = _name(result)
        if name in names:
            ends = by_name.setdefault(name, {})
            ends[_microseconds(result.begin)] = _microseconds(result.end)
    return by_name


def _microseconds(text: str) -> int:
    """Returns a time of a result, in microseconds since 1970."""
    return microseconds_since_1970(datetime.fromisoformat(text.upper()))


def _name(result: QueryResult) -> str:
    return f"{result.query} {result.registered}"
