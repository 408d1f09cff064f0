"""Splits a JSON array, or a text of lines, into events without parsing them."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

_Decoded = TypeVar("_Decoded")

SPACE = b" \t\r\n"
"""White space of JSON."""

_NOTHING = msgspec.Raw()
_LINE = re.compile(rb"[^ \t\r\n][^\n]*")
_FEW_ELEMENTS = 32_768
_elements: Callable[[bytes | bytearray], list[msgspec.Raw]] = msgspec.json.Decoder(
    list[msgspec.Raw]
).decode
# Arrays are neither names nor parts of numbers: what is malformed with a literal stays malformed.
_LITERALS = (
    (b"NaN", b"[ ]"),
    (b"-Infinity", b"[       ]"),
    (b"Infinity", b"[      ]"),
)
# An escape begins after pairs of backslashes; both halves of a surrogate pair are passed over.
_LONE_SURROGATE = re.compile(
    rb"""(?<!\\)(?:\\\\)*+
    (?: \\u[dD][89abAB]%(hex)b{2} \\u[dD][c-fC-F]%(hex)b{2}
      | (?P<lone>\\u[dD][89a-fA-F]%(hex)b{2}) )"""
    % {b"hex": b"[0-9a-fA-F]"},
    re.VERBOSE,
)
_ESCAPED_CHARACTER = rb"\u0000"


@dataclass
class UnsplittableError(Exception):
    """A text can't be divided into its events.

    Attributes:
        reason: ``not-json``, ``too-deep`` or ``too-many-events``.
        detail: a sentence.
    """

    reason: str
    detail: str


def split_lines(text: bytes, max_events: int) -> list[bytes]:
    """Returns the lines that are not blank, without white space at their ends.

    Raises:
        UnsplittableError: if there are more than ``max_events``.
    """
    lines = text.split(b"\n", max_events)
    if len(lines) <= max_events:
        return [event for line in lines if (event := line.strip(SPACE))]
    # There are more lines than events are allowed; blank ones don't count.
    matches = itertools.islice(_LINE.finditer(text), max_events + 1)
    events = [line.group().rstrip(SPACE) for line in matches]
    return _at_most(events, max_events)


def split_array(text: bytes, max_events: int, max_lenient_bytes: int) -> list[bytes]:
    r"""Returns the text of each element of a JSON array; parses none.

    NaN, Infinity and halves of surrogate pairs (``\ud800``) are not JSON, but the element that
    holds them can be separated from the others, so it is returned as it is.

    Args:
        text: begins with ``[``.
        max_events: elements that the array may have; little more is held in memory.
        max_lenient_bytes: larger arrays must be JSON throughout, since the others are read twice,
            and copied.

    Raises:
        UnsplittableError: if the array is malformed or has more elements.
    """
    has_few = len(text) <= _FEW_ELEMENTS or text.count(b",") < _FEW_ELEMENTS
    decode = _elements if has_few else _decoder_of(max_events)
    try:
        elements = decode_raw(text, decode, decode if len(text) <= max_lenient_bytes else None)
    except msgspec.ValidationError:
        raise _too_many(max_events) from None
    except (ValueError, RecursionError) as error:
        raise malformed("array", error) from error
    return _at_most([bytes(element) for element in elements[: max_events + 1]], max_events)


def decode_raw(
    text: bytes,
    decode: Callable[[bytes | bytearray], _Decoded],
    decode_replaced: Callable[[bytes | bytearray], _Decoded] | None,
) -> _Decoded:
    """Decodes a text to raw values; they may hold NaN, Infinity and halves of surrogate pairs.

    These are replaced by JSON of the same length while the ends of values are looked for. Raw
    values are views of the text, so they have their own bytes again once those are put back.

    Args:
        text: to be decoded.
        decode: reads JSON.
        decode_replaced: reads what :func:`without_literals` returns; None: the text must be JSON.

    Raises:
        ValueError, RecursionError: what ``decode`` or ``decode_replaced`` raises.
    """
    try:
        return decode(text)
    except msgspec.ValidationError:
        raise
    except (ValueError, RecursionError):
        # It reads more strictly than it must to find the ends: one bad event spoils the rest.
        if decode_replaced is None:
            raise
    buffer = bytearray(without_literals(text))
    for escape in _LONE_SURROGATE.finditer(buffer):
        start, end = escape.span("lone")
        if start >= 0:
            buffer[start:end] = _ESCAPED_CHARACTER
    decoded = decode_replaced(buffer)
    memoryview(buffer)[:] = text
    return decoded


def without_literals(text: bytes) -> bytes:
    """Replaces NaN and Infinity by empty arrays of the same length, within strings as well."""
    for literal, array in _LITERALS:
        text = text.replace(literal, array)
    return text


def malformed(what: str, error: Exception) -> UnsplittableError:
    """Returns the error of an array or object that is not JSON, or is nested too deep."""
    if isinstance(error, RecursionError):
        return UnsplittableError("too-deep", "an event is nested too deep")
    return UnsplittableError("not-json", f"the {what} is malformed: {error}")


def _at_most(events: list[bytes], max_events: int) -> list[bytes]:
    if len(events) > max_events:
        raise _too_many(max_events)
    return events


def _too_many(max_events: int) -> UnsplittableError:
    return UnsplittableError("too-many-events", f"more than {max_events} events")


@functools.cache
def _decoder_of(max_events: int) -> Callable[[bytes | bytearray], list[msgspec.Raw]]:
    """Reads the elements of an array, and refuses it at the first that is too many.

    A decoder of lists makes all elements of an array before it looks at their number; one of
    structs stops after the last field.
    """
    fields: list[Any] = [(f"e{place}", msgspec.Raw, _NOTHING) for place in range(max_events)]
    struct = msgspec.defstruct("Elements", fields, array_like=True, forbid_unknown_fields=True)
    decode = msgspec.json.Decoder(struct).decode

    def read(text: bytes | bytearray) -> list[msgspec.Raw]:
        elements = msgspec.structs.astuple(decode(text))
        return list(itertools.takewhile(lambda element: element is not _NOTHING, elements))

    return read
