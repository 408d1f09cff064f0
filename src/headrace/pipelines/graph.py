"""One declared pipeline as a Spark streaming query, not started yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.kafka.client import ClientConfig
from headrace.kafka.cluster import KafkaCluster
from headrace.model import EventSchema, Metadata, Source, Start
from headrace.pipelines.batch import BatchCommitter, BatchResult
from headrace.pipelines.checkpoint import Checkpoint
from headrace.pipelines.manifest import arrow_writer, manifest_schema
from headrace.pipelines.pipeline import Pipeline
from headrace.pipelines.positions import CheckpointIds, NoPositions, TablePositions
from headrace.pipelines.source.datasource import (
    kafka_source,
    row_schema,
    source_name,
)
from headrace.pipelines.source.reader import HEARTBEAT
from headrace.pipelines.source.rereading import Rereading
from headrace.pipelines.source.spec import SourceSpec
from headrace.pipelines.source.staging import Staging
from headrace.pipelines.source.state import SourceState
from headrace.pipelines.steps import apply_steps
from headrace.settings import SchemaRegistrySettings
from headrace.sinks.api import SinkContext, SinkDriver, WriterFactory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.settings import Secret

HEARTBEAT_AFTER_US = 10_000_000


@dataclass(frozen=True)
class RunContext:
    """Where a pipeline runs: its lake, its cluster, its folders.

    Attributes:
        lake: root URI of the lake.
        client: librdkafka settings of the cluster.
        sinks: the tables ``[sinks.KIND]`` of headrace.toml, by kind.
        state: folder on this machine shared with the planner.
        staging: URI of the staging folder of this start; empty before there is one.
        registry: of the schemas of Avro topics.
        storage: options of the lake's storage.
    """

    lake: str
    client: ClientConfig
    sinks: Mapping[str, Mapping[str, Secret]]
    state: Path
    staging: str = ""
    registry: SchemaRegistrySettings | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def of_sink(self, pipeline: Pipeline) -> SinkContext:
        """Returns what the sink of ``pipeline`` must know of it."""
        return pipeline.sink_context(self.lake, self.client, self.sinks, self.storage)


@dataclass(frozen=True)
class Graph:
    """A pipeline's rows as manifests of what tasks wrote, its open sink, the end of its batches."""

    manifests: DataFrame
    sink: SinkDriver
    committer: BatchCommitter


def build(
    spark: SparkSession,
    pipeline: Pipeline,
    context: RunContext,
    checkpoint: Checkpoint,
    start: Start | None,
    on_batch: Callable[[BatchResult], None],
) -> Graph:
    """Puts the pipeline together; nothing runs yet.

    ``start``, when given, overrides where the sources declare that they begin.

    Raises:
        SinkError: the sink can't be opened, or can't take the rows.
        TableMismatchError: the rows do not fit the table that is there.
    """
    specs = [
        _source_spec(pipeline, source, context, checkpoint, start) for source in pipeline.sources
    ]
    rows = None if pipeline.is_fused else _rows(spark, pipeline, specs)
    schema = row_schema(specs[0]) if rows is None else _arrow_schema(rows)
    sink_context = context.of_sink(pipeline)
    sink = pipeline.sink.open(sink_context, schema)
    committer = BatchCommitter(
        pipeline,
        checkpoint=checkpoint,
        positions=_positions(pipeline, checkpoint, sink),
        staging=Staging(context.staging, context.storage),
        rereading=Rereading(spark, specs),
        sink=sink,
        client=context.client,
        state=SourceState(context.state),
        on_batch=on_batch,
    )
    if rows is None:
        manifests = _load(spark, replace(specs[0], writers=sink.writers))
    else:
        manifests = _add_file_writer(rows, sink.writers, specs[0].topic)
    return Graph(manifests, sink, committer)


def _positions(
    pipeline: Pipeline, checkpoint: Checkpoint, sink: SinkDriver
) -> TablePositions | NoPositions:
    if sink.positions is None:
        return NoPositions()
    return TablePositions(CheckpointIds(pipeline.name, checkpoint.number), sink.positions)


