"""The Spark data source of a join: one source for both topics, a task for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from headrace.pipelines.batch.manifest import manifest_schema, manifest_table, write_rows
from headrace.pipelines.join.offsets import JoinOffset
from headrace.pipelines.join.planner import JoinPlanner, PartitionWork
from headrace.pipelines.join.reader import JoinReader, JoinSpec
from headrace.pipelines.source.datasource import PlannedStreamReader, as_batches, source_name
from headrace.pipelines.source.staging import Staging
from headrace.sinks.api import WriterFactory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def join_source(spec: JoinSpec, writers: WriterFactory | None) -> type[DataSource]:
    """Returns the data source class of a join.

    Args:
        spec: of the join.
        writers: of the sink, for the read task itself; ``None`` on the Spark path.
    """
    spec = replace(spec, later=replace(spec.later, writers=writers))

    class JoinSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name(spec.later.pipeline, spec.later.topic)

        def schema(self) -> StructType:
            from pyspark.sql.pandas.types import from_arrow_schema

            return from_arrow_schema(spec.row_schema() if writers is None else manifest_schema())

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return JoinStreamReader(spec, schema)

    return JoinSource


class JoinStreamReader(PlannedStreamReader[JoinOffset]):
    """Spark's view of both topics: offsets from the planner, Arrow batches from the readers."""

    def __init__(self, spec: JoinSpec, schema: StructType) -> None:
        self._topics = JoinPlanner(spec.later, spec.earlier, spec.window)
        super().__init__(self._topics, JoinOffset)
        self._spec = spec
        self._schema = schema

    def _tasks(self, start: JoinOffset, end: JoinOffset) -> Iterable[Any]:
        return self._topics.tasks(start, end)

    def _read(self, task: int, work: PartitionWork) -> Iterator[pa.RecordBatch]:
        for read in work.ranges:
            # In the task: where the batch is in the table already, Spark runs no task.
            if read.refusal is not None:
                raise read.refusal
        reader, later = JoinReader(self._spec, work), self._spec.later
        with reader.aborting():
            if later.writers is None:
                yield from as_batches(reader.tables(), self._schema)
                staging = Staging(later.files.staging, later.files.storage)
                for report in reader.reports():
                    staging.put(report)
            else:
                tasks = max([1, *(read.range_count for read in work.ranges)])
                tables, tally = reader.tables(), reader.sink_tally
                written = write_rows(later.writers, tables, later.topic, task, tasks, tally)
                reports = manifest_table(reports=reader.reports())
                yield from as_batches([written, reports], self._schema)
