"""The records of the registry, with a registered query in key and value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec

from headrace.events.times import iso_milliseconds, with_times_in_utc
from headrace.queries.records.decoding import decode_json

QUERY_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
QUERY_ID_WORDS = "1 to 100 letters, digits, '-' and '_'"
_Scalar: TypeAlias = str | int | float | bool
_Constant: TypeAlias = _Scalar | tuple[_Scalar, ...]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """A standing query, as registered in a record.

    Attributes:
        id: the query id, of letters, digits, ``-`` and ``_``.
        text: the text as the language's printer writes it, so that equal queries have equal texts.
        topic: name of the topic in the query's FROM.
        revision: 1, and one more with each update of the text.
        registered_at: when the query was first registered, to the millisecond.
        updated_at: when the query was last registered or updated, to the millisecond.
        expires_at: when the query expires unless it is updated, to the millisecond; ``None`` if it
            lives until it is cancelled.
        shape: key of the text's shape; ``None`` if readers must parse the text.
        constants: the constants that vary within the shape, for each operand of the condition, with
            times in microseconds since 1970, and a tuple for the list of an ``IN``; ``None`` if
            readers must parse the text.
        text_changed_at: when the query got its present text, to the millisecond; ``None`` if not
            known.
        offset: the offset of the record; -1 if it is not written. It is not part of the value.
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
        """Returns whether the query has not expired at a time."""
        return self.expires_at is None or at < self.expires_at


# Made at import: msgspec crashes where several threads are the first to decode a class.
_VALUE = msgspec.json.Decoder(RegisteredQuery)
_MEMBERS = [member.name for member in fields(RegisteredQuery) if member.name != "offset"]
_OPTIONAL = {"shape", "constants", "text_changed_at"}
_TIMES = ("registered_at", "updated_at", "expires_at", "text_changed_at")


def encode_query(query: RegisteredQuery) -> tuple[bytes, bytes]:
    """Returns key and value of a query's record: the query id, and JSON with times in UTC."""
    written = {
        name: iso_milliseconds(member) if isinstance(member, datetime) else member
        for name in _MEMBERS
        if (member := getattr(query, name)) is not None or name not in _OPTIONAL
    }
    return query.id.encode(), msgspec.json.encode(written)


def decode_query(key: bytes | None, value: bytes) -> RegisteredQuery:
    """Returns the query of a record, without parsing its text; its times are in UTC.

    Raises:
        ValueError: if the record has no valid query. The message names the member that is wrong.
    """
    query = _in_milliseconds(with_times_in_utc(decode_json(_VALUE, value)))
    if not QUERY_ID.fullmatch(query.id):
        raise ValueError(f"id is {query.id!r}; possible are {QUERY_ID_WORDS}")
    if key != query.id.encode():
        raise ValueError(f"the key of the record is {key!r}, and id is {query.id!r}")
    return query


def _in_milliseconds(query: RegisteredQuery) -> RegisteredQuery:
    """Returns a query without the microseconds that another program may have written."""
    cut = {
        name: time.replace(microsecond=time.microsecond // 1000 * 1000)
        for name in _TIMES
        if (time := getattr(query, name)) is not None and time.microsecond % 1000
    }
    return replace(query, **cut) if cut else query