def _source_spec(
    pipeline: Pipeline,
    source: Source,
    context: RunContext,
    checkpoint: Checkpoint,
    start: Start | None,
) -> SourceSpec:
    topic = source.topic
    return SourceSpec(
        pipeline=pipeline.name,
        topic=topic.name,
        schema=topic.schema,
        format=topic.record_format,
        registry=context.registry,
        event_time=topic.event_time,
        earliest_event_us=int(topic.earliest_event_time.timestamp() * 1e6),
        latest_ahead_us=int(topic.latest_ahead.total_seconds() * 1e6),
        cluster=KafkaCluster(context.client),
        consumer_group=pipeline.consumer_group,
        start=start or source.start,
        metadata=pipeline.metadata(source),
        min_tasks=source.min_tasks if source.subpartitions == 1 else 0,
        subpartitions=source.subpartitions,
        limits=pipeline.limits.shared_by(len(pipeline.sources)),
        partition_columns=validated_partition_columns(pipeline, topic.schema),
        dead_letter_limit=pipeline.dead_letter_limit,
        state=context.state,
        staging=context.staging,
        storage=context.storage,
        checkpoint=checkpoint.uri,
        heartbeat_after_us=HEARTBEAT_AFTER_US if len(pipeline.sources) > 1 else 0,
    )


def validated_partition_columns(pipeline: Pipeline, schema: EventSchema | None) -> tuple[str, ...]:
    """Fields that name directories: judged while the record's original bytes are at hand.

    Not before steps, which may make a value safe: the rows that they give are judged instead.
    """
    if schema is None or pipeline.steps:
        return ()
    return pipeline.sink.directory_columns(schema)


def _load(spark: SparkSession, spec: SourceSpec) -> DataFrame:
    spark.dataSource.register(kafka_source(spec))
    return spark.readStream.format(source_name(spec)).load()


def _rows(spark: SparkSession, pipeline: Pipeline, specs: list[SourceSpec]) -> DataFrame:
    """The sources, each as its step wants it, through the steps."""
    frames = [
        _repartition_by_key(
            _with_watermark(_load(spark, spec), spec, source, pipeline.lateness), source
        )
        for spec, source in zip(specs, pipeline.sources, strict=True)
    ]
    if not pipeline.steps:
        return _union(frames)
    return apply_steps(pipeline.steps, frames)


def _union(frames: list[DataFrame]) -> DataFrame:
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame, allowMissingColumns=True)
    return rows


def _with_watermark(
    rows: DataFrame, spec: SourceSpec, source: Source, lateness: timedelta
) -> DataFrame:
    """Sets the watermark that is declared, and one for each of several sources.

    It lets an idle input move the time of all: its heartbeats pass the watermark, then go. The
    condition names the event time because Spark pushes a filter that does not below the watermark,
    where a heartbeat would never be seen.
    """
    ticks = spec.heartbeat_after_us > 0
    if spec.event_time is None or not (ticks or source.watermark is not None):
        return rows
    from pyspark.sql import functions as F  # noqa: N812

    delay = lateness if source.watermark is None else source.watermark
    rows = rows.withWatermark(spec.event_time, f"{int(delay.total_seconds())} seconds")
    if not ticks:
        return rows
    is_event = ~F.col(HEARTBEAT) | F.col(spec.event_time).isNull()
    return rows.where(is_event).drop(HEARTBEAT)


def _repartition_by_key(rows: DataFrame, source: Source) -> DataFrame:
    """Sub-partitions by key: one task a lane.

    A lane's rows all come from one read task, which is why such a source is never cut into
    sub-ranges: Spark keeps the order within what one task sends to another, and cannot sort a
    stream.
    """
    if source.subpartitions == 1:
        return rows
    from pyspark.sql import functions as F  # noqa: N812

    lanes = source.topic.partitions * source.subpartitions
    lane = F.col(Metadata.PARTITION.value) * source.subpartitions + F.col("_subpartition")
    return rows.repartitionById(lanes, lane.cast("int"))


def _add_file_writer(rows: DataFrame, writers: WriterFactory, origin: str) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    return rows.mapInArrow(arrow_writer(writers, origin), from_arrow_schema(manifest_schema()))


def _arrow_schema(rows: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(rows.schema, timezone="UTC")
