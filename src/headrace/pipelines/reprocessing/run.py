"""Reads ranges once more and writes their rows: part by part, on the driver."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from headrace.errors import (
    RangeExpiredError,
    RecordsDeletedError,
    ReprocessRefusedError,
    UnreadRangesError,
)
from headrace.kafka.cluster import KafkaCluster
from headrace.kafka.dead_letter_writer import DeadLetterWriter
from headrace.model import DeadLetter, OffsetRange
from headrace.pipelines.commit_rows import commit_rows
from headrace.pipelines.failures import cause
from headrace.pipelines.graph import RunContext, load, source_spec, stepped_rows
from headrace.pipelines.ledger.reprocessed import ReprocessedFolder
from headrace.pipelines.lifecycle_log import log_dead_letters
from headrace.pipelines.limit_check import LimitCheck
from headrace.pipelines.manifest import Manifest, arrow_writer, derived_letter, manifest_schema
from headrace.pipelines.pipeline import Pipeline
from headrace.pipelines.positions import CheckpointIds
from headrace.pipelines.references.positions import announce, live_positions
from headrace.pipelines.reprocessing.checks import ANEW, reprocessable_sink
from headrace.pipelines.reprocessing.part import ReprocessedPart
from headrace.pipelines.reprocessing.plan import Observe, ReprocessPlan, ReprocessProgress
from headrace.pipelines.reprocessing.ranges import cut_into_parts
from headrace.pipelines.source.datasource import range_source, row_schema
from headrace.pipelines.source.offsets import SourceOffset, split
from headrace.pipelines.source.packs import packs
from headrace.pipelines.source.planner import may_hold_replays
from headrace.pipelines.source.reader import ReadRange
from headrace.pipelines.source.report import RangeReport, unread
from headrace.pipelines.source.spec import SourceSpec
from headrace.pipelines.source.staging import Staging, driver_staging
from headrace.pipelines.state_operators import keeps_state
from headrace.runtime import storage
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.sinks.api import (
    CommitRejection,
    CommitResult,
    ReplacingDriver,
    RowChanges,
    SinkDriver,
    Transaction,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


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
        self._client = context.client
        self._cluster = KafkaCluster(context.client)
        self._context = replace(context, staging=_staging(context, pipeline))
        [self._source] = pipeline.sources
        spec = source_spec(pipeline, self._source, self._context, "", None)
        # A lane's records must come from one task, so ranges of such a source are not divided.
        tasks = plan.tasks if self._source.subpartitions == 1 else 0
        self._spec = replace(spec, min_tasks=tasks, ledger=None)
        self._ledger = ReprocessedFolder(context.lake, pipeline.name, context.storage)
        self._limit = LimitCheck(pipeline)
        self._dead = DeadLetterWriter(context.client, pipeline.name, pipeline.version)
        self._number = 0

    def run(self, observe: Observe, stop: threading.Event) -> ReprocessProgress:
        """Reads and writes all parts, or those before ``stop`` is set.

        Raises:
            ReprocessRefusedError: if a step keeps state, or the topic was made again.
            DeadLetterLimitError: if too many records are bad; their part is not committed.
            SinkError: if a part can't be committed, or it is not known whether it was.
            RangeExpiredError: if retention removes records before they are read.
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
        sink = self._opened(self._row_schema())
        try:
            names = [topic.name for topic in self._pipeline.references]
            announce(self._spark, live_positions(self._cluster, names))
            for ranges in cut_into_parts(self._plan.ranges):
                if stop.is_set():
                    break
                progress = self._part(sink, ranges, progress)
                observe(progress)
        finally:
            sink.close(0.0)
        return progress

    def _row_schema(self) -> pa.Schema:
        """Returns the columns of the rows. The query that would stream them tells of state."""
        from pyspark.sql.pandas.types import to_arrow_schema

        if self._pipeline.is_fused:
            return row_schema(self._spec)
        rows = stepped_rows(self._pipeline, [self._spec], partial(load, self._spark)).rows
        if keeps_state(rows):
            reason = "its steps keep state, which depends on the records before the range"
            raise ReprocessRefusedError(self._pipeline.name, reason, ANEW)
        return to_arrow_schema(rows.schema, timezone="UTC")

    def _opened(self, schema: pa.Schema) -> SinkDriver:
        pipeline, topic = self._pipeline, self._source.topic
        sink = reprocessable_sink(pipeline, schema.names)
        driver = sink.open_to_reprocess(
            self._context.of_sink(pipeline, sink), schema, topic.event_id
        )
        try:
            self._number = self._last_number(driver)
            if isinstance(driver, ReplacingDriver) and driver.by_place:
                self._refuse_older_topic(driver)
        except BaseException:
            driver.close(0.0)
            raise
        return driver

    def _last_number(self, driver: SinkDriver) -> int:
        if driver.positions is None:
            return max(self._ledger.numbers(), default=0)
        name = CheckpointIds(self._pipeline.name, 0).reprocess
        return driver.positions.versions([name]).get(name, 0)

    def _refuse_older_topic(self, driver: SinkDriver) -> None:
        """Refuses a table with rows of an earlier topic of this name: they have the same places.

        Each checkpoint reads one topic, and the table records its positions by the topic's id.
        """
        if driver.positions is None:
            return
        topic = self._spec.topic
        offset = SourceOffset(topic, self._plan.topic_id, self._cluster.live(topic).latest, 0)
        checkpoints = [
            CheckpointIds(self._pipeline.name, n + 1) for n in range(self._plan.checkpoint or 0)
        ]
        places = {each.batch: [*each.partitions({topic: offset}).values()] for each in checkpoints}
        names = [*places, *chain.from_iterable(places.values())]
        recorded = driver.positions.versions(names)
        for batch, positions in places.items():
            if batch in recorded and recorded.keys().isdisjoint(positions):
                reason = (
                    f"{self._pipeline.sink.label} has rows of {batch}, which has read another "
                    f"topic or an earlier one of the name {topic!r}, and rows are found by offsets"
                )
                raise ReprocessRefusedError(self._pipeline.name, reason, ANEW)

    def _part(
        self, sink: SinkDriver, ranges: Sequence[OffsetRange], before: ReprocessProgress
    ) -> ReprocessProgress:
        work = self._work(ranges)
        part = ReprocessedPart(self._number + 1, ranges)
        if isinstance(sink, ReplacingDriver):
            sink.begin(ranges, lambda changes: self._record(part, changes))
        manifest = Manifest.of(self._manifests(sink, work).collect())
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
            max(before.tasks, len(packs(work, self._spec.min_tasks))),
        )

    def _work(self, ranges: Sequence[OffsetRange]) -> list[ReadRange]:
        topic = self._spec.topic
        if self._cluster.live(topic, with_earliest=False).topic_id != self._plan.topic_id:
            reason = f"topic {topic} was deleted and created again meanwhile"
            raise ReprocessRefusedError(self._pipeline.name, reason)
        pieces = split(ranges, self._spec.min_tasks)
        windows = self._cluster.replay_windows(topic)
        now_ms = time.time_ns() // 1_000_000
        return [
            ReadRange(
                piece,
                now_ms,
                may_hold_replays=may_hold_replays(windows, piece),
                topic_id=self._plan.topic_id,
                ranges=len(pieces),
            )
            for piece in pieces
        ]

    def _manifests(self, sink: SinkDriver, work: Sequence[ReadRange]) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        if self._pipeline.is_fused:
            return self._loaded(work, replace(self._spec, writers=sink.writers))
        rows = stepped_rows(self._pipeline, [self._spec], partial(self._loaded, work)).rows
        write = arrow_writer(sink.writers, [self._spec.topic], counts_rows=False)
        return rows.mapInArrow(write, from_arrow_schema(manifest_schema()))

    def _loaded(self, work: Sequence[ReadRange], spec: SourceSpec) -> DataFrame:
        name = f"headrace-reprocess-{uuid.uuid4().hex}"
        self._spark.dataSource.register(range_source(spec, name, work))
        return self._spark.read.format(name).load()

    def _reports(self, manifest: Manifest, ranges: Sequence[OffsetRange]) -> list[RangeReport]:
        staging = Staging(self._context.staging, self._context.storage)
        reports = [*manifest.reports, *staging.take(ranges)]
        if missing := unread(ranges, reports):
            raise UnreadRangesError(self._pipeline.name, ", ".join(map(str, missing[:3])))
        staging.clear()
        return sorted(reports, key=lambda report: (report.range.partition, report.range.start))

    def _committed(
        self, sink: SinkDriver, part: ReprocessedPart, manifest: Manifest
    ) -> CommitResult:
        with cleaning_up_after_failure(partial(sink.discard, manifest.pieces)):
            part.reports = self._reports(manifest, part.ranges)
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
                self._limit.count_rejected(rejection.rejected, part.records)
                rows = [derived_letter(row, self._spec.topic) for row in rejection.rejected]
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


def _staging(context: RunContext, pipeline: Pipeline) -> str:
    """Empties and returns a folder that no run of the pipeline empties; the lock is held."""
    folder = driver_staging(context.lake, pipeline.name, context.state / "reprocess")
    storage.delete(folder, context.storage)
    return folder
