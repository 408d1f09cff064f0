"""The rows of a declared pipeline in Spark: its topics as they are read, through its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import Metadata, Source, Start
from headrace.model.durations import microseconds
from headrace.pipelines.batch.batch_claim import BatchClaim
from headrace.pipelines.batch.derived_letters import DerivedLetters
from headrace.pipelines.declaration import Pipeline, Step
from headrace.pipelines.join.datasource import join_source
from headrace.pipelines.join.matching import JoinWindow
from headrace.pipelines.join.reader import JoinSpec
from headrace.pipelines.late_data.behind_watermark import take_out_behind
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.ledger.counting.step_ledger import StepLedger
from headrace.pipelines.ledger.counting.tally import LedgerRule
from headrace.pipelines.references.table import ReferenceReader
from headrace.pipelines.source.datasource import kafka_source, source_name
from headrace.pipelines.source.reading.reader import HEARTBEAT
from headrace.pipelines.source.spec import (
    BatchPlanning,
    RecordDecoding,
    RecordSelection,
    SourceFiles,
    SourceSpec,
)
from headrace.pipelines.source.staging import Staging
from headrace.pipelines.steps.applied import SteppedRows, apply_steps
from headrace.pipelines.transforms.transform import Transform, interval
from headrace.settings import LedgerSettings, SchemaRegistrySettings
from headrace.sinks.api import Sink, SinkContext, SinkDriver, WriterFactory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.settings import Secret

LoadSource: TypeAlias = "Callable[[SourceSpec], DataFrame]"
"""Returns the rows of a source, as a stream or as a table."""

# Ten seconds: a heartbeat is a batch of its own, and not worth it in every pause of a topic.
HEARTBEAT_AFTER_US = 10_000_000


@dataclass(frozen=True)
class RunContext:
    """The lake, the cluster and the folders that a pipeline runs with.

    Attributes:
        lake: root URI of the lake.
        client: librdkafka settings of the cluster.
        sinks: the tables ``[sinks.KIND]`` of headrace.toml, by kind.
        state: folder on this machine shared with the planner.
        staging: URI of the staging folder of this start; empty before there is one.
        registry: of the schemas of topics.
        storage: options of the lake's storage.
        derived: what the pipeline has written to dead-letter topics beside those of records.
        ledger: whether events are counted, and by which windows.
        claim: asked before a batch begins, and before it writes anything.
    """

    lake: str
    client: ClientConfig
    sinks: Mapping[str, Mapping[str, Secret]]
    state: Path
    staging: str = ""
    registry: SchemaRegistrySettings | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    derived: DerivedLetters = field(default_factory=DerivedLetters, repr=False)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    claim: BatchClaim = field(default=BatchClaim(), repr=False)

    def of_sink(self, pipeline: Pipeline, sink: Sink) -> SinkContext:
        """Returns what one of the sinks of ``pipeline`` must know of it."""
        context = pipeline.sink_context(sink, self.lake, self.client, self.sinks, self.storage)
        return replace(context, registry=self.registry)


def source_spec(
    pipeline: Pipeline, source: Source, context: RunContext, checkpoint: str, start: Start | None
) -> SourceSpec:
    """Returns one topic as a pipeline reads it; ``checkpoint`` is its URI, empty without one."""
    topic = source.topic
    return SourceSpec(
        pipeline=pipeline.name,
        topic=topic.name,
        cluster=KafkaCluster(context.client),
        decoding=RecordDecoding(
            schema=topic.schema,
            format=topic.record_format,
            envelope=topic.envelope,
            registry=context.registry,
            event_time=topic.event_time,
            earliest_event_us=int(topic.earliest_event_time.timestamp() * 1e6),
            latest_ahead_us=microseconds(topic.latest_ahead),
            metadata=pipeline.metadata(source),
            partition_columns=validated_partition_columns(pipeline, source),
            null_key=pipeline.sink.null_key,
        ),
        planning=_batch_planning(pipeline, source, start),
        files=SourceFiles(
            state=context.state,
            staging=context.staging,
            storage=context.storage,
            checkpoint=checkpoint,
        ),
        selection=RecordSelection(leaves_out_tombstones=topic.leaves_out_tombstones),
        subpartitions=source.subpartitions,
        dead_letter_limit=pipeline.dead_letter_limit,
        ledger=(
            LedgerRule(context.ledger.window_seconds, topic.event_time, topic.event_id)
            if context.ledger.enabled
            else None
        ),
    )


def _batch_planning(pipeline: Pipeline, source: Source, start: Start | None) -> BatchPlanning:
    is_united = len(pipeline.sources) > 1 and pipeline.join is None
    return BatchPlanning(
        start=start or source.start,
        consumer_group=pipeline.consumer_group,
        limits=pipeline.limits.shared_by(len(pipeline.sources)),
        # A lane's records must come from one read task, see _repartition_by_key.
        min_tasks=source.min_tasks if source.subpartitions == 1 else 0,
        # A single source has no other one whose watermark it could hold back.
        heartbeat_after_us=HEARTBEAT_AFTER_US if is_united else 0,
        references=pipeline.followed_topics,
        needs_same_partitions=pipeline.sink.keeps_last_read,
        needs_key_places=pipeline.sink.keeps_last_read and source.topic.is_partitioned_by_key,
    )


def validated_partition_columns(pipeline: Pipeline, source: Source) -> tuple[str, ...]:
    """Fields that name directories: judged while the record's original bytes are at hand.

    Not before steps, which may make a value safe: the rows that they give are judged instead. Nor
    those of a join's earlier topic, whose events are values of one column.
    """
    schema = source.topic.schema
    is_earlier = pipeline.join is not None and source != pipeline.join.sources[0]
    if schema is None or pipeline.steps or is_earlier:
        return ()
    return pipeline.sink.directory_columns(schema)


def load(spark: SparkSession, spec: SourceSpec) -> DataFrame:
    """Returns the stream of a topic: its rows, or manifests where ``spec`` has writers."""
    spark.dataSource.register(kafka_source(spec))
    return spark.readStream.format(source_name(spec.pipeline, spec.topic)).load()


def join_spec(
    pipeline: Pipeline, specs: Sequence[SourceSpec], side_driver: SinkDriver | None
) -> JoinSpec | None:
    """Returns the join of a pipeline as its planner and its tasks know it; None: it has none."""
    join = pipeline.join
    if join is None:
        return None
    (later, earlier), (later_key, earlier_key) = specs, join.on
    window = JoinWindow(microseconds(join.within), microseconds(join.wait))
    unmatched = None if side_driver is None else side_driver.writers
    metadata = pipeline.side_metadata(join.sources[0])
    return JoinSpec(
        later=later,
        earlier=earlier,
        later_key=later_key,
        earlier_key=earlier_key,
        column=join.column,
        window=window,
        match=join.match,
        unmatched=unmatched,
        unmatched_metadata=metadata,
        later_id=join.sources[0].topic.event_id,
    )


def load_join(spark: SparkSession, join: JoinSpec, writers: WriterFactory | None) -> DataFrame:
    """Returns the stream of a join: its rows, or manifests of what ``writers`` wrote."""
    spark.dataSource.register(join_source(join, writers))
    return spark.readStream.format(source_name(join.later.pipeline, join.later.topic)).load()


def guarded_rows(
    spark: SparkSession, pipeline: Pipeline, specs: Sequence[SourceSpec], join: JoinSpec | None
) -> SteppedRows:
    """The rows after the steps, whose operators with state drop none unless it is declared."""
    stepped = _stepped(spark, pipeline, specs, join)
    if pipeline.late_data is LateData.DROP:
        return stepped
    staging = Staging(specs[0].files.staging, specs[0].files.storage)
    topics = [spec.topic for spec in specs]
    return stepped._replace(rows=take_out_behind(stepped.rows, staging, topics))


def _stepped(
    spark: SparkSession, pipeline: Pipeline, specs: Sequence[SourceSpec], join: JoinSpec | None
) -> SteppedRows:
    """The rows after the steps, with the ledger's column if each step passes it on."""

    def rows(specs: Sequence[SourceSpec]) -> SteppedRows:
        if join is None:
            return stepped_rows(pipeline, specs, partial(load, spark))
        adding = replace(join, adds_lineage=specs[0].adds_lineage)
        frames = [load_join(spark, adding, None)]
        return apply_steps(list(_running_steps(pipeline, specs)), frames)

    if specs[0].ledger is None:
        return rows(specs)
    counted = [replace(spec, adds_lineage=True, number=n) for n, spec in enumerate(specs)]
    stepped = rows(counted)
    if not stepped.uncounted:
        return stepped
    # The plan is built a second time without the column: some step drops it, so the ledger gains
    # nothing by it, and each row would carry 32 bytes up to there.
    return rows(specs)._replace(uncounted=stepped.uncounted)


