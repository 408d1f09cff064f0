"""The figures of a run: what its batches add up to, what Spark reports of them, what is left."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.model import TopicPartition
from headrace.pipelines.batch import BatchResult
from headrace.pipelines.pipeline import Pipeline
from headrace.pipelines.source.state import SourceState
from headrace.pipelines.transforms.transform import Transform

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
        self._of_steps: dict[str, int] = {}
        self._transforms = [step for step in pipeline.steps if isinstance(step, Transform)]
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
                dead_letters=result.dead_letters,
                replays_skipped=result.replays_skipped,
            )
            self._of_sink.update(result.figures)
            self._last = {
                "batch_id": result.batch_id,
                "batch_seconds": result.seconds,
                "records_per_second": result.records / result.seconds if result.seconds else 0.0,
            }
            self._positions = result.positions
            self._last_timestamp_ms = max(self._last_timestamp_ms, result.last_timestamp_ms)

    def take_reports(self, query: StreamingQuery) -> None:
        """Counts what Spark reports of batches, of each once.

        The fused path has nothing that drops rows. Spark makes a report anew at each call, which
        costs the driver a millisecond; it keeps a hundred, and is asked for all only when the
        newest is not the next.
        """
        newest = None if self._fused else query.lastProgress
        if newest is None or newest["batchId"] <= self._counted:
            return
        is_next = newest["batchId"] == self._counted + 1
        self.take([newest] if is_next else query.recentProgress)

    def take(self, reports: Iterable[Any]) -> None:
        """Counts reports that are newer than those counted, in their order."""
        with self._guard:
            for report in reports:
                if report["batchId"] > self._counted:
                    self._counted = report["batchId"]
                    self._take(report["stateOperators"])

    def _take(self, operators: Iterable[Any]) -> None:
        for operator in operators:
            self._counts["duplicate_rows"] += int(
                operator["customMetrics"].get("numDroppedDuplicateRows", 0)
            )
            self._counts["dropped_by_watermark_rows"] += operator["numRowsDroppedByWatermark"]
            for transform in self._transforms:
                self._add(transform, transform.figures(operator))

    def _add(self, transform: Transform, figures: Mapping[str, int]) -> None:
        growing = {metric.name for metric in transform.metrics if metric.is_counter}
        for name, value in figures.items():
            before = self._of_steps.get(name, 0) if name in growing else 0
            self._of_steps[name] = before + value

    def own(self, beside: Mapping[str, int | str]) -> dict[str, int | str]:
        """Returns the figures of the sink, those ``beside`` its commits too, and of the steps."""
        with self._guard:
            return {**self._of_sink, **self._of_steps, **beside}

    def values(self) -> dict[str, Any]:
        """Returns the figures now, as fields of a pipeline's progress.

        Latest offsets, idle and paused partitions are as the planner last saw them.
        """
        views = {topic: self._state.view(topic) for topic in self._topics}
        with self._guard:
            positions, last_ms = dict(self._positions), self._last_timestamp_ms
            counted = {**self._counts, **self._last}
        backlog = sum(
            max(0, latest - position)
            for partition, position in positions.items()
            if (latest := views[partition.topic].latest.get(partition.partition)) is not None
        )
        behind_ms = time.time_ns() // 1_000_000 - last_ms if backlog and last_ms > 0 else 0
        return {
            **counted,
            "backlog_records": backlog,
            # Whole ones, as the status is written whenever it changes.
            "backlog_seconds": max(0.0, float(math.ceil(behind_ms / 1000))),
            "idle_partitions": tuple(f"{t}[{p}]" for t, view in views.items() for p in view.idle),
            "paused_partitions": tuple(
                f"{t}[{p}]" for t, view in views.items() for p in view.paused
            ),
            "reason": "; ".join(view.unreachable for view in views.values() if view.unreachable),
        }
