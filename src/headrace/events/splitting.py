"""Tells the events of a JSON array, or of a text of lines, apart without reading them."""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

SPACE = b" \t\r\n"
"""White space of JSON."""

_NOTHING = msgspec.Raw()
_SPACES = re.compile(r"[ \t\r\n]*")
_LINE = re.compile(rb"[^ \t\r\n][^\n]*")
_FEW_ELEMENTS = 32_768
_elements: Callable[[bytes], list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode
_json = json.JSONDecoder(parse_int=lambda _: 0, parse_constant=lambda _: math.nan)


@dataclass
class UnsplittableError(Exception):
    """The events of a text can't be told apart.

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
    holds them can be told from the others, so it is returned as it is.

    Args:
        text: begins with ``[``.
        max_events: elements that the array may have; little more is held in memory.
        max_lenient_bytes: larger arrays must be JSON throughout, since it takes a hundred times as
            long to look for the ends of elements that are not.

    Raises:
        UnsplittableError: if the array is malformed or has more elements.
    """
    has_few = len(text) <= _FEW_ELEMENTS or text.count(b",") < _FEW_ELEMENTS
    try:
        elements = _elements(text) if has_few else _decoder_of(max_events)(text)
    except msgspec.ValidationError:
        raise _too_many(max_events) from None
    except (ValueError, RecursionError) as error:
        # It reads more strictly than it must to find the ends: one bad event spoils the rest.
        if len(text) > max_lenient_bytes:
            raise malformed("array", error) from error
        return _at_most(list(_one_by_one(text, max_events)), max_events)
    return _at_most([bytes(element) for element in elements[: max_events + 1]], max_events)


def malformed(what: str, error: Exception, where: str = "") -> UnsplittableError:
    """Returns the error of an array or object that is not JSON, or is nested too deep."""
    if isinstance(error, RecursionError):
        return UnsplittableError("too-deep", f"an event{where} is nested too deep")
    return UnsplittableError("not-json", f"the {what} is malformed{where}: {error}")


def _at_most(events: list[bytes], max_events: int) -> list[bytes]:
    if len(events) > max_events:
        raise _too_many(max_events)
    return events


def _too_many(max_events: int) -> UnsplittableError:
    return UnsplittableError("too-many-events", f"more than {max_events} events")


@functools.cache
def _decoder_of(max_events: int) -> Callable[[bytes], list[msgspec.Raw]]:
    """Reads the elements of an array, and refuses it at the first that is too many.

    A decoder of lists makes all elements of an array before it looks at their number; one of
    structs does not go on behind the last field.
    """
    fields: list[Any] = [(f"e{place}", msgspec.Raw, _NOTHING) for place in range(max_events)]
    struct = msgspec.defstruct("Elements", fields, array_like=True, forbid_unknown_fields=True)
    decode = msgspec.json.Decoder(struct).decode

    def read(text: bytes) -> list[msgspec.Raw]:
        elements = msgspec.structs.astuple(decode(text))
        return list(itertools.takewhile(lambda element: element is not _NOTHING, elements))

    return read


def _one_by_one(body: bytes, max_events: int) -> Iterator[bytes]:
    """Yields the elements of an array; takes NaN and halves of surrogate pairs, too."""
    text = body.decode("utf-8", "surrogateescape")
    place = _after_spaces(text, 1)
    for _ in range(max_events + 1):
        start = place
        _, place = read_value(text, place, "array")
        yield text[start:place].encode("utf-8", "surrogateescape")
        place = _after_spaces(text, place)
        separator = text[place : place + 1]
        place = _after_spaces(text, place + 1)
        if separator == "]" and place == len(text):
            return
        if separator != ",":
            detail = f"the array is malformed after character {place - 1}"
            raise UnsplittableError("not-json", detail)


def read_value(text: str, start: int, what: str) -> tuple[Any, int]:
    """Returns a JSON value, which may hold NaN and lone surrogates, and where it ends.

    Its integers are read as 0: many digits take long, and only the end is asked for.

    Raises:
        UnsplittableError: if there is no JSON value at ``start``.
    """
    try:
        return _json.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        raise malformed(what, error, f" at character {start}") from error


def _after_spaces(text: str, place: int) -> int:
    spaces = _SPACES.match(text, place)
    return spaces.end() if spaces else place
