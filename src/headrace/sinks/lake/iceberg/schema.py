"""The columns and partitions of an Iceberg table, compared with those of the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import Schema
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import index_name_by_id
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

from headrace.errors import TableMismatchError
from headrace.sinks.arrow_types import is_list
from headrace.sinks.lake.files.data_file import WriteSpec
from headrace.sinks.lake.layout import TimeUnit
from headrace.sinks.lake.table_schema import not_written, table_schema

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update.spec import UpdateSpec

_TYPES = frozenset(
    {
        *(pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64()),
        *(pa.bool_(), pa.date32(), pa.string(), pa.large_string(), pa.string_view()),
        *(pa.binary(), pa.large_binary(), pa.binary_view()),
        *(pa.timestamp(unit, zone) for unit in ("ms", "us") for zone in (None, "UTC")),
    }
)
"""Types without parts that tables are made with and fit afterwards, beside those with a length."""
_TRANSFORMS: Mapping[TimeUnit, Any] = {TimeUnit.DAY: DayTransform(), TimeUnit.HOUR: HourTransform()}


@dataclass(frozen=True)
class PresentIceberg:
    """What an Iceberg table has, in the terms of Delta: how :class:`Lake` compares tables.

    Attributes are those of :class:`~headrace.sinks.lake.table_schema.PresentTable`.
    """

    schema: Schema
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    widened: Collection[tuple[str, str]] = (("integer", "long"), ("float", "double"))

    @classmethod
    def of(cls, metadata: TableMetadata, spec: WriteSpec) -> PresentIceberg:
        """Returns what the table has.

        Args:
            metadata: of the table.
            spec: what is written to it; its event time is what partitions by time are of.
        """
        columns = schema_to_pyarrow(metadata.schema(), include_field_ids=False)
        fields = [_comparable(field, spec) for field in columns]
        schema = Schema.from_arrow(pa.schema(fields))
        return cls(schema, partitions_of(metadata, spec), metadata.properties)


def _comparable(field: pa.Field, spec: WriteSpec) -> pa.Field:
    """Returns a column; one that has a time of day, which Delta and rows lack, as bytes.

    Raises:
        TableMismatchError: if the rows have the column.
    """
    if "time64[us]" not in str(field.type):
        return field
    if field.name in spec.schema.names:
        raise TableMismatchError(
            spec.root, f"column {field.name!r} is {field.type} in the table, which no row has"
        )
    return field.with_type(pa.binary())


def declared_columns(spec: WriteSpec) -> pa.Schema:
    """Returns the columns of the table, as the rows have them.

    Raises:
        TableMismatchError: if the declaration and the rows do not fit, a type is none that tables
            have, or two fields have one name in Iceberg: it calls field ``b`` of column ``a``
            ``a.b``.
    """
    kinds = [pair for column in spec.schema for pair in _kinds(column, "")]
    for name, kind in kinds:
        if _parts(kind) is None and not _is_known(kind):
            raise not_written(spec, name, kind)
    columns = table_schema(spec)
    for name, count in Counter(name for name, _ in kinds).items():
        if count > 1:
            inner, _, last = name.rpartition(".")
            reason = f"column {name!r} and field {last!r} in column {inner!r} have one name"
            raise TableMismatchError(spec.root, f"{reason} in Iceberg: rename one of them")
    return columns


def _kinds(field: pa.Field, prefix: str) -> Iterator[tuple[str, pa.DataType]]:
    """Yields a column or nested field, and those in it, by the names that Iceberg has for them."""
    name = prefix + field.name
    yield name, field.type
    for part in _parts(field.type) or ():
        yield from _kinds(part, f"{name}.")


def _parts(kind: pa.DataType) -> list[pa.Field] | None:
    """Returns the fields that a type holds; None: it is none of those that hold some."""
    if pa.types.is_struct(kind):
        return [*kind]
    if pa.types.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    if is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [kind.value_field.with_name("element")]
    return None


def _is_known(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_decimal128(kind):
        return bool(0 <= kind.scale <= kind.precision)
    return kind in _TYPES or pa.types.is_fixed_size_binary(kind)


def partitions_of(metadata: TableMetadata, spec: WriteSpec) -> tuple[str, ...]:
    """Returns the partitions of a table, as ``Lake.partition_by`` names them."""
    return tuple(_partition(field, metadata, spec) for field in metadata.spec().fields)


def _partition(field: PartitionField, metadata: TableMetadata, spec: WriteSpec) -> str:
    """Returns a partition as ``Lake.partition_by`` names it, or as ``bucket[4](id)``."""
    source = metadata.schema().find_column_name(field.source_id) or ""
    for unit, transform in _TRANSFORMS.items():
        if field.transform == transform and source == spec.event_time:
            return unit.value
    if field.transform == IdentityTransform():
        return source
    return f"{field.transform}({source})"


def missing_values(metadata: TableMetadata, spec: WriteSpec) -> str | None:
    """Returns a column that may not be null and that the rows lack; None: there is none."""
    names = {*spec.schema.names}
    fields = metadata.schema().fields
    return next(
        (field.name for field in fields if field.required and field.name not in names), None
    )


def changed_column(then: IcebergSchema, now: IcebergSchema, names: Iterable[str]) -> str | None:
    """Returns a column or nested field that was renamed or dropped; None: there is none.

    A field that was dropped and added again is another one: files name fields by their ids.

    Args:
        then: columns of the table before.
        now: its columns.
        names: of the columns to look at.
    """
    present = index_name_by_id(now)
    before = index_name_by_id(then.select(*names))
    return next((name for id_, name in before.items() if present.get(id_) != name), None)


def iceberg_types(kind: pa.DataType) -> pa.DataType:
    """Returns the type that Iceberg has for another one: its smallest whole number has 32 bits."""
    # Iceberg has integers of 32 and 64 bits alone.
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(iceberg_types(field.type)) for field in kind])
    if is_list(kind):
        item = kind.value_field
        return pa.list_(item.with_type(iceberg_types(item.type)))
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(iceberg_types(kind.key_type), item.with_type(iceberg_types(item.type)))
    return kind


def add_partitions(update: UpdateSpec, spec: WriteSpec) -> None:
    """Adds the declared partitions to those of a new table."""
    for name in spec.partition_columns:
        if name in spec.layout.value_columns:
            update.add_identity(name)
        else:
            update.add_field(str(spec.event_time), _TRANSFORMS[TimeUnit(name)], name)


def file_schema(metadata: TableMetadata) -> pa.Schema:
    """Returns the columns of files, with field ids in the metadata of their fields."""
    return schema_to_pyarrow(metadata.schema())
