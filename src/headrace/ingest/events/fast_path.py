"""Events that hold their declared fields and nothing else: most of them, read in one step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import msgspec

from headrace.events import LONG_RANGE, event_struct
from headrace.ingest.events.json_limits import JsonLimits
from headrace.model import EventSchema, FieldType

_BACKSLASH = ord("\\")
_QUOTED = (FieldType.STRING, FieldType.TIMESTAMP)
_FLAT = {*_QUOTED, FieldType.LONG, FieldType.DOUBLE, FieldType.BOOLEAN, FieldType.MILLIS}
_TIME = Annotated[datetime, msgspec.Meta(tz=True)]
_MIN_LONG, _MAX_LONG = LONG_RANGE
_FIRST_YEAR, _LAST_YEAR = 2, 9998  # in any zone within the years 1 to 9999 of UTC


class FastPathReader:
    """Reads events that need no closer check; all others, valid or not, take the slow path.

    A text without a backslash has two quotes for each key and two for each string. When those of
    the declared fields are all that it has, then no key is unknown and none is repeated.

    An event class with nested fields, dates, decimals, bytes or ``Any`` has no such events.

    Fields that may be null and are absent are ``msgspec.UNSET``; times are datetimes.
    """

    def __init__(self, schema: EventSchema, limits: JsonLimits, bounded: str | None = None) -> None:
        """The time ``bounded`` is held against bounds by the caller."""
        struct = event_struct(schema, time=_TIME, absent=msgspec.UNSET)
        self._parse: Callable[[bytes], Any] = msgspec.json.Decoder(struct).decode
        self.slots = {name: f"f{number}" for number, name in enumerate(schema.names)}
        fields = [(self.slots[field.name], field) for field in schema.fields]
        # A name with a quote or a backslash would make the count of quotes wrong.
        is_flat = all(
            field.type in _FLAT and not {'"', "\\"} & set(field.name) for field in schema.fields
        )
        is_possible = is_flat and len(fields) <= limits.keys
        self._longest = limits.string_bytes if is_possible else -1
        self._quotes = sum(_quotes(field.type) for _, field in fields if not field.nullable)
        self._nullable = [(slot, _quotes(field.type)) for slot, field in fields if field.nullable]
        self._closer = [
            (slot, field.type)
            for slot, field in fields
            if field.type in (FieldType.DOUBLE, FieldType.TIMESTAMP) and field.name != bounded
        ]

    def __call__(self, text: bytes) -> msgspec.Struct | None:
        """Returns the event, with its fields in ``slots``; ``None`` if it takes the slow path."""
        if len(text) > self._longest or text.find(_BACKSLASH) >= 0:
            return None
        try:
            event: msgspec.Struct = self._parse(text)
        except (ValueError, TypeError, RecursionError):
            return None
        quotes = self._quotes + self._quotes_of_nullable(event) if self._nullable else self._quotes
        if text.count(b'"') != quotes:
            return None
        for slot, kind in self._closer:
            if not _is_within(getattr(event, slot), kind):
                return None
        return event

    def _quotes_of_nullable(self, event: msgspec.Struct) -> int:
        quotes = 0
        for slot, with_value in self._nullable:
            value = getattr(event, slot)
            if value is not msgspec.UNSET:
                quotes += 2 if value is None else with_value
        return quotes


def _quotes(kind: FieldType) -> int:
    return 4 if kind in _QUOTED else 2


def _is_within(value: Any, kind: FieldType) -> bool:
    """Not so far out that an integer's digits or a time's zone would have to be checked."""
    if value is None or value is msgspec.UNSET:
        return True
    if kind is FieldType.DOUBLE:
        return bool(_MIN_LONG < value < _MAX_LONG)
    return bool(_FIRST_YEAR <= value.year <= _LAST_YEAR)
