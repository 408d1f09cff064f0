"""A body's events: one JSON object, an array of them, or one on each line."""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from headrace.ingest.http.problem import RefusedRequestError, refused

JSON_TYPES = ("application/json", "text/plain", "")
"""``text/plain`` is what browsers send of a text without asking by a preflight first."""

LINES_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_NOTHING = msgspec.Raw()
_SPACES = re.compile(r"[ \t\r\n]*")
_CHARSETS = ("", "charset=utf-8", 'charset="utf-8"')
_LINE = re.compile(rb"[^ \t\r\n][^\n]*")
_SHOWN_CHARACTERS = 80
_FEW_BYTES = 65_536
_LENIENT_BYTES = 1024 * 1024
_elements: Callable[[bytes], list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode
_json = json.JSONDecoder(parse_int=lambda _: 0, parse_constant=lambda _: math.nan)


def split_events(body: bytes, max_events: int, *, as_lines: bool) -> tuple[list[bytes], bool]:
    """Returns the JSON text of each event, and whether they came as a batch; parses none.

    Reads no further than the event after the last that is allowed.

    Args:
        body: the decoded body.
        max_events: events in a request.
        as_lines: each line is an event, as :func:`is_lines` says of the Content-Type header.

    Raises:
        RefusedRequestError: 400 or 413: the events of the body can't be told apart.
    """
    if body.startswith(_BOM):
        raise _unreadable("byte-order-mark", "the body begins with a byte order mark; leave it out")
    stripped = body.strip(_SPACE)
    if not stripped:
        raise _unreadable("empty", "the body is empty, expected an event")
    if as_lines:
        events = _lines(stripped, max_events)
    elif stripped.startswith(b"["):
        events = _array(stripped, max_events)
    else:
        return [stripped], False
    if len(events) > max_events:
        raise _too_many(max_events)
    return events, True


def is_lines(content_type: str) -> bool:
    """Returns whether a body of this Content-Type has an event on each line; none means JSON.

    Raises:
        RefusedRequestError: 415 for another type.
    """
    media_type, _, parameter = content_type.lower().partition(";")
    if parameter.strip() in _CHARSETS:
        if media_type.strip() in JSON_TYPES:
            return False
        if media_type.strip() in LINES_TYPES:
            return True
    raise refused(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "unknown-content-type",
        f"Content-Type is {content_type[:_SHOWN_CHARACTERS]!r}, expected application/json, "
        "application/x-ndjson or text/plain, in UTF-8",
    )


def _lines(body: bytes, most: int) -> list[bytes]:
    lines = body.split(b"\n", most)
    if len(lines) <= most:
        return [event for line in lines if (event := line.strip(_SPACE))]
    # There are more lines than events are allowed; blank ones don't count.
    matches = itertools.islice(_LINE.finditer(body), most + 1)
    return [line.group().rstrip(_SPACE) for line in matches]


def _array(body: bytes, most: int) -> list[bytes]:
    try:
        elements = _elements(body) if len(body) <= _FEW_BYTES else _at_most(most)(body)
    except msgspec.ValidationError:
        raise _too_many(most) from None
    except (ValueError, RecursionError) as error:
        # It reads more strictly than it must to find the ends: one bad event spoils the rest.
        if len(body) > _LENIENT_BYTES:
            raise _no_array(error, "") from error
        events = list(_one_by_one(body, most))
    else:
        events = [bytes(element) for element in elements[: most + 1]]
    if not events:
        raise _unreadable("empty", "the body is an array without events")
    return events


@functools.cache
def _at_most(most: int) -> Callable[[bytes], list[msgspec.Raw]]:
    """Reads the elements of an array, and refuses it at the first that is too many.

    A decoder of lists makes all elements of an array before it looks at their number; one of
    structs does not go on behind the last field.
    """
    fields: list[Any] = [(f"e{place}", msgspec.Raw, _NOTHING) for place in range(most)]
    struct = msgspec.defstruct("Elements", fields, array_like=True, forbid_unknown_fields=True)
    decode = msgspec.json.Decoder(struct).decode

    def read(body: bytes) -> list[msgspec.Raw]:
        elements = msgspec.structs.astuple(decode(body))
        return list(itertools.takewhile(lambda element: element is not _NOTHING, elements))

    return read


def _one_by_one(body: bytes, most: int) -> Iterator[bytes]:
    """Yields the elements of an array; takes NaN and halves of surrogate pairs, too."""
    text = body.decode("utf-8", "surrogateescape")
    place = _after_spaces(text, 1)
    for _ in range(most + 1):
        start = place
        try:
            _, place = _json.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            raise _no_array(error, f" at character {start}") from error
        yield text[start:place].encode("utf-8", "surrogateescape")
        place = _after_spaces(text, place)
        separator = text[place : place + 1]
        place = _after_spaces(text, place + 1)
        if separator == "]" and place == len(text):
            return
        if separator != ",":
            raise _unreadable("not-json", f"the array is malformed after character {place - 1}")


def _after_spaces(text: str, place: int) -> int:
    spaces = _SPACES.match(text, place)
    return spaces.end() if spaces else place


def _no_array(error: Exception, where: str) -> RefusedRequestError:
    if isinstance(error, RecursionError):
        return _unreadable("too-deep", f"an event{where} is nested too deep")
    return _unreadable("not-json", f"the array is malformed{where}: {error}")


def _too_many(most: int) -> RefusedRequestError:
    return refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "too-many-events",
        f"the request holds more than {most} events; send fewer in a request",
    )


def _unreadable(code: str, detail: str) -> RefusedRequestError:
    return refused(HTTPStatus.BAD_REQUEST, code, detail)
