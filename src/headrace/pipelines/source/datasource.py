"""The Spark data source: planner on the driver, readers in the tasks."""

from __future__ import annotations

import abc
import functools
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from headrace.pipelines.batch.manifest import manifest_schema, manifest_table, write_rows
from headrace.pipelines.ledger.counting.row_lineage import LINEAGE, lineage_type
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.source.planning.packs import packs
from headrace.pipelines.source.planning.planner import Planner
from headrace.pipelines.source.reading.reader import (
    HEARTBEAT,
    ReadRange,
    TaskReader,
    heartbeat,
)
from headrace.pipelines.source.record_columns import row_columns
from headrace.pipelines.source.staging import Staging
from headrace.sinks.api import DELETED
from headrace.spark.remote_errors import raising_remote_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headrace.pipelines.source.spec import SourceSpec


def source_name(pipeline: str, topic: str) -> str:
    """Returns the name under which a topic as a source of a pipeline is registered with Spark."""
    return f"headrace-{pipeline}-{topic}"


def kafka_source(spec: SourceSpec) -> type[DataSource]:
    """The data source class of one spec.

    A class of its own carries the spec, secrets included, past Spark's options, which Spark
    shows in plans, events and its page.
    """

    class KafkaSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return source_name(spec.pipeline, spec.topic)

        def schema(self) -> StructType:
            return spark_schema(spec)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return KafkaStreamReader(spec, schema)

    return KafkaSource


