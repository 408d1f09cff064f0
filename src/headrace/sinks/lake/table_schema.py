"""The columns of a lake's table, and how they follow the event class."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from deltalake import Field, Schema
from deltalake.schema import ArrayType, DataType, MapType, PrimitiveType, StructType

from headrace.errors import TableMismatchError
from headrace.model.partition_value import RESCUED_COLUMN
from headrace.sinks.lake.files.data_file import WriteSpec


class PresentTable(Protocol):
    """What a table has, in the terms of Delta."""

    @property
    def schema(self) -> Schema:
        """Returns its columns."""

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Returns its partitions, as ``Lake.partition_by`` names them."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Returns its properties."""

    @property
    def widened(self) -> Collection[tuple[str, str]]:
        """Returns types of columns, as SQL writes them, that its format can make wider."""


_TIME_COLUMNS = {"day": pa.date32(), "hour": pa.int32()}


def table_schema(spec: WriteSpec) -> pa.Schema:
    """Columns of the table: those of the rows, then ``day``, ``hour``, ``_rescued`` as declared.

    Raises:
        TableMismatchError: if the declaration and the rows do not fit, or a column is of a type
            that tables do not have.
    """
    for field in spec.schema:
        try:
            Schema.from_arrow(pa.schema([field]))
        except Exception as error:  # deltalake's has no class of its own
            raise not_written(spec, field.name, field.type) from error
        # The first commit would make a table that nothing is written to afterwards.
        if "timestamp[ns" in str(field.type):
            raise not_written(spec, field.name, field.type)
    _check_partition_columns(spec)
    fields = [pa.field(field.name, field.type) for field in spec.schema]
    if not spec.layout.hides_times:
        fields += [pa.field(unit, _TIME_COLUMNS[unit]) for unit in spec.layout.time_units]
    if spec.rescues:
        fields.append(pa.field(RESCUED_COLUMN, pa.string()))
    return pa.schema(fields)


def not_written(spec: WriteSpec, name: str, kind: pa.DataType) -> TableMismatchError:
    """Returns the error of a column or nested field whose type tables do not have."""
    reason = f"column {name!r} is {kind}, which is not written to tables of its format: cast it"
    return TableMismatchError(spec.root, reason)


def _check_partition_columns(spec: WriteSpec) -> None:
    seen = {str(unit): f"partition {str(unit)!r}" for unit in spec.layout.time_units}
    if spec.rescues:
        seen[RESCUED_COLUMN] = f"column {RESCUED_COLUMN!r} of unsafe values"
    for name in spec.schema.names:
        # Delta ignores the case of column names, and its first commit would fail.
        if name.lower() in seen:
            reason = f"the rows have a column {name!r} beside {seen[name.lower()]}: rename it"
            raise TableMismatchError(spec.root, reason)
        seen[name.lower()] = f"column {name!r}"
    if spec.layout.time_units and spec.event_time is None:
        raise TableMismatchError(
            spec.root, "partitions by time need an event time: declare `event_time`"
        )
    for name in spec.layout.value_columns:
        if name not in spec.schema.names:
            raise TableMismatchError(spec.root, f"partition column {name!r} is not in the rows")
        kind = spec.schema.field(name).type
        texts = (pa.string(), pa.large_string(), pa.string_view())
        if kind not in texts and not pa.types.is_integer(kind) and not pa.types.is_boolean(kind):
            raise TableMismatchError(
                spec.root, f"can't partition by {name!r}, a {kind}: use text, integers or booleans"
            )


def new_columns(spec: WriteSpec, tail: PresentTable) -> list[Field]:
    """Returns the columns that the table lacks, and those whose structs lack fields.

    Raises:
        TableMismatchError: if a column's type or the partitioning is another one, or a name differs
            from the table's in upper and lower case only: engines take the two for one column.
    """
    check_partitioning(spec, tail.partition_columns)
    changes = column_changes(spec, tail)
    for change in changes:
        if change.conflict is not None and change.types not in tail.widened:
            raise TableMismatchError(spec.root, change.conflict)
    # Whole columns: a new member of a struct is added by a column that has it.
    grown = {change.column for change in changes if change.in_table is None}
    return [field for field in Schema.from_arrow(table_schema(spec)).fields if field.name in grown]


def added_columns(spec: WriteSpec, tail: PresentTable | None) -> list[ColumnChange]:
    """Returns what the first commit adds to an existing table.

    Raises:
        TableMismatchError: as :func:`new_columns`, or if the pipeline lacks a column that it wrote
            before. One that others have added, pipelines or engines, it may lack.
    """
    if tail is None:
        return []
    new_columns(spec, tail)
    changes = column_changes(spec, tail)
    written = set(json.loads(tail.properties.get(_record_of(spec), "[]")))
    for change in changes:
        if change.in_rows is None and change.path in written:
            raise TableMismatchError(
                spec.root,
                f"column {change.path!r} is not in the rows, and pipeline {spec.pipeline!r} wrote "
                "it before: keep the field as optional (`| None`), it is null then",
            )
    return [change for change in changes if change.in_rows is not None]


def recorded_columns(spec: WriteSpec) -> dict[str, str]:
    """Returns the table's property that records which columns the pipeline writes.

    So a column that was removed from an event class differs from one that another pipeline or
    engine has added.
    """
    if not spec.pipeline:
        return {}
    paths = list(_paths(Schema.from_arrow(spec.schema).fields, ""))
    return {_record_of(spec): json.dumps(paths)}


def _record_of(spec: WriteSpec) -> str:
    return f"headrace.columns.{spec.pipeline}"


