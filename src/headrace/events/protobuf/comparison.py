"""What a schema of Protobuf allows and an event class does not take: those are dead letters.

Compared are types, fields that may be absent, and the names of enums. Not compared are bounds of
numbers and what a string holds, and whether a message is absent that the schema has no other form
for: in proto3 no field can be required.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from subprocess import SubprocessError
from typing import TYPE_CHECKING

from headrace.events.comparison import may_be_missing, texts_not_taken
from headrace.events.parsing.values import as_read
from headrace.events.protobuf.fields import ReadField, read_message
from headrace.events.protobuf.schemas import protobuf_schema
from headrace.events.protobuf.types import Reading

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from headrace.model import EventSchema, RegisteredSchema


def allowed_but_not_taken(registered: RegisteredSchema, schema: EventSchema) -> Iterator[str]:
    """Yields a phrase for each thing that a schema allows and an event class does not take.

    Args:
        registered: the schema, whose first message is the event.
        schema: of the event class.

    Raises:
        ValueError: if it is no schema of Protobuf's, with the compiler's words, or the compiler did
            not do its work.
    """
    try:
        descriptor = protobuf_schema(registered).message([0])
    except (OSError, SubprocessError) as error:
        raise ValueError(str(error)) from error
    if descriptor is None:
        yield "there is no message"
        return
    yield from _of_message(read_message(descriptor, as_read(schema)).fields, descriptor, "")


def _of_message(fields: Sequence[ReadField], descriptor: Descriptor, path: str) -> Iterator[str]:
    for read in fields:
        written = descriptor.fields_by_name.get(read.declared.name)
        inner = f"{path}.{read.declared.name}" if path else read.declared.name
        if read.is_null_if_absent and not read.declared.nullable and _may_be_absent(written):
            yield may_be_missing(inner)
        if written is not None:
            yield from _of_value(read, written, inner)


def _may_be_absent(written: FieldDescriptor | None) -> bool:
    if written is None:
        return True
    # Every message may be absent. One that a schema marks so is a member of a oneof, if of its own.
    is_marked = written.message_type is None or written.containing_oneof is not None
    return is_marked and not written.is_required


def _of_value(read: ReadField, written: FieldDescriptor, path: str) -> Iterator[str]:
    match read.reading:
        case Reading.MISMATCH:
            yield read.mismatch
        case Reading.ENUM:
            yield from texts_not_taken(read.declared, read.texts.values(), path)
        case Reading.STRUCT:
            yield from _of_message(read.fields, written.message_type, path)
        case Reading.LIST | Reading.MAP if read.element is not None:
            is_map = read.reading is Reading.MAP
            held = written.message_type.fields_by_name["value"] if is_map else written
            yield from _of_value(read.element, held, f"{path}[]")
