"""Whether the values of one parsed event can be read; columns find out while they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.events.parsing.parser import slots
from headrace.events.parsing.values import reader_of, without_null
from headrace.model import FieldType

if TYPE_CHECKING:
    import msgspec

    from headrace.model import EventField, EventSchema

_Check: TypeAlias = Callable[[Any], bool]


class ReadableCheck:
    """Checks whether an event holds a text that is no value of its field's type.

    The parser has seen to all other types: an event without such fields is always readable.

    Args:
        schema: of the events.
        but: a field that the caller reads by itself.
    """

    def __init__(self, schema: EventSchema, but: str | None = None) -> None:
        checks = [
            (slot, _check(field)) for slot, field in slots(schema).items() if field.name != but
        ]
        self._checks = [(slot, check) for slot, check in checks if check is not None]

    def __bool__(self) -> bool:
        return bool(self._checks)

    def __call__(self, event: msgspec.Struct) -> bool:
        """Tests a struct of the event's parser."""
        return all(check(getattr(event, slot)) for slot, check in self._checks)


def _check(field: EventField) -> _Check | None:
    """Returns the test of a field's values; ``None`` if there is nothing to test."""
    check = _check_of_value(field)
    if check is None or not field.nullable:
        return check
    return lambda value: without_null(value) is None or check(value)


def _check_of_value(field: EventField) -> _Check | None:
    if field.schema is not None:
        # A check of a class without such fields is false, and none is made of it.
        return ReadableCheck(field.schema) or None
    if field.element is not None:
        return _check_of_elements(field.element, is_map=field.type is FieldType.MAP)
    read = reader_of(field)
    return None if read is None else lambda value: read(value) is not None


def _check_of_elements(element: EventField, *, is_map: bool) -> _Check | None:
    check = _check(element)
    if check is None:
        return None
    if is_map:
        return lambda values: all(map(check, values.values()))
    return lambda values: all(map(check, values))
