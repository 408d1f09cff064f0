"""Columns of a table, and rows as they take them: a value is kept as it is, or rejected.

========================= ============ ===========================================================
column of the rows        of the table which values are rejected
========================= ============ ===========================================================
string                    STRING
``Any``                   JSON         a text that is not one JSON value; by BigQuery, a number that
                                       it can't hold exactly
integers                  INT64
floats                    FLOAT64
bool                      BOOL
timestamp with a zone     TIMESTAMP    before year 1, after year 9999
timestamp without one     DATETIME     the same
date                      DATE         the same
decimal                   NUMERIC      none: up to 29 digits before the point and 9 behind it;
                          BIGNUMERIC   others
binary                    BYTES
struct                    STRUCT       those of its members
list                      ARRAY        null instead of a list, or within it: an ARRAY has no null
nullable list, list with  JSON         as map
nulls, list of lists
map                       JSON         NaN and infinity, which JSON lacks; also as ``Any``, times
========================= ============ ===========================================================

Which list is which is known of the fields of an event; after steps each becomes an ARRAY. In JSON,
times are RFC 3339, bytes base64, and decimals texts, since a number there has the digits of a
double. An existing table may have JSON for any list, struct or map, and BIGNUMERIC for NUMERIC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.model import EventField, FieldType
from headrace.sinks.json_values import (
    BEYOND_CALENDAR,
    beyond_calendar,
    mask_at,
    mask_of,
    nested_json,
    unwritable,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

REPEATED, REQUIRED, NULLABLE = "REPEATED", "REQUIRED", "NULLABLE"
WRONG_VALUE, NULL_IN_ARRAY, MISSING_VALUE = "wrong-value", "null-in-array", "missing-value"
_NUMERIC_SCALE, _NUMERIC_WHOLE_DIGITS = 9, 29
_NAME = re.compile(r"[A-Za-z_]\w{0,299}", re.ASCII)
_OWN_PREFIXES = (
    *("_table_", "_file_", "_partition", "_row_timestamp", "_colidentifier"),
    *("__root__", "_change_type", "_change_sequence_number"),
)
# The names that BigQuery's REST interface gives to types of SQL.
_SAME = {
    "INT64": "INTEGER",
    "FLOAT64": "FLOAT",
    "BOOL": "BOOLEAN",
    "STRUCT": "RECORD",
    "BIGDECIMAL": "BIGNUMERIC",
    "DECIMAL": "NUMERIC",
}


@dataclass(frozen=True)
class TableColumn:
    """A column of a table, or a member of a struct.

    Attributes:
        type: as BigQuery's REST interface names it: ``INTEGER``, ``RECORD``.
        mode: ``NULLABLE``, ``REQUIRED`` or ``REPEATED``.
        fields: of a struct.
        scale: digits behind the point, of a decimal that the table or the rows limit; None: as
            many as the type has.
    """

    name: str
    type: str
    mode: str = NULLABLE
    fields: tuple[TableColumn, ...] = ()
    scale: int | None = None

    @classmethod
    def of(cls, resource: Mapping[str, Any]) -> TableColumn:
        """Returns a column from the schema of a table."""
        scale = resource.get("scale")
        has_precision = resource.get("precision") is not None
        return cls(
            resource["name"],
            _SAME.get(resource["type"], resource["type"]),
            resource.get("mode") or NULLABLE,
            tuple(map(cls.of, resource.get("fields") or ())),
            int(scale or 0) if has_precision else None,
        )

    def resource(self) -> dict[str, Any]:
        """Returns it for the schema of a new table."""
        inner = {"fields": [field.resource() for field in self.fields]} if self.fields else {}
        return {"name": self.name, "type": self.type, "mode": self.mode, **inner}

    @property
    def sql(self) -> str:
        """Returns its type for people: ``ARRAY<INTEGER>``."""
        return f"ARRAY<{self.type}>" if self.mode == REPEATED else self.type


@dataclass(frozen=True)
class RowsRejected:
    """Rows that a column does not take: one Boolean a row, and why."""

    rows: Mask
    reason: str
    detail: str


def naming_faults(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with names of columns, or of a struct's members, and what to do."""
    known: dict[str, str] = {}
    for name in names:
        if not _NAME.fullmatch(name) or name.lower().startswith(_OWN_PREFIXES):
            remedy = "letters, digits and '_', and none of the beginnings that BigQuery reserves"
            yield f"BigQuery: a table can't have a column {name!r}", remedy
        if name.lower() in known:
            both = f"{known[name.lower()]!r} and {name!r}"
            yield f"BigQuery takes {both} for one column", "names that differ in more"
        known[name.lower()] = name


