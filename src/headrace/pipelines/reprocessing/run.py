"""Reads ranges again and writes their rows: part by part, on the driver."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import RangeExpiredError, RecordsDeletedError
from headrace.kafka.dead_letters.replay import replayed_records
from headrace.kafka.dead_letters.writer import DeadLetterWriter
from headrace.kafka.read.cluster import KafkaCluster
from headrace.kafka.table.topic_table import live_positions
from headrace.model import DeadLetter, OffsetRange
from headrace.pipelines.batch.commit_rows import commit_rows
from headrace.pipelines.batch.limit_check import LimitCheck
from headrace.pipelines.batch.manifest import Manifest, derived_letter
from headrace.pipelines.batch.positions import CheckpointIds
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.ledger.reprocessed import ReprocessedFolder
from headrace.pipelines.references.positions import announce
from headrace.pipelines.reprocessing.checks import refuse_older_topic, reprocessable_sink
from headrace.pipelines.reprocessing.part import ReprocessedPart
from headrace.pipelines.reprocessing.part_reading import PartReader
from headrace.pipelines.reprocessing.plan import Observe, ReprocessPlan, ReprocessProgress
from headrace.pipelines.reprocessing.ranges import cut_into_parts
from headrace.pipelines.rows import RunContext
from headrace.pipelines.run.lifecycle_log import log_dead_letters
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.source.staging import driver_staging
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.runtime.clock import now_in_ms
from headrace.sinks.api import (
    CommitRejection,
    CommitResult,
    ReplacingDriver,
    RowChanges,
    SinkDriver,
    Transaction,
)
from headrace.spark.failures import cause
from headrace.storage import files as storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class Reprocessing:
    """One reprocessing of a pipeline. Used on one thread, beside any live run.

    Args:
        spark: the session to read in.
        pipeline: with one source, and a sink that is :class:`Reprocessable`.
        context: of its runs; its staging folder is this reprocessing's own.
        plan: what to read.
    """

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, context: RunContext, plan: ReprocessPlan
    ) -> None:
        self._spark, self._pipeline, self._plan = spark, pipeline, plan
        self._cluster = KafkaCluster(context.client)
        # A folder that no run of the pipeline empties; the lock is held, so it can be emptied
        # here.
        folder = driver_staging(context.lake, pipeline.name, context.state / "reprocess")
        storage.delete(folder, context.storage)
        self._context = replace(context, staging=folder)
        [self._source] = pipeline.sources
        self._reader = PartReader(
            spark, pipeline, self._context, topic_id=plan.topic_id, tasks=plan.tasks
        )
        self._ledger = ReprocessedFolder(context.lake, pipeline.name, context.storage)
        self._limit = LimitCheck(pipeline)
        self._dead = DeadLetterWriter(context.client, pipeline.name, pipeline.version)
        self._number = 0

    def run(self, observe: Observe, stop: threading.Event) -> ReprocessProgress:
        """Reads and writes all parts, or those before ``stop`` is set.

        Raises:
            ReprocessRefusedError: if a step keeps state, the topic was recreated, or the table has
                rows of an earlier topic of its name.
            DeadLetterLimitError: if too many records are bad; their part is not committed.
            UnreadRangesError: if tasks have not read a part whole; it is not committed.
            SinkError: if a part can't be committed, or it is not known whether it was.
            RangeExpiredError: if retention removes records before they are read.
            TopicMissingError: if the topic was deleted.
            BrokerUnreachableError: if the broker does not respond within 15 seconds.
        """
        try:
            return self._run(observe, stop)
        except Exception as error:
            # What tasks raise has come through Spark.
            origin = cause(error)
            if isinstance(origin, RecordsDeletedError):
                raise RangeExpiredError(origin.partition, origin.first_offset, "") from error
            if origin is None or origin is error:
                raise
            raise origin from error
        finally:
            storage.delete(self._context.staging, self._context.storage)

    def _run(self, observe: Observe, stop: threading.Event) -> ReprocessProgress:
        progress = ReprocessProgress()
        sink = self._opened(self._reader.row_schema())
        try:
            positions = live_positions(self._cluster, self._pipeline.followed_topics)
            announce(self._spark, positions, now_in_ms())
            for ranges in cut_into_parts(self._plan.ranges, self._plan.unread):
                if stop.is_set():
                    break
                progress = self._part(sink, ranges, progress)
                observe(progress)
        finally:
            sink.close(0.0)
        return progress

    def _opened(self, schema: pa.Schema) -> SinkDriver:
        pipeline, topic = self._pipeline, self._source.topic
        sink = reprocessable_sink(pipeline, schema.names)
        driver = sink.open_to_reprocess(
            self._context.of_sink(pipeline, sink), schema, topic.event_id
        )
        try:
            if driver.positions is None:
                self._number = max(self._ledger.numbers(), default=0)
            else:
                name = CheckpointIds(pipeline.name, 0).reprocess
                self._number = driver.positions.versions([name]).get(name, 0)
            by_place = isinstance(driver, ReplacingDriver) and driver.by_place
            self._leave_out_twins(by_place=by_place)
            if by_place and driver.positions is not None:
                live = self._cluster.live(topic.name)
                at = SourceOffset(topic.name, self._plan.topic_id, live.latest, 0)
                refuse_older_topic(pipeline, driver.positions, at, self._plan.checkpoint or 0)
        except BaseException:
            driver.close(0.0)
            raise
        return driver

    def _leave_out_twins(self, *, by_place: bool) -> None:
        """Leaves one out of a record and its replay, which are one event."""
        if not by_place:
            self._reader.leave_out_replays()
            return
        client, topic = self._context.client, self._source.topic.name
        known = replayed_records(client, topic, self._plan.topic_id, self._pipeline.name)
        self._reader.leave_out(known)

    def _part(
        self, sink: SinkDriver, ranges: Sequence[OffsetRange], before: ReprocessProgress
    ) -> ReprocessProgress:
        work = self._reader.work(ranges)
        part = ReprocessedPart(self._number + 1, ranges)
        if isinstance(sink, ReplacingDriver):
            sink.begin(ranges, lambda changes: self._record(part, changes))
        manifest = Manifest.of(self._reader.manifests(sink, work).collect())
        done = self._committed(sink, part, manifest)
        self._number = part.number
        figures = done.figures
        return ReprocessProgress(
            before.parts + 1,
            before.offsets + sum(range_.span for range_ in ranges),
            before.records + part.records,
            before.rows + done.rows + part.kept,
            before.dead_letters + part.dead,
            before.rows_added + figures.get("rows_added", 0),
            before.rows_removed + figures.get("rows_removed", 0),
            before.rows_kept + figures.get("rows_kept", part.kept),
            max(before.tasks, self._reader.tasks(work)),
        )

    def _committed(
        self, sink: SinkDriver, part: ReprocessedPart, manifest: Manifest
    ) -> CommitResult:
        with cleaning_up_after_failure(partial(sink.discard, manifest.pieces)):
            part.reports = self._reader.reports(manifest, part.ranges)
            letters = [letter for report in part.reports for letter in report.dead]
            letters += manifest.dead
            part.dead = len(letters)
            self._limit.check(part.reports, manifest.dead, manifest.omitted)
            self._write_dead(letters, part)
            if not isinstance(sink, ReplacingDriver):
                self._record(part, None)

        def reject(rejection: CommitRejection) -> None:
            part.kept += 0 if rejection.repeats is None else rejection.repeats.num_rows
            if rejection.rejected:
                self._limit.count_rejected(rejection.rejected)
                rows = [derived_letter(row, self._source.topic.name) for row in rejection.rejected]
                self._write_dead(rows, part)
                part.dead += len(rows)

        is_recorded = sink.positions is not None
        transaction = part.transaction(self._plan) if is_recorded else Transaction({}, {})
        return commit_rows(sink, manifest.pieces, transaction, 0, reject)

    def _write_dead(self, letters: Sequence[DeadLetter], part: ReprocessedPart) -> None:
        starts = {range_.partition: range_.start for range_ in part.ranges}
        self._dead.write(letters, lambda partition, offset: offset >= starts.get(partition, 0))
        log_dead_letters(letters)

    def _record(self, part: ReprocessedPart, changes: RowChanges | None) -> None:
        """Writes the ledger's entry of a part, before its commit."""
        settings, topic = self._context.ledger, self._source.topic
        if settings.enabled:
            self._ledger.write(part.entry(self._plan, topic, settings.window_seconds, changes))
        else:  # there may be one of a history that an older copy of the sink has ended
            self._ledger.forget(part.number)
