"""Event schemas: a class whose annotations are the fields of an event."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from headrace.model.class_fields import (
    class_fault,
    constraint_fault,
    enum_fault,
    field_fault,
    is_field,
    written_name,
)

# Digits: Arrow's decimal128 and Spark's decimal hold no more.
MAX_PRECISION = 38
_NO_TYPE = (
    "has no column type; use str, int, float, bool, datetime, EpochMillis, date, Decimal, bytes, "
    "Any, a StrEnum or Literal of plain strings, list[T], dict[str, T] or a class with such "
    "fields, each optionally `| None`"
)


class EpochMillis(datetime):
    """Annotation only: the JSON carries milliseconds since 1970, the column is a UTC timestamp."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Digits of a decimal field: ``price: Annotated[Decimal, Precision(12, scale=2)]``.

    A ``Decimal`` without it has 38 digits, 18 of them after the point, which is Spark's default.

    Attributes:
        digits: how many in all, from 1 to 38.
        scale: how many of them after the point.
    """

    digits: int
    scale: int = 0

    @property
    def is_possible(self) -> bool:
        """Whether a column can have it; users may have written anything."""
        # A bool is an int, and would pass isinstance.
        both_whole = type(self.digits) is int and type(self.scale) is int
        return both_whole and 1 <= self.digits <= MAX_PRECISION and 0 <= self.scale <= self.digits


DEFAULT_PRECISION = Precision(MAX_PRECISION, 18)


class FieldType(enum.Enum):
    """What a field is in JSON, in Arrow and in Spark.

    ========== ========================================== ================== ================
    member     JSON                                       Arrow              Spark
    ========== ========================================== ================== ================
    STRING     string                                     string             string
    LONG       integer within 64 bits                     int64              bigint
    DOUBLE     finite number                              double             double
    BOOLEAN    true, false                                bool               boolean
    TIMESTAMP  RFC 3339 string with a zone                timestamp[us, UTC] timestamp
    MILLIS     integer: milliseconds since 1970, UTC      timestamp[us, UTC] timestamp
    DATE       string ``YYYY-MM-DD``                      date32             date
    DECIMAL    number, or a string that holds one         decimal128(p, s)   decimal(p, s)
    BINARY     string of base64 with padding (RFC 4648)   binary             binary
    JSON       any value; its text is kept as it came     string             string
    STRUCT     object with the fields of another class    struct             struct
    LIST       array                                      list               array
    MAP        object with any keys                       map<string, T>     map<string, T>
    ========== ========================================== ================== ================
    """

    STRING = "string"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    MILLIS = "millis"
    DATE = "date"
    DECIMAL = "decimal"
    BINARY = "binary"
    JSON = "json"
    STRUCT = "struct"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class EventField:
    """One field of an event, or what a list or map holds.

    Attributes:
        name: of the field and its column; empty for what a list or map holds.
        type: what it is.
        nullable: whether null, or absence, is allowed.
        values: the only texts that a string may be; empty: any text.
        precision: digits of a decimal.
        schema: fields of a struct.
        element: what a list or map holds.
    """

    name: str
    type: FieldType
    nullable: bool = False
    values: tuple[str, ...] = ()
    precision: Precision = DEFAULT_PRECISION
    schema: EventSchema | None = None
    element: EventField | None = None

    @property
    def fields(self) -> tuple[EventField, ...]:
        """Fields of a struct; none of any other type."""
        return () if self.schema is None else self.schema.fields

    @property
    def item(self) -> EventField:
        """What a list or map holds.

        Raises:
            TypeError: if the field is neither.
        """
        if self.element is None:
            raise TypeError(f"{self.name} is a {self.type.value}")
        return self.element


@dataclass(frozen=True, slots=True)
class EventSchema:
    """The fields of an event class, in the order of the class."""

    name: str
    fields: tuple[EventField, ...]

    def field(self, name: str) -> EventField:
        """The field called ``name``; KeyError if there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def find(self, path: str) -> EventField | None:
        """Returns the field at a path such as ``repo.full_name``; ``None`` if there is none.

        A path leads through structs, not into lists and maps.
        """
        name, dot, rest = path.partition(".")
        for field in self.fields:
            if field.name == name:
                inner = None if field.schema is None else field.schema.find(rest)
                return inner if dot else field
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """Field names, in order."""
        return tuple(field.name for field in self.fields)


def value_at(event: Mapping[str, typing.Any], path: str) -> typing.Any:
    """Returns the value at a path such as ``repo.full_name``; ``None`` where there is none.

    Args:
        event: a JSON object.
        path: names of fields, joined by dots.
    """
    name, _, rest = path.partition(".")
    value = event.get(name)
    if not rest:
        return value
    return value_at(value, rest) if isinstance(value, Mapping) else None


class UnsupportedFieldError(TypeError):
    """A field's annotation has no column type.

    Attributes:
        event: name of the event class.
        field: path of the field, such as ``repo.owner`` or ``items[].price``.
    """

    def __init__(self, event: str, field: str, annotation: object, reason: str = _NO_TYPE) -> None:
        self.event, self.field, self.annotation = event, field, annotation
        super().__init__(f"{event}.{field}: {annotation!r} {reason}")


# EpochMillis and datetime are distinguished by identity: one is a subclass of the other.
_SCALARS: dict[object, FieldType] = {
    str: FieldType.STRING,
    int: FieldType.LONG,
    float: FieldType.DOUBLE,
    bool: FieldType.BOOLEAN,
    datetime: FieldType.TIMESTAMP,
    EpochMillis: FieldType.MILLIS,
    date: FieldType.DATE,
    Decimal: FieldType.DECIMAL,
    bytes: FieldType.BINARY,
}


