"""Parses JSON with Spark: the fields of objects, and whether a value is a single object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.events.parsing.parser import slots
from headrace.model.event import EventField, EventSchema, FieldType

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

_OPTIONS = {
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "columnNameOfCorruptRecord": "fault",
}
_TYPES = {
    FieldType.LONG: "bigint",
    FieldType.DOUBLE: "double",
    FieldType.BOOLEAN: "boolean",
    FieldType.TIMESTAMP: "string",
    FieldType.MILLIS: "bigint",
    FieldType.DATE: "string",
    # Spark's own decimal and binary types accept more than JSON and RFC 4648 allow.
    FieldType.DECIMAL: "variant",
    FieldType.BINARY: "variant",
    FieldType.JSON: "string",
}


def document_of(value: Column, schema: EventSchema, *, texts: str) -> Column:
    """Returns a struct with the fields of a JSON object.

    Args:
        value: values of records, as strings.
        schema: schema of the objects. Fields are called f0, f1 ... in the struct, as Spark does not
            distinguish upper and lower case in names.
        texts: type of the fields that are strings: ``string``, to which Spark also converts other
            JSON values, or ``variant``, which keeps the type of the JSON value.

    Returns:
        A struct of ``event``, the fields; ``fault``, null if no field has a value of another type;
        ``end``, true if nothing follows the object.
    """
    from pyspark.sql import functions as f

    # The value becomes a member of an object, so that an early end or trailing data is detected.
    document = f.concat(f.lit('{"event":'), f.try_validate_utf8(value), f.lit(',"end":true}'))
    by_name = _document_type(schema, texts, by_name=True)
    return f.from_json(document, by_name, _OPTIONS).cast(
        _document_type(schema, texts, by_name=False)
    )


def is_object(document: Column) -> Column:
    """Returns whether a value was a single object whose fields have values of their types."""
    return document["fault"].isNull() & document["end"] & document["event"].isNotNull()


def _document_type(schema: EventSchema, texts: str, *, by_name: bool) -> StructType:
    from pyspark.sql import types as t

    document = t.StructType().add("event", _struct_type(schema, texts, by_name=by_name))
    return document.add("end", "boolean").add("fault", "string")


def _struct_type(schema: EventSchema, texts: str, *, by_name: bool) -> StructType:
    from pyspark.sql import types as t

    return t.StructType(
        [
            t.StructField(field.name if by_name else slot, _type(field, texts, by_name=by_name))
            for slot, field in slots(schema).items()
            if field.type is not FieldType.JSON
        ]
    )


def _type(field: EventField, texts: str, *, by_name: bool) -> DataType:
    from pyspark.sql import types as t

    if field.schema is not None:
        return _struct_type(field.schema, texts, by_name=by_name)
    if field.element is None:
        name = texts if field.type is FieldType.STRING else _TYPES[field.type]
        return t.DataType.fromDDL(name)
    element = _type(field.element, texts, by_name=by_name)
    is_list = field.type is FieldType.LIST
    return t.ArrayType(element) if is_list else t.MapType(t.StringType(), element)
