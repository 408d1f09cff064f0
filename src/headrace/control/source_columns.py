"""The columns that sources give, as far as they are known before anything runs."""

from __future__ import annotations

from headrace.control.topic_rules import SUBPARTITION, schema_of
from headrace.model import FieldType, Metadata, Source

_RAW_VALUE = "value"
_METADATA_TYPES = {
    Metadata.TOPIC: FieldType.STRING,
    Metadata.PARTITION: FieldType.LONG,
    Metadata.OFFSET: FieldType.LONG,
    Metadata.TIMESTAMP: FieldType.TIMESTAMP,
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
