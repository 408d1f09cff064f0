"""One declared pipeline as a Spark streaming query, not started yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.ledger.sums import Hop
from headrace.model import Start
from headrace.model.durations import microseconds
from headrace.pipelines.batch.committer import BatchCommitter, BatchResult
from headrace.pipelines.batch.manifest import arrow_writer, manifest_schema
from headrace.pipelines.batch.positions import CheckpointIds, NoPositions, TablePositions
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.join.reader import JoinSpec
from headrace.pipelines.late_data.behind_watermark import holds_event_times
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.late_data.rule import LateRule
from headrace.pipelines.late_data.side_table import SideTable
from headrace.pipelines.ledger.counting.row_lineage import LINEAGE
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.ledger.recording import CountedRows, Ledger, PausedLedger
from headrace.pipelines.rows import (
    RunContext,
    guarded_rows,
    join_spec,
    load,
    load_join,
    source_spec,
)
from headrace.pipelines.source.datasource import row_schema
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
from headrace.pipelines.steps.applied import SteppedRows
from headrace.pipelines.steps.column_names import map_in_arrow
from headrace.sinks.api import SinkDriver, WriterFactory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


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
        """Returns the figures of both sinks beside the batches; numbers of one name are added."""
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
        # A join of sources keeps its own state, which Spark's plan does not show.
        return self.is_join or keeps_state(self.manifests)


def build(
    spark: SparkSession,
    pipeline: Pipeline,
    context: RunContext,
    checkpoint: Checkpoint,
    start: Start | None,
    on_batch: Callable[[BatchResult], None],
) -> Graph:
    """Builds the query of the pipeline; nothing runs yet.

    ``start``, when given, overrides where the sources declare that they begin.

    Raises:
        SinkError: if the sink can't be opened, or can't take the rows.
        TableMismatchError: if the rows do not fit the table that is there.
    """
    side_driver = _open_side_table(pipeline, context)
    with ExitStack() as opened:
        if side_driver is not None:
            opened.callback(side_driver.close, 0.0)
        specs = _specs(pipeline, context, checkpoint, start, side_driver)
        join = join_spec(pipeline, specs, side_driver)
        stepped = None if pipeline.is_fused else guarded_rows(spark, pipeline, specs, join)
        schema = _row_schema(specs, stepped, join)
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
        claim=context.claim,
        on_batch=on_batch,
        takes_behind_as_late=side_driver is not None and _takes_behind_as_late(specs, stepped),
    )
    manifests = _written(spark, specs, stepped, join, sink.writers)
    query = query_record(pipeline, manifests)
    return Graph(manifests, query, sink, side_table, committer, is_join=join is not None)


def _row_schema(
    specs: Sequence[SourceSpec], stepped: SteppedRows | None, join: JoinSpec | None
) -> pa.Schema:
    """Returns the schema of the rows that the sink gets."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if stepped is not None:
        return to_arrow_schema(stepped.rows.drop(LINEAGE).schema, timezone="UTC")
    return row_schema(specs[0]) if join is None else join.row_schema()


def _specs(
    pipeline: Pipeline,
    context: RunContext,
    checkpoint: Checkpoint,
    start: Start | None,
    side_driver: SinkDriver | None,
) -> list[SourceSpec]:
    """Returns the topics as the pipeline reads them, with what happens to their late events."""
    # In a join, the side table takes unmatched events, which are known only after the join: tasks
    # that read a topic must not write to it.
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
        return load_join(spark, join, writers)
    return load(spark, replace(specs[0], writers=writers))


def _takes_behind_as_late(specs: Sequence[SourceSpec], stepped: SteppedRows | None) -> bool:
    """Whether events that no operator with state takes are known where they are read."""
    event_time, *others = {spec.decoding.event_time for spec in specs}
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
        # It writes no entry, and deletes those that would be taken for entries of this checkpoint.
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
        latest_ahead_us=spec.decoding.latest_ahead_us,
        held=checkpoint.held,
    )


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
