"""Decides on the driver which offsets a batch takes, and refuses where data would be lost.

Runs in the Python process that Spark keeps for the source. It shares a folder with the driver:
the driver leaves there what only it knows (paused partitions, sizes seen, how far the other
sources are), the planner what only it sees (latest offsets, idle partitions).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from headrace.errors import (
    BrokerUnreachableError,
    RetentionPassedError,
    TopicRecreatedError,
    TopicTruncatedError,
)
from headrace.kafka.cluster import LivePositions
from headrace.kafka.replayed import Window
from headrace.model import OffsetRange, Start
from headrace.pipelines.source.offsets import SourceOffset, admitted, ranges_between, split
from headrace.pipelines.source.reader import ReadRange
from headrace.pipelines.source.spec import SourceSpec
from headrace.pipelines.source.state import SharedState, SourceView
from headrace.sinks import storage

IDLE_AFTER_SECONDS = 10.0
TRUNCATION_GRACE_SECONDS = 60.0


class Planner:
    """Plans the batches of one source. Deterministic for a given start and end.

    Order: ranges of a partition follow one another without a gap or an overlap. A crash repeats
    the batch that was planned last, with the same ranges. Bad positions raise RefusedError.
    """

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._state = SharedState(spec.state)
        self._target: Mapping[int, int] | None = None
        self._pending_since: float | None = None
        self._quiet_since: dict[int, float] = {}
        self._truncated_since: float | None = None

    def initial(self) -> SourceOffset:
        """Position of the first batch; the same again when that batch is replayed.

        Raises:
            TopicMissingError: there is no such topic.
            BrokerUnreachableError: no answer.
        """
        path = initial_path(self._spec.checkpoint, self._spec.topic)
        if storage.exists(path):
            return SourceOffset.from_json(json.loads(storage.read_bytes(path)))
        live = self._live()
        offset = SourceOffset(self._spec.topic, live.topic_id, self._first(live), _now_ms())
        storage.write_bytes_atomic(path, json.dumps(offset.to_json()).encode())
        return offset

    def stop_at_latest(self) -> None:
        """From now on plan only up to what the topic holds at this moment."""
        self._target = self._live().latest

    def next(self, start: SourceOffset) -> SourceOffset:
        """End of the next batch; ``start`` itself while there is nothing to do.

        An unreachable broker is nothing to do: the query waits instead of failing.

        Raises:
            RefusedError: going on would lose or repeat records.
        """
        try:
            live = self._live()
        except BrokerUnreachableError as error:
            self._state.write_view(self._spec.topic, SourceView(unreachable=str(error)))
            return start
        self._guard(start, live)
        held = self._state.paused(self._spec.topic)
        self._observe(start, live, held)
        ends = admitted(
            start.partitions, self._ceiling(live), max_records=self._max_records(), held=held
        )
        ends |= {p: first for p, first in live.earliest.items() if p not in start.partitions}
        if ends == start.partitions:
            self._pending_since = None
            return self._heartbeat(start)
        if self._fills_up(start, ends):
            return start
        self._pending_since = None
        return start.advanced(ends, planned_ms=_now_ms())

    def work(self, start: SourceOffset, end: SourceOffset) -> list[ReadRange]:
        """The tasks of the batch from ``start`` to ``end``.

        Raises:
            BrokerUnreachableError: no answer to where replayed records lie.
        """
        pieces = split(ranges_between(start, end), self._spec.min_tasks)
        # Asked for after the ends: a replay notes its window before it sends the first record.
        windows = self._spec.cluster.replay_windows(self._spec.topic) if pieces else {}
        tasks = [
            ReadRange(piece, end.planned_ms, may_hold_replays=_may_hold_replays(windows, piece))
            for piece in pieces
        ]
        if end.heartbeat_us > start.heartbeat_us:
            tasks.append(ReadRange(None, end.planned_ms, end.heartbeat_us))
        return tasks

    def _live(self) -> LivePositions:
        return self._spec.cluster.live(self._spec.topic)

    def _first(self, live: LivePositions) -> dict[int, int]:
        """Where a new checkpoint begins."""
        start = self._spec.start
        if start == Start.LATEST:
            return dict(live.latest)
        if start == Start.EARLIEST:
            return dict(live.earliest)
        committed = self._spec.cluster.committed(self._spec.consumer_group, self._spec.topic)
        return {p: max(first, committed.get(p, first)) for p, first in live.earliest.items()}

    def _guard(self, start: SourceOffset, live: LivePositions) -> None:
        spec = self._spec
        if live.topic_id != start.topic_id:
            raise TopicRecreatedError(spec.topic, start.topic_id, live.topic_id, spec.pipeline)
        for p, position in start.partitions.items():
            if position < live.earliest.get(p, position):
                raise RetentionPassedError(spec.topic, p, position, live.earliest[p], spec.pipeline)
        self._guard_end(start, live)

    def _guard_end(self, start: SourceOffset, live: LivePositions) -> None:
        """A broker that just restarted may briefly report an older end than it acknowledged."""
        behind = [p for p, at in start.partitions.items() if live.latest.get(p, at) < at]
        if not behind:
            self._truncated_since = None
            return
        self._truncated_since = self._truncated_since or time.monotonic()
        if time.monotonic() - self._truncated_since > TRUNCATION_GRACE_SECONDS:
            p = behind[0]
            raise TopicTruncatedError(
                self._spec.topic, p, start.partitions[p], live.latest[p], self._spec.pipeline
            )

    def _ceiling(self, live: LivePositions) -> Mapping[int, int]:
        if self._target is None:
            return live.latest
        return {p: min(end, self._target.get(p, 0)) for p, end in live.latest.items()}

    def _max_records(self) -> int:
        limits = self._spec.limits
        mean_bytes = self._state.feedback().mean_bytes.get(self._spec.topic, 1_000.0)
        return max(1, min(limits.max_records, int(limits.max_bytes / max(mean_bytes, 1.0))))

    def _fills_up(self, start: SourceOffset, ends: Mapping[int, int]) -> bool:
        """Whether the batch should wait for more: not full, and its wall clock has not run out."""
        pending = sum(at - start.partitions.get(p, at) for p, at in ends.items())
        full = pending + len(ends) > self._max_records()  # shares are rounded down
        if self._target is not None or full or not pending:
            return False
        self._pending_since = self._pending_since or time.monotonic()
        waited = time.monotonic() - self._pending_since
        return waited < self._spec.limits.max_wait.total_seconds()

    def _observe(self, start: SourceOffset, live: LivePositions, held: frozenset[int]) -> None:
        """Leaves what the broker has for the driver's progress; notes which partitions are idle."""
        now = time.monotonic()
        for p, latest in live.latest.items():
            if latest > start.partitions.get(p, 0):
                self._quiet_since.pop(p, None)
            else:
                self._quiet_since.setdefault(p, now)
        idle = [p for p, since in self._quiet_since.items() if now - since > IDLE_AFTER_SECONDS]
        view = SourceView(latest=dict(live.latest), idle=tuple(sorted(idle)), paused=tuple(held))
        self._state.write_view(self._spec.topic, view)

    def _heartbeat(self, start: SourceOffset) -> SourceOffset:
        """An input with nothing to read says how far the others are, so time goes on."""
        after = self._spec.heartbeat_after_us / 1e6
        now = time.monotonic()
        if not after or any(now - since < after for since in self._quiet_since.values()):
            return start
        newest = self._state.feedback().max_event_us
        others = [us for topic, us in newest.items() if topic != self._spec.topic]
        own = max(newest.get(self._spec.topic, 0), start.heartbeat_us)
        if not others or min(others) <= own:
            return start
        return start.with_heartbeat(min(others), planned_ms=_now_ms())


def _may_hold_replays(windows: Mapping[int, Window], range_: OffsetRange) -> bool:
    window = windows.get(range_.partition.partition)
    return window is not None and window.overlaps(range_.start, range_.end)


def initial_path(checkpoint: str, topic: str) -> str:
    """Where the first position of a topic is kept, inside the checkpoint."""
    return f"{checkpoint}/headrace/initial-{topic}.json"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
