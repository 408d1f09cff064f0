"""Which of Avro's types an event class takes, found out once for each writer's schema.

An Avro value is read as the JSON text of an event, in which bytes, dates and decimals are strings:
a ``str`` would take them all. So where a field does not take a type of the writer's schema, and
JSON can't show it, the type is marked in the schema, and fastavro calls :func:`_mismatch` with each
of its values. Values of other types cost nothing, and a branch of a union does no harm in records
that do not use it. Where JSON can show it, the parser rejects them, in the same words for every
format.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import MAX_PREC
from typing import TYPE_CHECKING, NoReturn

from headrace.events.avro.schemas import Named, Schema, skipped_field
from headrace.model import EventField, FieldType

if TYPE_CHECKING:
    from headrace.events.rejection import Rejection
    from headrace.model import EventSchema

_NUMBERS = ("int", "long", "float", "double")
_TIMES = ("timestamp-millis", "timestamp-micros", "string")
TAKEN: Mapping[FieldType, tuple[str, ...]] = {
    FieldType.STRING: ("string", "enum"),
    FieldType.LONG: ("int", "long"),
    FieldType.DOUBLE: _NUMBERS,
    FieldType.BOOLEAN: ("boolean",),
    FieldType.TIMESTAMP: _TIMES,
    FieldType.MILLIS: _TIMES,
    FieldType.DATE: ("date", "string"),
    # Not float and double: 0.1 is no tenth there.
    FieldType.DECIMAL: ("decimal", "int", "long", "string"),
    FieldType.BINARY: ("bytes", "fixed"),
    FieldType.STRUCT: ("record", "error"),
    FieldType.LIST: ("array",),
    FieldType.MAP: ("map",),
}
_IN_JSON: Mapping[str, str] = {
    **dict.fromkeys((*_NUMBERS, "timestamp-nanos", "local-timestamp-nanos"), "number"),
    **dict.fromkeys(("record", "error", "map"), "object"),
    "boolean": "boolean",
    "array": "array",
}
"""What fastavro's values of each type are in the JSON text; those of all others are strings."""
_MARK = "headrace-mismatch"
_MARKED_TYPES = (*_NUMBERS, "bytes", "string", "fixed", "enum", "map", "record", "error")


class MismatchError(Exception):
    """A value is of a type that its field does not take.

    Attributes:
        rejection: of the record.
    """

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection)
        self.rejection = rejection


def fitted(writer: Schema, named: Named, schema: EventSchema) -> Schema:
    """Returns a writer's schema by which fastavro raises MismatchError for values of other types.

    Values of fields that the class does not have are skipped, whatever they hold.

    Args:
        writer: as fastavro has parsed it.
        named: the types that it names.
        schema: of the event class.
    """
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS.update({f"{kind}-{_MARK}": _mismatch for kind in _MARKED_TYPES})
    root = EventField("", FieldType.STRUCT, schema=schema)
    return _Fitting(named).of(writer, root, "")


def _mismatch(_value: object, writer: Schema, _reader: object = None) -> NoReturn:
    raise MismatchError(writer[_MARK])


class _Fitting:
    """Goes through a writer's schema and the fields of a class, as deep as the class is."""

    def __init__(self, named: Named) -> None:
        self._named = named

    def of(self, writer: Schema, field: EventField, path: str) -> Schema:
        if isinstance(writer, list):
            return [self.of(branch, field, path) for branch in writer]
        # A named type that two fields use is written out in each: they may take it differently.
        # fastavro looks at names only where it meets one, so the same name twice is no fault here.
        inner = self._named.get(writer, writer) if isinstance(writer, str) else writer
        kind = kind_of(inner)
        if kind == "null":  # the class says later, in JSON's words, whether it may be
            return inner
        taken = TAKEN[field.type]
        if kind not in taken:
            in_json = {_IN_JSON.get(other, "string") for other in taken}
            is_alike = _IN_JSON.get(kind, "string") in in_json
            base = inner if isinstance(inner, dict) else {"type": inner}
            mark = {"logicalType": _MARK, _MARK: mismatch_of(kind, field, path)}
            return base | mark if is_alike else inner
        if field.schema is not None:
            return inner | {"fields": self._fields(inner["fields"], field.schema, path)}
        if field.element is not None:
            items = "items" if field.type is FieldType.LIST else "values"
            return inner | {items: self.of(inner[items], field.element, f"{path}[]")}
        # A writer may exceed the digits that it has declared; fastavro would round.
        return inner | {"precision": MAX_PREC} if kind == "decimal" else inner

    def _fields(self, writer: list[Schema], schema: EventSchema, path: str) -> list[Schema]:
        declared = {field.name: field for field in schema.fields}
        prefix = f"{path}." if path else ""
        return [
            part | {"type": self.of(part["type"], declared[name], prefix + name)}
            if (name := part["name"]) in declared
            else skipped_field(part)
            for part in writer
        ]


def mismatch_of(kind: str, field: EventField, path: str) -> Rejection:
    """Returns why a value of a type is rejected that its field does not take."""
    if not path:
        return "not-an-object", f"the value is Avro's {kind}, expected a record"
    expected = " or ".join(TAKEN[field.type])
    return "wrong-type", f"field {path!r} is Avro's {kind}, expected {expected}"


def kind_of(schema: Schema) -> str:
    """Returns the name of a type: of its logical type, where it has one."""
    if not isinstance(schema, dict):
        return str(schema)
    return str(schema.get("logicalType") or schema["type"])
