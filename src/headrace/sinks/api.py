"""What a sink is: how the rows of a pipeline leave it. A stranger can write one from this file.

A sink has three parts, each with a life of its own:

==================== ============================= ==============================================
part                 made by                       lives
==================== ============================= ==============================================
:class:`Sink`        the user, in a module         frozen; ``check`` and ``plan`` ask it; starts
                                                   nothing, connects to nothing, imports no Spark
:class:`SinkDriver`  :meth:`Sink.open`             on the driver, from a start of the pipeline to
                                                   its end; one batch at a time
:class:`TaskWriter`  :attr:`SinkDriver.writers`    in a Python worker, for one attempt of one task
==================== ============================= ==============================================

The way of a batch:

1. Each task opens a writer, calls :meth:`TaskWriter.write` any number of times, and ends with
   :meth:`TaskWriter.close`, which returns *pieces*: texts for the driver, such as the names of
   files. A task that fails calls :meth:`TaskWriter.abort` instead.
2. Spark may run a task again, also twice at the same time, also after it has succeeded. Each
   attempt has a writer of its own, and the pieces of one attempt reach the driver. Until
   :meth:`SinkDriver.commit` nothing that a task wrote may be visible to readers, if the sink is
   ``EXACTLY_ONCE``.
3. The driver writes the batch's dead letters, then calls :meth:`SinkDriver.commit` with all
   pieces, or :meth:`SinkDriver.discard` where the batch is abandoned.
4. A batch is repeated from the same offsets after a crash. A sink that records positions
   (:class:`PositionStore`) is asked first: what it holds is neither written nor committed again.
   One that does not gets the rows again.

Nothing that a sink raises loses a row: the batch fails, and is repeated. Raise
:class:`~headrace.errors.SinkUnavailableError` for what passes by itself, which a pipeline waits for
without using up a restart, and :class:`~headrace.errors.SinkError` for the rest, which it restarts
after within its budget. What :meth:`TaskWriter.abort` and :meth:`SinkDriver.discard` raise after
another error is logged, and the other error counts.

Records of a topic of events that have no value do not reach a sink, unless :attr:`Sink.null_key`
names a column: then their rows have true in the column :data:`DELETED`.

A sink may also be one of these, by inheriting from it beside :class:`Sink`:

======================= ===========================================================================
:class:`Provisionable`  ``apply`` makes its target, and not its first start
:class:`Compactable`    ``compact`` works on its target
:class:`Readable`       ``Project.read`` reads its target
:class:`Recountable`    ``reconcile --recount`` counts its rows; :class:`CountsEvents`: adds counts
:class:`Reprocessable`  ``reprocess`` rewrites rows of a time range
======================= ===========================================================================

``headrace.testing.SinkContract`` is the suite of tests that every sink must pass.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from headrace.errors import SinkError
from headrace.model import (
    EventField,
    EventSchema,
    FieldType,
    Guarantee,
    Metadata,
    OffsetRange,
    Topic,
    TopicPartition,
)
from headrace.model.fault import Fault

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.metrics import Metric
    from headrace.settings import SchemaRegistrySettings, Secret


@dataclass(frozen=True)
class BatchPace:
    """How often batches come at most, while there is something to read.

    Attributes:
        tasks: how many write, where each partition has records.
        max_wait: how long a batch gathers records.
    """

    tasks: int
    max_wait: timedelta


class OnNull(enum.StrEnum):
    """What a record without a value, a tombstone, does to the target of a sink.

    LEAVE_OUT: nothing. It is counted where its topic is compacted, and a dead letter elsewhere.
    DELETE: what its key names is deleted, whatever the cleanup policy of its topic is.
    """

    LEAVE_OUT = "leave out"
    DELETE = "delete"


DELETED = "_headrace_deleted"
"""Column of rows for a sink with :attr:`Sink.null_key`: whether the row of their key is deleted."""


@dataclass(frozen=True)
class DeclaredRows:
    """What is known of a sink's rows before anything runs.

    Attributes:
        columns: name and type of each; None: steps hide them until the pipeline starts.
        event_time: column of the event time, as the first topic declares it; None: none does.
        values: the only texts that a column can hold, as its event class declares them.
        ordered_by: column whose equal values come in the order in which their events were sent;
            None: no order is known, as after steps and of several sources.
        record_key: column that has the key of the row's record; None: none has it, as after steps
            and of envelopes.
        fields: of the event classes, by the column that holds them.
    """

    columns: Mapping[str, FieldType] | None
    event_time: str | None
    values: Mapping[str, Collection[str]] = field(default_factory=dict)
    ordered_by: str | None = None
    record_key: str | None = None
    fields: Mapping[str, EventField] = field(default_factory=dict)


def on_null_faults(sink: str, on_null: object, key: str, rows: DeclaredRows) -> Iterator[Fault]:
    """Yields what is wrong with a field ``on_null``.

    Args:
        sink: name of the class that declares it.
        on_null: its value.
        key: column that shows what is deleted.
        rows: of the sink.
    """
    if not isinstance(on_null, OnNull):
        yield Fault(f"{sink}.on_null is {on_null!r}", "OnNull.LEAVE_OUT or OnNull.DELETE")
    elif on_null is OnNull.DELETE and rows.record_key != key:
        message = (
            f"{sink}.on_null is DELETE, and column {key!r} does not hold the key of the records"
        )
        remedy = f"one topic with key={key!r}, without steps, join, envelope and subpartitions"
        yield Fault(message, remedy)
    elif on_null is OnNull.DELETE and rows.columns is not None:
        kind = rows.columns.get(key, FieldType.JSON)
        if kind not in (FieldType.STRING, FieldType.LONG):
            message = f"{sink}.on_null is DELETE, and column {key!r} is {kind.value}"
            yield Fault(message, "a key that is a str or an int")


@dataclass(frozen=True)
class SinkContext:
    """The place of a run, as far as sinks need to know it.

    Attributes:
        pipeline: its name.
        lake: root URI of the project's lake.
        client: librdkafka's settings of the project's cluster.
        settings: the table ``[sinks.KIND]`` of headrace.toml; ``settings["url"].reveal()`` is a
            value. Those of a table ``[sinks.KIND.eu]`` have names such as ``eu.url``.
        event_time: column of the event time, as the first topic declares it; None: none does.
        storage: options of the lake's storage, such as those of ``[s3]`` in headrace.toml.
        topic: the first one that the pipeline reads.
        fields: of the event classes, by the column that holds them where no step changes it.
        registry: of the schemas of topics; None: the project has none.
    """

    pipeline: str
    lake: str
    client: Mapping[str, str]
    settings: Mapping[str, Secret] = field(default_factory=dict)
    event_time: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    topic: Topic | None = None
    fields: Mapping[str, EventField] = field(default_factory=dict)
    registry: SchemaRegistrySettings | None = None


class PositionStore(Protocol):
    """What a sink records of the pipelines that write to it, in the transactions of their batches.

    An *application id* names one number, such as the next offset of one partition.
    """

    @property
    def uri(self) -> str:
        """Returns its address, for messages."""

    def versions(self, app_ids: Iterable[str]) -> Mapping[str, int]:
        """Returns the number recorded for each application id; ids never recorded are left out.

        Raises:
            SinkError: if it can't be read.
        """

    def restored(self, writer: Mapping[str, object]) -> RestoredTarget | None:
        """Returns what an operator's RESTORE brought back, after ``writer`` wrote last.

        Only a sink whose rows can go back in time while its positions do not has such a thing; the
        others return None.

        Args:
            writer: values in the metadata of the pipeline's commits.
        """


@dataclass(frozen=True)
class RestoredTarget:
    """What an operator's RESTORE did to a target, whose positions stayed as they were.

    Attributes:
        to: what the target recorded when it had the rows that it has got back.
        at: what it recorded at the RESTORE.
    """

    to: PositionStore
    at: PositionStore


@dataclass(frozen=True)
class Transaction:
    """What the commit of a batch records beside its rows.

    Attributes:
        versions: by application id, the number to record.
        expected: by application id, the number that must be recorded before; None: none at all.
        metadata: JSON values for readers of the sink's history.
        event_us: the event time that the topic has reached, in microseconds since 1970: that of
            the partition furthest behind, where partitions that are read to their ends do not
            count. None: it is not known, or steps or a join hold rows back.
        positions: the next record to read of each partition, after the batch.
        planned_ms: when the batch was planned, in milliseconds since 1970; 0: by no batch.
        topic_ids: ids of the topics that the batch reads, by name.
        followed: of the partitions of followed topics, the offset before which the batch has them.
        begins_elsewhere: whether it is the first of a checkpoint that does not start where the sink
            stands: of a new pipeline, or of one that was reset to its topics or its group.
    """

    versions: Mapping[str, int]
    expected: Mapping[str, int | None]
    metadata: Mapping[str, object] = field(default_factory=dict)
    event_us: int | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    planned_ms: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    followed: Mapping[TopicPartition, int] = field(default_factory=dict)
    begins_elsewhere: bool = False

    @property
    def app_ids(self) -> frozenset[str]:
        """The application ids that :meth:`follows` looks at."""
        return frozenset((*self.expected, *self.versions))

    def follows(self, recorded: Mapping[str, int | None], target: str) -> bool:
        """Returns whether the target records what is expected; False: it has this transaction.

        Args:
            recorded: by application id, the number that the target records; None or left out: none.
            target: in the message.

        Raises:
            SinkError: if it records neither.
        """
        if _records(recorded, self.expected):
            return True
        if _records(recorded, self.versions):
            return False
        reason = "another driver has recorded other positions of its pipeline meanwhile"
        raise SinkError(target, reason)


def _records(recorded: Mapping[str, int | None], numbers: Mapping[str, int | None]) -> bool:
    return all(recorded.get(app_id) == number for app_id, number in numbers.items())


@dataclass(frozen=True)
class CommitResult:
    """What a commit did.

    Attributes:
        is_new: False where the sink held the batch already: nothing has changed.
        rows: how many the batch has in the sink.
        figures: what to add to the sink's counters, by the names of :attr:`Sink.metrics`.
    """

    is_new: bool
    rows: int
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that the sink can't take; it becomes a dead letter.

    Attributes:
        index: of the row, in the rows handed to :meth:`TaskWriter.write`.
        reason: a stable code, such as ``unsafe-partition-value``.
        detail: a sentence with the column and the value.
    """

    index: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class RejectedValues:
    """A row that only the commit found out about; it becomes a dead letter.

    Attributes:
        values: the row as JSON.
        reason: a stable code, such as ``not-unique``.
        detail: a sentence with the column and the value.
    """

    values: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class CommitRejection:
    """A commit that changed nothing, since the target takes some of the rows in no transaction.

    Attributes:
        rejected: rows that become dead letters.
        pieces: of the other rows, for another :meth:`SinkDriver.commit` of the same transaction.
        repeats: duplicates, rows that the target has already: they are dropped. With the columns
            that :meth:`Sink.open` was given; None: there are none. One row at least is in
            ``rejected`` or here.
    """

    rejected: Sequence[RejectedValues]
    pieces: Sequence[str]
    repeats: pa.Table | None = None


