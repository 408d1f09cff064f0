"""Columns of rows as fields of an index, and what of an index takes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.model import EventField, FieldType
from headrace.model.source import RECORD_COLUMNS
from headrace.sinks.arrow_types import is_bytes, is_list, is_point_in_time, is_text
from headrace.sinks.json_values import leaf_types, members_of

if TYPE_CHECKING:
    import pyarrow as pa

Properties: TypeAlias = Mapping[str, Any]

KEPT = {"type": "object", "enabled": False}
"""A field that is in the document, and not indexed."""
# The server uses them; no document may have them.
_RESERVED = frozenset(
    {
        *("_id", "_index", "_source", "_routing", "_type", "_field_names", "_ignored", "_version"),
        *("_seq_no", "_primary_term", "_nested_path", "_doc_count", "_tier", "_size", "_feature"),
        "_data_stream_timestamp",
    }
)
_TEXTS = frozenset({"keyword", "text", "wildcard", "match_only_text", "ip"})
_KEPT_TYPES = frozenset({"object", "flat_object", "flattened"})
# Which types of an index keep the values of a field that is rendered with another one.
_TAKEN_BY = {
    "keyword": _TEXTS,
    "text": _TEXTS,
    "integer": frozenset({"integer", "long"}),
    "float": frozenset({"float", "double"}),
    "date": frozenset({"date", "date_nanos"}),
    "double": frozenset({"double"}),
}

# Formats of dates that are texts of RFC 3339; one of them is that of a date which names none.
_FORMAT = "strict_date_optional_time"
_FORMATS = frozenset({_FORMAT, "date_optional_time", "strict_date_optional_time_nanos", "iso8601"})


class UnmappedError(Exception):
    """No field of an index has the values of a column. Its message is a sentence."""


def name_fault(name: str) -> str | None:
    """Returns why a field can't have a name; None: it can."""
    if not name.strip() or "." in name:
        return "is a path in OpenSearch" if "." in name else "is empty"
    return "is a name of OpenSearch's own" if name in _RESERVED else None


def name_faults(fields: Collection[EventField], path: str = "") -> Iterator[tuple[str, str]]:
    """Yields path and fault of each field whose name no document can have; maps have any names."""
    for field in fields:
        inner = f"{path}{field.name}"
        if (fault := name_fault(field.name)) is not None:
            yield inner, fault
        while field.type is FieldType.LIST:
            field = field.item  # noqa: PLW2901
        yield from name_faults(field.fields, f"{inner}.")


def properties_of(
    schema: pa.Schema, any_fields: Mapping[str, EventField], text: Collection[str]
) -> dict[str, Any]:
    """Returns the fields of an index for rows.

    Args:
        schema: of the rows.
        any_fields: by column, the fields that are or hold an ``Any``.
        text: paths of texts that are searched by their words.

    Raises:
        UnmappedError: if a column has a name or a type that no field has.
    """
    return {
        column.name: _field(column, column.name, any_fields.get(column.name), text)
        for column in schema
    }


def _field(
    column: pa.Field, path: str, known: EventField | None, text: Collection[str]
) -> dict[str, Any]:
    from pyarrow import types

    if (fault := name_fault(column.name)) is not None and column.name not in RECORD_COLUMNS:
        raise UnmappedError(f"the name of column {path!r} {fault}: rename it in a step")
    kind = column.type
    # A field of OpenSearch holds any number of values: a list has the type of its items.
    while is_list(kind):
        kind, known = kind.value_type, known and known.element
    # Keys of JSON and of maps are data: each would become a field of the index.
    if known is not None and known.type is FieldType.JSON:
        return dict(KEPT)
    if types.is_map(kind):
        for leaf, _ in leaf_types(kind):
            _checked_type(leaf, path)
        return dict(KEPT)
    if types.is_struct(kind):
        members = zip(kind, members_of(kind, known), strict=True)
        properties = {
            member.name: _field(member, f"{path}.{member.name}", inner, text)
            for member, inner in members
        }
        return {"properties": properties}
    name = _checked_type(kind, path)
    return {"type": "text" if path in text and name == "keyword" else name}


def _checked_type(kind: pa.DataType, path: str) -> str:
    from pyarrow import types

    tests = {
        "keyword": (is_text,),
        "integer": (types.is_int8, types.is_int16, types.is_int32),
        "long": (types.is_int64,),
        "float": (types.is_float32,),
        # The document has each digit, as text.
        "double": (types.is_float64, types.is_decimal),
        "boolean": (types.is_boolean,),
        "date": (types.is_date32, is_point_in_time),
        "binary": (is_bytes,),
    }
    for name, are in tests.items():
        if any(test(kind) for test in are):
            return name
    reason = "of which OpenSearch has nothing: convert it in a step"
    raise UnmappedError(f"column {path!r} is {kind}, {reason}")


def missing_fields(needed: Properties, existing: Properties) -> dict[str, Any]:
    """Returns the fields that do not exist, also within objects that do."""
    missing: dict[str, Any] = {}
    for name, field in needed.items():
        if name not in existing:
            missing[name] = field
        elif existing[name].get("enabled", True):
            inner = field.get("properties", {})
            if left := missing_fields(inner, existing[name].get("properties", {})):
                missing[name] = {"properties": left}
    return missing


def merged_fields(needed: Properties, existing: Properties) -> dict[str, Any]:
    """Returns the fields that exist and those that are missing; unfit ones are replaced."""
    merged = dict(existing)
    for name, field in needed.items():
        known = existing.get(name, field)
        if "properties" in field and _is_object(known) and known.get("enabled", True):
            members = merged_fields(field["properties"], known.get("properties", {}))
            merged[name] = {**known, "properties": members}
        else:
            merged[name] = field if list(unfit_fields({name: field}, {name: known})) else known
    return merged


def unfit_fields(needed: Properties, existing: Properties, path: str = "") -> Iterator[str]:
    """Yields a clause about each field whose type does not take the values."""
    for name in needed.keys() & existing.keys():
        field, known, where = needed[name], existing[name], f"{path}{name}"
        if "properties" in field and _is_object(known):
            if known.get("enabled", True):
                yield from unfit_fields(
                    field["properties"], known.get("properties", {}), f"{where}."
                )
        elif not _takes(field, known):
            yield f"field {where!r} is {_shown(known)}, and the rows need {_shown(field)}"


def keeps_documents(mappings: Mapping[str, Any]) -> bool:
    """Whether an index keeps documents as they are sent, by its mappings."""
    source = mappings.get("_source", {})
    return bool(source.get("enabled", True)) and source.keys() <= {"enabled"}


def _is_object(known: Mapping[str, Any]) -> bool:
    return known.get("type", "nested") in ("nested", "object")


def _takes(field: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    kind = field.get("type", "object")
    if field == KEPT:
        is_open = known.get("type", "object") == "object" and known.get("enabled", True)
        return known.get("type", "object") in _KEPT_TYPES and not is_open
    if kind == "date" and _FORMATS.isdisjoint(known.get("format", _FORMAT).split("||")):
        return False
    return known.get("type", "object") in _TAKEN_BY.get(kind, {kind})


def _shown(field: Mapping[str, Any]) -> str:
    if field == KEPT:
        return "an object that is not indexed"
    format_ = f" of format {field['format']}" if "format" in field else ""
    return f"{field.get('type', 'an object with fields')}{format_}"


def paths(properties: Properties, path: str = "") -> Iterator[str]:
    """Yields the path of each field that holds no others."""
    for name, field in sorted(properties.items()):
        if "properties" in field:
            yield from paths(field["properties"], f"{path}{name}.")
        else:
            yield f"{path}{name}"
