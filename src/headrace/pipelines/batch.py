"""The end of a batch: dead letters, one transaction, committed offsets, in this order.

What a crash repeats: the whole batch, from the same offsets. Dead letters that were already
written are looked up and skipped; a batch that the table holds already is known by its offsets
(:mod:`headrace.pipelines.positions`) and adds nothing; committing offsets again changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import UnreadRangesError
from headrace.kafka.client import ClientConfig
from headrace.model import Pipeline, TopicPartition
from headrace.pipelines.checkpoint import Checkpoint, PlannedBatch, positions_of
from headrace.pipelines.dead_letter_writer import DeadLetterWriter
from headrace.pipelines.group_offsets import GroupOffsets
from headrace.pipelines.limit_check import LimitCheck
from headrace.pipelines.manifest import Manifest
from headrace.pipelines.positions import TablePositions
from headrace.pipelines.source.report import RangeReport, unread
from headrace.pipelines.source.rereading import Rereading
from headrace.pipelines.source.staging import Staging
from headrace.pipelines.source.state import SharedState
from headrace.sinks.lake import LakeTable
from headrace.sinks.maintenance import Commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger("headrace.pipelines")


@dataclass(frozen=True)
class BatchResult:
    """What one batch did. ``positions`` are the next records to read."""

    batch_id: int
    records: int
    rows: int
    late_rows: int
    dead_letters: int
    replays_skipped: int
    commit: Commit
    seconds: float
    last_timestamp_ms: int
    positions: Mapping[TopicPartition, int]


class BatchEnd:
    """Spark calls it once a batch, one batch at a time, on a thread of the driver."""

    def __init__(  # noqa: PLR0913  the parts a batch ends in
        self,
        pipeline: Pipeline,
        *,
        checkpoint: Checkpoint,
        positions: TablePositions,
        staging: Staging,
        rereading: Rereading,
        table: LakeTable,
        client: ClientConfig,
        state: SharedState,
        on_batch: Callable[[BatchResult], None],
    ) -> None:
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._positions = positions
        self._staging = staging
        self._rereading = rereading
        self._table = table
        self._group = GroupOffsets(client, pipeline.consumer_group)
        self._state = state
        self._on_batch = on_batch
        self._limit = LimitCheck(pipeline)
        self._dead = DeadLetterWriter(pipeline, client)
        self.failure: Exception | None = None

    def check_start(self) -> None:
        """Holds the checkpoint against the table, before the first batch of a run.

        Raises:
            CheckpointBehindTableError: the table holds more than the checkpoint knows of.
            TableBehindCheckpointError: the table lacks batches.
        """
        done = self._checkpoint.last_done()
        if done is not None:
            self._positions.check_end(done)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Runs the batch and ends it."""
        try:
            self._on_batch(self._run(frame, batch_id))
        except Exception as error:
            self.failure = error
            raise

    def _run(self, frame: DataFrame, batch_id: int) -> BatchResult:
        began = time.monotonic()
        planned = self._checkpoint.batch(batch_id)
        if self._positions.holds(planned):
            manifest, reports, late = self._passed_over(frame), [], []
        else:
            manifest = Manifest.of(frame.collect())
            reports = self._reports(manifest, planned)
            late_before_us = self._end(manifest, reports, planned)
            late = [file for file in manifest.files if self._table.is_late(file, late_before_us)]
        self._group.show(planned.positions, planned.epochs)
        self._staging.clear()
        return BatchResult(
            batch_id=batch_id,
            records=sum(report.records for report in reports),
            rows=sum(file.rows for file in manifest.files),
            late_rows=sum(file.rows for file in late),
            dead_letters=sum(len(r.dead) for r in reports) + len(manifest.dead),
            replays_skipped=sum(report.replays_skipped for report in reports),
            commit=Commit(
                self._table.version(), manifest.files, frozenset(file.partition for file in late)
            ),
            seconds=time.monotonic() - began,
            last_timestamp_ms=max((r.last_timestamp_ms for r in reports), default=-1),
            positions=planned.positions,
        )

    def _passed_over(self, frame: DataFrame) -> Manifest:
        """A batch that the table holds: steps run again for the sake of their state alone."""
        if self._pipeline.path[0] != "fused":
            self._table.discard(Manifest.of(frame.collect()).files)
        return Manifest()

    def _reports(self, manifest: Manifest, planned: PlannedBatch) -> list[RangeReport]:
        """Reports that tile the planned ranges exactly.

        Raises:
            UnreadRangesError: there are none for a part of them, and they can't be had.
        """
        reports = [*manifest.reports, *self._staging.take(planned.ranges)]
        missing = unread(planned.ranges, reports)
        if missing and self._pipeline.path[0] != "fused":
            _LOG.warning(
                "%s: a step has not read %d of its input ranges to their ends, %s first; they are "
                "read once more for their dead letters",
                *(self._pipeline.name, len(missing), missing[0]),
            )
            reports = [one for one in reports if not any(map(one.range.within, missing))]
            reports += self._rereading.reports(missing, planned.ends)
            missing = unread(planned.ranges, reports)
        if missing:
            raise UnreadRangesError(self._pipeline.name, ", ".join(map(str, missing[:3])))
        return sorted(reports, key=lambda report: (report.range.partition, report.range.start))

    def _end(
        self, manifest: Manifest, reports: Sequence[RangeReport], planned: PlannedBatch
    ) -> int:
        """Dead letters first: the transaction is what says that the batch is done.

        Returns:
            the event time, microseconds, before which partitions were over.
        """
        dead = [letter for report in reports for letter in report.dead] + list(manifest.dead)
        try:
            self._limit.check(reports, derived=len(manifest.dead))
            self._dead.write(dead, positions_of(planned.starts))
        except Exception:
            self._table.discard(manifest.files)
            raise
        late_before_us = self._late_before_us()
        self._commit(manifest, planned)
        self._give_feedback(reports, planned)
        return late_before_us

    def _commit(self, manifest: Manifest, planned: PlannedBatch) -> None:
        """One transaction, unless the batch changes nothing: no rows, and no position."""
        if not manifest.files and not planned.moves:
            return
        transaction = self._positions.transaction(planned)
        if not self._table.commit(
            manifest.files,
            versions=transaction.versions,
            expected=transaction.expected,
            metadata=transaction.metadata,
        ):
            name, batch_id = self._pipeline.name, planned.batch_id
            _LOG.warning("%s: batch %d was ended by another driver meanwhile", name, batch_id)
            self._table.discard(manifest.files)
        self._positions.ended(planned)

    def _late_before_us(self) -> int:
        event_us = self._state.feedback(self._checkpoint.uri).event_us
        newest = max(event_us.values(), default=0)
        return newest - int(self._pipeline.sink.lateness.total_seconds() * 1e6)

    def _give_feedback(self, reports: Sequence[RangeReport], planned: PlannedBatch) -> None:
        checkpoint = self._checkpoint.uri
        planned_ms = {topic: end.planned_ms for topic, end in planned.ends.items()}
        known = self._state.feedback(checkpoint).after(reports, planned_ms)
        self._state.write_feedback(checkpoint, known)
