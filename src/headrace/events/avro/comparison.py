"""What an Avro schema allows and an event class does not take: those events are dead letters.

Compared are types, nulls, missing fields, and the symbols of enums. Not compared are bounds of
numbers, digits of decimals, and what a string holds, about which a schema says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.events.avro.references import written_out
from headrace.events.avro.schemas import Named, Schema, parsed_schema
from headrace.events.avro.types import TAKEN, kind_of, mismatch_of
from headrace.events.comparison import may_be_missing, may_be_null, texts_not_taken
from headrace.model import EventField, EventSchema, FieldType, RegisteredSchema


def allowed_but_not_taken(registered: RegisteredSchema, schema: EventSchema) -> Iterator[str]:
    """Yields a phrase for each thing that a schema allows and an event class does not take.

    Args:
        registered: the schema.
        schema: of the event class.

    Raises:
        ValueError: if it is no schema of Avro's.
    """
    try:
        parsed, named = parsed_schema(written_out(registered))
    except Exception as error:
        raise ValueError(str(error)) from error
    root = EventField("", FieldType.STRUCT, schema=schema)
    yield from _phrases(parsed, root, "", named)


def _phrases(writer: Schema, field: EventField, path: str, named: Named) -> Iterator[str]:
    for branch in writer if isinstance(writer, list) else [writer]:
        inner = named.get(branch, branch) if isinstance(branch, str) else branch
        kind = kind_of(inner)
        if kind == "null":
            if not field.nullable:
                yield may_be_null(path)
        elif kind not in TAKEN[field.type]:
            _, sentence = mismatch_of(kind, field, path)
            yield sentence
        elif kind == "enum":
            yield from texts_not_taken(field, inner["symbols"], path)
        elif field.schema is not None:
            yield from _of_record(inner, field.schema, path, named)
        elif field.element is not None:
            items = inner["items" if field.type is FieldType.LIST else "values"]
            yield from _phrases(items, field.element, f"{path}[]", named)


def _of_record(record: Schema, schema: EventSchema, path: str, named: Named) -> Iterator[str]:
    # fastavro takes anything for a name, such as a list.
    written = {str(part["name"]): part["type"] for part in record["fields"]}
    for field in schema.fields:
        inner = f"{path}.{field.name}" if path else field.name
        if field.name in written:
            yield from _phrases(written[field.name], field, inner, named)
        elif not field.nullable:
            yield may_be_missing(inner)
