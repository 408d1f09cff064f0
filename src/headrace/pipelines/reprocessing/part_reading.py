"""Reads the records of a part again: tasks of Spark decode them and write their rows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import ReprocessRefusedError, UnreadRangesError
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.batch.manifest import Manifest, arrow_writer, manifest_schema
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.reprocessing.checks import OTHER_NAME
from headrace.pipelines.rows import RunContext, load, source_spec, stepped_rows
from headrace.pipelines.source.datasource import range_source, row_schema
from headrace.pipelines.source.offsets import split
from headrace.pipelines.source.planning.packs import packs
from headrace.pipelines.source.planning.planner import may_hold_replays
from headrace.pipelines.source.reading.reader import ReadRange
from headrace.pipelines.source.report import RangeReport, missing_ranges
from headrace.pipelines.source.spec import SourceSpec
from headrace.pipelines.source.staging import Staging
from headrace.pipelines.start.state_operators import keeps_state
from headrace.pipelines.steps.column_names import map_in_arrow
from headrace.runtime.clock import now_in_ms
from headrace.sinks.api import SinkDriver

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class PartReader:
    """Reads the parts of one reprocessing. Used on one thread, for one part after the other.

    Args:
        spark: the session to read in.
        pipeline: with one source.
        context: of its runs; read tasks leave their reports in its staging folder.
        topic_id: id of the topic, in whose offsets the parts are.
        tasks: about how many read at the same time.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        context: RunContext,
        *,
        topic_id: str,
        tasks: int,
    ) -> None:
        self._spark, self._pipeline, self._topic_id = spark, pipeline, topic_id
        self._cluster = KafkaCluster(context.client)
        self._staging = Staging(context.staging, context.storage)
        [source] = pipeline.sources
        # A lane's records must come from one task, so ranges of such a source are not divided.
        min_tasks = tasks if source.subpartitions == 1 else 0
        spec = source_spec(pipeline, source, context, "", None)
        planning = replace(spec.planning, min_tasks=min_tasks)
        self._spec = replace(spec, planning=planning, ledger=None)

    def leave_out_replays(self) -> None:
        """Leaves out replayed records: the records that they were made of give the rows."""
        selection = replace(self._spec.selection, leaves_out_replays=True)
        self._spec = replace(self._spec, selection=selection)

    def leave_out(self, records: frozenset[tuple[TopicPartition, int, int]]) -> None:
        """Leaves out records that have a row at the place of their replay."""
        selection = replace(self._spec.selection, left_out=records)
        self._spec = replace(self._spec, selection=selection)

    def row_schema(self) -> pa.Schema:
        """Returns the columns of the rows that tasks write; their times are in UTC.

        Raises:
            ReprocessRefusedError: if a step keeps state.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        if self._pipeline.is_fused:
            return row_schema(self._spec)
        # Not of given ranges: only the plan of a stream shows state.
        rows = stepped_rows(self._pipeline, [self._spec], partial(load, self._spark)).rows
        if keeps_state(rows):
            reason = "its steps keep state, which depends on the records before the range"
            raise ReprocessRefusedError(self._pipeline.name, reason, OTHER_NAME)
        return to_arrow_schema(rows.schema, timezone="UTC")

    def work(self, ranges: Sequence[OffsetRange]) -> list[ReadRange]:
        """Returns the ranges of a part, divided for more tasks.

        Raises:
            ReprocessRefusedError: if the topic was recreated.
            TopicMissingError: if the topic was deleted.
            BrokerUnreachableError: if the broker does not respond within 15 seconds.
        """
        topic = self._spec.topic
        if self._cluster.live(topic, with_earliest=False).topic_id != self._topic_id:
            reason = f"topic {topic} was deleted and created again meanwhile"
            raise ReprocessRefusedError(self._pipeline.name, reason)
        pieces = split(ranges, self._spec.planning.min_tasks)
        windows = self._cluster.replay_windows(topic)
        now_ms = now_in_ms()
        return [
            ReadRange(
                piece,
                now_ms,
                may_hold_replays=may_hold_replays(windows, piece),
                topic_id=self._topic_id,
                range_count=len(pieces),
            )
            for piece in pieces
        ]

    def tasks(self, work: Sequence[ReadRange]) -> int:
        """Returns how many tasks read ``work``, each one or several of its ranges."""
        return len(packs(work, self._spec.planning.min_tasks))

    def manifests(self, sink: SinkDriver, work: Sequence[ReadRange]) -> DataFrame:
        """Returns what tasks write of ``work``, as rows of :func:`~..manifest.manifest_schema`.

        Nothing is read before the rows are collected; each collecting reads and writes again.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        if self._pipeline.is_fused:
            return self._loaded(work, replace(self._spec, writers=sink.writers))
        rows = stepped_rows(self._pipeline, [self._spec], partial(self._loaded, work)).rows
        write = arrow_writer(sink.writers, [self._spec.topic], counts_rows=False)
        return map_in_arrow(rows, write, from_arrow_schema(manifest_schema()))

    def reports(self, manifest: Manifest, ranges: Sequence[OffsetRange]) -> list[RangeReport]:
        """Takes the reports of the tasks that have read a part out of the staging folder.

        Args:
            manifest: of these tasks, which has the other reports.
            ranges: of the part.

        Returns:
            The reports in order of partition and offset.

        Raises:
            UnreadRangesError: if they don't cover ``ranges``.
            StorageError: if the staging folder on S3 can't be read or emptied.
            OSError: if that on other storage can't.
        """
        reports = [*manifest.reports, *self._staging.take(ranges)]
        if missing := missing_ranges(ranges, reports):
            raise UnreadRangesError(self._pipeline.name, ", ".join(map(str, missing[:3])))
        self._staging.clear()
        return sorted(reports, key=lambda report: (report.range.partition, report.range.start))

    def _loaded(self, work: Sequence[ReadRange], spec: SourceSpec) -> DataFrame:
        name = f"headrace-reprocess-{uuid.uuid4().hex}"
        self._spark.dataSource.register(range_source(spec, name, work))
        return self._spark.read.format(name).load()
