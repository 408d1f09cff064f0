"""The columns that sources give, as far as they are known before anything runs."""

from __future__ import annotations

from headrace.model import EventField, FieldType, Metadata, Source
from headrace.model.source import SUBPARTITION
from headrace.topics.rules import schema_of

_RAW_VALUE = "value"
_METADATA_TYPES = {
    Metadata.TOPIC: FieldType.STRING,
    Metadata.PARTITION: FieldType.LONG,
    Metadata.OFFSET: FieldType.LONG,
    Metadata.EVENT_INDEX: FieldType.LONG,
    Metadata.TIMESTAMP: FieldType.TIMESTAMP,
    Metadata.TOPIC_ID: FieldType.STRING,
}


def source_columns(source: Source) -> dict[str, FieldType] | None:
    """Returns the columns that a source gives; ``None`` when its event class is faulty."""
    if source.topic.event is None:
        columns = {_RAW_VALUE: FieldType.BINARY}
    else:
        schema = schema_of(source.topic)
        if schema is None:
            return None
        columns = {field.name: field.type for field in schema.fields}
    columns |= {name: _METADATA_TYPES.get(name, FieldType.BINARY) for name in source.metadata}
    if source.subpartitions > 1:
        columns[SUBPARTITION] = FieldType.LONG
    return columns


def source_fields(source: Source) -> dict[str, EventField]:
    """Returns the fields of the event class by column; none where it is faulty."""
    schema = schema_of(source.topic)
    return {} if schema is None else {field.name: field for field in schema.fields}


def column_types(source: Source) -> dict[str, object]:
    """Returns the columns that a source gives, as values that are equal for equal types of columns.

    Nested columns are compared to their depth; whether null is allowed makes no other column.
    """
    fields = source_fields(source)
    types = {name: _column_type(field) for name, field in fields.items()}
    return dict(source_columns(source) or {}) | types


def _column_type(field: EventField) -> object:
    match field.type:
        case FieldType.DECIMAL:
            return FieldType.DECIMAL, field.precision
        case FieldType.STRUCT:
            return [(inner.name, _column_type(inner)) for inner in field.fields]
        case FieldType.LIST | FieldType.MAP:
            return field.type, _column_type(field.item)
        case FieldType.MILLIS:  # differs from TIMESTAMP in JSON only
            return FieldType.TIMESTAMP
    return field.type
