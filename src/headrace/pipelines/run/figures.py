"""The figures of a run: what its batches add up to, what Spark reports of them, what is left."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from headrace.model import TopicPartition
from headrace.pipelines.batch.committer import BatchResult
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.join.figures import JoinFigures
from headrace.pipelines.source.state import SourceState, SourceView
from headrace.pipelines.transforms.transform import Transform
from headrace.runtime.clock import now_in_ms

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


class RunFigures:
    """Adds up the batches of one pipeline's run, over its restarts.

    ``batch_ended`` is called on Spark's thread, the rest on the driver's; ``values`` on either.
    """

    def __init__(self, pipeline: Pipeline, state: SourceState) -> None:
        self._topics = [source.topic.name for source in pipeline.sources]
        self._fused = pipeline.is_fused
        self._state = state
        self._guard = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._of_sink: Counter[str] = Counter()
        self._of_join = JoinFigures()
        self._of_steps: dict[str, int] = {}
        self._transforms = [step for step in pipeline.steps if isinstance(step, Transform)]
        metrics = chain.from_iterable(transform.all_metrics for transform in self._transforms)
        self._metrics = {metric.name: metric for metric in metrics}
        self._last: dict[str, Any] = {}
        self._counted = -1
        self._last_timestamp_ms = -1
        self._positions: Mapping[TopicPartition, int] = {}

    def batch_ended(self, result: BatchResult) -> None:
        """Counts a batch."""
        with self._guard:
            self._counts.update(
                batches=1,
                rows_in=result.records,
                rows_out=result.rows,
                late_rows=result.late.events,
                late_side_rows=result.late.written,
                late_dead_letters=result.late.dead,
                behind_watermark_rows=result.behind,
                dead_letters=result.dead_letters,
                tombstones=result.tombstones,
                replays_skipped=result.replays_skipped,
            )
            self._of_sink.update(result.figures)
            self._of_join.add(result.joined)
            self._last = {
                "batch_id": result.batch_id,
                "batch_seconds": result.seconds,
                "records_per_second": result.records / result.seconds if result.seconds else 0.0,
            }
            self._positions = result.positions
            self._last_timestamp_ms = max(self._last_timestamp_ms, result.last_timestamp_ms)

    def take_reports(self, query: StreamingQuery) -> None:
        """Counts what Spark reports of batches, of each once.

        The fused path has nothing that drops rows. Spark makes a report again at each call, which
        costs the driver a millisecond; it keeps a hundred, and is asked for all only when the
        newest is not the next.
        """
        newest = None if self._fused else query.lastProgress
        if newest is None or _ended_batch(newest) <= self._counted:
            return
        is_next = not _is_idle(newest) and newest["batchId"] == self._counted + 1
        self.take([newest] if is_next else query.recentProgress)

    def take(self, reports: Iterable[Any]) -> None:
        """Counts reports of batches that are newer than those counted, in their order.

        Batches without data count too: they are executed, to close windows and to forget keys.
        """
        with self._guard:
            for report in reports:
                ended = _ended_batch(report)
                if ended > self._counted and not _is_idle(report):
                    self._take(report)
                self._counted = max(self._counted, ended)

    def _take(self, report: Mapping[str, Any]) -> None:
        # Operators and observations of one batch are added up first: a gauge is their sum.
        of_batch: Counter[str] = Counter()
        for operator in report["stateOperators"]:
            self._counts["duplicate_rows"] += int(
                operator["customMetrics"].get("numDroppedDuplicateRows", 0)
            )
            self._counts["dropped_by_watermark_rows"] += operator["numRowsDroppedByWatermark"]
            # Several transforms of a class report the same of one operator: it counts once, and
            # those of several operators are added.
            figures: dict[str, int] = {}
            for transform in self._transforms:
                figures |= transform.figures(operator)
            of_batch.update(figures)
        for counts in report["observedMetrics"].values():
            of_batch.update(
                {name: value for name, value in counts.asDict().items() if name in self._metrics}
            )
        for name, value in of_batch.items():
            metric = self._metrics.get(name)
            before = self._of_steps.get(name, 0) if metric and metric.is_counter else 0
            self._of_steps[name] = before + value

    def own(self, beside: Mapping[str, int | str]) -> dict[str, int | str]:
        """Returns the figures of the sink, those ``beside`` its commits too, of join and steps."""
        with self._guard:
            return {**self._of_sink, **self._of_join.values(), **self._of_steps, **beside}

    def values(self) -> dict[str, Any]:
        """Returns the figures now, as fields of a pipeline's progress.

        Latest offsets, idle and paused partitions are as the planner last saw them; the positions
        too, until a batch of the run has ended.
        """
        views = {topic: self._state.view(topic) for topic in self._topics}
        with self._guard:
            positions, last_ms = dict(self._positions), self._last_timestamp_ms
            counted = {**self._counts, **self._last}
        backlog = _backlog(views, positions)
        return {
            **counted,
            "backlog_records": backlog,
            "backlog_seconds": _backlog_seconds(backlog, last_ms),
            "idle_partitions": tuple(f"{t}[{p}]" for t, view in views.items() for p in view.idle),
            "paused_partitions": tuple(
                f"{t}[{p}]" for t, view in views.items() for p in view.paused
            ),
            "reason": "; ".join(view.unreachable for view in views.values() if view.unreachable),
        }


def _backlog(
    views: Mapping[str, SourceView], positions: Mapping[TopicPartition, int]
) -> int | None:
    """Returns how many records are not read yet; None where the end of a topic is not known."""
    if not all(view.latest for view in views.values()):
        return None
    return sum(
        # A partition that is new was not there when the batch was planned, and begins at 0.
        max(0, latest - positions.get(TopicPartition(topic, p), view.positions.get(p, 0)))
        for topic, view in views.items()
        for p, latest in view.latest.items()
    )


def _backlog_seconds(backlog: int | None, last_timestamp_ms: int) -> float | None:
    if backlog is None or (backlog and last_timestamp_ms <= 0):
        return None
    behind_ms = now_in_ms() - last_timestamp_ms if backlog else 0
    # Whole ones, as the status is written whenever it changes.
    return max(0.0, float(math.ceil(behind_ms / 1000)))


def _is_idle(report: Any) -> bool:
    """Returns whether Spark reports of a trigger that found nothing to do.

    Such a report stands among those of batches, every 10 s while nothing comes. It has the id of
    the batch that comes next, and repeats figures of the last one.
    """
    return "addBatch" not in report["durationMs"]


def _ended_batch(report: Any) -> int:
    """Returns the id of the newest batch that has ended by the time of a report."""
    batch_id: int = report["batchId"]
    return batch_id - 1 if _is_idle(report) else batch_id
