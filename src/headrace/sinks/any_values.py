"""``Any`` in values of rows: texts of JSON, at any depth of a list, struct or map.

Arrow has one type for ``Any`` and ``str``; only the event class distinguishes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.model import EventField, FieldType
from headrace.sinks.arrow_types import is_list, is_text

if TYPE_CHECKING:
    import pyarrow as pa

Convert: TypeAlias = Callable[[Any], Any]


def fields_with_any(fields: Mapping[str, EventField], schema: pa.Schema) -> dict[str, EventField]:
    """Returns the fields that are or hold an ``Any``, by the column of rows with ``schema``."""
    return {name: field for name, field in fields_of(fields, schema).items() if _holds_any(field)}


def fields_of(fields: Mapping[str, EventField], schema: pa.Schema) -> dict[str, EventField]:
    """Returns the fields that the columns of rows with ``schema`` hold, by column.

    Steps may have put something else into a column of that name: its type then differs.
    """
    return {
        column.name: fields[column.name]
        for column in schema
        if column.name in fields and _fits(fields[column.name], column.type)
    }


def any_converter(field: EventField, of_any: Convert) -> Convert:
    """Returns what converts each ``Any`` in a value of a field, as Arrow gives it to Python.

    Structs and maps are dictionaries.
    """
    return _converter(field, of_any) or (lambda value: value)


def _converter(field: EventField, of_any: Convert) -> Convert | None:
    """Returns what converts a value; None if the field is no ``Any`` or struct, and holds none."""
    if field.type is FieldType.JSON:
        return _nullable(of_any)
    if field.type is FieldType.STRUCT:
        known = {member.name: _converter(member, of_any) for member in field.fields}
        inner = {name: converter for name, converter in known.items() if converter is not None}
        # Rows of older files lack the fields that the class has gained since.
        return _nullable(
            lambda values: (
                dict.fromkeys(known)
                | values
                | {n: converter(values.get(n)) for n, converter in inner.items()}
            )
        )
    item = None if field.element is None else _converter(field.element, of_any)
    if item is None:
        return None
    if field.type is FieldType.LIST:
        return _nullable(lambda values: [item(value) for value in values])
    return _nullable(lambda values: {key: item(value) for key, value in values.items()})


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _holds_any(field: EventField) -> bool:
    inner = field.fields if field.element is None else (field.element,)
    return field.type is FieldType.JSON or any(map(_holds_any, inner))


def _fits(field: EventField, kind: pa.DataType) -> bool:
    """Whether values of an Arrow type may be those of a field, as far as ``Any`` is concerned."""
    from pyarrow import types

    match field.type:
        case FieldType.JSON:
            return is_text(kind)
        case FieldType.STRUCT:
            inner = {member.name: member.type for member in kind} if types.is_struct(kind) else {}
            has_fields = inner.keys() == {member.name for member in field.fields}
            return has_fields and all(_fits(member, inner[member.name]) for member in field.fields)
        case FieldType.LIST:
            return is_list(kind) and _fits(field.item, kind.value_type)
        case FieldType.MAP:
            is_map: bool = types.is_map(kind)
            return is_map and _fits(field.item, kind.item_type)
    is_nested: bool = types.is_nested(kind)
    return not is_nested
