"""Pipelines: sources, steps (functions DataFrame to DataFrame), and a sink."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from headrace.model.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Step: TypeAlias = "Callable[..., DataFrame]"


class Start(enum.StrEnum):
    """Where a pipeline without a checkpoint begins.

    COMMITTED: the consumer group's committed offsets, the earliest where there are none.
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


class Metadata(enum.StrEnum):
    """Columns of the Kafka record itself, added beside the event's fields on request.

    ``_topic`` string, ``_partition`` int, ``_offset`` bigint, ``_timestamp`` timestamp (UTC),
    ``_key`` binary, ``_headers`` array<struct<key: string, value: binary>>.
    ``_timestamp`` is null where the record has none or one beyond the calendar, ``_headers`` where
    the name of a header is not UTF-8.
    """

    TOPIC = "_topic"
    PARTITION = "_partition"
    OFFSET = "_offset"
    TIMESTAMP = "_timestamp"
    KEY = "_key"
    HEADERS = "_headers"


@dataclass(frozen=True)
class Source:
    """How a pipeline reads one topic.

    Attributes:
        topic: the declared topic.
        start: where to begin when there is no checkpoint.
        metadata: columns of the Kafka record to add, see :class:`Metadata`.
        min_tasks: split ranges until a batch has at least this many tasks (0: one a partition);
            order inside a partition is then kept inside each sub-range only. Not together with
            ``subpartitions``, which promise order.
        subpartitions: spread each partition over this many lanes by key (1: none). Records of
            one key keep their order; a null key takes lane ``offset % subpartitions``. Adds the
            column ``_subpartition`` int.
        watermark: how far event times may lie behind the newest, in steps that keep state; rows
            beyond are dropped there. ``None``: the sink's ``lateness`` for several sources, whose
            watermarks headrace sets, and for a single one what its steps set themselves.
    """

    topic: Topic
    start: Start = Start.EARLIEST
    metadata: tuple[Metadata, ...] = ()
    min_tasks: int = 0
    subpartitions: int = 1
    watermark: timedelta | None = None


@dataclass(frozen=True)
class BatchLimits:
    """A batch closes at whichever comes first.

    Attributes:
        max_records: records over all partitions of all sources, which share it equally.
        max_bytes: bytes of record values over all sources, shared equally, estimated from the
            last batches of each partition; until there are any, a record is taken for 50 kB.
        max_wait: wall clock since the first unread record was seen; a full batch does not wait.
    """

    max_records: int = 1_000_000
    max_bytes: int = 512 * 1024 * 1024
    max_wait: timedelta = timedelta(seconds=1)

    def shared_by(self, sources: int) -> BatchLimits:
        """One source's share where ``sources`` are read together."""
        return replace(
            self,
            max_records=max(1, self.max_records // sources),
            max_bytes=max(1, self.max_bytes // sources),
        )


@dataclass(frozen=True)
class DeadLetterLimit:
    """When bad records stop the pipeline instead of filling the dead-letter topic.

    Attributes:
        max_ratio: share of bad records in a batch of at least ``min_records``.
        max_consecutive: bad records in a row within one partition.
        min_records: batches smaller than this are not judged by ratio.
    """

    max_ratio: float = 0.1
    max_consecutive: int = 1_000
    min_records: int = 1_000


class TimeUnit(enum.StrEnum):
    """Grain of a partition by event time, in UTC."""

    DAY = "day"
    HOUR = "hour"


class UnsafeValues(enum.StrEnum):
    r"""Home of records whose partition value can't be a directory name.

    Unsafe: longer than 100 bytes of UTF-8, holding ``/``, ``\`` or a control character, ``.``
    or ``..``, or the name of the home itself. Null and empty values are safe: they are one
    partition, ``__HIVE_DEFAULT_PARTITION__``, and read back as null (Delta's rule).

    DEAD_LETTER: the record goes to the dead-letter topic.
    RESCUE: it lands in partition ``__unsafe__``; the value stays in column ``_rescued`` (JSON).
    """

    DEAD_LETTER = "dead-letter"
    RESCUE = "rescue"


@dataclass(frozen=True)
class Lake:
    """Sink: a Delta table under the project's lake, partitioned by event time and fields.

    Exactly once: each batch is one Delta transaction that records the offsets it ends at, so a
    batch that is replayed after a crash adds nothing. Files become visible with that
    transaction, never half-written.

    Attributes:
        table: folder under the lake's root.
        partition_by: any of ``"day"``, ``"hour"`` (of ``event_time``, UTC; columns ``day`` date
            and ``hour`` int) and columns of the rows, outermost first.
        event_time: column of the event time; by default the topic's.
        unsafe_values: home of unsafe partition values.
        lateness: rows whose partition ended longer ago than this before the event time that
            earlier batches have reached are late: counted, and their files are merged sooner.
        compact_files: merge the small files of a partition, beside the batches, when this many
            have gathered; where late rows came, when 8 have. 0: never. Do not run another
            engine's OPTIMIZE on the table unless it is 0 in every pipeline that writes it.
        compression: Parquet codec.
    """

    table: str
    partition_by: Sequence[str] = ()
    event_time: str | None = None
    unsafe_values: UnsafeValues = UnsafeValues.DEAD_LETTER
    lateness: timedelta = timedelta(hours=1)
    compact_files: int = 64
    compression: str = "zstd"

    @property
    def time_units(self) -> tuple[TimeUnit, ...]:
        """The partitions taken from the event time."""
        return tuple(TimeUnit(name) for name in self.partition_by if name in set(TimeUnit))

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The partitions taken from columns of the rows."""
        return tuple(name for name in self.partition_by if name not in set(TimeUnit))


@dataclass(frozen=True)
class Pipeline:
    """From topics to a sink. Declaring one runs nothing.

    Attributes:
        name: also the consumer group (``headrace.<name>``) and the checkpoint's folder.
        source: a topic or :class:`Source`, or several of them.
        sink: where rows go.
        steps: functions applied in turn; the first takes one DataFrame per source.
        limits: when a batch closes.
        dead_letter_limit: when bad records stop the pipeline.
        version: written to dead letters, so that a fix can be told from what it fixed.
    """

    name: str
    source: Topic | Source | Sequence[Topic | Source]
    sink: Lake
    steps: Sequence[Step] = ()
    limits: BatchLimits = field(default_factory=BatchLimits)
    dead_letter_limit: DeadLetterLimit = field(default_factory=DeadLetterLimit)
    version: str = "1"

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources, each as a :class:`Source`."""
        given = (self.source,) if isinstance(self.source, Topic | Source) else self.source
        return tuple(one if isinstance(one, Source) else Source(one) for one in given)

    @property
    def consumer_group(self) -> str:
        """Kafka consumer group that shows this pipeline's progress."""
        return f"headrace.{self.name}"

    @property
    def path(self) -> tuple[str, str]:
        """("fused" or "spark", why): how the rows travel."""
        if self.steps:
            return "spark", f"{len(self.steps)} step(s) run in Spark between source and sink"
        if len(self.sources) > 1:
            return "spark", "several sources are united in Spark"
        if self.sources[0].subpartitions > 1:
            return "spark", "sub-partitions by key are a shuffle"
        return "fused", "nothing runs between source and sink, so read tasks write the files"

    @property
    def event_time(self) -> str | None:
        """Column of the event time at the sink."""
        return self.sink.event_time or self.sources[0].topic.event_time
