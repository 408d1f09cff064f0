"""How the fields of an event class are read from a message of Protobuf.

The class and the message are compared once for each schema. What comes of it is a message of our
own, with the fields that the class has and no others: what the class lacks is unknown to it, and
skipped whatever it holds. Its integers have 64 bits, since that is what the wire holds, and its
enums are numbers, of which none is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.events.json_schema.schemas import JSON_KINDS
from headrace.events.parsing.parser import slots
from headrace.events.protobuf.types import (
    TAKEN,
    TIMESTAMP,
    WELL_KNOWN,
    WRAPPERS,
    Reading,
    is_map_field,
    json_kind_of,
    kind_of,
    reading_of,
    texts_of,
)
from headrace.model import EventField, EventSchema, FieldType

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto


@dataclass(frozen=True)
class ReadField:
    """How a field of the class is read.

    Attributes:
        declared: the field of the class, or what its list or map holds.
        slot: its name in the message; empty: the message lacks it.
        reading: what a value is.
        is_null_if_absent: whether it is null where the message has none; else it is the default.
        is_wrapped: whether the value is that of a message around it.
        texts: of an enum, by number.
        fields: of a message.
        element: what a list or map holds.
        mismatch: why a record with a value is rejected, where its type is not taken.
        is_wrong_json: whether the JSON of such a value is of a wrong type, too: then it is rejected
            for that, in the words of all formats, as an ``int32`` for a ``bool`` is. A ``bytes``
            for a ``str`` is not: both are strings there.
    """

    declared: EventField
    slot: str = ""
    reading: Reading = Reading.PLAIN
    is_null_if_absent: bool = False
    is_wrapped: bool = False
    texts: Mapping[int, str] = field(default_factory=dict)
    fields: tuple[ReadField, ...] = ()
    element: ReadField | None = None
    mismatch: str = ""
    is_wrong_json: bool = False


@dataclass(frozen=True)
class ReadMessage:
    """A message of the fields of a class.

    Attributes:
        parse: makes a message of its bytes; raises DecodeError.
        fields: of the class, in their order.
    """

    parse: Callable[[bytes], Any]
    fields: tuple[ReadField, ...]


def read_message(
    descriptor: Descriptor, schema: EventSchema, *, texts_as_bytes: bool = False
) -> ReadMessage:
    """Returns how events of a class are read from messages of a descriptor.

    Args:
        descriptor: of the message that the writer had.
        schema: of the class.
        texts_as_bytes: read texts as their bytes, of which none are invalid.
    """
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    shape = _Shape(texts_as_bytes=texts_as_bytes)
    name, fields = shape.message(descriptor, schema, "")
    pool = DescriptorPool()
    pool.Add(shape.file)
    message = GetMessageClass(pool.FindMessageTypeByName(name))
    return ReadMessage(message.FromString, fields)


class _Shape:
    """Builds the messages of a class."""

    def __init__(self, *, texts_as_bytes: bool) -> None:
        from google.protobuf.descriptor_pb2 import (
            EDITION_2023,
            FieldDescriptorProto,
            FileDescriptorProto,
        )

        self.file = FileDescriptorProto(
            name="headrace_read.proto", syntax="editions", edition=EDITION_2023
        )
        types = FieldDescriptorProto
        # These have up to 64 bits on the wire: a value beyond 32 bits is not cut.
        self._types = {
            types.TYPE_INT32: types.TYPE_INT64,
            types.TYPE_SINT32: types.TYPE_SINT64,
            types.TYPE_UINT32: types.TYPE_UINT64,
            types.TYPE_ENUM: types.TYPE_INT64,
        }
        if texts_as_bytes:
            self._types[types.TYPE_STRING] = types.TYPE_BYTES

    def message(
        self, descriptor: Descriptor, schema: EventSchema, path: str
    ) -> tuple[str, tuple[ReadField, ...]]:
        """Adds the message of a class; returns its name and fields."""
        message = self._added()
        fields = []
        for slot, declared in slots(schema).items():
            inner = f"{path}.{declared.name}" if path else declared.name
            written = descriptor.fields_by_name.get(declared.name)
            if written is None:
                fields.append(_absent(declared))
            else:
                read = self._field(message, slot, written, declared, inner)
                fields.append(replace(read, slot=slot))
        return message.name, tuple(fields)

    def _added(self) -> DescriptorProto:
        return self.file.message_type.add(name=f"M{len(self.file.message_type)}")

    def _field(
        self,
        message: DescriptorProto,
        slot: str,
        written: FieldDescriptor,
        declared: EventField,
        path: str,
    ) -> ReadField:
        """Adds a field of a class; returns how it is read."""
        own = message.field.add(name=slot, number=written.number)
        own.label = own.LABEL_REPEATED if written.is_repeated else own.LABEL_OPTIONAL
        is_map = is_map_field(written)
        if declared.element is None or not written.is_repeated:
            if written.is_repeated:
                return self._mismatch(own, written, declared, path)
            read = self._value(own, written, declared, path)
            has_default = written.has_default_value or not written.has_presence
            return replace(read, is_null_if_absent=not has_default)
        if declared.element.element is not None or (declared.type is FieldType.MAP) != is_map:
            return self._mismatch(own, written, declared, path)
        if not is_map:
            element = self._value(own, written, declared.element, f"{path}[]")
            return ReadField(declared, reading=Reading.LIST, element=element)
        key, value = (written.message_type.fields_by_name[name] for name in ("key", "value"))
        if key.type != key.TYPE_STRING:
            return self._mismatch(own, written, declared, path)
        entry = message.nested_type.add(name=f"{slot.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=key.TYPE_STRING)
        held = entry.field.add(name="value", number=2, label=1)
        own.type, own.type_name = own.TYPE_MESSAGE, f".{message.name}.{entry.name}"
        element = self._value(held, value, declared.element, f"{path}[]")
        return ReadField(declared, reading=Reading.MAP, element=element)

    def _value(
        self, own: Any, written: FieldDescriptor, declared: EventField, path: str
    ) -> ReadField:
        """Gives a field of ours the type of one value; returns how that is read."""
        if written.message_type is not None:
            return self._of_message(own, written, declared, path)
        own.type = self._types.get(written.type, written.type)
        reading = reading_of(written, declared)
        if reading is None:
            return _mismatched(declared, path, kind_of(written), json_kind_of(written))
        if written.has_default_value:
            own.default_value = _default(written, as_bytes=own.type == own.TYPE_BYTES)
        texts = {} if written.enum_type is None else texts_of(written)
        return ReadField(declared, reading=reading, texts=texts)

    def _of_message(
        self, own: Any, written: FieldDescriptor, declared: EventField, path: str
    ) -> ReadField:
        own.type = own.TYPE_MESSAGE
        if written.type == own.TYPE_GROUP:
            own.options.features.message_encoding = own.options.features.DELIMITED
        name = written.message_type.full_name
        if name in WRAPPERS:
            message = self._added()
            # A wrapper is a message whose one field is the value.
            held = message.field.add(name="value", number=1, label=1)
            own.type_name = f".{message.name}"
            value = written.message_type.fields_by_name["value"]
            return replace(self._value(held, value, declared, path), is_wrapped=True)
        if name == TIMESTAMP and declared.type is FieldType.TIMESTAMP:
            message = self._added()
            message.field.add(name="seconds", number=1, label=1, type=own.TYPE_INT64)
            message.field.add(name="nanos", number=2, label=1, type=own.TYPE_INT64)
            own.type_name = f".{message.name}"
            return ReadField(declared, reading=Reading.TIME)
        # An empty message takes any content, so that parsing finds whether there is a value.
        if declared.schema is None or name.startswith(WELL_KNOWN):
            own.type_name = f".{self._added().name}"
            return _mismatched(declared, path, f"the message {name}", "object")
        own_name, fields = self.message(written.message_type, declared.schema, path)
        own.type_name = f".{own_name}"
        return ReadField(declared, reading=Reading.STRUCT, fields=fields)

    def _mismatch(
        self, own: Any, written: FieldDescriptor, declared: EventField, path: str
    ) -> ReadField:
        """Gives a repeated field of ours a type that takes its values; returns its mismatch."""
        own.type = self._types.get(written.type, written.type)
        if written.message_type is not None:
            own.type, own.type_name = own.TYPE_MESSAGE, f".{self._added().name}"
            if written.type == own.TYPE_GROUP:
                own.options.features.message_encoding = own.options.features.DELIMITED
        if not is_map_field(written):
            return _mismatched(declared, path, "list", "array")
        key = kind_of(written.message_type.fields_by_name["key"])
        why = _mismatch_of(declared, path, f"map with keys that are {key}")
        return ReadField(declared, reading=Reading.MISMATCH, mismatch=why)


def _absent(declared: EventField) -> ReadField:
    # A list that a schema does not have has no items, as in messages of newer schemas.
    if declared.type is FieldType.LIST:
        return ReadField(declared, reading=Reading.LIST)
    if declared.type is FieldType.MAP:
        return ReadField(declared, reading=Reading.MAP)
    return ReadField(declared, is_null_if_absent=True)


def _mismatched(declared: EventField, path: str, kind: str, in_json: str) -> ReadField:
    """Returns a field whose values are rejected; ``in_json`` is what they are in JSON."""
    why = _mismatch_of(declared, path, kind)
    is_wrong = in_json not in JSON_KINDS[declared.type]
    return ReadField(declared, reading=Reading.MISMATCH, mismatch=why, is_wrong_json=is_wrong)


def _mismatch_of(declared: EventField, path: str, kind: str) -> str:
    return f"field {path!r} is Protobuf's {kind}, expected {TAKEN[declared.type]}"


def _default(written: FieldDescriptor, *, as_bytes: bool) -> str:
    """Returns a default as descriptors write it."""
    from google.protobuf.text_encoding import CEscape

    value = written.default_value
    if as_bytes:
        return str(CEscape(value if isinstance(value, bytes) else value.encode(), as_utf8=False))
    return str(value).lower() if isinstance(value, bool) else str(value)
