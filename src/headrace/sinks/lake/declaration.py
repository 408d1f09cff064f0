"""The declaration of a table in the lake, and what must hold for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.model import EventSchema, FieldType, Metadata
from headrace.model.fault import Fault, at_least, is_a
from headrace.model.name import NAME, NAME_WORDS
from headrace.model.partition_value import RESCUED_COLUMN
from headrace.runtime.extras import require_extra
from headrace.sinks.api import (
    Compactable,
    CompactionResult,
    DeclaredRows,
    Guarantee,
    PositionStore,
    Readable,
    Recountable,
    Reprocessable,
    Sink,
    SinkContext,
    SinkDriver,
    Snapshot,
)
from headrace.sinks.lake.format import CATALOGS, Delta, Iceberg, TableFormat
from headrace.sinks.lake.layout import TableLayout, TimeUnit, UnsafeValues
from headrace.sinks.lake.metrics import LAKE_METRICS
from headrace.sinks.unique.declaration import Unique

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.metrics import Metric
    from headrace.settings import Secret
    from headrace.sinks.lake.data_file import WriteSpec
    from headrace.sinks.lake.iceberg.catalog import CatalogTable
    from headrace.sinks.lake.iceberg.upkeep import IcebergUpkeep
    from headrace.sinks.lake.table_schema import ColumnChange


_PLACE = (Metadata.TOPIC, Metadata.PARTITION, Metadata.OFFSET)
_POSITION = {metadata.value for metadata in _PLACE}
CODECS = ("zstd", "snappy", "gzip", "lz4", "uncompressed")
_DIRECTORY_TYPES = frozenset({FieldType.STRING, FieldType.LONG, FieldType.BOOLEAN})
_TIME_TYPES = frozenset({FieldType.TIMESTAMP, FieldType.MILLIS})


@dataclass(frozen=True)
class Lake(Sink, Compactable, Readable, Recountable, Reprocessable):
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
        """Name of the table."""
        return self.table

    @property
    def layout(self) -> TableLayout:
        """Partitions and files of the table."""
        partition_by = tuple(self.partition_by)
        is_iceberg = isinstance(self.format, Iceberg)
        return TableLayout(
            Iceberg.partitions(partition_by) if is_iceberg else partition_by,
            self.unsafe_values,
            self.compact_files,
            self.compression,
            self.unique,
            hides_times=is_iceberg,
        )

    def extra_for(self, settings: Mapping[str, Secret]) -> str:  # noqa: ARG002
        """Returns the extra of Iceberg tables."""
        return "iceberg" if isinstance(self.format, Iceberg) else ""

    def settings_faults(self, settings: Mapping[str, Secret]) -> Iterator[Fault]:
        """Yields what is wrong with the catalog of Iceberg tables."""
        kind = settings["catalog"].reveal() if "catalog" in settings else CATALOGS[0]
        if kind not in CATALOGS:
            message = f"catalog in [sinks.lake] is {kind!r}"
            yield Fault(message, f"one of {', '.join(CATALOGS)}")
        elif isinstance(self.format, Iceberg) and kind == "rest" and "uri" not in settings:
            message = f"{self.label} needs the setting 'uri': its catalog is a REST server"
            yield Fault(message, '[sinks.lake] uri = "https://..." in headrace.toml')

    def directory_columns(self, schema: EventSchema) -> tuple[str, ...]:
        """Returns the text fields among the partition columns, unless their rows are rescued."""
        if self.unsafe_values is UnsafeValues.RESCUE:
            return ()
        texts = {field.name for field in schema.fields if field.type is FieldType.STRING}
        return tuple(name for name in self.layout.value_columns if name in texts)

    def position_store(self, context: SinkContext) -> PositionStore:
        """Returns what the table records: a Delta table in its log."""
        if isinstance(self.format, Iceberg):
            place = self._place(context, self.format)
            from headrace.sinks.lake.iceberg.positions import IcebergPositions

            return IcebergPositions(place)
        from headrace.sinks.lake.delta_log import DeltaLog

        return DeltaLog(self._uri(context), context.storage)

    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """Opens the table; a Delta table is made by the first commit, an Iceberg table now."""
        spec = self._write_spec(context, schema)
        if isinstance(self.format, Iceberg):
            place = self._place(context, self.format)
            from headrace.sinks.lake.iceberg.driver import open_table

            return open_table(place, spec)
        from headrace.sinks.lake.driver import LakeDriver

        return LakeDriver(spec)

    def changes(self, context: SinkContext, schema: pa.Schema) -> Sequence[str]:
        """Returns the columns that the table gets."""
        return [change.text for change in self._column_changes(context, schema)]

    def _column_changes(self, context: SinkContext, schema: pa.Schema) -> list[ColumnChange]:
        spec = self._write_spec(context, schema)
        if isinstance(self.format, Iceberg):
            place = self._place(context, self.format)
            from headrace.sinks.lake.iceberg.table import IcebergTable

            return IcebergTable(place, spec).changes()
        from headrace.sinks.lake.table import LakeTable

        return LakeTable(spec).changes()

    def _write_spec(self, context: SinkContext, schema: pa.Schema) -> WriteSpec:
        from headrace.sinks.any_values import fields_with_any
        from headrace.sinks.lake.data_file import WriteSpec

        event_time = self.event_time or context.event_time
        known = event_time if event_time in schema.names else None
        return WriteSpec(
            self._uri(context),
            schema,
            self.layout,
            known,
            context.pipeline,
            context.storage,
            fields_with_any(context.fields, schema),
        )

    def merge_small_files(self, context: SinkContext) -> CompactionResult:
        """Merges the small files of every partition."""
        if isinstance(self.format, Iceberg):
            return self._upkeep(context, self.format).run()
        from headrace.sinks.lake.compaction import Compaction

        return Compaction(self._uri(context), context.storage, self.compression).run()

    def remove_dead_files(self, context: SinkContext) -> CompactionResult:
        """Deletes files that no version of the last week holds.

        Of an Iceberg table: files of the last week but one, that no snapshot holds.
        """
        if isinstance(self.format, Iceberg):
            return self._upkeep(context, self.format).remove_orphans()
        from headrace.sinks.lake.compaction import Compaction

        return Compaction(self._uri(context), context.storage).vacuum()

    def read(self, context: SinkContext, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns the rows of the table's newest version."""
        if isinstance(self.format, Iceberg):
            place = self._place(context, self.format)
            from headrace.sinks.lake.iceberg import reading

            return reading.read_table(place, columns)
        from headrace.sinks.lake.table import read_table

        return read_table(self._uri(context), columns, context.storage)

    def snapshot(self, context: SinkContext) -> Snapshot | None:
        """Returns the table's newest version."""
        if isinstance(self.format, Iceberg):
            place = self._place(context, self.format)
            from headrace.sinks.lake.iceberg.reading import IcebergSnapshot

            table = place.load()
            columns = self.layout.value_columns
            return None if table is None else IcebergSnapshot(place, table, columns)
        from headrace.sinks.lake.snapshot import lake_snapshot

        return lake_snapshot(self._uri(context), context.storage)

    @property
    def keeps_each_row(self) -> bool:
        """Returns True: what a unique table drops, its commit has not taken."""
        return True

    def reprocessing_fault(
        self, columns: Collection[str] | None, event_id: str | None
    ) -> Fault | None:
        """Returns None if rows tell of which record, or at least of which event, they are."""
        if isinstance(self.format, Iceberg):
            message = "rows of an Iceberg table are not written once more"
            return Fault(message, "declare a pipeline with another table, or format=Delta()")
        if (
            columns is None
            or self.unique is not None
            or set(columns) >= _POSITION
            or _id_column(event_id) in columns
        ):
            return None
        places = ", ".join(f"Metadata.{metadata.name}" for metadata in _PLACE)
        return Fault(
            "the rows do not tell of which events they are",
            f"declare Topic(event_id=...), or Source(metadata=({places})), before rows are written",
        )

    def open_to_reprocess(
        self, context: SinkContext, schema: pa.Schema, event_id: str | None
    ) -> SinkDriver:
        """Opens the table; rows are found by their places, or by ids where they have no place.

        A unique table finds the rows that it has by itself.
        """
        from headrace.sinks.lake.replacing import (
            POSITION,
            LakeAddingDriver,
            LakeReplacingDriver,
            RowKeys,
        )

        spec = self._write_spec(context, schema)
        keys = RowKeys() if set(schema.names) >= _POSITION else RowKeys(event_id)
        shown = [name for name in (_id_column(event_id), context.event_time) if name is not None]
        if self.unique is not None:
            return LakeAddingDriver(spec, [*POSITION, *shown])
        return LakeReplacingDriver(spec, keys, shown)

    def _place(self, context: SinkContext, format_: Iceberg) -> CatalogTable:
        """Returns the table by its name; first of all, as it looks for the extra."""
        require_extra("iceberg")
        from headrace.sinks.lake.iceberg.catalog import CatalogTable

        return CatalogTable.of(context, format_.namespace, self.table)

    def _upkeep(self, context: SinkContext, format_: Iceberg) -> IcebergUpkeep:
        place = self._place(context, format_)
        from headrace.sinks.lake.iceberg.upkeep import upkeep_of

        return upkeep_of(place, self.layout, self.event_time or context.event_time)

    def _uri(self, context: SinkContext) -> str:
        return f"{context.lake}/{self.table}"

    def faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        """Yields everything wrong with the declaration."""
        yield from self._value_faults()
        yield from self._format_faults()
        if not _are_texts(self.partition_by):
            yield Fault("Lake.partition_by must be a list of column names")
            return
        for name, count in Counter(self.partition_by).items():
            if count > 1:
                yield Fault(f"Lake.partition_by names {name!r} {count} times")
        yield from self._event_time_faults(rows)
        yield from self._unique_faults(rows)
        if rows.columns is not None:
            yield from self._column_faults(rows.columns)

    def _value_faults(self) -> Iterator[Fault]:
        if not is_a(self.table, str) or not NAME.fullmatch(self.table):
            yield Fault(f"{self.table!r} is not a table name", f"{NAME_WORDS}: it names a folder")
        if not is_a(self.unsafe_values, UnsafeValues):
            yield Fault(f"Lake.unsafe_values is {self.unsafe_values!r}", "an UnsafeValues member")
        if self.compression not in CODECS:
            yield Fault(f"Lake.compression is {self.compression!r}", f"one of {', '.join(CODECS)}")
        yield from at_least(self, "compact_files", 0)

    def _format_faults(self) -> Iterator[Fault]:
        if not is_a(self.format, Delta) and not is_a(self.format, Iceberg):
            yield Fault(f"Lake.format is {self.format!r}", "Delta() or Iceberg()")
        if not isinstance(self.format, Iceberg):
            return
        namespace = self.format.namespace
        if not is_a(namespace, str) or not all(map(NAME.fullmatch, namespace.split("."))):
            yield Fault(f"Iceberg.namespace is {namespace!r}", f"{NAME_WORDS}; '.' between levels")
        if self.unique is not None:
            message = "Lake.unique finds duplicates in Delta tables, and the format is Iceberg"
            yield Fault(message, "format=Delta(), or no unique")

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
            if field.lower() in units:  # Delta tells columns apart without case
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
        if columns and set(columns) <= set(values) and isinstance(self.format, Delta):
            remedy = "Delta keeps at least one in the files"
            yield Fault("Lake.partition_by names every column", remedy)

    def faults_beside(self, other: Sink) -> Iterator[Fault]:
        """Yields a fault unless both partition their table alike, and in one format."""
        if isinstance(other, Lake) and self.format != other.format:
            message = f"table {self.table!r} is declared as {self.format} and as {other.format}"
            yield Fault(message, "one format in every pipeline of the table")
        if isinstance(other, Lake) and list(self.partition_by) != list(other.partition_by):
            here, there = list(self.partition_by), list(other.partition_by)
            yield Fault(f"table {self.table!r} is partitioned by {here} here and by {there}")
        if isinstance(other, Lake) and self.unique != other.unique:
            message = f"table {self.table!r} is declared with {self.unique} and with {other.unique}"
            yield Fault(message, "declare the same Lake.unique in every pipeline of the table")


def _id_column(event_id: str | None) -> str | None:
    return None if event_id is None else event_id.partition(".")[0]


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _known(columns: Mapping[str, FieldType]) -> str:
    return f"columns: {', '.join(columns)}"
