"""Writers' schemas as they are found, parsed by fastavro.

Its parser refuses a whole schema for what reading does not need: an invalid logical type, which
Avro's specification says to ignore, a default, an alias, a symbol that is no name. Such parts are
taken out before it sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from typing import Any, TypeAlias

Schema: TypeAlias = Any
"""A schema as its JSON document is parsed: a name, a list (a union) or an object."""
Named: TypeAlias = Mapping[str, Schema]
"""The types that a schema names, by their full names."""
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

# By their base type: on others, and where it does not know the name, Avro says to ignore them. A
# UUID is what it is written as, a text or bytes: fastavro would write each text of it in one form.
_LOGICAL_TYPES: Mapping[str, tuple[str, ...]] = {
    "bytes": ("decimal", "big-decimal"),
    "fixed": ("decimal", "duration"),
    "int": ("date", "time-millis"),
    "long": (
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "timestamp-nanos",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "local-timestamp-nanos",
    ),
}
_DURATION_BYTES = 12
_SYMBOLS = "headrace-symbols"
WRITTEN_NAME = "headrace-name"
"""Key of the name of a field that is skipped, see :func:`skipped`."""


def parsed_schema(writer: Schema) -> tuple[Schema, dict[str, Schema]]:
    """Returns a schema as fastavro parses it, without invalid logical types, and what it names.

    Raises:
        Exception: of any kind, if values of the schema can't be read.
    """
    import fastavro

    named: dict[str, Schema] = {}
    schema = fastavro.parse_schema(_readable(writer), named)
    for name, definition in named.items():
        if name in PRIMITIVES:
            raise ValueError(f"it names a type {name!r}, and Avro has a type of that name")
        size = definition["size"] if definition["type"] == "fixed" else 0
        if type(size) is not int or size < 0:
            raise ValueError(f"its type {name!r} has {size!r:.60} bytes")
        if _SYMBOLS in definition:
            definition["symbols"] = definition.pop(_SYMBOLS)
    return schema, named


def prepared(schema: Schema, named: Named) -> Schema:
    """Returns a schema by which fastavro reads, with marks by which it does not parse it again."""
    types = {name: _numbered(definition) for name, definition in named.items()}
    read = _numbered(schema)
    marks = {"__fastavro_parsed": True, "__named_schemas": types}
    return read | marks if isinstance(read, dict) else read


def _numbered(schema: Schema) -> Schema:
    """Returns a schema with branches and symbols by number: of a list, -1 would be the last one."""
    if isinstance(schema, list):
        branches = enumerate(map(_numbered, schema))
        return {"type": "union"} | dict(branches)
    if not isinstance(schema, dict):
        return schema
    kind = schema["type"]
    if kind == "enum":
        return schema | {"symbols": dict(enumerate(schema["symbols"]))}
    if kind in ("record", "error"):
        fields = [field | {"type": _numbered(field["type"])} for field in schema["fields"]]
        return schema | {"fields": fields}
    part = {"array": "items", "map": "values"}.get(kind)
    return schema if part is None else schema | {part: _numbered(schema[part])}


def skipped(schema: Schema) -> Schema:
    """Returns a schema by which bytes are read over, whatever they hold.

    Texts may be no UTF-8, times beyond the calendar, symbols unknown. Fields have no names, so that
    of a record little is kept. A name stays: what it names has to be skipped, too.
    """
    if isinstance(schema, list):
        return [*map(skipped, schema)]
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in ("record", "error"):
        return schema | {"fields": [*map(skipped_field, schema["fields"])]}
    if kind == "array":
        return {"type": "array", "items": skipped(schema["items"])}
    if kind == "map":  # its keys are texts, too
        pair = [{"name": "", "type": "bytes"}, {"name": "", "type": skipped(schema["values"])}]
        return {"type": "array", "items": {"type": "record", "name": "", "fields": pair}}
    if kind == "fixed":
        return {key: schema[key] for key in ("type", "name", "size")}
    return {"string": "bytes", "enum": "int"}.get(kind, kind)


def skipped_field(field: Schema) -> Schema:
    """Returns a field of a record whose value is skipped."""
    return {"name": "", WRITTEN_NAME: field["name"], "type": skipped(field["type"])}


def _readable(schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [*map(_readable, schema)]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if isinstance(kind, list | dict):
        return _readable(kind)
    kept = {key: value for key, value in schema.items() if key not in ("default", "aliases")}
    if not _has_logical_type(schema):
        kept.pop("logicalType", None)
    if kind == "enum" and isinstance(schema.get("symbols"), list):
        kept[_SYMBOLS] = schema["symbols"]
        kept["symbols"] = [f"S{number}" for number in range(len(schema["symbols"]))]
    parts = {key: _readable(schema[key]) for key in ("items", "values") if key in schema}
    if isinstance(schema.get("fields"), list):
        parts["fields"] = [*map(_readable_field, schema["fields"])]
    return kept | parts


def _readable_field(field: Schema) -> Schema:
    if not isinstance(field, dict) or "type" not in field:
        return field
    kept = {key: value for key, value in field.items() if key not in ("default", "aliases")}
    return kept | {"type": _readable(field["type"])}


def _has_logical_type(schema: Mapping[str, Any]) -> bool:
    """Returns whether the logical type of a schema is a valid one of its base type."""
    base, logical, size = schema.get("type"), schema.get("logicalType"), schema.get("size")
    if not isinstance(base, str) or logical not in _LOGICAL_TYPES.get(base, ()):
        return False
    if logical == "duration":
        return bool(size == _DURATION_BYTES)
    return logical != "decimal" or _is_decimal(schema, size if base == "fixed" else None)


def _is_decimal(schema: Mapping[str, Any], size: object) -> bool:
    digits, scale = schema.get("precision"), schema.get("scale", 0)
    # True is an int for isinstance.
    if type(digits) is not int or type(scale) is not int or not 0 <= scale <= digits != 0:
        return False
    # Not 10**digits: a schema may claim any number of them.
    return size is None or (type(size) is int and digits <= (8 * size - 1) * log10(2))
