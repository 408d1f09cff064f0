"""Confluent's wire format: the id of its schema before a value, or in a header of its record.

The id is a number of the registry's after a zero byte, or a GUID after a byte that is one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from uuid import UUID

from headrace.model import SchemaId

HEADER = struct.Struct(">BI")
"""A zero byte and the number of a schema."""
SCHEMA_ID_HEADER = "__value_schema_id"
"""Name of the header of a record that has what would stand before its value."""
_NO_ID = "the value does not begin with a zero byte and the id of its schema (4 bytes)"
NO_SCHEMA_ID = "no-schema-id", f"{_NO_ID}, and no header {SCHEMA_ID_HEADER!r} has one"

_GUID_BYTES = 17
_NONE = b"\xff"  # begins no id


def framed(value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> bytes | None:
    """Returns a record's value behind the id of its schema, wherever that is.

    A header that holds no id makes it a value without one, as it is for Confluent's deserializers.
    """
    for name, id_ in headers:
        if name == SCHEMA_ID_HEADER and value is not None:
            return (id_ if id_ is not None and frame_size(id_) else _NONE) + value
    return value


def frame_size(value: bytes) -> int:
    """Returns how many bytes before a value are the id of its schema; 0: it has none."""
    if len(value) >= HEADER.size and value[0] == 0:
        return HEADER.size
    return _GUID_BYTES if len(value) >= _GUID_BYTES and value[0] == 1 else 0


def schema_id_of(frame: bytes) -> SchemaId:
    """Returns the id in the bytes before a value."""
    if frame[0] == 0:
        return int.from_bytes(frame[1:])
    return UUID(bytes=frame[1:])
