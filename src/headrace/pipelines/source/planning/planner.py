"""Decides on the driver which offsets a batch takes, and refuses where data would be lost.

Runs in the Python process that Spark keeps for the source. It shares a folder with the driver:
the driver leaves there what only it knows (paused partitions, sizes seen, how far the other
sources are), the planner what only it sees (latest offsets, idle partitions).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from headrace.errors import BrokerUnreachableError, RefusedError
from headrace.kafka.dead_letters.replayed import Window
from headrace.kafka.read.cluster import LivePositions
from headrace.kafka.table.topic_table import live_positions
from headrace.model import OffsetRange, Start
from headrace.pipelines.source.offsets import (
    NOTHING_READ,
    SourceOffset,
    allocate_batch,
    ranges_between,
    split,
)
from headrace.pipelines.source.planning.feedback import Feedback
from headrace.pipelines.source.planning.initial import read_initial, write_initial
from headrace.pipelines.source.planning.pause import Pause
from headrace.pipelines.source.planning.position_check import PositionCheck
from headrace.pipelines.source.reading.reader import ReadRange
from headrace.pipelines.source.spec import SourceSpec
from headrace.pipelines.source.state import SourceState, SourceView
from headrace.runtime.clock import now_in_ms

# A partition without new records for so long is shown as idle; it changes nothing else. It is as
# long as the longest pause between polls, so that one poll which has found nothing is not enough.
IDLE_AFTER_SECONDS = 10.0
SLOW_AFTER_SECONDS = 3.0  # a look at a topic takes milliseconds, an election about a second
UNKNOWN_BYTES = 50_000.0  # of a record: high, as a first batch too large is repeated whole
TARGET_PAUSE_SECONDS = 0.5  # an election takes about a second, and a run with an end waits for it
# Longer than the grace of a log that ends before the checkpoint, whose error says more.
TARGET_GRACE_SECONDS = 90.0


class Planner:
    """Plans the batches of one source. Deterministic for a given start and end.

    Order: ranges of a partition follow one another without a gap or an overlap. A crash repeats
    the batch that was planned last, with the same ranges. Bad positions raise RefusedError.

    Attributes:
        held: partitions that stay where they are, beside those that an operator has paused.
        latest: the end of each partition, as of the last look at the topic.
        looked_ms: when that look began, by the wall clock.
    """

    def __init__(self, spec: SourceSpec) -> None:
        self._spec, self._planning = spec, spec.planning
        self.held: frozenset[int] = frozenset()
        self.latest: Mapping[int, int] = {}
        self.looked_ms = 0
        self._looking_ms = 0
        self._state = SourceState(spec.files.state)
        self._check = PositionCheck(spec)
        self._pause = Pause(self._planning.limits.max_wait.total_seconds())
        self._target: Mapping[int, int] | None = None
        self._planned: SourceOffset | None = None
        self._pending_since: float | None = None
        self._quiet_since: dict[int, float] = {}

    def initial_offset(self) -> SourceOffset:
        """Position of the first batch; identical when that batch is replayed.

        Raises:
            TopicMissingError: if there is no such topic.
            BrokerUnreachableError: if the broker does not respond.
        """
        known = read_initial(self._spec.files.checkpoint, self._spec.topic)
        if known is not None:
            return known
        live = self._live()
        first = self._first(live)
        offset = SourceOffset(
            self._spec.topic,
            live.topic_id,
            first,
            now_in_ms(),
            epochs=live.epochs,
            caught_up_ms=NOTHING_READ,
        )
        # Before Spark logs a batch: after a crash, LATEST would mean another place, and skip
        # records.
        write_initial(self._spec.files.checkpoint, offset)
        return offset

    def stop_at_latest(self) -> None:
        """Plans from now on only up to what the topic holds at this moment."""
        self._target = self._live().latest

    def is_at_target(self, partition: int, position: int) -> bool:
        """Returns whether a run that ends reads no more of a partition."""
        return self._target is not None and position >= self._target.get(partition, 0)

    def plan_next(self, start: SourceOffset, *, at_once: bool = False) -> SourceOffset:
        """End of the next batch; ``start`` itself while there is nothing to do.

        An unreachable broker is nothing to do: the query waits instead of failing. Only a run
        that ends at a target would take that for its end.

        Args:
            start: of the batch.
            at_once: take what the topic holds, without waiting for more.

        Raises:
            RefusedError: if to continue would lose or repeat records.
            BrokerUnreachableError: in a run with a target, if the broker does not respond, or the
                target is not there.
        """
        self._looking_ms = now_in_ms()
        if self._target is not None:
            return self._toward(start, self._target)
        # While the source is idle, Spark's triggers do not all become requests to the broker.
        if self._pause.lasts():
            return start
        try:
            live = self._look(start)
            return self._plan(start, live, live.latest, at_once=at_once)
        except BrokerUnreachableError as error:
            self._state.write_view(self._spec.topic, SourceView(unreachable=str(error)))
            return start

    def tasks(self, start: SourceOffset, end: SourceOffset) -> list[ReadRange]:
        """The tasks of the batch from ``start`` to ``end``.

        A batch that was planned by an earlier run is compared with the topic as it is now. Where it
        would read other records, its tasks fail; Spark runs none of them if the batch is committed.

        Raises:
            BrokerUnreachableError: if the broker does not respond, also about replayed records.
        """
        # This process has just looked at the topic for a batch that it planned itself.
        refusal = None if end == self._planned else self._refusal(start, end)
        pieces = split(ranges_between(start, end), self._planning.min_tasks)
        # Read after the ends: a replay notes its window before it sends the first record.
        windows = self._spec.cluster.replay_windows(self._spec.topic) if pieces else {}
        tasks = [
            ReadRange(
                piece,
                end.planned_ms,
                may_hold_replays=may_hold_replays(windows, piece),
                refusal=refusal,
                topic_id=end.topic_id,
                event_us=end.event_us.get(piece.partition.partition),
                range_count=len(pieces),
                ends=self.latest if self._planning.needs_key_places else {},
            )
            for piece in pieces
        ]
        if end.heartbeat_us > start.heartbeat_us:
            tasks.append(ReadRange(None, end.planned_ms, end.heartbeat_us))
        return tasks

    def _refusal(self, start: SourceOffset, end: SourceOffset) -> RefusedError | None:
        self._looking_ms = now_in_ms()
        try:
            # Both ends: records at the start may be deleted, and the log may be cut before the end.
            live = self._check.check(replace(end, partitions=start.partitions))
            self._check.check(end)
        except RefusedError as error:
            return error
        # Spark repeats a batch without asking for the next one, which may be a minute later.
        self._observe(start, live)
        return None

    def _toward(self, start: SourceOffset, target: Mapping[int, int]) -> SourceOffset:
        """Returns the end of the next batch of a run with a target.

        Spark takes ``start`` for the end of the run, so it is returned only at the target. A broker
        may lag behind after an election: without a wait for it, the run would end too early.
        """
        deadline = time.monotonic() + TARGET_GRACE_SECONDS
        while True:
            live = self._look(start)
            end = self._plan(
                start, live, {p: min(latest, target.get(p, 0)) for p, latest in live.latest.items()}
            )
            missing = self._missing(end, live, target)
            if end != start or not missing:
                return end
            if time.monotonic() > deadline:
                raise BrokerUnreachableError("", missing)
            time.sleep(TARGET_PAUSE_SECONDS)

    def _missing(self, end: SourceOffset, live: LivePositions, target: Mapping[int, int]) -> str:
        """Returns what of the target, or of what was read, the topic lacks; empty: nothing."""
        for p in sorted(target.keys() - self._stopped()):
            position, latest = end.partitions.get(p, 0), live.latest.get(p, 0)
            if position < target[p] or latest < position:
                ended = f"{self._spec.topic}[{p}] ended at {max(position, target[p])}"
                return f"{ended} before, and ends at {latest} now"
        return ""

    def _plan(
        self,
        start: SourceOffset,
        live: LivePositions,
        upto: Mapping[int, int],
        *,
        at_once: bool = False,
    ) -> SourceOffset:
        self._observe(start, live)
        stopped = self._stopped()
        ends = self._allocate(start, upto, stopped)
        # A partition that was added to the topic begins at 0, wherever the source began: its
        # records are all newer than the checkpoint.
        ends |= {p: 0 for p in live.latest if p not in start.partitions}
        if ends == start.partitions:
            self._pending_since = None
            self._pause.prolong()
            return self._heartbeat(start)
        found_since = self._pause.end()
        # The topic holds more than one batch takes: waiting would only make the next ones later.
        behind = any(upto.get(p, at) > at for p, at in ends.items() if p not in stopped)
        if not at_once and not behind and self._should_wait(start, ends, found_since):
            return start
        self._pending_since = None
        epochs = {p: epoch for p, epoch in live.epochs.items() if p in ends}
        event_us = self._feedback().event_us(self._spec.topic)
        references = live_positions(self._spec.cluster, self._planning.references)
        self._planned = start.advanced(
            ends,
            epochs,
            planned_ms=now_in_ms(),
            event_us=event_us,
            references=references,
            caught_up_ms=self._caught_up_ms(start, ends, live),
        )
        return self._planned

    def _caught_up_ms(
        self, start: SourceOffset, ends: Mapping[int, int], live: LivePositions
    ) -> int:
        if self._spec.decoding.null_key is None:
            return 0
        takes_all = all(ends[p] >= latest for p, latest in live.latest.items())
        is_first = start.caught_up_ms == NOTHING_READ
        # The time before the look: a tombstone that was written during the look may not be in it.
        return self._looking_ms if takes_all or is_first else start.caught_up_ms

    def _look(self, start: SourceOffset) -> LivePositions:
        """Looks at the topic; reports a slow broker while it waits.

        It may take the broker's whole time-out, in which the last view would look like that of a
        topic without new records.
        """
        silent = SourceView(unreachable=f"no response of the broker for {SLOW_AFTER_SECONDS:g} s")
        timer = threading.Timer(
            SLOW_AFTER_SECONDS, self._state.write_view, (self._spec.topic, silent)
        )
        timer.daemon = True  # a planner that is stopped during a look does not wait for it
        timer.start()
        try:
            return self._check.check(start)
        finally:
            timer.cancel()
            timer.join()  # what it writes comes before the view of this look

    def _stopped(self) -> frozenset[int]:
        return self._state.paused(self._spec.topic) | self.held

    def _live(self) -> LivePositions:
        return self._spec.cluster.live(self._spec.topic)

    def _first(self, live: LivePositions) -> dict[int, int]:
        """Returns the positions at which a new checkpoint begins."""
        start = self._planning.start
        if start == Start.LATEST:
            return dict(live.latest)
        if start == Start.EARLIEST:
            return dict(live.earliest)
        cluster, topic = self._spec.cluster, self._spec.topic
        seen = cluster.committed(self._planning.consumer_group, topic)
        # Where a log was truncated since the group committed, other records have these offsets.
        committed = {p: at.offset for p, at in seen.items()} | dict(cluster.cuts(topic, seen))
        # Retention may have passed the committed offset.
        return {p: max(first, committed.get(p, first)) for p, first in live.earliest.items()}

    def _allocate(
        self, start: SourceOffset, ceiling: Mapping[int, int], stopped: frozenset[int]
    ) -> dict[int, int]:
        limits, partitions = self._planning.limits, start.partitions
        known = self._feedback().mean_bytes(self._spec.topic, partitions)
        return allocate_batch(
            partitions,
            ceiling,
            max_records=limits.max_records,
            max_bytes=limits.max_bytes,
            mean_bytes=known or dict.fromkeys(partitions, UNKNOWN_BYTES),
            paused=stopped,
        )

    def _feedback(self) -> Feedback:
        return self._state.feedback(self._spec.files.checkpoint)

    def _should_wait(
        self, start: SourceOffset, ends: Mapping[int, int], found_since: float
    ) -> bool:
        """Whether a batch that takes all there is should wait for more, within its time."""
        pending = sum(at - start.partitions.get(p, at) for p, at in ends.items())
        if self._target is not None or not pending or pending >= self._planning.limits.max_records:
            return False
        # From the last poll that found nothing: the first record may have come right after it.
        self._pending_since = self._pending_since or found_since
        waited = time.monotonic() - self._pending_since
        return waited < self._planning.limits.max_wait.total_seconds()

    def _observe(self, start: SourceOffset, live: LivePositions) -> None:
        """Leaves what the broker has for the driver's progress; notes which partitions are idle."""
        self.latest, self.looked_ms = dict(live.latest), self._looking_ms
        now = time.monotonic()
        for p, latest in live.latest.items():
            if latest > start.partitions.get(p, 0):
                self._quiet_since.pop(p, None)
            else:
                self._quiet_since.setdefault(p, now)
        idle = [p for p, since in self._quiet_since.items() if now - since > IDLE_AFTER_SECONDS]
        view = SourceView(
            latest=dict(live.latest),
            positions=dict(start.partitions),
            idle=tuple(sorted(idle)),
            paused=tuple(self._state.paused(self._spec.topic)),
        )
        self._state.write_view(self._spec.topic, view)

    def _heartbeat(self, start: SourceOffset) -> SourceOffset:
        """Returns the offset of an idle input at the time of the others, so that time advances."""
        after = self._planning.heartbeat_after_us / 1e6
        now = time.monotonic()
        if not after or any(now - since < after for since in self._quiet_since.values()):
            return start
        newest = self._feedback().newest_us
        # The slowest of the others bounds Spark's watermark, so this source need not be ahead of
        # it.
        others = [us for topic, us in newest.items() if topic != self._spec.topic]
        own = max(newest.get(self._spec.topic, 0), start.heartbeat_us)
        if not others or min(others) <= own:
            return start
        return start.with_heartbeat(min(others), planned_ms=now_in_ms())


def may_hold_replays(windows: Mapping[int, Window], range_: OffsetRange) -> bool:
    """Returns whether records that were replayed for others may lie in a range."""
    window = windows.get(range_.partition.partition)
    return window is not None and window.overlaps(range_.start, range_.end)
