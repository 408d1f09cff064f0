"""The records of the registry: a registered query as key and value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec

from headrace.events.times import iso_milliseconds
from headrace.queries.records.decoding import decode_json

QUERY_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
QUERY_ID_WORDS = "1 to 100 letters, digits, '-' and '_'"
_Scalar: TypeAlias = str | int | float | bool
_Constant: TypeAlias = _Scalar | tuple[_Scalar, ...]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """A standing query, as its record says.

    Attributes:
        id: letters, digits, ``-`` and ``_``.
        text: as the printer of the language writes it, so that equal queries have equal texts.
        topic: of its FROM.
        revision: 1, and one more with each update of the text.
        registered_at: when it was registered first, to the millisecond.
        updated_at: when it was registered or updated last, to the millisecond.
        expires_at: when it ends unless it is updated, to the millisecond; None: when it is
            cancelled.
        shape: key of the shape of its text; None: readers parse the text.
        constants: that vary, of each operand of the condition, with times in microseconds since
            1970, and a tuple for the list of an ``IN``; None: readers parse the text.
        text_changed_at: when it was given its text, to the millisecond; None: not known.
        offset: of its record; -1: it has not been written. The value of the record lacks it.
    """

    id: str
    text: str
    topic: str
    revision: Annotated[int, msgspec.Meta(ge=1)]
    registered_at: _Time
    updated_at: _Time
    expires_at: _Time | None
    shape: str | None = None
    constants: tuple[tuple[_Constant, ...], ...] | None = None
    text_changed_at: _Time | None = None
    offset: int = field(default=-1, compare=False)

    def is_live(self, at: datetime) -> bool:
        """Returns whether it has not expired."""
        return self.expires_at is None or at < self.expires_at


# Made at import: msgspec crashes where several threads are the first to decode a class.
_VALUE = msgspec.json.Decoder(RegisteredQuery)
_MEMBERS = [each.name for each in fields(RegisteredQuery) if each.name != "offset"]
_OPTIONAL = {"shape", "constants", "text_changed_at"}


def encode_query(query: RegisteredQuery) -> tuple[bytes, bytes]:
    """Returns key and value of the record of a query: its id, and JSON with times in UTC."""
    members = {name: _written(getattr(query, name)) for name in _MEMBERS}
    written = {
        name: member
        for name, member in members.items()
        if member is not None or name not in _OPTIONAL
    }
    return query.id.encode(), msgspec.json.encode(written)


def decode_query(key: bytes | None, value: bytes) -> RegisteredQuery:
    """Returns the query of a record; its text is not parsed.

    Raises:
        ValueError: if it is none. The message names the member that is wrong.
    """
    query = decode_json(_VALUE, value)
    if not QUERY_ID.fullmatch(query.id):
        raise ValueError(f"id is {query.id!r}; possible are {QUERY_ID_WORDS}")
    if key != query.id.encode():
        raise ValueError(f"the key of the record is {key!r}, and id is {query.id!r}")
    return query


def _written(member: object) -> object:
    return iso_milliseconds(member) if isinstance(member, datetime) else member