class TaskWriter(Protocol):
    """Writes the rows of one attempt of one task. Used on one thread."""

    def write(self, rows: pa.Table) -> Sequence[RejectedRow]:
        """Takes rows with the columns that :meth:`Sink.open` was given, in their order.

        Called any number of times, with some ten thousand rows each.

        Returns:
            the rows that can't be taken; the others are.

        Raises:
            SinkError: if none can be taken. The task fails, after :meth:`abort`.
        """

    def close(self) -> Sequence[str]:
        """Called once, at the end: everything is on its way that the commit relies on.

        Returns:
            pieces for :meth:`SinkDriver.commit`; none if no row was written.
        """

    def abort(self) -> None:
        """Called once, in place of :meth:`close` or after it failed: deletes what was written.

        It is not called where the process dies: what is left then must do no harm.
        """


WriterFactory: TypeAlias = Callable[[str], TaskWriter]
"""Opens the writer of a task attempt, whose id it gets: 32 hexadecimal digits.

With one source and no steps, the ids of a batch sort as their tasks read: of two tasks that read
records of one partition, the id of the one with the earlier offsets is the smaller. It is
picklable: it travels to the tasks.
"""


class SelectiveWriters(abc.ABC):
    """Opens writers that look at some of the event's fields: of others there may be no column.

    They reject no row: its dead letter would lack the other fields.
    """

    @abc.abstractmethod
    def __call__(self, task_id: str) -> TaskWriter:
        """See :data:`WriterFactory`."""

    @abc.abstractmethod
    def columns(self) -> Collection[str]:
        """Returns the names of the fields that a task's writer looks at: one of them at least.

        Called in the task, before its records are read.

        Raises:
            SinkError: if it is not known. The task fails.
        """