def _paths(fields: Sequence[Field], prefix: str) -> Iterator[str]:
    """Yields the path of every field, those of nested structs too."""
    for field in fields:
        kind, path = field.type, prefix + field.name
        yield path
        # Structs in lists and maps have members, too.
        while isinstance(kind, ArrayType | MapType):
            kind = kind.element_type if isinstance(kind, ArrayType) else kind.value_type
            path += "[]"
        if isinstance(kind, StructType):
            yield from _paths(kind.fields, f"{path}.")


def check_partitioning(spec: WriteSpec, present: Sequence[str]) -> None:
    """Raises TableMismatchError unless the partitions of a table are those of the declaration."""
    if tuple(present) != spec.partition_columns:
        raise TableMismatchError(
            spec.root,
            f"the table is partitioned by {list(present)}, the declaration by "
            f"{list(spec.partition_columns)}",
        )


@dataclass(frozen=True)
class ColumnChange:
    """How the rows differ from the table in one column, or in one field of a nested column.

    Attributes:
        column: name of the column.
        path: of the field: ``click.impression.id``, with ``[]`` for what a list or map holds.
        in_table: its type in the table; None: the table lacks it.
        in_rows: its type in the rows; None: they lack it.
        similar: a column of the table whose name differs from its name in case only.
        in_map: whether it is a field of a struct inside of a map. delta-rs can't read files whose
            structs there have other fields than the table's.
    """

    column: str
    path: str
    in_table: str | None
    in_rows: str | None
    similar: str | None = None
    in_map: bool = False

    @property
    def types(self) -> tuple[str | None, str | None]:
        """The types in the table and in the rows."""
        return self.in_table, self.in_rows

    @property
    def text(self) -> str:
        """What the table gets, as the end of a sentence about it."""
        if self.in_table is None:
            return f"gets column {self.path!r}, {self.in_rows}"
        return f"widens column {self.path!r} from {self.in_table} to {self.in_rows}"

    @property
    def conflict(self) -> str | None:
        """Why the rows can't be written to the table, as a sentence; None: they can."""
        if self.similar is not None:
            return (
                f"column {self.path!r} of the rows is {self.similar!r} in the table: "
                "names must not differ in upper and lower case only"
            )
        if self.in_table is None or self.in_rows is None:
            state = "new" if self.in_table is None else "missing"
            reason = f"column {self.path!r} is {state}: structs inside of maps can't change"
            return reason if self.in_map else None
        return (
            f"column {self.path!r} is {self.in_table} in the table, but {self.in_rows} in the rows"
        )


def column_changes(spec: WriteSpec, tail: PresentTable) -> list[ColumnChange]:
    """Returns every difference between the columns of the table and those of the rows."""
    declared = Schema.from_arrow(table_schema(spec)).fields
    return list(_changes(tail.schema.fields, declared, _TOP))


@dataclass(frozen=True)
class _Place:
    """The place of fields: in which column, below which path, and whether a map is above them."""

    column: str
    path: str
    in_map: bool = False

    def field(self, name: str) -> _Place:
        if not self.path:
            return _Place(name, name)
        return replace(self, path=f"{self.path}.{name}")


_TOP = _Place("", "")


def _changes(
    present: Sequence[Field], declared: Sequence[Field], place: _Place
) -> Iterator[ColumnChange]:
    """Yields the differences between the columns, or between the fields of a struct in one."""
    in_table = {field.name: field for field in present}
    folded = {name.lower(): name for name in in_table}
    for field in declared:
        here = place.field(field.name)
        if field.name in in_table:
            yield from _field_changes(in_table[field.name], field, here)
        else:
            similar = folded.get(field.name.lower())
            kind = type_text(field.type)
            yield ColumnChange(here.column, here.path, None, kind, similar, place.in_map)
    kept = {field.name for field in declared}
    for field in present:
        # Columns of other pipelines, or of an earlier class.
        if field.name not in kept:
            here, kind = place.field(field.name), type_text(field.type)
            yield ColumnChange(here.column, here.path, kind, None, in_map=place.in_map)


def _field_changes(present: Field, declared: Field, place: _Place) -> Iterator[ColumnChange]:
    if declared.nullable and not present.nullable:
        in_table = f"{type_text(present.type)} not null"
        yield ColumnChange(place.column, place.path, in_table, type_text(declared.type))
        return
    old, new = present.type, declared.type
    if isinstance(old, StructType) and isinstance(new, StructType):
        yield from _changes(old.fields, new.fields, place)
    elif (elements := _elements(old, new)) is not None:
        in_map = place.in_map or isinstance(old, MapType)
        yield from _field_changes(*elements, replace(place, path=f"{place.path}[]", in_map=in_map))
    elif old != new:
        yield ColumnChange(place.column, place.path, type_text(old), type_text(new))


def _elements(old: DataType, new: DataType) -> tuple[Field, Field] | None:
    """Returns what two lists hold, or two maps with keys of one type; None of other types."""
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return (
            Field("element", old.element_type, nullable=old.contains_null),
            Field("element", new.element_type, nullable=new.contains_null),
        )
    both_maps = isinstance(old, MapType) and isinstance(new, MapType)
    if not both_maps or old.key_type != new.key_type:
        return None
    return (
        Field("value", old.value_type, nullable=old.value_contains_null),
        Field("value", new.value_type, nullable=new.value_contains_null),
    )


def type_text(kind: DataType) -> str:
    """Returns a Delta type as SQL writes it: ``array<struct<id: long>>``."""
    if isinstance(kind, StructType):
        fields = [f"{field.name}: {type_text(field.type)}" for field in kind.fields]
        return f"struct<{', '.join(fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_text(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.value_type)}>"
    return str(kind.type) if isinstance(kind, PrimitiveType) else str(kind)
