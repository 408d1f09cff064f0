"""Headers of records, whatever bytes their names are made of."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.kafka.read.range_reader import Record

Headers = tuple[tuple[str, bytes | None], ...]

OWN_PREFIX = "headrace-"
"""Of the names of headers that headrace writes."""

_MAX_TEXT_BYTES = 8 * 1024  # dead-letter topics leave 64 KiB for all headers
_CUT = "…".encode()

UNREADABLE = object()
"""Stands for the headers of a record that can't be read."""
# Where a name is not UTF-8, the client library gives a list that crashes the program that reads it,
# beside an error. A call through this object has that noticed by the interpreter (SystemError);
# the call `record.headers()`, once it is optimised, does not.
_read: Any = operator.methodcaller("headers")


def headers_of(record: Record) -> Headers | None:
    """Returns the headers in order; ``None`` when a name among them is not UTF-8.

    Brokers take any bytes for a name; the client library gives all headers of a record or none.
    """
    try:
        headers = _read(record)
    except SystemError:
        # In place of the list that the record has kept.
        record.set_headers(UNREADABLE)  # type: ignore[attr-defined]
        return None
    return None if headers is UNREADABLE else tuple(headers or ())


def check_header_names(headers: Iterable[tuple[str, bytes | None]]) -> None:
    """Refuses names of headers that would crash the client library.

    Raises:
        UnicodeEncodeError: if a name holds half of a surrogate pair, which UTF-8 has no bytes for.
    """
    for name, _ in headers:
        name.encode()


def foreign_headers(headers: Headers, *, keep: str = "") -> Headers:
    """Headers that are not headrace's own, and the one called ``keep``."""
    return tuple(
        (name, value) for name, value in headers if name == keep or not name.startswith(OWN_PREFIX)
    )


def header_text(text: object) -> bytes:
    """Returns ``text`` for a header: any characters, cut with "…" where it is longer than 8 KiB."""
    written = str(text).encode("utf-8", "backslashreplace")
    if len(written) <= _MAX_TEXT_BYTES:
        return written
    kept = written[: _MAX_TEXT_BYTES - len(_CUT)].decode("utf-8", "ignore")
    return kept.encode() + _CUT
