"""The JSON text of a message of Protobuf, as that of an event of a class."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headrace.events.protobuf.fields import ReadField
from headrace.events.protobuf.types import Reading
from headrace.events.times import EARLIEST_US, LATEST_US
from headrace.model import FieldType

if TYPE_CHECKING:
    from headrace.events.rejection import Rejection

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS = 1_000_000_000


class UnfitValueError(Exception):
    """A value is not of the type that the class has."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.rejection: Rejection = (reason, sentence)


def micros_of(seconds: int, nanos: int) -> int | None:
    """Returns a Timestamp in microseconds since 1970; None: it is none, or beyond the calendar."""
    micros = seconds * 1_000_000 + nanos // 1000
    return micros if 0 <= nanos < _NANOS and EARLIEST_US <= micros <= LATEST_US else None


def members(fields: Sequence[ReadField], message: Any, path: str = "") -> dict[str, Any]:
    """Returns the members of the JSON object of a message, without what is missing.

    Raises:
        UnfitValueError: if a value is not of the type that the class has.
    """
    by_name: dict[str, Any] = {}
    for read in fields:
        name = read.declared.name
        value = _member(read, message, f"{path}.{name}" if path else name)
        if value is not None or read.declared.nullable:
            by_name[name] = value
    return by_name


def _member(read: ReadField, message: Any, path: str) -> Any:
    if not read.slot:
        return {Reading.LIST: [], Reading.MAP: {}}.get(read.reading)
    if read.is_null_if_absent and not message.HasField(read.slot):
        return None
    return _json(read, getattr(message, read.slot), path)


def _json(read: ReadField, value: Any, path: str) -> Any:
    if read.is_wrapped:
        value = value.value
    if read.element is not None:
        return _held(read, read.element, value, path)
    if read.reading is Reading.STRUCT:
        return members(read.fields, value, path)
    return _SCALARS.get(read.reading, _plain)(read, value, path)


def _held(read: ReadField, element: ReadField, value: Any, path: str) -> Any:
    if read.reading is Reading.LIST:
        return [_json(element, item, f"{path}[{at}]") for at, item in enumerate(value)]
    return {key: _json(element, value[key], f"{path}[{key!r:.42}]") for key in sorted(value)}


def _mismatched(read: ReadField, value: Any, path: str) -> Any:  # noqa: ARG001 - as the others
    """Returns the JSON of a value of a wrong type, if that is of a wrong type, too."""
    is_list = hasattr(value, "__len__") and not isinstance(value, str | bytes)
    if is_list and not len(value):
        return None  # a list without items holds none of a wrong type
    if not read.is_wrong_json:
        raise UnfitValueError("wrong-type", read.mismatch)
    if is_list:
        return []
    if hasattr(value, "DESCRIPTOR"):
        return {}
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _time_text(read: ReadField, value: Any, path: str) -> str:  # noqa: ARG001
    micros = micros_of(value.seconds, value.nanos)
    if micros is None:
        raise UnfitValueError("out-of-range", f"field {path!r} is outside the years 1 to 9999")
    return (_EPOCH + timedelta(microseconds=micros)).isoformat()


def _number(read: ReadField, value: Any, path: str) -> float:  # noqa: ARG001
    if not math.isfinite(value):
        sentence = f"field {path!r} is {value}, expected a finite number"
        raise UnfitValueError("out-of-range", sentence)
    return float(value)


def _enum_text(read: ReadField, value: Any, path: str) -> str:
    if value not in read.texts:
        sentence = f"field {path!r} is {value}, which its enum does not have"
        raise UnfitValueError("unknown-value", sentence)
    return read.texts[value]


def _plain(read: ReadField, value: Any, path: str) -> Any:
    if read.declared.type is FieldType.BINARY:
        return base64.b64encode(value).decode()
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        sentence = f"field {path!r} is a string that is not UTF-8"
        raise UnfitValueError("not-utf8", sentence) from error


_SCALARS: Mapping[Reading, Callable[[ReadField, Any, str], Any]] = {
    Reading.MISMATCH: _mismatched,
    Reading.TIME: _time_text,
    Reading.NUMBER: _number,
    Reading.ENUM: _enum_text,
}
