"""One declared pipeline as a Spark streaming query, not started yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.read.cluster import KafkaCluster
from headrace.ledger.sums import Hop
from headrace.model import Metadata, Source, Start, Topic
from headrace.model.durations import microseconds
from headrace.pipelines.batch.committer import BatchCommitter, BatchResult
from headrace.pipelines.batch.derived_letters import DerivedLetters
from headrace.pipelines.batch.manifest import arrow_writer, manifest_schema
from headrace.pipelines.batch.positions import CheckpointIds, NoPositions, TablePositions
from headrace.pipelines.declaration import Pipeline, Step
from headrace.pipelines.join.datasource import join_source
from headrace.pipelines.join.matching import JoinWindow
from headrace.pipelines.join.reader import JoinSpec
from headrace.pipelines.late_data.behind_watermark import holds_event_times, take_out_behind
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.late_data.rule import LateRule
from headrace.pipelines.late_data.side_table import SideTable
from headrace.pipelines.ledger.counting.row_lineage import LINEAGE
from headrace.pipelines.ledger.counting.step_ledger import StepLedger
from headrace.pipelines.ledger.counting.tally import LedgerRule
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.ledger.recording import CountedRows, Ledger, PausedLedger
from headrace.pipelines.references.table import ReferenceReader
from headrace.pipelines.source.datasource import (
    kafka_source,
    row_schema,
    source_name,
)
from headrace.pipelines.source.reading.reader import HEARTBEAT
from headrace.pipelines.source.reading.rereading import Rereading
from headrace.pipelines.source.record_columns import row_columns
from headrace.pipelines.source.spec import SourceSpec
from headrace.pipelines.source.staging import Staging
from headrace.pipelines.source.state import SourceState
from headrace.pipelines.start.checkpoint import Checkpoint
from headrace.pipelines.start.plan_expressions import changed_columns
from headrace.pipelines.start.query_plan import query_record
from headrace.pipelines.start.query_record import QueryRecord
from headrace.pipelines.start.state_operators import keeps_state
from headrace.pipelines.steps.applied import SteppedRows, apply_steps
from headrace.pipelines.steps.column_names import map_in_arrow
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

    def of_sink(self, pipeline: Pipeline, sink: Sink) -> SinkContext:
        """Returns what one of the sinks of ``pipeline`` must know of it."""
        context = pipeline.sink_context(sink, self.lake, self.client, self.sinks, self.storage)
        return replace(context, registry=self.registry)


@dataclass(frozen=True)
class Graph:
    """A pipeline's rows as manifests of what tasks wrote, its open sinks, and its committer.

    ``query`` is what its checkpoint records of it.
    """

    manifests: DataFrame
    query: QueryRecord
    sink: SinkDriver
    side_table: SideTable | None
    committer: BatchCommitter
    is_join: bool

    def figures(self) -> dict[str, int | str]:
        """Returns what happens in both sinks beside the batches: numbers added, texts joined."""
        figures = dict(self.sink.figures())
        for name, value in (self.side_table.figures() if self.side_table else {}).items():
            before = figures.get(name)
            if isinstance(value, int) and isinstance(before, int):
                figures[name] = before + value
            else:
                figures[name] = before or value
        return figures

    def close(self, max_wait_seconds: float) -> None:
        """Closes the sinks."""
        self.sink.close(max_wait_seconds)
        if self.side_table is not None:
            self.side_table.close(max_wait_seconds)

    @property
    def keeps_state(self) -> bool:
        """Whether it remembers anything of earlier batches."""
        return self.is_join or keeps_state(self.manifests)


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
        SinkError: if the sink can't be opened, or can't take the rows.
        TableMismatchError: if the rows do not fit the table that is there.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    side_driver = _open_side_table(pipeline, context)
    with ExitStack() as opened:
        if side_driver is not None:
            opened.callback(side_driver.close, 0.0)
        specs = _specs(pipeline, context, checkpoint, start, side_driver)
        join = _join_spec(pipeline, specs, side_driver)
        stepped = None if pipeline.is_fused else _guarded(spark, pipeline, specs, join)
        schema = row_schema(specs[0]) if join is None else join.row_schema()
        if stepped is not None:
            schema = to_arrow_schema(stepped.rows.drop(LINEAGE).schema, timezone="UTC")
        sink = pipeline.sink.open(context.of_sink(pipeline, pipeline.sink), schema)
        opened.pop_all()  # both sinks are open now, and Graph.close closes them
    ids = CheckpointIds(pipeline.name, checkpoint.number)
    side_table = None if side_driver is None else SideTable(ids, side_driver)
    committer = BatchCommitter(
        pipeline,
        checkpoint=checkpoint,
        positions=_positions(checkpoint, ids, sink),
        staging=Staging(context.staging, context.storage),
        rereading=Rereading(spark, specs),
        sink=sink,
        side_table=side_table,
        ledger=_ledger(pipeline, context, checkpoint, specs[0], stepped),
        client=context.client,
        state=SourceState(context.state),
        derived=context.derived,
        on_batch=on_batch,
        takes_behind_as_late=side_driver is not None and _takes_behind_as_late(specs, stepped),
    )
    manifests = _written(spark, specs, stepped, join, sink.writers)
    query = query_record(pipeline, manifests)
    return Graph(manifests, query, sink, side_table, committer, is_join=join is not None)


def _specs(
    pipeline: Pipeline,
    context: RunContext,
    checkpoint: Checkpoint,
    start: Start | None,
    side_driver: SinkDriver | None,
) -> list[SourceSpec]:
    """Returns the topics as the pipeline reads them, with what happens to their late events."""
    rule = LateRule(
        allowed_us=microseconds(pipeline.allowed_lateness),
        to_dead_letters=pipeline.late_data is LateData.DEAD_LETTER,
        drops=pipeline.late_data is LateData.DROP,
        writers=None if side_driver is None or pipeline.join is not None else side_driver.writers,
    )
    return [
        replace(
            source_spec(pipeline, source, context, checkpoint.uri, start),
            late=replace(rule, metadata=pipeline.side_metadata(source)),
        )
        for source in pipeline.sources
    ]


def _written(
    spark: SparkSession,
    specs: Sequence[SourceSpec],
    stepped: SteppedRows | None,
    join: JoinSpec | None,
    writers: WriterFactory,
) -> DataFrame:
    """Returns the manifests of what tasks write: after steps, of a join, or in the read task."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if stepped is not None:
        counts_rows = LINEAGE in stepped.rows.columns
        topics = [spec.topic for spec in specs]
        write = arrow_writer(writers, topics, counts_rows=counts_rows)
        return map_in_arrow(stepped.rows, write, from_arrow_schema(manifest_schema()))
    if join is not None:
        return _load_join(spark, join, writers)
    return load(spark, replace(specs[0], writers=writers))


