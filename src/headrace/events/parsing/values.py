"""Values that JSON has no type for: what their text or number is read as, or that it can't be."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.events.times import parse_date, readable_microseconds
from headrace.model import EventField, EventSchema, FieldType

if TYPE_CHECKING:
    from headrace.model import Precision

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NULL = b"null"
# Finds every text with a number beyond a double, and few others: such a number has an exponent or
# this many digits. What it finds is parsed.
_MAY_OVERFLOW = re.compile(rb"[0-9][eE]|[0-9]{309}")
_text: Callable[[bytes], str] = msgspec.json.Decoder(str).decode


def as_read(schema: EventSchema) -> EventSchema:
    """Returns the schema by which the JSON text of a value of Avro or Protobuf is read.

    Their times carry their unit, so ``EpochMillis`` is a time like any other.
    """
    return EventSchema(schema.name, tuple(map(_field_as_read, schema.fields)))


def _field_as_read(field: EventField) -> EventField:
    return replace(
        field,
        type=FieldType.TIMESTAMP if field.type is FieldType.MILLIS else field.type,
        schema=None if field.schema is None else as_read(field.schema),
        element=None if field.element is None else _field_as_read(field.element),
    )


def parse_base64(text: str) -> bytes | None:
    """Returns the bytes of a base64 text with its padding (RFC 4648); ``None`` of other texts."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None


class DecimalReader:
    """Reads decimals of one precision."""

    def __init__(self, precision: Precision) -> None:
        # Inexact traps digits that would be rounded away: a decimal is kept as it is, or rejected.
        self._context = Context(prec=precision.digits, traps=[InvalidOperation, Inexact])
        self._step = Decimal(1).scaleb(-precision.scale)

    def number(self, text: str) -> Decimal | None:
        """Returns the number with the digits of the precision; ``None`` if it does not fit.

        Raises:
            ValueError: if the text is no number as JSON writes it.
        """
        if not _NUMBER.fullmatch(text):
            raise ValueError(text)
        try:
            number = self._context.create_decimal(text)
            return number.quantize(self._step, context=self._context)
        except DecimalException:
            return None

    def __call__(self, raw: msgspec.Raw) -> Decimal | None:
        """Returns the number of a JSON number or string; ``None`` if it is none or does not fit."""
        json = bytes(raw)
        try:
            return self.number(_text(json) if json[:1] == b'"' else json.decode())
        except ValueError:
            return None


def reader_of(field: EventField) -> Callable[[Any], object | None] | None:
    """Returns how a value that the parser gives for ``field`` is read further, if it is.

    The reader takes what is not null and returns ``None`` if it can't be read as the field's type.
    """
    if field.type is FieldType.DECIMAL:
        return DecimalReader(field.precision)
    return _READERS.get(field.type)


def without_null(value: Any) -> Any:
    """Returns ``None`` for a JSON null that the parser has left as text, else ``value``."""
    return None if isinstance(value, msgspec.Raw) and bytes(value) == _NULL else value


def has_number_out_of_range(json: bytes) -> bool:
    """Returns whether a JSON value holds a number that is beyond a double, as ``1e400`` is."""
    # Nearly all values end here: a search is much cheaper than a parse.
    if not _MAY_OVERFLOW.search(json):
        return False
    try:
        msgspec.json.decode(json)
    except msgspec.ValidationError:
        return True
    return False


def _raw_json(raw: msgspec.Raw) -> str | None:
    json = bytes(raw)
    try:
        return None if has_number_out_of_range(json) else json.decode()
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None


_READERS: Mapping[FieldType, Callable[[Any], object | None]] = {
    FieldType.TIMESTAMP: readable_microseconds,
    FieldType.DATE: parse_date,
    FieldType.BINARY: parse_base64,
    FieldType.JSON: _raw_json,
}