def column_for(name: str, kind: pa.DataType, field: EventField | None) -> TableColumn | None:
    """Returns the column that a new table gets for values of an Arrow type; None: there is none.

    Args:
        name: of the column.
        kind: its Arrow type.
        field: of the event, where the column is one.
    """
    from pyarrow import types

    is_json = field is not None and field.type is FieldType.JSON
    if is_json or types.is_map(kind) or _is_json_list(kind, field):
        return TableColumn(name, "JSON")
    if types.is_list(kind) or types.is_large_list(kind):
        item = column_for(name, kind.value_type, field and field.element)
        return item and replace(item, mode=REPEATED)
    if types.is_struct(kind):
        members = {member.name: member for member in field.fields} if field else {}
        fields = [column_for(m.name, m.type, members.get(m.name)) for m in kind]
        known = tuple(column for column in fields if column is not None)
        return (
            TableColumn(name, "RECORD", NULLABLE, known)
            if known and len(known) == len(fields)
            else None
        )
    if types.is_decimal(kind):
        fits = kind.scale <= _NUMERIC_SCALE and (
            kind.precision - kind.scale <= _NUMERIC_WHOLE_DIGITS
        )
        return TableColumn(name, "NUMERIC" if fits else "BIGNUMERIC", scale=kind.scale)
    type_ = _scalar_type(kind)
    return None if type_ is None else TableColumn(name, type_)