def _takes_behind_as_late(specs: Sequence[SourceSpec], stepped: SteppedRows | None) -> bool:
    """Whether events that no operator with state takes are known where they are read."""
    event_time, *others = {spec.event_time for spec in specs}
    if stepped is None or event_time is None or others:
        return False
    return holds_event_times(stepped.rows, event_time)


def _ledger(
    pipeline: Pipeline,
    context: RunContext,
    checkpoint: Checkpoint,
    spec: SourceSpec,
    stepped: SteppedRows | None,
) -> Ledger | PausedLedger:
    folder = LedgerFolder(context.lake, pipeline.name, context.storage)
    if spec.ledger is None:
        return PausedLedger(folder, checkpoint.number)
    topics = [source.topic for source in pipeline.counted_sources]
    side_table = pipeline.side_table
    rows = CountedRows(
        come_from=Hop.READ if pipeline.join is None else Hop.JOIN,
        counted_by=tuple(dict.fromkeys((topic.event_time, topic.event_id) for topic in topics)),
        side_table="" if side_table is None else side_table.label,
    )
    if stepped is not None:
        changed = () if stepped.uncounted else changed_columns(stepped.rows, spec.ledger.columns)
        rows = replace(rows, uncounted=stepped.uncounted, changed=changed)
    return Ledger(
        folder,
        checkpoint.number,
        spec.ledger,
        rows,
        latest_ahead_us=spec.latest_ahead_us,
        held=checkpoint.held,
    )


def _ledger_rule(topic: Topic, settings: LedgerSettings) -> LedgerRule | None:
    if not settings.enabled:
        return None
    return LedgerRule(settings.window_seconds, topic.event_time, topic.event_id)


def _positions(
    checkpoint: Checkpoint, ids: CheckpointIds, sink: SinkDriver
) -> TablePositions | NoPositions:
    if sink.positions is None:
        return NoPositions()
    return TablePositions(ids, sink.positions, checkpoint.expected_versions)


def _open_side_table(pipeline: Pipeline, context: RunContext) -> SinkDriver | None:
    """Opens the side table, whose events come as the source gives them, before any step."""
    sink = pipeline.side_table
    if sink is None:
        return None
    first, *_ = pipeline.sources
    topic = first.topic
    schema = row_columns(topic.schema, pipeline.side_metadata(first))
    return sink.open(context.of_sink(pipeline, sink), schema)