class SinkDriver(abc.ABC):
    """The driver's half of an open sink. All methods but ``figures`` are called on one thread.

    Attributes:
        writers: opens the tasks' writers.
        positions: where it records positions; None for a sink that records none.
    """

    writers: WriterFactory
    positions: PositionStore | None = None

    @abc.abstractmethod
    def commit(
        self, pieces: Sequence[str], transaction: Transaction, watermark_us: int
    ) -> CommitResult | CommitRejection:
        """Makes the rows of a batch visible, all at once or none, with what it records.

        Called once a batch, unless the batch has neither rows nor a new position; and again with
        the other pieces after a :class:`CommitRejection`, whose rows are dead letters by then.
        Where positions are recorded, also once before the first batch of a pipeline that continues
        without its checkpoint: without pieces, for the positions alone.

        Args:
            pieces: of all tasks, in no order.
            transaction: to record with them; a sink without positions passes over it.
            watermark_us: how far event time has come, less the pipeline's allowed lateness, in
                microseconds since 1970; 0: not known. Few rows before it are still to come, so a
                sink may take for complete what ended before; it counts nothing by it.

        Raises:
            SinkError: if nothing is committed, also where the sink records something else than
                ``transaction.expected``, or it is not known whether it was.
        """

    @abc.abstractmethod
    def discard(self, pieces: Sequence[str]) -> None:
        """Deletes what tasks wrote for a batch that is abandoned; not what is committed."""

    def figures(self) -> Mapping[str, int | str]:
        """Returns what happens beside the batches, by field of the pipeline's progress.

        Called on any thread, a few times a second: it neither waits nor raises.
        """
        return {}

    @abc.abstractmethod
    def close(self, max_wait_seconds: float) -> None:
        """Called once, at the end of the pipeline or when it is opened again.

        Args:
            max_wait_seconds: how long what is still due beside the batches may take.
        """