def spark_schema(spec: SourceSpec) -> StructType:
    """Columns of the source: the rows, or the manifest of what the task wrote on the fused path."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(row_schema(spec) if spec.writers is None else manifest_schema())


def row_schema(spec: SourceSpec) -> pa.Schema:
    """Arrow schema of the source's rows: event fields, metadata, and columns of headrace's own."""
    import pyarrow as pa

    schema = row_columns(spec.decoding.schema, spec.decoding.metadata)
    if spec.subpartitions > 1:
        schema = schema.append(pa.field("_subpartition", pa.int32()))
    if spec.planning.heartbeat_after_us:
        schema = schema.append(pa.field(HEARTBEAT, pa.bool_()))
    if spec.decoding.null_key is not None:
        schema = schema.append(pa.field(DELETED, pa.bool_()))
    if spec.adds_lineage:
        schema = schema.append(pa.field(LINEAGE, lineage_type()))
    return pa.schema([field.with_nullable(True) for field in schema])


Offset = TypeVar("Offset", bound="StoredOffset")


class StoredOffset(Protocol):
    """A position that Spark keeps in its checkpoint."""

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON."""

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Reads what :meth:`to_json` wrote."""


class OffsetPlanner(Protocol[Offset]):
    """Decides how far each batch goes."""

    def initial_offset(self) -> Offset:
        """Returns the position of the first batch."""

    def plan_next(self, start: Offset) -> Offset:
        """Returns the end of the next batch; the start itself while there is nothing to do."""

    def stop_at_latest(self) -> None:
        """Plans from now on only up to what the topics hold at this moment."""


class PlannedStreamReader(
    DataSourceStreamReader, SupportsTriggerAvailableNow, abc.ABC, Generic[Offset]
):
    """What Spark asks of a source about its offsets, answered by a planner."""

    def __init__(self, planner: OffsetPlanner[Offset], offsets: type[Offset]) -> None:
        self._planner = planner
        self._offsets = offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Once for a new checkpoint, and again when its first batch is replayed."""
        with raising_remote_errors():
            return self._planner.initial_offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The planner knows the limits: records, bytes and wall clock together."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Called before each batch; returns the start itself when there is nothing to do."""
        with raising_remote_errors():
            return self._planner.plan_next(self._offsets.from_json(start)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Once, before the first batch of a run that ends when it has caught up."""
        with raising_remote_errors():
            self._planner.stop_at_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch; identical when it is replayed."""
        with raising_remote_errors():
            work = self._tasks(self._offsets.from_json(start), self._offsets.from_json(end))
        return [InputPartition(task) for task in enumerate(work)]

    @abc.abstractmethod
    def _tasks(self, start: Offset, end: Offset) -> Iterable[Any]:
        """Returns what each task of a batch reads, picklable."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called in a Python worker, once per attempt of a task."""
        with raising_remote_errors():
            yield from self._read(*partition.value)
        _freeze_loaded_objects()

    @abc.abstractmethod
    def _read(self, task: int, work: Any) -> Iterator[pa.RecordBatch]:
        """Yields what a task reads, or what it wrote of it."""


@functools.cache
def _freeze_loaded_objects() -> None:
    """Once a process: Spark's collection after each task would visit every loaded module."""
    gc.freeze()


class KafkaStreamReader(PlannedStreamReader[SourceOffset]):
    """Spark's view of one topic: offsets from the planner, Arrow batches from the readers."""

    def __init__(self, spec: SourceSpec, schema: StructType) -> None:
        self._topic = Planner(spec)
        super().__init__(self._topic, SourceOffset)
        self._spec = spec
        self._schema = schema

    def _tasks(self, start: SourceOffset, end: SourceOffset) -> Iterable[Any]:
        return packs(self._topic.tasks(start, end), self._spec.planning.min_tasks)

    def _read(self, task: int, work: Any) -> Iterator[pa.RecordBatch]:
        return _read_task(self._spec, self._schema, task, work)


def _read_task(
    spec: SourceSpec, schema: StructType, task: int, work: Sequence[ReadRange]
) -> Iterator[pa.RecordBatch]:
    first = work[0]
    # In the task: where the table has the batch already, Spark runs no task, and nothing needs to
    # fail.
    if first.refusal is not None:
        raise first.refusal
    if first.range is None:
        beat = heartbeat(spec, row_schema(spec), first.heartbeat_us)
        yield from as_batches([beat], schema)
        return
    reader = TaskReader(spec.with_needed_columns(), work)
    with reader.aborting():
        if spec.writers is None:
            yield from as_batches(reader.tables(), schema)
            staging = Staging(spec.files.staging, spec.files.storage)
            # After the last table: Spark has taken every row, so the report says that the range
            # was read to its end. Of a task that is killed before, none is left, and the range
            # is read again.
            for report in reader.reports():
                staging.put(report)
        else:
            written = write_rows(
                spec.writers,
                reader.tables(),
                spec.topic,
                task,
                first.range_count,
                reader.sink_tally,
            )
            reports = manifest_table(reports=reader.reports())
            yield from as_batches([written, reports], schema)


def range_source(spec: SourceSpec, name: str, work: Sequence[ReadRange]) -> type[DataSource]:
    """The data source class of given ranges, for a query that reads them once.

    Args:
        spec: the topic.
        name: under which it is registered with Spark.
        work: at least one range; some read tasks take several.
    """
    tasks = list(enumerate(packs(work, spec.planning.min_tasks)))

    class RangeSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return spark_schema(spec)

        def reader(self, schema: StructType) -> DataSourceReader:
            return RangesReader(spec, schema, tasks)

    return RangeSource


class RangesReader(DataSourceReader):
    """Spark's view of given ranges: each task reads some of them to their ends."""

    def __init__(
        self,
        spec: SourceSpec,
        schema: StructType,
        tasks: Sequence[tuple[int, tuple[ReadRange, ...]]],
    ) -> None:
        self._spec, self._schema, self._tasks = spec, schema, tasks

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, as they were planned."""
        return [InputPartition(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called in a Python worker, once per attempt of a task."""
        with raising_remote_errors():
            yield from _read_task(self._spec, self._schema, *partition.value)


def as_batches(tables: Any, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Batches with exactly the schema that Spark checks the first one against."""
    from pyspark.sql.pandas.types import to_arrow_schema

    target = to_arrow_schema(schema, timezone="UTC")
    for table in tables:
        yield from table.cast(target).combine_chunks().to_batches()