def source_spec(
    pipeline: Pipeline, source: Source, context: RunContext, checkpoint: str, start: Start | None
) -> SourceSpec:
    """Returns one topic as a pipeline reads it; ``checkpoint`` is its URI, empty without one."""
    topic = source.topic
    is_united = len(pipeline.sources) > 1 and pipeline.join is None
    return SourceSpec(
        pipeline=pipeline.name,
        topic=topic.name,
        schema=topic.schema,
        format=topic.record_format,
        envelope=topic.envelope,
        leaves_out_tombstones=topic.leaves_out_tombstones,
        null_key=pipeline.sink.null_key,
        registry=context.registry,
        event_time=topic.event_time,
        earliest_event_us=int(topic.earliest_event_time.timestamp() * 1e6),
        latest_ahead_us=microseconds(topic.latest_ahead),
        cluster=KafkaCluster(context.client),
        consumer_group=pipeline.consumer_group,
        start=start or source.start,
        metadata=pipeline.metadata(source),
        # A lane's records must come from one read task, see _repartition_by_key.
        min_tasks=source.min_tasks if source.subpartitions == 1 else 0,
        subpartitions=source.subpartitions,
        limits=pipeline.limits.shared_by(len(pipeline.sources)),
        partition_columns=validated_partition_columns(pipeline, source),
        dead_letter_limit=pipeline.dead_letter_limit,
        state=context.state,
        staging=context.staging,
        storage=context.storage,
        checkpoint=checkpoint,
        # A single source has no other one whose watermark it could hold back.
        heartbeat_after_us=HEARTBEAT_AFTER_US if is_united else 0,
        references=pipeline.followed_topics,
        ledger=_ledger_rule(topic, context.ledger),
        needs_same_partitions=pipeline.sink.keeps_last_read,
        needs_key_places=pipeline.sink.keeps_last_read and topic.is_partitioned_by_key,
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


def _join_spec(
    pipeline: Pipeline, specs: Sequence[SourceSpec], side_driver: SinkDriver | None
) -> JoinSpec | None:
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


def _load_join(spark: SparkSession, join: JoinSpec, writers: WriterFactory | None) -> DataFrame:
    spark.dataSource.register(join_source(join, writers))
    return spark.readStream.format(source_name(join.later.pipeline, join.later.topic)).load()


def _guarded(
    spark: SparkSession, pipeline: Pipeline, specs: Sequence[SourceSpec], join: JoinSpec | None
) -> SteppedRows:
    """The rows after the steps, whose operators with state drop none unless it is declared."""
    stepped = _stepped(spark, pipeline, specs, join)
    if pipeline.late_data is LateData.DROP:
        return stepped
    staging = Staging(specs[0].staging, specs[0].storage)
    topics = [spec.topic for spec in specs]
    return stepped._replace(rows=take_out_behind(stepped.rows, staging, topics))


def _stepped(
    spark: SparkSession, pipeline: Pipeline, specs: Sequence[SourceSpec], join: JoinSpec | None
) -> SteppedRows:
    """The rows after the steps, with the ledger's column if each step lets it through."""

    def rows(specs: Sequence[SourceSpec]) -> SteppedRows:
        if join is None:
            return stepped_rows(pipeline, specs, partial(load, spark))
        adding = replace(join, adds_lineage=specs[0].adds_lineage)
        frames = [_load_join(spark, adding, None)]
        return apply_steps(list(_running_steps(pipeline, specs)), frames)

    if specs[0].ledger is None:
        return rows(specs)
    counted = [replace(spec, adds_lineage=True, number=n) for n, spec in enumerate(specs)]
    stepped = rows(counted)
    if not stepped.uncounted:
        return stepped
    # Again, for rows that do not carry in vain what some step drops.
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
        return SteppedRows(_union(frames), "")
    return apply_steps(list(_running_steps(pipeline, specs)), frames)


def _running_steps(pipeline: Pipeline, specs: Sequence[SourceSpec]) -> Iterator[Step]:
    """Yields the steps with what they need where they run."""
    reader = ReferenceReader(pipeline.name, specs[0].cluster, specs[0].registry)
    staging = Staging(specs[0].staging, specs[0].storage)
    topics = tuple(spec.topic for spec in specs)
    for number, step in enumerate(pipeline.steps_for_topic):
        if not isinstance(step, Transform):
            yield step
            continue
        running = step.with_reader(reader)
        if specs[0].adds_lineage and running.keeps_lineage:
            drops = pipeline.late_data is LateData.DROP
            running = running.with_ledger(StepLedger(staging, number, topics, drops))
        yield running


def _union(frames: list[DataFrame]) -> DataFrame:
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame, allowMissingColumns=True)
    return rows


def _with_watermark(
    rows: DataFrame, spec: SourceSpec, source: Source, allowed_lateness: timedelta
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

    delay = allowed_lateness if source.watermark is None else source.watermark
    rows = rows.withWatermark(spec.event_time, interval(delay))
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
