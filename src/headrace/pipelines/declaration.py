"""The declaration of a pipeline: sources, steps (functions DataFrame to DataFrame), and a sink."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from headrace.model import (
    BatchLimits,
    DeadLetterLimit,
    EventField,
    FieldType,
    Metadata,
    Source,
    Topic,
)
from headrace.model.declared import DeclaredValue
from headrace.pipelines.join.declaration import Join
from headrace.pipelines.late_data.declaration import LateData
from headrace.pipelines.transforms.transform import Transform
from headrace.sinks.api import Sink, SinkContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.metrics import Metric
    from headrace.settings import Secret

Step: TypeAlias = "Callable[..., DataFrame]"


class PathKind(enum.StrEnum):
    """How rows get from the source to the sink.

    FUSED: the task that reads a range of records writes their rows, without Spark in between.
    SPARK: rows go through Spark's steps, and the tasks after the last one write them.
    """

    FUSED = "fused"
    SPARK = "spark"


@dataclass(frozen=True)
class ExecutionPath:
    """The path of a pipeline's rows, and why it is this one, as a sentence."""

    kind: PathKind
    reason: str


@dataclass(frozen=True)
class Pipeline(DeclaredValue):
    """A declared flow of events from topics to a sink. Declaring it runs nothing.

    Attributes:
        name: also the consumer group (``headrace.<name>``) and the checkpoint's folder.
        source: a topic or :class:`Source`, several of them, or a :class:`Join` of two.
        sink: where rows go.
        steps: functions applied in turn; the first takes one DataFrame per source.
        limits: when a batch closes.
        dead_letter_limit: when bad records stop the pipeline.
        allowed_lateness: an event is late if its event time is more than this before the event time
            that earlier batches of its partition had reached.
        late_data: where late events go: :class:`LateData`, or a sink, which is their side table.
            :mod:`headrace.pipelines.late_data` has the contract.
        version: written to dead letters, so that letters of a fixed version can be distinguished.
    """

    name: str
    source: Topic | Source | Join | Sequence[Topic | Source]
    sink: Sink
    steps: Sequence[Step] = ()
    limits: BatchLimits = field(default_factory=BatchLimits)
    dead_letter_limit: DeadLetterLimit = field(default_factory=DeadLetterLimit)
    allowed_lateness: timedelta = timedelta(hours=1)
    late_data: LateData | Sink = LateData.KEEP
    version: str = "1"

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources, each as a :class:`Source`."""
        if isinstance(self.source, Join):
            return self.source.sources
        declared = (self.source,) if isinstance(self.source, Topic | Source) else self.source
        return tuple(item if isinstance(item, Source) else Source(item) for item in declared)

    @property
    def join(self) -> Join | None:
        """The join of its sources; None: they are read each by itself."""
        return self.source if isinstance(self.source, Join) else None

    @property
    def consumer_group(self) -> str:
        """Kafka consumer group that shows this pipeline's progress."""
        return f"headrace.{self.name}"

    @property
    def path(self) -> ExecutionPath:
        """How the rows travel, and why."""
        if self.steps:
            reason = f"{len(self.steps)} step(s) run in Spark between source and sink"
        elif len(self.sources) > 1 and self.join is None:
            reason = "several sources are united in Spark"
        elif self.sources[0].subpartitions > 1:
            reason = "sub-partitions by key are a shuffle"
        else:
            reason = "nothing runs between source and sink, so read tasks write the rows"
            return ExecutionPath(PathKind.FUSED, reason)
        return ExecutionPath(PathKind.SPARK, reason)

    @property
    def is_fused(self) -> bool:
        """Whether the tasks that read records write their rows."""
        return self.path.kind is PathKind.FUSED

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of its join, its sinks and its steps, each once."""
        join = () if self.join is None else self.join.metrics
        sinks = (sink.metrics for sink in self.sinks)
        steps = (step.all_metrics for step in self.steps if isinstance(step, Transform))
        return tuple(dict.fromkeys(chain.from_iterable((join, *sinks, *steps))))

    @property
    def steps_for_topic(self) -> tuple[Step, ...]:
        """The steps as they run: transforms know the event time of the first topic."""
        event_time = self.event_time if self.sources else None
        return tuple(
            step.for_topic(event_time) if isinstance(step, Transform) else step
            for step in self.steps
        )

    @property
    def references(self) -> tuple[Topic, ...]:
        """The topics in which its steps look values up, each once."""
        steps = (step.references for step in self.steps if isinstance(step, Transform))
        return tuple({topic.name: topic for topic in chain.from_iterable(steps)}.values())

    @property
    def followed_topics(self) -> tuple[str, ...]:
        """Names of the topics whose position each batch has: of its references and its sink."""
        names = (topic.name for topic in self.references)
        return tuple(dict.fromkeys((*names, *self.sink.followed_topics)))

    @property
    def side_table(self) -> Sink | None:
        """The sink of late events, or of those that a join has not matched."""
        beside = self.late_data if self.join is None else self.join.unmatched
        return beside if isinstance(beside, Sink) else None

    @property
    def counted_sources(self) -> Sequence[Source]:
        """The sources whose events are its rows: of a join, that of the later events."""
        return self.sources if self.join is None else self.sources[:1]

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The sinks that it writes to: its own, and the side table if it has one."""
        return (self.sink,) if self.side_table is None else (self.sink, self.side_table)

    def sink_context(
        self,
        sink: Sink,
        lake: str,
        client: Mapping[str, str],
        sinks: Mapping[str, Mapping[str, Secret]],
        storage: Mapping[str, str],
    ) -> SinkContext:
        """Returns what one of its sinks needs to know of where it runs.

        Args:
            sink: of :attr:`sinks`.
            lake: root URI of the project's lake.
            client: librdkafka's settings of the project's cluster.
            sinks: the tables ``[sinks.KIND]`` of headrace.toml, by kind.
            storage: options of the lake's storage.
        """
        settings = sinks.get(sink.kind, {})
        topic = self.sources[0].topic
        fields = self._fields(is_main=sink is self.sink)
        return SinkContext(
            self.name, lake, client, settings, self.event_time, storage, topic, fields
        )

    def _fields(self, *, is_main: bool) -> dict[str, EventField]:
        """Returns the fields of the events by column: of the main sink also the joined ones."""
        first, *others = (source.topic.schema for source in self.sources)
        fields = {} if first is None else {field.name: field for field in first.fields}
        if is_main and self.join is not None:
            column = self.join.column
            fields[column] = EventField(column, FieldType.STRUCT, schema=others[0])
        return fields

    def metadata(self, source: Source) -> tuple[Metadata, ...]:
        """Returns the columns of the Kafka record that ``source`` gives.

        They are those that the user asks for, those that sub-partitions are made from, and those
        that the sink wants where no step is in between.
        """
        lanes = (Metadata.PARTITION, Metadata.OFFSET) if source.subpartitions > 1 else ()
        sink = () if self.steps else self._wanted_by(self.sink)
        if self.join is not None and source != self.join.sources[0]:
            return ()
        return tuple(dict.fromkeys((*source.metadata, *lanes, *sink)))

    def _wanted_by(self, sink: Sink) -> tuple[Metadata, ...]:
        """Returns the columns that a sink wants: event indices only where there are envelopes."""
        if any(source.topic.envelope is not None for source in self.sources):
            return sink.wanted_metadata
        columns = sink.wanted_metadata
        return tuple(column for column in columns if column is not Metadata.EVENT_INDEX)

    def side_metadata(self, source: Source) -> tuple[Metadata, ...]:
        """Returns the columns of the Kafka record that the side table gets of ``source``."""
        sink = () if self.side_table is None else self._wanted_by(self.side_table)
        return tuple(dict.fromkeys((*source.metadata, *sink)))

    @property
    def event_time(self) -> str | None:
        """Column of the event time, as the first topic declares it."""
        return self.sources[0].topic.event_time