def _scalar_type(kind: pa.DataType) -> str | None:
    from pyarrow import types

    if types.is_timestamp(kind):
        return "DATETIME" if kind.tz is None else "TIMESTAMP"
    tests = {
        "STRING": (types.is_string, types.is_large_string, types.is_string_view),
        "INTEGER": (types.is_signed_integer, types.is_uint8, types.is_uint16, types.is_uint32),
        "FLOAT": (types.is_floating,),
        "BOOLEAN": (types.is_boolean,),
        "DATE": (types.is_date32,),
        "BYTES": (types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
    }
    return next((name for name, are in tests.items() if any(is_(kind) for is_ in are)), None)


def _is_json_list(kind: pa.DataType, field: EventField | None) -> bool:
    from pyarrow import types

    if not (types.is_list(kind) or types.is_large_list(kind)):
        return False
    item = kind.value_type
    if types.is_list(item) or types.is_large_list(item):
        return True
    is_list = field is not None and field.type is FieldType.LIST and field.element is not None
    return is_list and (field.nullable or field.element.nullable)  # type: ignore[union-attr]


def difference(existing: TableColumn, declared: TableColumn) -> str | None:
    """Returns why a column of a table does not take the values of ``declared``; None: it does."""
    if existing.type == "JSON" and existing.mode != REPEATED:
        is_nested = declared.mode == REPEATED or declared.type in ("RECORD", "JSON")
        return None if is_nested else f"is JSON, and the rows have {declared.sql}"
    if (existing.mode == REPEATED) != (declared.mode == REPEATED):
        return f"is {existing.sql}, and the rows have {declared.sql}"
    is_wider = (existing.type, declared.type) == ("BIGNUMERIC", "NUMERIC")
    if existing.type != declared.type and not is_wider:
        return f"is {existing.sql}, and the rows have {declared.sql}"
    if existing.scale is not None and (declared.scale or 0) > existing.scale:
        return f"has {existing.scale} digits behind the point, and the rows have {declared.scale}"
    known = {field.name.lower(): field for field in existing.fields}
    for field in declared.fields:
        inner = field.name.lower() in known and difference(known[field.name.lower()], field)
        if inner:
            return f"has a member {field.name!r} that {inner}"
    needed = known.keys() - {field.name.lower() for field in declared.fields}
    lacking = [name for name in sorted(needed) if known[name].mode == REQUIRED]
    return f"has a REQUIRED member {lacking[0]!r}, and the rows lack it" if lacking else None


class RowForm:
    """Makes rows into those that a table takes. Picklable: it travels to the tasks.

    Args:
        columns: of the table, by the name of the column of the rows.
        fields: of the events, by column.
    """

    def __init__(
        self, columns: Mapping[str, TableColumn], fields: Mapping[str, EventField]
    ) -> None:
        self._columns, self._fields = dict(columns), dict(fields)

    def rejected(self, rows: pa.Table) -> Iterator[RowsRejected]:
        """Yields the rows that can't be taken, by column."""
        for name, column in self._columns.items():
            array, field = rows[name].combine_chunks(), self._fields.get(name)
            yield from _rejected(array, column, field, f"column {name!r}")

    def converted(self, rows: pa.Table) -> pa.Table:
        """Returns rows, none of which is rejected, with the columns and types of the table."""
        import pyarrow as pa

        arrays = {
            column.name: _converted(rows[name].combine_chunks(), column, self._fields.get(name))
            for name, column in self._columns.items()
        }
        return pa.table(arrays)


def _rejected(
    array: Any, column: TableColumn, field: EventField | None, place: str
) -> Iterator[RowsRejected]:
    """Yields what is rejected of an array whose values stand in the places of rows."""
    import pyarrow.compute as pc

    if column.mode == REQUIRED:
        yield RowsRejected(mask_of(array.is_null()), MISSING_VALUE, f"{place} is null")
    if column.mode == REPEATED:
        detail = f"{place} is null, and an ARRAY"
        yield RowsRejected(mask_of(array.is_null()), NULL_IN_ARRAY, detail)
        for inner in _rejected_items(array, column, field, place):
            parents = pc.list_parent_indices(array).to_numpy()[inner.rows]
            yield RowsRejected(mask_at(parents, len(array)), inner.reason, inner.detail)
    elif column.type == "JSON":
        for rows, fault in unwritable(array, field):
            yield RowsRejected(rows, WRONG_VALUE, f"{place} {fault}")
    else:
        yield from _rejected_values(array, column, field, place)


def _rejected_items(
    array: Any, column: TableColumn, field: EventField | None, place: str
) -> Iterator[RowsRejected]:
    items = array.flatten()
    yield RowsRejected(mask_of(items.is_null()), NULL_IN_ARRAY, f"{place} holds a null")
    item = TableColumn(column.name, column.type, NULLABLE, column.fields)
    yield from _rejected(items, item, field and field.element, f"{place}, in a list,")


def _rejected_values(
    array: Any, column: TableColumn, field: EventField | None, place: str
) -> Iterator[RowsRejected]:
    import pyarrow.compute as pc
    from pyarrow import types

    kind = array.type
    if types.is_struct(kind):
        known = {inner.name.lower(): inner for inner in column.fields}
        members = {member.name: member for member in field.fields} if field else {}
        for index, member in enumerate(kind):
            values, inner = pc.struct_field(array, [index]), known[member.name.lower()]
            path = f"{place}.{member.name}"
            # A member that is REQUIRED says nothing where there is no struct.
            for rejected in _rejected(values, inner, members.get(member.name), path):
                is_there = mask_of(array.is_valid())
                yield RowsRejected(rejected.rows & is_there, rejected.reason, rejected.detail)
    elif types.is_date32(kind) or types.is_timestamp(kind):
        yield RowsRejected(beyond_calendar(array), WRONG_VALUE, f"{place} {BEYOND_CALENDAR}")


def _converted(array: Any, column: TableColumn, field: EventField | None) -> Any:
    import pyarrow as pa
    from pyarrow import types

    kind = array.type
    if column.mode == REPEATED:
        offsets = _offsets(array)
        item = TableColumn(column.name, column.type, NULLABLE, column.fields)
        return pa.ListArray.from_arrays(
            offsets, _converted(array.flatten(), item, field and field.element)
        )
    if column.type == "JSON" and types.is_nested(kind):
        return pa.array(nested_json(array, field), pa.string())
    if types.is_struct(kind):
        return _converted_struct(array, column, field)
    target = _arrow_type(column, kind)
    return array if kind == target else array.cast(target)


def _converted_struct(array: Any, column: TableColumn, field: EventField | None) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    known = {inner.name.lower(): inner for inner in column.fields}
    members = {member.name: member for member in field.fields} if field else {}
    names = [known[member.name.lower()].name for member in array.type]
    arrays = [
        _converted(
            pc.struct_field(array, [index]), known[member.name.lower()], members.get(member.name)
        )
        for index, member in enumerate(array.type)
    ]
    return pa.StructArray.from_arrays(arrays, names, mask=array.is_null())


def _arrow_type(column: TableColumn, kind: pa.DataType) -> pa.DataType:
    """Returns the Arrow type in which the Storage Write API takes a column."""
    import pyarrow as pa

    if column.type in ("TIMESTAMP", "DATETIME"):
        return _microseconds(kind)
    return {
        "STRING": pa.string(),
        "JSON": pa.string(),
        "INTEGER": pa.int64(),
        "FLOAT": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "DATE": pa.date32(),
        "BYTES": pa.binary(),
        "NUMERIC": pa.decimal128(38, 9),
        "BIGNUMERIC": pa.decimal256(76, 38),
    }[column.type]


def _microseconds(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.timestamp("us", kind.tz and "UTC")


def _offsets(array: Any) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
