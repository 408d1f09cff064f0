"""Bytes that are often sent where JSON is expected, known by how they begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Of UTF-8, as programs of Windows begin files."""
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_GZIP = b"\x1f\x8b"
_FRAME_BYTES = 5  # a zero byte and the id of a schema, before a value of Confluent's serializers
_OPENING = (b"{", b"[")

_Is: TypeAlias = Callable[[bytes], bool]


def known_mistake(value: bytes) -> str:
    """Returns what a value is that is no JSON, and what to do; empty if it is no known mistake."""
    return next((words for is_it, words in _MISTAKES if is_it(value)), "")


def _is_utf16(value: bytes) -> bool:
    first = value[:2]
    return first in _UTF16_MARKS or (b"\0" in first and first.strip(b"\0") in _OPENING)


def _is_framed(value: bytes) -> bool:
    return len(value) > _FRAME_BYTES and value[0] == 0


def _is_framed_json(value: bytes) -> bool:
    return _is_framed(value) and value[_FRAME_BYTES:].lstrip().startswith(_OPENING)


_MISTAKES: Sequence[tuple[_Is, str]] = (
    (
        lambda value: value.startswith(BYTE_ORDER_MARK),
        "the value begins with a byte order mark (EF BB BF), which is not JSON; leave it out",
    ),
    (
        _is_utf16,
        "the value is UTF-16, expected UTF-8; convert it, such as by `iconv -f UTF-16 -t UTF-8`",
    ),
    (
        lambda value: value.startswith(_GZIP),
        "the value is compressed by gzip, expected JSON; decompress it, such as by `zcat`",
    ),
    (
        _is_framed_json,
        (
            "the id of a schema stands before the JSON, as Confluent's JSON Schema serializer "
            "writes it; a topic of such records declares format=JsonSchema()"
        ),
    ),
    (
        _is_framed,
        (
            "the value begins with a zero byte and the id of a schema, as Confluent's serializers "
            "write it; a topic of such records declares format=Avro() or format=Protobuf()"
        ),
    ),
    (
        lambda value: value.strip() in (*_OPENING, b"[{"),
        (
            "the value is the first line of an array or object over several lines, expected one "
            "event a line, as `jq -c '.[]'` makes of an array"
        ),
    ),
)
