"""What the source needs to know, frozen and picklable: it travels to the planner and the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.kafka.read.cluster import Cluster
from headrace.model import (
    BatchLimits,
    DeadLetterLimit,
    Envelope,
    EventSchema,
    Format,
    Json,
    Metadata,
    Start,
    TopicPartition,
)
from headrace.pipelines.late_data.rule import LateRule
from headrace.pipelines.ledger.counting.tally import LedgerRule
from headrace.settings import SchemaRegistrySettings
from headrace.sinks.api import SelectiveWriters, WriterFactory


@dataclass(frozen=True, kw_only=True)
class RecordDecoding:
    """How records become rows, for the tasks that read them.

    Attributes:
        schema: fields of the event; ``None`` for raw bytes.
        format: how record values hold the events.
        envelope: how many events lie in each record; ``None``: each record is one event.
        registry: of the schemas of topics.
        event_time: field of the event time, if it has one.
        earliest_event_us: event times before it (microseconds since 1970) are dead letters.
        latest_ahead_us: those later than this after the batch was planned are, too.
        metadata: columns of the Kafka record to add.
        partition_columns: string fields whose values name directories, checked with the record.
        needed_columns: names of the event's fields whose columns are looked at; ``None``: all.
        null_key: field of the records' key, where records without a value are rows that delete, see
            :attr:`.Sink.null_key`; ``None``: they are not.
    """

    schema: EventSchema | None
    event_time: str | None
    earliest_event_us: int
    latest_ahead_us: int
    metadata: tuple[Metadata, ...]
    partition_columns: tuple[str, ...]
    format: Format = field(default_factory=Json)
    envelope: Envelope | None = None
    registry: SchemaRegistrySettings | None = None
    needed_columns: frozenset[str] | None = None
    null_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class BatchPlanning:
    """Says where the first batch starts, and when each one ends, for the planner.

    Attributes:
        start: where to begin without a checkpoint.
        consumer_group: whose committed offsets show the progress.
        limits: when a batch closes.
        min_tasks: split ranges until a batch has at least this many tasks.
        heartbeat_after_us: an input idle for so long says how far the others are; 0: never.
        references: topics whose ends are noted with each batch.
        needs_same_partitions: whether it is refused once the topic has got partitions.
        needs_key_places: whether a record is refused whose key may have others in other partitions.
    """

    start: Start
    consumer_group: str
    limits: BatchLimits
    min_tasks: int
    heartbeat_after_us: int = 0
    references: tuple[str, ...] = ()
    needs_same_partitions: bool = False
    needs_key_places: bool = False


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """Says where the driver, the planner and the tasks exchange files.

    Attributes:
        state: folder on the driver's machine shared by the driver and the planner.
        staging: URI of the folder that takes reports and dead letters of read ranges.
        storage: options of the storage that ``staging`` is on.
        checkpoint: URI of Spark's checkpoint, which also keeps the first position.
    """

    state: Path
    staging: str
    checkpoint: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class RecordSelection:
    """Which records of a range are left out.

    Attributes:
        leaves_out_tombstones: whether records without a value are left out and counted, instead of
            being bad ones.
        leaves_out_replays: whether records that were replayed are left out, as where the records
            that they were made of are read again.
        left_out: records that are left out: partition, offset and, of an event of an envelope, its
            index, else -1.
    """

    leaves_out_tombstones: bool = False
    leaves_out_replays: bool = False
    left_out: frozenset[tuple[TopicPartition, int, int]] = frozenset()


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """One topic as one pipeline reads it.

    Attributes:
        pipeline: name of the pipeline, for messages.
        topic: Kafka's name of the topic.
        cluster: where the topic is.
        decoding: how its records become rows.
        planning: how batches are planned.
        files: where its files are.
        selection: which records are left out.
        subpartitions: lanes by key; 1: no lane column.
        dead_letter_limit: when bad records stop the pipeline.
        late: what happens to late events.
        writers: of the sink, for the read task itself; ``None`` on the Spark path.
        ledger: what events are counted by; ``None``: they are not.
        number: of the source in its pipeline, for the ledger's column of rows.
        adds_lineage: whether rows have that column, :data:`LINEAGE`, for the steps that follow.
    """

    pipeline: str
    topic: str
    cluster: Cluster
    decoding: RecordDecoding
    planning: BatchPlanning
    files: SourceFiles
    selection: RecordSelection = field(default_factory=RecordSelection)
    subpartitions: int = 1
    dead_letter_limit: DeadLetterLimit = field(default_factory=DeadLetterLimit)
    late: LateRule = field(default_factory=LateRule)
    writers: WriterFactory | None = None
    ledger: LedgerRule | None = None
    number: int = 0
    adds_lineage: bool = False

    def with_needed_columns(self) -> SourceSpec:
        """Returns the source without columns that nothing looks at; called in a task.

        Raises:
            SinkError: if it can't be known what the writers look at.
        """
        # A side table has all columns of late events.
        if not isinstance(self.writers, SelectiveWriters) or self.late.writers is not None:
            return self
        decoding = self.decoding
        needed = {*self.writers.columns(), *decoding.partition_columns}
        if decoding.event_time is not None:
            needed.add(decoding.event_time)
        if self.ledger is not None:
            needed |= set(self.ledger.columns)
        return replace(self, decoding=replace(decoding, needed_columns=frozenset(needed)))
