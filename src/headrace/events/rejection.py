"""Why a record is rejected: a stable code and a sentence, worded here for pipelines and ingest."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

import msgspec

from headrace.events.parsing.mistakes import known_mistake
from headrace.events.parsing.parser import LONG_RANGE, MILLIS_RANGE
from headrace.events.parsing.values import DecimalReader, has_number_out_of_range, parse_base64
from headrace.events.times import EARLIEST_US, LATEST_US, iso_text, microseconds, parse_date
from headrace.model import FieldType

if TYPE_CHECKING:
    from headrace.model import EventField, EventSchema

Rejection: TypeAlias = tuple[str, str]
"""A reason code, and a sentence about what the record holds and what was expected.

The sentence names the path of the field, such as ``click.impression.id`` or ``items[3].price``. It
shows no value of the event, and of a map the first characters of a key.
"""

NULL_VALUE: Rejection = (
    "null-value",
    "the record has no value: it is no event but a tombstone, which compaction=True leaves out",
)

# Python refuses to convert more than 4,300 digits, and takes quadratic time up to there.
_MAX_INTEGER_DIGITS = 400
_CONSTANTS = ("NaN", "Infinity", "-Infinity")
_SHOWN_VALUES = 8
# Reasons go to logs and dead letters, and a key may be a person's name.
_SHOWN_KEY_CHARACTERS = 40


class _Members(list[tuple[str, Any]]):
    """A JSON object with every member: of repeated ones the last counts, but all hold text."""


class _Number(float):
    """A JSON number that is no integer, or one of very many digits, with its text."""

    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number


_EXPECTED: dict[FieldType, tuple[str, tuple[type, ...]]] = {
    FieldType.STRING: ("a string", (str,)),
    FieldType.LONG: ("an integer within 64 bits", (int,)),
    FieldType.DOUBLE: ("a finite number", (int, _Number)),
    FieldType.BOOLEAN: ("true or false", (bool,)),
    FieldType.TIMESTAMP: ("an RFC 3339 time with a zone", (str,)),
    FieldType.MILLIS: ("an integer, milliseconds since 1970", (int,)),
    FieldType.DATE: ("a date as YYYY-MM-DD", (str,)),
    FieldType.DECIMAL: ("a number", (int, _Number, str)),
    FieldType.BINARY: ("a string of base64", (str,)),
    FieldType.STRUCT: ("an object", (_Members,)),
    FieldType.LIST: ("an array", (list,)),
    FieldType.MAP: ("an object", (_Members,)),
}
_TEXTS: dict[FieldType, tuple[Callable[[str], object], str]] = {
    FieldType.DATE: (parse_date, "a date as YYYY-MM-DD"),
    FieldType.BINARY: (parse_base64, "base64 with its padding"),
}


def rejection(
    value: bytes | None, schema: EventSchema, error: Exception | None = None
) -> Rejection:
    """Returns why a record is no event: the first reason in the order of its members.

    Args:
        value: the record's value, which is read again, slowly.
        schema: of the event.
        error: with which the parser rejected it; ``None`` if the parser took it and a text in it
            could not be read.
    """
    return fault_of(value, schema) or parser_rejection(error)


def fault_of(value: bytes | None, schema: EventSchema) -> Rejection | None:
    """Returns why a record is no event; ``None`` if nothing is wrong with the values that count."""
    if value is None:
        return NULL_VALUE
    if not value.strip(b" \t\r\n"):
        return "empty", "the value is empty" if not value else "the value is only white space"
    try:
        document = json.loads(
            value.decode(),
            object_pairs_hook=_Members,
            parse_constant=_not_a_constant,
            parse_int=_integer,
            parse_float=_Number,
        )
        return _in_document(document, schema)
    except UnicodeDecodeError as wrong:
        words = f"byte {value[wrong.start]:#04x} at {wrong.start} is not UTF-8"
        return "not-utf8", known_mistake(value) or words
    except RecursionError:
        return "too-deep", "the value is nested too deep to be read"
    except json.JSONDecodeError as wrong:
        reason, words = _not_json(wrong)
        return reason, known_mistake(value) or words


def out_of_bounds(name: str, time_us: int, earliest_us: int, latest_us: int) -> Rejection:
    """Returns the rejection of an event time outside the bounds; microseconds since 1970."""
    side, limit_us = (
        ("before the earliest", earliest_us)
        if time_us < earliest_us
        else ("after the latest", latest_us)
    )
    sentence = f"field {name!r} is {iso_text(time_us)}, {side} accepted, {iso_text(limit_us)}"
    return "event-time-out-of-bounds", sentence


def _not_a_constant(word: str) -> NoReturn:
    raise json.JSONDecodeError("no number of JSON", word, 0)


def _integer(digits: str) -> int | _Number:
    return int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else _Number(digits)


def _not_json(wrong: json.JSONDecodeError) -> Rejection:
    if wrong.doc in _CONSTANTS:
        return "not-json", f"the value is not JSON: it holds {wrong.doc}"
    if wrong.msg == "Extra data":
        return "trailing-data", f"the value continues after its first JSON value, at {wrong.pos}"
    return "not-json", f"the value is not JSON: {wrong.msg}, at {wrong.pos}"


def _in_document(document: Any, schema: EventSchema) -> Rejection | None:
    if not isinstance(document, _Members):
        return "not-an-object", f"the value is {_json_type(document)}, expected an object"
    why = next(_in_fields(document, schema, ""), None)
    if why is not None:
        return why
    if _has_lone_surrogate(document):
        return "lone-surrogate", "the value holds half of a surrogate pair outside its fields"
    return None


def _in_fields(members: _Members, schema: EventSchema, prefix: str) -> Iterator[Rejection]:
    fields = {field.name: field for field in schema.fields}
    # Of a repeated name the last value counts, as in the parser.
    last = dict(members)
    for name, value in last.items():
        why = _in_value(fields[name], value, prefix + name) if name in fields else None
        if why is not None:
            yield why
    for field in schema.fields:
        if not (field.nullable or field.name in last):
            path = prefix + field.name
            yield "missing-field", f"field {path!r} is missing, expected {_expected(field)}"


def _in_value(field: EventField, value: Any, path: str) -> Rejection | None:
    if value is None and field.nullable:
        return None
    if field.type is FieldType.JSON:
        return _in_any(value, path)
    if _is_out_of_range(field, value):
        return "out-of-range", f"field {path!r} is out of range, expected {_expected(field)}"
    # By `type`, not `isinstance`: to Python, a boolean is an integer.
    if type(value) not in _EXPECTED[field.type][1]:
        sentence = f"field {path!r} is {_json_type(value)}, expected {_expected(field)}"
        return "wrong-type", sentence
    if isinstance(value, list):
        return next(_in_nested(field, value, path), None)
    return _in_content(field, value, path)


def _in_any(value: Any, path: str) -> Rejection | None:
    if _has_lone_surrogate(value):
        return _lone_surrogate(f"field {path!r} holds a string")
    if any(has_number_out_of_range(number.text.encode()) for number in _numbers(value)):
        return "out-of-range", f"field {path!r} holds a number beyond a double"
    return None


def _numbers(value: Any) -> Iterator[_Number]:
    if isinstance(value, _Number):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _numbers(item[1] if isinstance(value, _Members) else item)


def _in_nested(field: EventField, values: Any, path: str) -> Iterator[Rejection]:
    if field.schema is not None:
        yield from _in_fields(values, field.schema, f"{path}.")
        return
    pairs = dict(values).items() if field.type is FieldType.MAP else enumerate(values)
    for key, value in pairs:
        if _has_lone_surrogate(key):
            yield _lone_surrogate(f"field {path!r} has a key")
        why = _in_value(field.item, value, f"{path}[{_shown(key)}]")
        if why is not None:
            yield why


def _is_out_of_range(field: EventField, value: Any) -> bool:
    if field.type not in (FieldType.LONG, FieldType.MILLIS, FieldType.DOUBLE):
        return False
    # JSON's 1e400 is read as infinity.
    if isinstance(value, float):
        return math.isinf(value)
    if type(value) is not int:
        return False
    if field.type is FieldType.DOUBLE:
        return _overflows(value)
    low, high = MILLIS_RANGE if field.type is FieldType.MILLIS else LONG_RANGE
    return not low <= value <= high


def _overflows(value: int) -> bool:
    try:
        float(value)
    except OverflowError:
        return True
    return False


def _in_content(field: EventField, value: Any, path: str) -> Rejection | None:
    """Looks at what a value of the right JSON type says."""
    if isinstance(value, str) and _has_lone_surrogate(value):
        return _lone_surrogate(f"field {path!r} is a string")
    if field.values and value not in field.values:
        return "unknown-value", f"field {path!r} is a string, expected {_expected(field)}"
    if field.type is FieldType.TIMESTAMP:
        return _in_time(value, path)
    if field.type is FieldType.DECIMAL:
        return _in_decimal(field, value, path)
    parse, kind = _TEXTS.get(field.type, (str, ""))
    if parse(value) is None:
        return "wrong-type", f"field {path!r} is a string that is not {kind}"
    return None


def _in_time(text: str, path: str) -> Rejection | None:
    time = microseconds(text)
    if time is None:
        return (
            "wrong-type",
            f"field {path!r} is a string that is not an RFC 3339 time with a zone",
        )
    if not EARLIEST_US <= time <= LATEST_US:
        return "out-of-range", f"field {path!r} is outside the years 1 to 9999 in UTC"
    return None


def _in_decimal(field: EventField, value: int | str | _Number, path: str) -> Rejection | None:
    text = value.text if isinstance(value, _Number) else str(value)
    try:
        fits = DecimalReader(field.precision).number(text) is not None
    except ValueError:
        return "wrong-type", f"field {path!r} is a string that is not a number"
    if fits:
        return None
    return "out-of-range", f"field {path!r} is out of range, expected {_expected(field)}"


def _lone_surrogate(where: str) -> Rejection:
    return "lone-surrogate", f"{where} with half of a surrogate pair"


def _has_lone_surrogate(document: Any) -> bool:
    try:
        # UTF-8 has no surrogates, so encoding finds them at any depth.
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _expected(field: EventField) -> str:
    or_null = " or null" if field.nullable else ""
    if field.values:
        shown = ", ".join(repr(value) for value in field.values[:_SHOWN_VALUES])
        return f"one of {shown}" + (" ..." if len(field.values) > _SHOWN_VALUES else "")
    if field.type is FieldType.DECIMAL:
        whole, scale = field.precision.digits - field.precision.scale, field.precision.scale
        return f"a number of at most {whole} digits before the point and {scale} after it{or_null}"
    return _EXPECTED[field.type][0] + or_null


def _shown(key: str | int) -> str:
    if isinstance(key, int):
        return str(key)
    cut = repr(key[:_SHOWN_KEY_CHARACTERS])
    return cut if len(key) <= _SHOWN_KEY_CHARACTERS else f"{cut}..."


def _json_type(value: Any) -> str:
    names = {
        _Members: "an object",
        list: "an array",
        str: "a string",
        int: "an integer",
        _Number: "a number with a fraction or exponent",
        bool: "a boolean",
        type(None): "null",
    }
    return names[type(value)]


def parser_rejection(error: Exception | None) -> Rejection:
    """Returns what can be said about a record in whose values no fault is found.

    Args:
        error: with which the parser rejected it.
    """
    if isinstance(error, RecursionError):
        return "too-deep", "the value is nested too deep to be read"
    # msgspec has no class of its own for such an error.
    if "out of range" in str(error):
        return "out-of-range", "a number outside the fields is out of range"
    code = "wrong-type" if isinstance(error, msgspec.ValidationError) else "not-json"
    return code, f"the value was rejected: {error}"