def event_schema(event: type) -> EventSchema:
    """The schema of an event class, from its annotations (inherited ones first).

    Raises:
        UnsupportedFieldError: if an annotation has no column type, or a class has no fields.
    """
    schema, unsupported = readable_schema(event)
    for error in unsupported:
        raise error
    return schema


def readable_schema(event: type) -> tuple[EventSchema, list[UnsupportedFieldError]]:
    """The schema of those fields that have a column type, and an error for each of the others."""
    reader = _SchemaReader(event)
    return reader.schema(event, "", ()), reader.unsupported


def declaring_class(event: type, path: str) -> tuple[type, str]:
    """Returns the class that declares the field at a path of ``event``, and the field's name there.

    A path is that of an :class:`UnsupportedFieldError`.
    """
    name, _, rest = path.partition(".")
    inner = _annotations(event).get(name.rstrip("[]")) if rest else None
    inner = _without_none(inner)[0]
    while typing.get_origin(inner) in (list, dict):
        inner = _without_none(typing.get_args(inner)[-1])[0]
    return declaring_class(inner, rest) if isinstance(inner, type) else (event, name.rstrip("[]"))


class _SchemaReader:
    """Reads the annotations of one event class and of the classes that it nests."""

    def __init__(self, event: type) -> None:
        self._event = event.__name__
        self.unsupported: list[UnsupportedFieldError] = []

    def schema(self, nested: type, path: str, outer: tuple[type, ...]) -> EventSchema:
        """Returns the fields of a class; ``outer`` are the classes that it is nested in."""
        fields: list[EventField] = []
        hints = _annotations(nested)
        if fault := class_fault(nested):
            self.unsupported.append(self._unsupported(path or "(class)", nested, fault))
            return EventSchema(nested.__name__, ())
        if not hints:
            self.unsupported.append(self._unsupported(path or "(no fields)", None))
        for name, hint in hints.items():
            written = written_name(nested, name)
            inner_path = f"{path}.{written}" if path else written
            try:
                field = self._field(name, hint, inner_path, (*outer, nested))
                if fault := field_fault(nested, name, nullable=field.nullable):
                    raise self._unsupported(inner_path, hint, fault)
                fields.append(field)
            except UnsupportedFieldError as error:
                self.unsupported.append(error)
        return EventSchema(nested.__name__, tuple(fields))

    def _field(self, name: str, hint: object, path: str, outer: tuple[type, ...]) -> EventField:
        bare, nullable, extras = _without_none(hint)
        if fault := constraint_fault(extras) or enum_fault(bare):
            raise self._unsupported(path, hint, fault)
        precision = next((e for e in extras if isinstance(e, Precision)), DEFAULT_PRECISION)
        if bare is typing.Any:
            return EventField(name, FieldType.JSON, nullable=True)
        if bare in _SCALARS:
            if not precision.is_possible:
                raise self._unsupported(path, precision, "is no precision of a decimal")
            return EventField(name, _SCALARS[bare], nullable, precision=precision)
        if values := _enumerated(bare):
            return EventField(name, FieldType.STRING, nullable, values)
        if typing.get_origin(bare) in (list, dict):
            element = self._element(bare, path, outer)
            kind = FieldType.LIST if typing.get_origin(bare) is list else FieldType.MAP
            return EventField(name, kind, nullable, element=element)
        return EventField(name, FieldType.STRUCT, nullable, schema=self._struct(bare, path, outer))

    def _element(self, container: object, path: str, outer: tuple[type, ...]) -> EventField:
        *keys, held = typing.get_args(container)
        if keys not in ([], [str]):
            raise self._unsupported(path, container, "has keys that are not str, as JSON's are")
        return self._field("", held, f"{path}[]", outer)

    def _struct(self, nested: object, path: str, outer: tuple[type, ...]) -> EventSchema:
        # Spark and Arrow have no recursive types.
        if nested in outer:
            raise self._unsupported(path, nested, "contains itself; columns have a fixed depth")
        if not isinstance(nested, type) or issubclass(nested, enum.Enum):
            raise self._unsupported(path, nested)
        if not _annotations(nested):
            raise self._unsupported(path, nested)
        return self.schema(nested, path, outer)

    def _unsupported(
        self, path: str, annotation: object, reason: str = _NO_TYPE
    ) -> UnsupportedFieldError:
        return UnsupportedFieldError(self._event, path, annotation, reason)


def _annotations(event: type) -> dict[str, object]:
    # Resolves annotations that `from __future__ import annotations` has turned into text.
    hints = typing.get_type_hints(event, include_extras=True)
    return {name: hint for name, hint in hints.items() if is_field(hint)}


def _without_none(hint: object) -> tuple[object, bool, tuple[object, ...]]:
    """Returns the annotation without ``| None``, ``Annotated`` and the like, and what they say.

    What the innermost ``Annotated`` says comes first.
    """
    nullable, extras = False, ()
    while True:
        if typing.get_origin(hint) in (typing.Annotated, typing.Required, typing.NotRequired):
            hint, *inner = typing.get_args(hint)
            extras = (*inner, *extras)
        elif typing.get_origin(hint) in (typing.Union, types.UnionType):
            arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
            # A union of two types has no one column type; the caller refuses it as it stands.
            if len(arms) > 1:
                return hint, False, extras
            hint, nullable = arms[0], True
        else:
            return hint, nullable, extras


def _enumerated(hint: object) -> tuple[str, ...]:
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return tuple(member.value for member in hint)
    if typing.get_origin(hint) is typing.Literal:
        values = typing.get_args(hint)
        # A member of a StrEnum is a string, too, and would be read as its text alone.
        if all(type(value) is str for value in values):
            return tuple(values)
    return ()