def stepped_rows(
    pipeline: Pipeline, specs: Sequence[SourceSpec], load_source: LoadSource
) -> SteppedRows:
    """Returns the sources, each as its step wants it, through the steps."""
    frames = [
        _repartition_by_key(
            _with_watermark(load_source(spec), spec, source, pipeline.allowed_lateness), source
        )
        for spec, source in zip(specs, pipeline.sources, strict=True)
    ]
    if not pipeline.steps:
        # Sources may have different columns: those that one lacks are null in its rows.
        united = reduce(partial(type(frames[0]).unionByName, allowMissingColumns=True), frames)
        return SteppedRows(united, "")
    return apply_steps(list(_running_steps(pipeline, specs)), frames)


def _running_steps(pipeline: Pipeline, specs: Sequence[SourceSpec]) -> Iterator[Step]:
    """Yields the steps with what they need where they run."""
    reader = ReferenceReader(pipeline.name, specs[0].cluster, specs[0].decoding.registry)
    staging = Staging(specs[0].files.staging, specs[0].files.storage)
    topics = tuple(spec.topic for spec in specs)
    for number, step in enumerate(pipeline.steps_for_topic):
        if not isinstance(step, Transform):
            yield step
            continue
        running = step.with_reader(reader)
        # Other steps do not get the column, so they have nothing to report by.
        if specs[0].adds_lineage and running.keeps_lineage:
            drops = pipeline.late_data is LateData.DROP
            running = running.with_ledger(StepLedger(staging, number, topics, drops))
        yield running


def _with_watermark(
    rows: DataFrame, spec: SourceSpec, source: Source, allowed_lateness: timedelta
) -> DataFrame:
    """Sets the watermark that is declared, and one for each of several sources.

    Through it an idle input moves the time of all: its heartbeats pass the watermark and are then
    dropped. The condition names the event time because Spark pushes a filter that does not below
    the watermark, where a heartbeat would never be seen.
    """
    # Several sources share one watermark: the slowest, so an idle one must not stop it.
    ticks = spec.planning.heartbeat_after_us > 0
    if spec.decoding.event_time is None or not (ticks or source.watermark is not None):
        return rows
    from pyspark.sql import functions as F  # noqa: N812

    delay = allowed_lateness if source.watermark is None else source.watermark
    rows = rows.withWatermark(spec.decoding.event_time, interval(delay))
    if not ticks:
        return rows
    is_event = ~F.col(HEARTBEAT) | F.col(spec.decoding.event_time).isNull()
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
