"""The columns of a lake's table, and how they follow the event class."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import Field, Schema

from headrace.errors import TableMismatchError
from headrace.sinks.log_tail import LogTail
from headrace.sinks.manifest import WriteSpec
from headrace.sinks.partitions import RESCUED_COLUMN

_TIME_COLUMNS = {"day": pa.date32(), "hour": pa.int32()}


def table_schema(spec: WriteSpec) -> pa.Schema:
    """Columns of the table: those of the rows, then ``day``, ``hour``, ``_rescued`` as declared.

    Raises:
        TableMismatchError: the declaration and the rows do not fit.
    """
    _check_partition_columns(spec)
    fields = [pa.field(field.name, field.type) for field in spec.schema]
    fields += [pa.field(unit, _TIME_COLUMNS[unit]) for unit in spec.lake.time_units]
    if spec.rescues:
        fields.append(pa.field(RESCUED_COLUMN, pa.string()))
    return pa.schema(fields)


def _check_partition_columns(spec: WriteSpec) -> None:
    taken = [str(unit) for unit in spec.lake.time_units if unit in spec.schema.names]
    if taken:
        raise TableMismatchError(
            spec.root,
            f"partition {taken[0]!r} is taken from the event time, but the rows have "
            f"a column {taken[0]!r}: rename it",
        )
    if spec.lake.time_units and spec.event_time is None:
        raise TableMismatchError(
            spec.root, "partitions by time need an event time: declare `event_time`"
        )
    for name in spec.lake.value_columns:
        _check_value_column(spec, name)


def _check_value_column(spec: WriteSpec, name: str) -> None:
    if name not in spec.schema.names:
        raise TableMismatchError(spec.root, f"partition column {name!r} is not in the rows")
    kind = spec.schema.field(name).type
    texts = (pa.string(), pa.large_string(), pa.string_view())
    if kind not in texts and not pa.types.is_integer(kind) and not pa.types.is_boolean(kind):
        raise TableMismatchError(
            spec.root, f"can't partition by {name!r}, a {kind}: use text, integers or booleans"
        )


def new_columns(spec: WriteSpec, tail: LogTail) -> list[Field]:
    """Columns that the table lacks.

    Raises:
        TableMismatchError: a column's type or the partitioning is another one, or a name differs
            from the table's in upper and lower case only: engines take the two for one column.
    """
    _check_partitioning(spec, tail.partition_columns)
    present = {field.name: field for field in tail.schema.fields}
    wanted = Schema.from_arrow(table_schema(spec)).fields
    for field in wanted:
        if field.name in present and present[field.name].type != field.type:
            raise TableMismatchError(
                spec.root,
                f"column {field.name!r} is {_type(present[field.name])} in the table, "
                f"but {_type(field)} in the rows",
            )
    missing = [field for field in wanted if field.name not in present]
    folded = {name.lower(): name for name in present}
    for field in missing:
        if (similar := folded.get(field.name.lower())) is not None:
            raise TableMismatchError(
                spec.root,
                f"column {field.name!r} of the rows is {similar!r} in the table: "
                "names must not differ in upper and lower case only",
            )
    return missing


def _check_partitioning(spec: WriteSpec, present: Sequence[str]) -> None:
    if tuple(present) != spec.partition_columns:
        raise TableMismatchError(
            spec.root,
            f"the table is partitioned by {list(present)}, the declaration by "
            f"{list(spec.partition_columns)}",
        )


def _type(field: Field) -> str:
    return str(field.type).removeprefix("PrimitiveType(").strip('")')
