"""The end of a batch: dead letters, ledger, side table, the sink's commit, committed offsets.

They follow one another in this order. The sink's commit says that the batch is done, and a batch
that is done is not read again: so all that must not be lost comes before it, and all that must not
be ahead of it comes after.

=================== ============================================================================
a crash behind      costs
=================== ============================================================================
the dead letters    a look-up of them: the repeated batch skips those that are written, those of
                    derived rows only while the process lives
                    (:mod:`headrace.pipelines.batch.derived_letters`)
the ledger's entry  nothing: it counts when the sink holds its batch, and is replaced
the side table      nothing: it knows the batch by its id. If it records no positions, it gets the
                    late events of one batch twice (:mod:`headrace.pipelines.late_data`); in the
                    other order they would be lost
the feedback        nothing: the repeated batch begins with the clocks from before. In the other
                    order, the planner would lack the clocks of a batch that is not read again
the sink's commit   nothing: the batch is known by its offsets
                    (:mod:`headrace.pipelines.batch.positions`) and adds nothing, unless the sink
                    records no positions. Kafka's tools show a lag until the next batch. In the
                    other order, offsets ahead of the table would hide records from a reset to them
=================== ============================================================================

What is repeated is the whole batch, from the same offsets.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import UnreadRangesError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.dead_letters.writer import DeadLetterWriter
from headrace.kafka.read.cluster import KafkaCluster
from headrace.kafka.table.topic_table import TopicPosition, live_positions
from headrace.model import DeadLetter, TopicPartition
from headrace.model.durations import microseconds
from headrace.pipelines.batch.batch_claim import BatchClaim
from headrace.pipelines.batch.commit_rows import Reject, commit_rows
from headrace.pipelines.batch.complete_until import complete_until, event_time_reached
from headrace.pipelines.batch.derived_letters import DerivedLetters
from headrace.pipelines.batch.group_offsets import GroupOffsets
from headrace.pipelines.batch.limit_check import LimitCheck
from headrace.pipelines.batch.manifest import Manifest, derived_letter
from headrace.pipelines.batch.positions import NoPositions, TablePositions
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.late_data.batch_watermark import announce_watermark
from headrace.pipelines.late_data.side_table import SideTable
from headrace.pipelines.ledger.recording import Ledger, PausedLedger, RecordedBatch
from headrace.pipelines.ledger.sums import LedgerLine
from headrace.pipelines.references.positions import announce
from headrace.pipelines.run.lifecycle_log import log_batch, log_dead_letters
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.source.planning.feedback import Feedback
from headrace.pipelines.source.reading.rereading import Rereading
from headrace.pipelines.source.report import JoinCounts, LateCounts, RangeReport, missing_ranges
from headrace.pipelines.source.staging import Staging, StepReport
from headrace.pipelines.source.state import SourceState
from headrace.pipelines.start.checkpoint import Checkpoint, PlannedBatch, positions_of
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.runtime.logs import Subject, logging_about
from headrace.sinks.api import CommitRejection, CommitResult, SinkDriver, Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger("headrace.pipelines")


@dataclass(frozen=True)
class BatchResult:
    """What one batch did.

    Attributes:
        positions: the next record to read of each partition.
        figures: what the commit adds to the counters of the sink.
        late: how many events were late, and where they went.
        behind: how many rows were taken out before a step with state.
        joined: what a join did, by partition.
        (the others): of the same names in a pipeline's progress.
    """

    batch_id: int
    records: int
    rows: int
    late: LateCounts
    behind: int
    dead_letters: int
    tombstones: int
    replays_skipped: int
    figures: Mapping[str, int]
    seconds: float
    last_timestamp_ms: int
    positions: Mapping[TopicPartition, int]
    joined: Mapping[int, JoinCounts] = field(default_factory=dict)


@dataclass(frozen=True)
class CommittedBatch:
    """What the commits of a batch did.

    Attributes:
        result: of the sink's commit, with the figures of the side table.
        rejected: rows that only the commits rejected.
        rejected_late: those of them that the side table's commit rejected.
        behind: rows that were taken out before a step with state, since they are behind its
            watermark.
    """

    result: CommitResult
    rejected: int = 0
    rejected_late: int = 0
    behind: int = 0


class BatchCommitter:
    """Spark calls it once a batch, one batch at a time, on a thread of the driver."""

    def __init__(  # noqa: PLR0913  the parts a batch ends in
        self,
        pipeline: Pipeline,
        *,
        checkpoint: Checkpoint,
        positions: TablePositions | NoPositions,
        staging: Staging,
        rereading: Rereading,
        sink: SinkDriver,
        side_table: SideTable | None,
        ledger: Ledger | PausedLedger,
        client: ClientConfig,
        state: SourceState,
        derived: DerivedLetters,
        claim: BatchClaim,
        on_batch: Callable[[BatchResult], None],
        takes_behind_as_late: bool,
    ) -> None:
        self._pipeline = pipeline
        self._takes_behind_as_late = takes_behind_as_late
        self._checkpoint = checkpoint
        self._positions = positions
        self._staging = staging
        self._rereading = rereading
        self._sink = sink
        self._side_table = side_table
        self._client = client
        self._ledger = ledger
        self._group = GroupOffsets(client, pipeline.consumer_group)
        self._state = state
        self._derived = derived
        self._claim = claim
        self._on_batch = on_batch
        self._limit = LimitCheck(pipeline)
        # Recreated at each start of the query: it reads again which letters others have written.
        self._dead = DeadLetterWriter(client, pipeline.name, pipeline.version)
        self.failure: Exception | None = None

    def check_start(self) -> None:
        """Compares the checkpoint with the sink and the state, before the first batch of a run.

        Raises:
            CheckpointBehindTableError: if the table holds more than the checkpoint knows of.
            TableBehindCheckpointError: if the table lacks batches.
        """
        planned, is_done = self._checkpoint.last_planned()
        if planned is not None and is_done:
            self._positions.check_end(planned)
        elif planned is not None:
            # For its errors: Spark repeats the batch, and the repeat skips what the sink holds.
            self._positions.holds(planned)
        # The feedback of the last run is of one of these two batches, if the checkpoint was not
        # restored.
        ends = {}
        if planned is not None:
            ends[planned.batch_id] = _offsets(planned.ends)
            ends[planned.batch_id - 1] = _offsets(planned.starts)
        self._state.forget_clocks_of_another_history(self._checkpoint.uri, ends)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Runs the batch and ends it."""
        with logging_about(Subject("pipeline", self._pipeline.name)):
            try:
                self._on_batch(self._run(frame, batch_id))
            except Exception as error:
                # Spark passes on the text of the error without its type; the run looks here first.
                self.failure = error
                raise

    def _run(self, frame: DataFrame, batch_id: int) -> BatchResult:
        began = time.monotonic()
        self._claim.begin()
        planned = self._checkpoint.batch(batch_id)
        self._announce(frame, planned)
        if self._positions.holds(planned):
            manifest, reports = self._passed_over(frame, planned), []
            committed = CommittedBatch(CommitResult(False, 0))
        else:
            manifest = Manifest.of(frame.collect())
            reports = self._reports(manifest, planned)
            self._claim.check()
            committed = self._commit_batch(manifest, reports, planned)
        self._group.show(planned.positions, planned.epochs)
        self._staging.clear()
        tombstones = sum(report.tombstones for report in reports)
        result = BatchResult(
            batch_id=batch_id,
            records=sum(report.records for report in reports) + tombstones,
            rows=committed.result.rows,
            late=_late(reports, committed.rejected_late),
            behind=committed.behind,
            dead_letters=sum(len(report.dead) for report in reports)
            + len(manifest.dead)
            + committed.rejected
            + committed.behind,
            tombstones=tombstones,
            replays_skipped=sum(report.replays_skipped for report in reports),
            figures=committed.result.figures,
            seconds=time.monotonic() - began,
            last_timestamp_ms=max((report.last_timestamp_ms for report in reports), default=-1),
            positions=planned.positions,
            joined=_joined(reports),
        )
        figures = {"records": result.records, "rows": result.rows, "late": result.late.events}
        log_batch(batch_id, figures, positions_of(planned.starts), planned.positions)
        return result

    def rehearse(self, frame: DataFrame, batch_id: int) -> None:
        """Runs the tasks of a batch, and ends it with nothing: see :mod:`..standby.rehearsal`."""
        self._announce(frame, self._checkpoint.batch(batch_id))
        frame.collect()

    def _announce(self, frame: DataFrame, planned: PlannedBatch) -> None:
        if not self._pipeline.is_fused:
            announce_watermark(
                frame.sparkSession,
                planned.watermark_ms,
                takes_behind_as_late=self._takes_behind_as_late,
            )
        if self._pipeline.followed_topics:
            announce(frame.sparkSession, self._references(planned), planned.planned_ms)

    def _references(self, planned: PlannedBatch) -> dict[str, TopicPosition]:
        """Returns where the batch looks values up.

        A batch that was planned before the pipeline had the reference looks up where it is now.
        """
        known = planned.references
        new = [topic for topic in self._pipeline.followed_topics if topic not in known]
        return known | live_positions(KafkaCluster(self._client), new)

    def _passed_over(self, frame: DataFrame, planned: PlannedBatch) -> Manifest:
        """Skips a batch that the sink has committed; its steps run again only for their state."""
        # Collecting runs the tasks. On the fused path that would only read and write the batch
        # again.
        if not self._pipeline.is_fused:
            self._sink.discard(Manifest.of(frame.collect()).pieces)
            self._discard_side_table(self._staging.take(planned.ranges))
        return Manifest()

    def _reports(self, manifest: Manifest, planned: PlannedBatch) -> list[RangeReport]:
        """Reports that tile the planned ranges exactly.

        Raises:
            UnreadRangesError: if there are none for a part of them, and they can't be had.
        """
        reports = [*manifest.reports, *self._staging.take(planned.ranges)]
        missing = missing_ranges(planned.ranges, reports)
        # Only the task itself knows what a join made of a range.
        if missing and not self._pipeline.is_fused and self._pipeline.join is None:
            _LOG.warning(
                "%s: a step has not read %d of its input ranges to their ends, %s first; they are "
                "read again for their dead letters",
                self._pipeline.name,
                len(missing),
                missing[0],
            )
            partial = [read for read in reports if any(map(read.range.within, missing))]
            # Their ranges are read again, and late events would be in the side table twice.
            self._discard_side_table(partial)
            reports = [read for read in reports if read not in partial]
            reports += self._rereading.reports(missing, planned.ends)
            missing = missing_ranges(planned.ranges, reports)
        if missing:
            raise UnreadRangesError(self._pipeline.name, ", ".join(map(str, missing[:3])))
        return sorted(reports, key=lambda report: (report.range.partition, report.range.start))

    def _commit_batch(
        self, manifest: Manifest, reports: Sequence[RangeReport], planned: PlannedBatch
    ) -> CommittedBatch:
        """Writes and commits what the tasks left, in the order that the module gives."""
        self._derived.begin(self._checkpoint.uri, planned.batch_id)
        is_fused = self._pipeline.is_fused
        steps = StepReport() if is_fused else self._staging.take_steps(planned.batch_id)
        dead = [letter for report in reports for letter in report.dead]
        dead += [*manifest.dead, *steps.behind]
        rejected: list[DeadLetter] = []
        reject = self._rejecting(planned, rejected)
        known = self._state.feedback(self._checkpoint.uri, planned.batch_id)
        before = known.with_clocks_from({at.topic: at.event_us for at in planned.ends.values()})
        watermark_us = self._watermark_us(before)
        with cleaning_up_after_failure(
            partial(self._sink.discard, manifest.pieces), partial(self._discard_side_table, reports)
        ):
            # Checked before any is written: a faulty producer must not fill the dead-letter topic.
            self._limit.check(reports, manifest.dead, manifest.omitted)
            self._limit.check_steps(steps)
            self._write_dead(dead, planned)
            planned_ms = {topic: end.planned_ms for topic, end in planned.ends.items()}
            feedback = before.after(reports, planned_ms)
            self._record([*manifest.lines, *steps.lines], reports, planned, feedback)
            reject_in_side_table = self._recording_rejects(reject, is_side_table=True)
            side_figures = self._commit_side_table(
                reports, planned, watermark_us, reject_in_side_table
            )
            rejected_late = len(rejected)
        self._state.write_feedback(
            self._checkpoint.uri, planned.batch_id, feedback, _offsets(planned.ends)
        )
        # Not in the block above: where this fails it can be unknown whether the rows are committed,
        # and files of a committed batch must not be deleted.
        transaction = self._transaction(planned, feedback)
        both = self._recording_rejects(reject, is_side_table=False)
        done = CommitResult(False, 0)
        if self._changes(manifest, reports, planned):
            self._claim.check()
            done = self._commit(manifest, planned, transaction, watermark_us, both)
        self._ledger.committed(planned.batch_id)
        figures = Counter(done.figures)
        figures.update(side_figures)
        self._write_waiting(_joined(reports))
        result = replace(done, figures=figures)
        return CommittedBatch(result, len(rejected), rejected_late, len(steps.behind))

    def _write_dead(self, letters: Sequence[DeadLetter], planned: PlannedBatch) -> None:
        # Records before the batch can't be read again, so the writer need not remember it.
        # But for events that wait in a join.
        starts = positions_of(planned.starts) if self._pipeline.join is None else {}
        new = self._derived.unwritten(letters)
        self._dead.write(new, lambda partition, offset: offset >= starts.get(partition, 0))
        self._derived.remember(new)
        log_dead_letters(new)

    def _rejecting(self, planned: PlannedBatch, letters: list[DeadLetter]) -> Reject:
        """Returns what makes rows dead letters that a commit rejects; they are added to a list."""
        origin = self._pipeline.sources[0].topic.name

        def reject(rejection: CommitRejection) -> None:
            if not rejection.rejected:
                return
            self._limit.count_rejected(rejection.rejected)
            derived = [derived_letter(row, origin) for row in rejection.rejected]
            self._write_dead(derived, planned)
            letters.extend(derived)

        return reject

    def _transaction(self, planned: PlannedBatch, feedback: Feedback) -> Transaction:
        """What the sink records with the batch, and how far it is complete then, where known."""
        transaction = replace(
            self._positions.transaction(planned),
            positions=planned.positions,
            planned_ms=planned.planned_ms,
            topic_ids={topic: end.topic_id for topic, end in planned.ends.items()},
            followed=planned.followed,
        )
        first, *_ = self._pipeline.sources
        topic = first.topic.name
        # Steps and joins hold rows back, or make rows of other times.
        holds_back = not self._pipeline.is_fused or self._pipeline.join is not None
        if holds_back or topic not in planned.ends:
            return transaction
        positions, ends = planned.ends[topic].partitions, self._state.view(topic).latest
        reached_us = event_time_reached(positions, ends, feedback.event_us(topic))
        # A sink without positions has no place for this.
        if reached_us is None or not transaction.metadata:
            return transaction
        until = complete_until(reached_us, self._pipeline.allowed_lateness)
        metadata = {**transaction.metadata, "complete_until": until.isoformat()}
        return replace(transaction, metadata=metadata, event_us=reached_us)

    def _changes(
        self, manifest: Manifest, reports: Sequence[RangeReport], planned: PlannedBatch
    ) -> bool:
        """Whether the batch changes anything: rows, a position, or what the ledger counts.

        The first one of a checkpoint counts as a change: it records where the checkpoint began,
        from where another machine continues if this one is lost.
        """
        if manifest.pieces or not self._positions.are_recorded(planned):
            return True
        return planned.moves or _is_counted(reports)

    def _commit(
        self,
        manifest: Manifest,
        planned: PlannedBatch,
        transaction: Transaction,
        watermark_us: int,
        reject: Reject,
    ) -> CommitResult:
        done = commit_rows(self._sink, manifest.pieces, transaction, watermark_us, reject)
        if not done.is_new:
            name, batch_id = self._pipeline.name, planned.batch_id
            _LOG.warning("%s: batch %d was ended by another driver meanwhile", name, batch_id)
        self._positions.ended(planned)
        return done

    def _commit_side_table(
        self,
        reports: Sequence[RangeReport],
        planned: PlannedBatch,
        watermark_us: int,
        reject: Reject,
    ) -> Mapping[str, int]:
        """Commits late and unmatched events into the side table; returns its figures."""
        if self._side_table is None:
            return {}
        pieces = _side_pieces(reports)
        return self._side_table.commit(pieces, planned, watermark_us, reject).figures

    def _discard_side_table(self, reports: Sequence[RangeReport]) -> None:
        if self._side_table is not None:
            self._side_table.discard(_side_pieces(reports))

    def _watermark_us(self, before: Feedback) -> int:
        """The watermark of the partition that has come furthest; 0: not known."""
        newest = before.newest_us
        allowed_us = microseconds(self._pipeline.allowed_lateness)
        return max(0, max(newest.values(), default=0) - allowed_us)

    def _record(
        self,
        lines: Sequence[LedgerLine],
        reports: Sequence[RangeReport],
        planned: PlannedBatch,
        feedback: Feedback,
    ) -> None:
        """Writes the entry of the ledger, which counts once the sink holds the batch."""
        # An empty first batch, too: its entry says where its checkpoint began, and that no rows
        # were there before the ledger.
        is_first = not self._positions.are_recorded(planned)
        if planned.moves or _is_counted(reports) or is_first:
            clocks = {topic: feedback.event_us(topic) for topic in feedback.clocks}
            adds_to_rows = self._positions.know_pipeline(planned)
            side_table = self._side_table if _side_pieces(reports) else None
            is_in_side_table = side_table is not None and side_table.holds(planned)
            self._ledger.record(
                RecordedBatch(planned, reports, lines, clocks, adds_to_rows, is_in_side_table)
            )

    def _recording_rejects(self, reject: Reject, *, is_side_table: bool) -> Reject:
        origin, ledger = self._pipeline.sources[0].topic.name, self._ledger
        correct = ledger.correct_for_side_table if is_side_table else ledger.correct

        def both(rejection: CommitRejection) -> None:
            reject(rejection)
            correct(rejection, origin)

        return both

    def _write_waiting(self, joined: Mapping[int, JoinCounts]) -> None:
        """Leaves for the planner of a join which events wait."""
        waiting = {p: counts.oldest_waiting_us for p, counts in joined.items()}
        if waiting:
            # Partitions that the batch has not read keep what is known of them.
            known = self._state.waiting(self._checkpoint.uri)
            self._state.write_waiting(self._checkpoint.uri, known | waiting)


def _is_counted(reports: Sequence[RangeReport]) -> bool:
    """Whether the ledger counts anything of them: also events of a join whose wait has ended."""
    return any(report.ledger for report in reports)


def _offsets(positions: Mapping[str, SourceOffset]) -> dict[str, Mapping[int, int]]:
    return {topic: at.partitions for topic, at in positions.items()}


def _side_pieces(reports: Sequence[RangeReport]) -> list[str]:
    return [piece for report in reports for piece in report.side_pieces]


def _joined(reports: Sequence[RangeReport]) -> dict[int, JoinCounts]:
    return {
        report.range.partition.partition: report.join
        for report in reports
        if report.join is not None
    }


def _late(reports: Sequence[RangeReport], rejected: int) -> LateCounts:
    return LateCounts(
        events=sum(report.late.events for report in reports),
        written=sum(report.late.written for report in reports) - rejected,
        dead=sum(report.late.dead for report in reports),
    )
