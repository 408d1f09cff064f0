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


@dataclass(frozen=True)
class SourceSpec:
    """One topic as one pipeline reads it.

    Attributes:
        pipeline: name of the pipeline, for messages.
        topic: Kafka's name of the topic.
        schema: fields of the event; ``None`` for raw bytes.
        event_time: field of the event time, if it has one.
        earliest_event_us: event times before it (microseconds since 1970) are dead letters.
        latest_ahead_us: those later than this after the batch was planned are, too.
        cluster: where the topic is.
        consumer_group: whose committed offsets show the progress.
        start: where to begin without a checkpoint.
        metadata: columns of the Kafka record to add.
        min_tasks: split ranges until a batch has at least this many tasks.
        subpartitions: lanes by key; 1: no lane column.
        limits: when a batch closes.
        dead_letter_limit: when bad records stop the pipeline.
        partition_columns: string fields whose values name directories, checked with the record.
        state: folder on the driver's machine shared by the driver and the planner.
        staging: URI of the folder that takes reports and dead letters of read ranges.
        storage: options of the storage that ``staging`` is on.
        checkpoint: URI of Spark's checkpoint, which also keeps the first position.
        format: how record values hold the events.
        envelope: how many events lie in each record; ``None``: each record is one event.
        registry: of the schemas of topics.
        heartbeat_after_us: an input idle for so long says how far the others are; 0: never.
        writers: of the sink, for the read task itself; ``None`` on the Spark path.
        needed_columns: names of the event's fields whose columns are looked at; ``None``: all.
        late: what happens to late events.
        references: topics whose ends are noted with each batch.
        ledger: what events are counted by; ``None``: they are not.
        number: of the source in its pipeline, for the ledger's column of rows.
        needs_same_partitions: whether it is refused once the topic has got partitions.
        needs_key_places: whether a record is refused whose key may have others in other partitions.
        leaves_out_replays: whether records that were replayed are left out, as where the records
            that they were made of are read again.
        left_out: records that are left out: partition, offset and, of an event of an envelope, its
            index, else -1.
        leaves_out_tombstones: whether records without a value are left out and counted, instead of
            being bad ones.
        null_key: field of the records' key, where records without a value are rows that delete, see
            :attr:`.Sink.null_key`; ``None``: they are not.
        adds_lineage: whether rows have that column, :data:`LINEAGE`, for the steps that follow.
    """

    pipeline: str
    topic: str
    schema: EventSchema | None
    event_time: str | None
    earliest_event_us: int
    latest_ahead_us: int
    cluster: Cluster
    consumer_group: str
    start: Start
    metadata: tuple[Metadata, ...]
    min_tasks: int
    subpartitions: int
    limits: BatchLimits
    partition_columns: tuple[str, ...]
    state: Path
    staging: str
    checkpoint: str
    dead_letter_limit: DeadLetterLimit = field(default_factory=DeadLetterLimit)
    format: Format = field(default_factory=Json)
    envelope: Envelope | None = None
    registry: SchemaRegistrySettings | None = None
    heartbeat_after_us: int = 0
    writers: WriterFactory | None = None
    needed_columns: frozenset[str] | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    late: LateRule = field(default_factory=LateRule)
    references: tuple[str, ...] = ()
    ledger: LedgerRule | None = None
    number: int = 0
    adds_lineage: bool = False
    needs_same_partitions: bool = False
    needs_key_places: bool = False
    leaves_out_replays: bool = False
    leaves_out_tombstones: bool = False
    null_key: str | None = None
    left_out: frozenset[tuple[TopicPartition, int, int]] = frozenset()

    def with_needed_columns(self) -> SourceSpec:
        """Returns the source without columns that nothing looks at; called in a task.

        Raises:
            SinkError: if it can't be known what the writers look at.
        """
        # A side table has all columns of late events.
        if not isinstance(self.writers, SelectiveWriters) or self.late.writers is not None:
            return self
        needed = {*self.writers.columns(), *self.partition_columns}
        if self.event_time is not None:
            needed.add(self.event_time)
        if self.ledger is not None:
            needed |= set(self.ledger.columns)
        return replace(self, needed_columns=frozenset(needed))
