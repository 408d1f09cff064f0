"""The records of the results topic: JSON, keyed by query id."""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.events.times import readable_microseconds
from headrace.queries.records.decoding import decode_json

_LOG = logging.getLogger("headrace.queries")


class ResultKind(enum.StrEnum):
    """What a result says of its window.

    Attributes:
        EARLY: the window goes on, and another result will follow.
        FINAL: it has ended.
        EMPTY: it has ended, and no event matched.
        LOST: it has ended, and the query has had no event for as many windows as it asks to know.
    """

    EARLY = "early"
    FINAL = "final"
    EMPTY = "empty"
    LOST = "lost"


class QueryResult(msgspec.Struct, frozen=True):
    """A group of a window of a query.

    Results with the same ``query``, ``registered``, ``revision`` and ``begin`` are of one window,
    of which those of the greatest ``emission`` count; of several of these with the same ``facets``
    and ``is_other``, the first. One of the kind ``lost`` is of the signal, and stands beside them.

    Attributes:
        query: its id.
        registered: when the query was registered first, ISO 8601 in UTC.
        revision: of the query.
        begin: begin of the window, ISO 8601 in UTC.
        end: end of the window.
        emission: 1 for the first result of the window, and one more for each that follows; 0 for
            one that says that no event matched. Where the clock ends windows, another one can
            follow, of events that were matched later.
        kind: what the result says of the window.
        facets: values of the facets by name; times as ISO 8601.
        is_other: whether it is of all groups beyond the query's limit, together.
        values: of the columns, by name.
        events: of the whole window, how many match.
    """

    query: str
    registered: str
    revision: int
    begin: str
    end: str
    emission: int
    kind: ResultKind
    facets: Mapping[str, Any]
    is_other: bool
    values: Mapping[str, Any]
    events: int


_RESULT = msgspec.json.Decoder(QueryResult)


def decode_result(value: bytes) -> QueryResult:
    """Returns the result with this value.

    Raises:
        ValueError: if it is none. The message names the member that is wrong.
    """
    result = decode_json(_RESULT, value)
    check_times(result)
    return result


def check_times(result: QueryResult) -> None:
    """Checks the times of a result that another program may have written.

    Raises:
        ValueError: if one is none. The message names the member that is wrong.
    """
    for name in ("registered", "begin", "end"):
        time = getattr(result, name)
        if readable_microseconds(time) is None:
            raise ValueError(f"{name} is {time!r:.100}, expected a time with a time zone")


def result_of(query_id: str, key: bytes | None, value: bytes | None) -> QueryResult | None:
    """Returns the result that a record of the topic has; None: it has none of this query.

    A value of the query that is no result is logged.

    Args:
        query_id: of the query.
        key: of the record.
        value: of the record.
    """
    if key != query_id.encode() or value is None:
        return None
    try:
        return decode_result(value)
    except ValueError as error:
        _LOG.warning("A record of query %s is no result: %s", query_id, error)
        return None
