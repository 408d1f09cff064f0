"""The declaration of a table in the lake, and what must hold for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.model import EventSchema, FieldType, Guarantee, Metadata
from headrace.model.fault import Fault, are_texts, at_least, is_a, with_or_without
from headrace.model.name import NAME, NAME_WORDS
from headrace.model.partition_value import RESCUED_COLUMN
from headrace.sinks.api import (
    Compactable,
    CompactionResult,
    DeclaredRows,
    PositionStore,
    Provisionable,
    Readable,
    Recountable,
    Reprocessable,
    Sink,
    SinkContext,
    SinkDriver,
    Snapshot,
)
from headrace.sinks.lake.delta.declaration import Delta
from headrace.sinks.lake.format import DeclaredTable, TableFormat, id_column
from headrace.sinks.lake.layout import TableLayout, TimeUnit, UnsafeValues
from headrace.sinks.lake.metrics import LAKE_METRICS
from headrace.sinks.unique.declaration import Unique

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.metrics import Metric
    from headrace.settings import Secret

_PLACE = (Metadata.TOPIC, Metadata.PARTITION, Metadata.OFFSET)
_POSITION = {metadata.value for metadata in _PLACE}
CODECS = ("zstd", "snappy", "gzip", "lz4", "uncompressed")
_DIRECTORY_TYPES = frozenset({FieldType.STRING, FieldType.LONG, FieldType.BOOLEAN})
_TIME_TYPES = frozenset({FieldType.TIMESTAMP, FieldType.MILLIS})


@dataclass(frozen=True)
class Lake(Sink, Provisionable, Compactable, Readable, Recountable, Reprocessable):
    """Sink: a table in the project's lake, partitioned by event time and fields.

    Exactly once: each batch is one transaction of the table that records the offsets it ends at, so
    a batch that is repeated after a crash adds nothing. Files become visible with that
    transaction, never half-written. :mod:`headrace.sinks.lake` has the whole contract.

    Attributes:
        table: its name; of a Delta table the folder under the lake's root.
        partition_by: any of ``"day"``, ``"hour"`` (of ``event_time``, UTC; in a Delta table columns
            ``day`` date and ``hour`` int) and columns of the rows, outermost first.
        event_time: column of the event time; by default the topic's.
        unsafe_values: where rows with unsafe partition values go.
        compact_files: merge the small files of a partition, beside the batches, when this many
            have gathered; where late rows came, when 8 have. 0: never. Do not run another
            engine's OPTIMIZE on the table unless it is 0 in every pipeline that writes it.
        compression: Parquet codec.
        unique: which rows are duplicates, and are dropped. None: all rows are kept.
        format: ``Delta()`` or ``Iceberg()``.
    """

    table: str
    partition_by: Sequence[str] = ()
    event_time: str | None = None
    unsafe_values: UnsafeValues = UnsafeValues.DEAD_LETTER
    compact_files: int = 64
    compression: str = "zstd"
    unique: Unique | None = None
    format: TableFormat = Delta()

    kind: ClassVar[str] = "lake"
    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    metrics: ClassVar[tuple[Metric, ...]] = LAKE_METRICS

    @property
    def target(self) -> str:
        """Name of the table, with the namespace of an Iceberg table."""
        return self._format.full_name(self.table)

    @property
    def layout(self) -> TableLayout:
        """Partitions and files of the table."""
        return TableLayout(
            self._format.partitions(tuple(self.partition_by)),
            self.unsafe_values,
            self.compact_files,
            self.compression,
            self.unique,
            hides_times=self._format.hides_times,
        )

    @property
    def _format(self) -> TableFormat:
        """Returns its format, or any where the field has none: :meth:`faults` says so."""
        # A wrong format is reported by `faults`, beside everything else.
        return self.format if is_a(self.format, TableFormat) else Delta()

    def extra_for(self, settings: Mapping[str, Secret]) -> str:  # noqa: ARG002
        """Returns the extra of the table's format."""
        return self._format.extra

    def settings_faults(self, settings: Mapping[str, Secret]) -> Iterator[Fault]:
        """Yields what is wrong with the catalog of Iceberg tables."""
        yield from self._format.settings_faults(self.label, settings)

    def directory_columns(self, schema: EventSchema) -> tuple[str, ...]:
        """Returns the text fields among the partition columns, unless their rows are rescued."""
        # Unsafe values then go into a column of their own, and reject no row.
        if self.unsafe_values is UnsafeValues.RESCUE:
            return ()
        texts = {field.name for field in schema.fields if field.type is FieldType.STRING}
        return tuple(name for name in self.layout.value_columns if name in texts)

    def position_store(self, context: SinkContext) -> PositionStore:
        """Returns what the table records: a Delta table in its log, an Iceberg table elsewhere."""
        return self._format.position_store(self._in(context))

    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """Opens the table; an Iceberg table is made as by :meth:`apply`."""
        return self._format.open(self._in(context), schema)

    def changes(self, context: SinkContext, schema: pa.Schema) -> Sequence[str]:
        """Returns the columns that the table gets, or that an Iceberg table is created."""
        return self._format.changes(self._in(context), schema)

    @property
    def is_provisioned(self) -> bool:
        """Whether it is an Iceberg table: the first commit makes a Delta table."""
        return self._format.is_provisioned

    def apply(self, context: SinkContext, schema: pa.Schema) -> Sequence[str]:
        """Makes an Iceberg table, or adds the columns that it lacks."""
        return self._format.apply(self._in(context), schema)

    def merge_small_files(self, context: SinkContext) -> CompactionResult:
        """Merges the small files of every partition."""
        return self._format.merge_small_files(self._in(context))

    def remove_dead_files(self, context: SinkContext) -> CompactionResult:
        """Deletes files that no version of the last week holds.

        Of an Iceberg table: files that are older than a week and that no snapshot holds.
        """
        return self._format.remove_dead_files(self._in(context))

    def read(self, context: SinkContext, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns the rows of the table's newest version."""
        return self._format.read(self._in(context), columns)

    def snapshot(self, context: SinkContext) -> Snapshot | None:
        """Returns the table's newest version."""
        return self._format.snapshot(self._in(context))

    def _in(self, context: SinkContext) -> DeclaredTable:
        event_time = self.event_time or context.event_time
        return DeclaredTable(context, self.table, self.layout, event_time)

    @property
    def keeps_each_row(self) -> bool:
        """Returns True: what a unique table drops, its commit has not taken."""
        return True

    def reprocessing_fault(
        self, columns: Collection[str] | None, event_id: str | None
    ) -> Fault | None:
        """Returns None if rows identify their record, or at least their event."""
        if (
            columns is None
            or self.unique is not None
            or set(columns) >= _POSITION
            or id_column(event_id) in columns
        ):
            return None
        places = ", ".join(f"Metadata.{metadata.name}" for metadata in _PLACE)
        return Fault(
            "the rows do not identify their events",
            f"declare Topic(event_id=...), or Source(metadata=({places})), before rows are written",
        )

    def open_to_reprocess(
        self, context: SinkContext, schema: pa.Schema, event_id: str | None
    ) -> SinkDriver:
        """Opens the table; rows are found by their places, or by ids where they have no place.

        A unique table finds the rows that it already has.
        """
        return self._format.open_to_reprocess(self._in(context), schema, event_id)

    def faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        """Yields everything wrong with the declaration."""
        if not is_a(self.table, str) or not NAME.fullmatch(self.table):
            yield Fault(f"{self.table!r} is not a table name", f"{NAME_WORDS}: it names a folder")
        if not is_a(self.unsafe_values, UnsafeValues):
            yield Fault(f"Lake.unsafe_values is {self.unsafe_values!r}", "an UnsafeValues member")
        if self.compression not in CODECS:
            yield Fault(f"Lake.compression is {self.compression!r}", f"one of {', '.join(CODECS)}")
        yield from at_least(self, "compact_files", 0)
        if not is_a(self.format, TableFormat):
            yield Fault(f"Lake.format is {self.format!r}", "Delta() or Iceberg()")
        yield from self._format.faults()
        if not are_texts(self.partition_by):
            yield Fault("Lake.partition_by must be a list of column names")
            return
        for name, count in Counter(self.partition_by).items():
            if count > 1:
                yield Fault(f"Lake.partition_by names {name!r} {count} times")
        yield from self._event_time_faults(rows)
        yield from self._unique_faults(rows)
        if rows.columns is not None:
            yield from self._column_faults(rows.columns)

    def _event_time_faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        name, units = self.event_time or rows.event_time, self.layout.time_units
        if units and name is None:
            yield Fault(
                f"Lake.partition_by has {units[0].value!r}, but there is no event time",
                "name it: Topic(event_time=...) or Lake(event_time=...)",
            )
        if name is None or rows.columns is None:
            return
        if name not in rows.columns:
            yield Fault(f"event time {name!r} is not a column", _known(rows.columns))
        elif rows.columns[name] not in _TIME_TYPES:
            yield Fault(f"event time {name!r} is a {rows.columns[name].value}")
        for field in rows.columns:
            if field.lower() in units:  # Delta ignores the case of column names
                yield Fault(
                    f"the event has a field {field!r}, and {field.lower()!r} is the partition "
                    "taken from the event time",
                    "rename the field",
                )

    def _unique_faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        if self.unique is None:
            return
        if not is_a(self.unique, Unique):
            yield Fault(f"Lake.unique is {self.unique!r}", 'Unique(by=["event_id"], within=...)')
            return
        yield from self.unique.faults("Lake", rows.columns)
        if self.unique.within is None:
            yield Fault("Lake.unique needs Unique.within", "within=timedelta(days=30)")
        if (self.event_time or rows.event_time) is None:
            yield Fault(
                "Lake.unique compares rows by event time, and there is none",
                "name it: Topic(event_time=...) or Lake(event_time=...)",
            )

    def _column_faults(self, columns: Mapping[str, FieldType]) -> Iterator[Fault]:
        values = self.layout.value_columns
        for name in values:
            if name not in columns and name != RESCUED_COLUMN:
                yield Fault(f"Lake.partition_by: {name!r} is not a column", _known(columns))
            elif columns.get(name) not in _DIRECTORY_TYPES:
                yield Fault(
                    f"Lake.partition_by: {name!r} can't name folders",
                    f"text, whole numbers, true or false; for a time: {', '.join(TimeUnit)}",
                )
        in_files = self._format.keeps_partitions_in_files
        if columns and set(columns) <= set(values) and not in_files:
            remedy = "Delta keeps at least one in the files"
            yield Fault("Lake.partition_by names every column", remedy)

    def faults_beside(self, other: Sink) -> Iterator[Fault]:
        """Yields a fault unless both partition their table alike, and in one format."""
        if not isinstance(other, Lake):
            return
        if self.format != other.format:
            message = f"table {self.target!r} is declared as {self.format} and as {other.format}"
            yield Fault(message, "one format in every pipeline of the table")
        are_columns = are_texts(self.partition_by) and are_texts(other.partition_by)
        if are_columns and list(self.partition_by) != list(other.partition_by):
            columns = f"{list(self.partition_by)} here and by {list(other.partition_by)}"
            yield Fault(f"table {self.target!r} is partitioned by {columns}")
        if self.unique != other.unique:
            here, beside = (with_or_without("unique", sink.unique) for sink in (self, other))
            message = f"table {self.target!r} is declared {here} here and {beside}"
            yield Fault(message, "declare the same Lake.unique in every pipeline of the table")


def _known(columns: Mapping[str, FieldType]) -> str:
    return f"columns: {', '.join(columns)}"
