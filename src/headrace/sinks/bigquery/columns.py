"""Columns of a table, and which of them keep the values of rows as they are.

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
decimal                   NUMERIC      none: up to 29 digits before the point and 9 after it;
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
from typing import TYPE_CHECKING, Any

from headrace.model import EventField, FieldType
from headrace.sinks.arrow_types import is_bytes, is_list, is_text
from headrace.sinks.json_values import members_of

if TYPE_CHECKING:
    import pyarrow as pa

REPEATED, REQUIRED, NULLABLE = "REPEATED", "REQUIRED", "NULLABLE"
# Digits of NUMERIC after and before the point; what does not fit is BIGNUMERIC.
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
        scale: decimal places of a decimal that the table or the rows limit; None: those of the
            type.
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


def by_name(columns: Iterable[TableColumn]) -> dict[str, TableColumn]:
    """Returns columns, or members of a struct, by lower-case name, as BigQuery compares names."""
    return {column.name.lower(): column for column in columns}


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
    # BigQuery has no maps, and no null in REPEATED: only JSON holds these values as they are.
    if is_json or types.is_map(kind) or _is_json_list(kind, field):
        return TableColumn(name, "JSON")
    if is_list(kind):
        item = column_for(name, kind.value_type, field and field.element)
        return item and replace(item, mode=REPEATED)
    if types.is_struct(kind):
        members = zip(kind, members_of(kind, field), strict=True)
        fields = [column_for(member.name, member.type, inner) for member, inner in members]
        known = tuple(column for column in fields if column is not None)
        # A record that lacked a member would drop its values without a trace.
        is_whole = known and len(known) == len(fields)
        return TableColumn(name, "RECORD", NULLABLE, known) if is_whole else None
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
        "STRING": (is_text,),
        "INTEGER": (types.is_signed_integer, types.is_uint8, types.is_uint16, types.is_uint32),
        "FLOAT": (types.is_floating,),
        "BOOLEAN": (types.is_boolean,),
        "DATE": (types.is_date32,),
        "BYTES": (is_bytes, types.is_fixed_size_binary),
    }
    return next((name for name, are in tests.items() if any(is_(kind) for is_ in are)), None)


def _is_json_list(kind: pa.DataType, field: EventField | None) -> bool:
    if not is_list(kind):
        return False
    if is_list(kind.value_type):
        return True
    if field is None or field.type is not FieldType.LIST:
        return False
    return field.nullable or field.item.nullable


def difference(existing: TableColumn, declared: TableColumn) -> str | None:
    """Returns why a column of a table does not take the values of ``declared``; None: it does."""
    if existing.type == "JSON" and existing.mode != REPEATED:
        is_nested = declared.mode == REPEATED or declared.type in ("RECORD", "JSON")
        return None if is_nested else f"is JSON, and the rows have {declared.sql}"
    if (existing.mode == REPEATED) != (declared.mode == REPEATED):
        return f"is {existing.sql}, and the rows have {declared.sql}"
    # The one type of a table that holds each value of another declared one.
    is_wider = (existing.type, declared.type) == ("BIGNUMERIC", "NUMERIC")
    if existing.type != declared.type and not is_wider:
        return f"is {existing.sql}, and the rows have {declared.sql}"
    if existing.scale is not None and (declared.scale or 0) > existing.scale:
        return f"has scale {existing.scale}, and the rows have {declared.scale}"
    known = by_name(existing.fields)
    for field in declared.fields:
        if (member := known.get(field.name.lower())) and (inner := difference(member, field)):
            return f"has a member {field.name!r} that {inner}"
    lacking = missing_required(existing.fields, declared.fields)
    return f"has a REQUIRED member {lacking[0]!r}, and the rows lack it" if lacking else None


def missing_required(existing: Iterable[TableColumn], declared: Iterable[TableColumn]) -> list[str]:
    """Returns the names of columns, or members, that must have values and are not declared."""
    rows = by_name(declared)
    return [
        column.name
        for name, column in by_name(existing).items()
        if column.mode == REQUIRED and name not in rows
    ]
