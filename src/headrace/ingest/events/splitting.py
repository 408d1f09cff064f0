"""A body's events: one JSON object, an array of them, or one on each line."""

from __future__ import annotations

from http import HTTPStatus

from headrace.events.parsing.splitting import SPACE, UnsplittableError, split_array, split_lines
from headrace.ingest.http.problem import RefusedRequestError, refused

JSON_TYPES = ("application/json", "text/plain", "")
"""``text/plain`` is what browsers send for a text without a preflight."""

LINES_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")

_BOM = b"\xef\xbb\xbf"
_CHARSETS = ("", "charset=utf-8", 'charset="utf-8"')
_SHOWN_CHARACTERS = 80
_LENIENT_BYTES = 1024 * 1024


def split_events(body: bytes, max_events: int, *, as_lines: bool) -> tuple[list[bytes], bool]:
    """Returns the JSON text of each event, and whether they came as a batch; parses none.

    Reads no further than the event after the last that is allowed.

    Args:
        body: the decoded body.
        max_events: events in a request.
        as_lines: each line is an event, as :func:`is_lines` says of the Content-Type header.

    Raises:
        RefusedRequestError: 400 or 413, if the body can't be split into events.
    """
    if body.startswith(_BOM):
        raise _unreadable("byte-order-mark", "the body begins with a byte order mark; leave it out")
    stripped = body.strip(SPACE)
    if not stripped:
        raise _unreadable("empty", "the body is empty, expected an event")
    if not as_lines and not stripped.startswith(b"["):
        return [stripped], False
    try:
        if as_lines:
            return split_lines(stripped, max_events), True
        events = split_array(stripped, max_events, _LENIENT_BYTES)
    except UnsplittableError as error:
        if error.reason == "too-many-events":
            raise refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "too-many-events",
                f"the request holds more than {max_events} events; send fewer in a request",
            ) from None
        raise _unreadable(error.reason, error.detail) from error
    if not events:
        raise _unreadable("empty", "the body is an array without events")
    return events, True


def is_lines(content_type: str) -> bool:
    """Returns whether a body of this Content-Type has an event on each line; none means JSON.

    So does the suffix ``+json`` (RFC 6839), as of CloudEvents: ``application/cloudevents+json``.

    Raises:
        RefusedRequestError: 415 for another type.
    """
    media_type, _, parameter = (part.strip() for part in content_type.lower().partition(";"))
    if parameter in _CHARSETS:
        if media_type in JSON_TYPES or media_type.endswith("+json"):
            return False
        if media_type in LINES_TYPES:
            return True
    raise refused(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "unknown-content-type",
        f"Content-Type is {content_type[:_SHOWN_CHARACTERS]!r}, expected application/json, "
        "application/x-ndjson or text/plain, in UTF-8",
    )


def _unreadable(code: str, detail: str) -> RefusedRequestError:
    return refused(HTTPStatus.BAD_REQUEST, code, detail)