class Sink(abc.ABC):
    """A declared sink: a frozen dataclass of plain values, comparable and picklable.

    Attributes:
        kind: its name in messages, plans and headrace.toml: ``lake``.
        metadata: columns of the Kafka record that it wants beside the event's fields, where no
            step comes in between.
        metrics: of the counters in its figures.
        extra: the extra of headrace that it needs beside ``spark``, whatever its settings are;
            empty: none.
        required_settings: keys that ``[sinks.KIND]`` of headrace.toml must have; ``check`` asks.
    """

    kind: ClassVar[str]
    metadata: ClassVar[tuple[Metadata, ...]] = ()
    metrics: ClassVar[tuple[Metric, ...]] = ()
    extra: ClassVar[str] = ""
    required_settings: ClassVar[tuple[str, ...]] = ()

    @property
    @abc.abstractmethod
    def target(self) -> str:
        """Name of the table, topic or index that it writes to."""

    @property
    @abc.abstractmethod
    def guarantee(self) -> Guarantee:
        """Returns what a repeated batch may do; a class variable, unless fields decide it."""

    @property
    def needed_settings(self) -> tuple[str, ...]:
        """The settings that it needs as it is declared: by default, all required ones."""
        return self.required_settings

    def extra_for(
        self,
        settings: Mapping[str, Secret],  # noqa: ARG002
    ) -> str:
        """Returns the extra that it needs with these settings of its kind; empty: none."""
        return self.extra

    def settings_faults(
        self,
        settings: Mapping[str, Secret],  # noqa: ARG002
    ) -> Iterator[Fault]:
        """Yields what is wrong with the settings of its kind; ``check`` asks if none is missing.

        A message must not show a secret.
        """
        yield from ()

    @property
    def wanted_metadata(self) -> tuple[Metadata, ...]:
        """The columns of the Kafka record that it wants as it is declared: by default, all."""
        return self.metadata

    def resolved_target(
        self,
        settings: Mapping[str, Secret],  # noqa: ARG002
    ) -> str:
        """Returns the target's name in full, as far as it is known without a connection.

        Two sinks of one kind with one such name write to one target; ``check`` compares them.

        Args:
            settings: of its kind.
        """
        return self.target

    @property
    def label(self) -> str:
        """Kind and target: ``lake clicks``."""
        return f"{self.kind} {self.target}"

    @property
    def keeps_last_read(self) -> bool:
        """Whether the row of a key that is read last stays; then its topic may get no partitions.

        Keys would move, and a later record could be read before an earlier one.
        """
        return False

    @property
    def null_key(self) -> str | None:
        """Column by which records without a value delete; None: they do not reach the sink.

        Where it is named, rows have the column :data:`DELETED`. It is true in the row of a record
        without a value: this has the record's key in that column, and the record's timestamp as its
        event time, and its other fields are null. Rows of one key come in the order of their
        records within a task, and tasks sort as :data:`WriterFactory` says. What can't be declared
        is found by :func:`on_null_faults`.
        """
        return None

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics that it writes to; the project must declare them."""
        return ()

    @property
    def followed_topics(self) -> tuple[str, ...]:
        """Names of topics that its tasks read beside the rows, each up to a position of the batch.

        ``headrace.pipelines.references.positions.announced`` gives it to a task.
        """
        return ()

    @abc.abstractmethod
    def faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        """Yields everything wrong with the declaration; ``check`` shows it.

        A fault is a message and a remedy: ``Fault("there is no column 'id'", "id, name")``. Values
        of any type may stand in the fields: it must not raise.
        """

    def faults_beside(self, other: Sink) -> Iterator[Fault]:  # noqa: ARG002
        """Yields what is wrong with writing to the target of ``other``, of the same kind, too."""
        yield from ()

    def directory_columns(self, schema: EventSchema) -> tuple[str, ...]:  # noqa: ARG002
        """Returns the text fields whose values must be able to name a directory.

        Without steps they are looked at while the record is at hand, so that its dead letter has
        the record's own bytes.
        """
        return ()

    def position_store(self, context: SinkContext) -> PositionStore | None:  # noqa: ARG002
        """Returns where positions are recorded, without opening the sink; None: nowhere."""
        return None

    def changes(self, context: SinkContext, schema: pa.Schema) -> Sequence[str]:  # noqa: ARG002
        """Returns what the next run creates or changes in the target; ``plan`` shows it.

        Each is the end of a sentence about the target: ``is created``. It may connect, and changes
        nothing itself.

        Args:
            context: where the pipeline runs.
            schema: of its rows.

        Raises:
            SinkError: if the target can't be looked at.
            TableMismatchError: as :meth:`open`.
        """
        return ()

    def pace_faults(self, pace: BatchPace) -> Iterator[Fault]:  # noqa: ARG002
        """Yields what batches of such a pace cost more than the target allows; ``plan`` warns."""
        yield from ()

    @abc.abstractmethod
    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """Called on the driver at every start of the pipeline, before anything is written.

        Args:
            context: where it runs.
            schema: of the rows that writers will get.

        Raises:
            SinkError: if the sink can't be reached, or can't take such rows.
            TableMismatchError: if the existing table has other columns.
        """


class Provisionable(abc.ABC):
    """A sink whose target ``headrace apply`` makes, and changes where the declaration is new.

    Where steps hide the columns until the pipeline starts, only :meth:`Sink.open` makes it.
    """

    @property
    def is_provisioned(self) -> bool:
        """Whether ``apply`` makes the target, as it is declared; by default, it does."""
        return True

    @abc.abstractmethod
    def apply(self, context: SinkContext, schema: pa.Schema) -> Sequence[str]:
        """Makes the changes that :meth:`Sink.changes` names, and returns them; repeatable.

        Raises:
            SinkError: as :meth:`Sink.changes`.
            TableMismatchError: if something else would have to change; nothing is changed then.
        """


@dataclass(frozen=True)
class CompactionResult:
    """What a compaction did: small files merged into how many, and dead files deleted."""

    merged: int = 0
    written: int = 0
    vacuumed: int = 0

    def __add__(self, other: CompactionResult) -> CompactionResult:
        """Returns the sum of both."""
        return CompactionResult(
            self.merged + other.merged,
            self.written + other.written,
            self.vacuumed + other.vacuumed,
        )


class Compactable(abc.ABC):
    """A sink whose target ``headrace compact`` can work on, beside running pipelines."""

    @abc.abstractmethod
    def merge_small_files(self, context: SinkContext) -> CompactionResult:
        """Merges what many small batches have written. Raises SinkError if there is nothing."""

    @abc.abstractmethod
    def remove_dead_files(self, context: SinkContext) -> CompactionResult:
        """Deletes what no version of the last week holds. Raises SinkError if there is nothing."""


class Snapshot(Protocol):
    """The rows of a target at one moment, and what it records of pipelines at that moment."""

    @property
    def column_names(self) -> Sequence[str]:
        """Returns the names of its columns."""

    def versions(self, app_ids: Iterable[str]) -> Mapping[str, int]:
        """Returns the number recorded for each application id, as a :class:`PositionStore` does."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the rows with ``columns``, in no order, a part of them at a time.

        Raises:
            SinkError: if they can't be read.
        """

    def close(self) -> None:
        """Ends the reading: called once, also if no row was read."""


class Recountable(abc.ABC):
    """A sink whose rows ``headrace reconcile --recount`` can count.

    It records positions in its target, as of the rows (a :class:`PositionStore`): a batch whose
    number a snapshot does not have counts as missing. Rows are identified by the columns of the
    declaration: the topic's ``event_time`` as a timestamp, and its ``event_id``, or else
    ``_topic``, ``_partition`` and ``_offset``.
    """

    @abc.abstractmethod
    def snapshot(self, context: SinkContext) -> Snapshot | None:
        """Returns the target as it is now; None: there is none, or its rows can't be distinguished.

        Raises:
            SinkError: if it can't be read.
        """

    @property
    def tells_rows_apart(self) -> bool:
        """Whether a row is one that was written; if not, every snapshot is None."""
        return True

    @property
    def keeps_each_row(self) -> bool:
        """Whether a snapshot has each row that commits took, and is None only before the first."""
        return False


@dataclass(frozen=True)
class WindowCounts:
    """How many events a target has counted, and what it recorded of pipelines at that moment.

    Attributes:
        seconds: length of the windows, which start at multiples of it since 1970, in UTC.
        event_time: column by which events belong to windows.
        events: by start of the window, in seconds since 1970, how many it has counted.
        recorded: by application id, the number recorded.
    """

    seconds: int
    event_time: str
    events: Mapping[int, int]
    recorded: Mapping[str, int]

    def versions(self, app_ids: Iterable[str]) -> Mapping[str, int]:
        """Returns the number recorded for each application id, as a :class:`PositionStore` does."""
        return {name: self.recorded[name] for name in app_ids if name in self.recorded}


class CountsEvents(abc.ABC):
    """A sink that keeps counts of events, which ``headrace reconcile --recount`` adds up."""

    @abc.abstractmethod
    def window_counts(self, context: SinkContext) -> WindowCounts | None:
        """Returns the counts as they are now; None: it keeps none.

        Raises:
            SinkError: if they can't be read.
        """


@dataclass(frozen=True)
class RowChanges:
    """What a commit is about to change in a target.

    Attributes:
        added: rows that it adds.
        removed: rows that it removes, of the same columns.
        kept: how many rows are in the target already as they must be.
    """

    added: pa.Table
    removed: pa.Table
    kept: int


BeforeCommit: TypeAlias = Callable[[RowChanges], None]
"""Called once for each attempt of a commit, before anything is visible; it may raise."""


class ReplacingDriver(SinkDriver):
    """A driver whose commits bring the rows of given records to what was written.

    Rows that are in the target already as they were written stay as they are, so that the commit
    of rows that are all there adds none and removes none.

    Attributes:
        by_place: whether rows are found by topic, partition and offset, which mean other records
            once a topic was deleted and created again.
    """

    by_place: bool = False

    @abc.abstractmethod
    def begin(self, ranges: Sequence[OffsetRange], before_commit: BeforeCommit) -> None:
        """Called before the tasks of each commit.

        Args:
            ranges: whose rows the next commit replaces.
            before_commit: called with what the commit will change.
        """


class Reprocessable(abc.ABC):
    """A sink into which ``headrace reprocess`` can rewrite the rows of records."""

    @abc.abstractmethod
    def reprocessing_fault(
        self, columns: Collection[str] | None, event_id: str | None
    ) -> Fault | None:
        """Returns why rewriting rows would not be exact; None: it is.

        Args:
            columns: names of those of the rows; None: steps hide them until the query is built.
            event_id: field that is the same when an event is sent again; None: there is none.
        """

    @abc.abstractmethod
    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """See :meth:`Sink.open`."""

    def open_to_reprocess(
        self,
        context: SinkContext,
        schema: pa.Schema,
        event_id: str | None,  # noqa: ARG002
    ) -> SinkDriver:
        """Opens the sink beside the pipeline that writes to it; by default as :meth:`open` does.

        Commits record no position of the pipeline. A :class:`ReplacingDriver` gets the ranges of
        the records that are rewritten; of any other driver, a commit must do no harm if the
        rows are there already.

        Raises:
            SinkError: as :meth:`Sink.open`.
            TableMismatchError: as :meth:`Sink.open`.
        """
        return self.open(context, schema)


class Readable(abc.ABC):
    """A sink whose target ``Project.read`` gives to programs."""

    @abc.abstractmethod
    def read(self, context: SinkContext, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns the rows of whole batches, in no order.

        Args:
            context: of any pipeline that writes to the target.
            columns: names of those to read; all where it is ``None``.

        Raises:
            SinkError: if there is nothing yet, or it can't be read.
        """
