"""JSON as Spark parses it: the fields of objects, and whether a value is one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.events.parser import slots
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
    # Spark's own decimal and binary take more than JSON and RFC 4648 have.
    FieldType.DECIMAL: "variant",
    FieldType.BINARY: "variant",
    FieldType.JSON: "string",
}


def document_of(value: Column, schema: EventSchema, *, texts: str) -> Column:
    """Returns a struct with the fields of a JSON object.

    Args:
        value: of records, string.
        schema: of the objects. Their fields are called f0, f1 ... in the struct: Spark does not
            tell names apart that differ in case alone.
        texts: the type of the fields that are strings: ``string``, which is also made of what is
            none in JSON, or ``variant``, which is not.

    Returns:
        ``event``, the struct; ``fault``, null if no field had a value of another type; ``end``,
        true if the object is all of the value.
    """
    from pyspark.sql import functions as f

    # As a member between others: what ends the object too early, or follows it, is a fault.
    document = f.concat(f.lit('{"event":'), f.try_validate_utf8(value), f.lit(',"end":true}'))
    by_name = _document_type(schema, texts, by_name=True)
    return f.from_json(document, by_name, _OPTIONS).cast(
        _document_type(schema, texts, by_name=False)
    )


def is_object(document: Column) -> Column:
    """Returns whether what was parsed was one object, without values of other types."""
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
