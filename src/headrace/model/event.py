"""Event schemas: a class whose annotations are the fields of a JSON event."""

from __future__ import annotations

import enum
import types
import typing
from dataclasses import dataclass
from datetime import datetime


class EpochMillis(datetime):
    """Annotation only: the JSON carries milliseconds since 1970, the column is a UTC timestamp."""


class FieldType(enum.Enum):
    """What a field is in JSON, in Arrow and in Spark.

    ========== ======================================= ================== ==========
    member     JSON                                    Arrow              Spark
    ========== ======================================= ================== ==========
    STRING     string                                  string             string
    LONG       integer within 64 bits                  int64              bigint
    DOUBLE     finite number                           double             double
    BOOLEAN    true, false                             bool               boolean
    TIMESTAMP  RFC 3339 string with a zone             timestamp[us, UTC] timestamp
    MILLIS     integer: milliseconds since 1970, UTC   timestamp[us, UTC] timestamp
    BINARY     (raw topics only)                       binary             binary
    ========== ======================================= ================== ==========
    """

    STRING = "string"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    MILLIS = "millis"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class EventField:
    """One field: its name, type, whether null (or absence) is allowed, and allowed values."""

    name: str
    type: FieldType
    nullable: bool = False
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EventSchema:
    """The fields of an event, in the order of the class."""

    name: str
    fields: tuple[EventField, ...]

    def field(self, name: str) -> EventField:
        """The field called ``name``; KeyError if there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Field names, in order."""
        return tuple(field.name for field in self.fields)


class UnsupportedFieldError(TypeError):
    """A field's annotation has no column type."""

    def __init__(self, event: str, field: str, annotation: object) -> None:
        self.event, self.field, self.annotation = event, field, annotation
        super().__init__(
            f"{event}.{field}: {annotation!r} has no column type; use str, int, float, bool, "
            "datetime, EpochMillis, a StrEnum or Literal of strings, each optionally `| None`"
        )


_SCALARS: dict[object, FieldType] = {
    str: FieldType.STRING,
    int: FieldType.LONG,
    float: FieldType.DOUBLE,
    bool: FieldType.BOOLEAN,
    datetime: FieldType.TIMESTAMP,
    EpochMillis: FieldType.MILLIS,
}


def event_schema(event: type) -> EventSchema:
    """The schema of an event class, from its annotations (inherited ones first).

    Raises:
        UnsupportedFieldError: an annotation has no column type, or the class has no fields.
    """
    schema, unsupported = readable_schema(event)
    for error in unsupported:
        raise error
    return schema


def readable_schema(event: type) -> tuple[EventSchema, list[UnsupportedFieldError]]:
    """The schema of those fields that have a column type, and an error for each of the others."""
    hints = typing.get_type_hints(event)
    fields, unsupported = [], []
    for name, hint in hints.items():
        try:
            fields.append(_field(event.__name__, name, hint))
        except UnsupportedFieldError as error:
            unsupported.append(error)
    if not hints:
        unsupported.append(UnsupportedFieldError(event.__name__, "(no fields)", None))
    return EventSchema(event.__name__, tuple(fields)), unsupported


def _field(event: str, name: str, hint: object) -> EventField:
    bare, nullable = _without_none(hint)
    if bare in _SCALARS:
        return EventField(name, _SCALARS[bare], nullable)
    values = _enumerated(bare)
    if values:
        return EventField(name, FieldType.STRING, nullable, values)
    raise UnsupportedFieldError(event, name, hint)


def _without_none(hint: object) -> tuple[object, bool]:
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    others = [arm for arm in typing.get_args(hint) if arm is not type(None)]
    return (others[0], True) if len(others) == 1 else (hint, False)


def _enumerated(hint: object) -> tuple[str, ...]:
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return tuple(member.value for member in hint)
    if typing.get_origin(hint) is typing.Literal:
        values = typing.get_args(hint)
        if all(isinstance(value, str) for value in values):
            return tuple(values)
    return ()
