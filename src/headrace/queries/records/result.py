"""The records of the results topic: JSON, keyed by query id."""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.events.times import utc_time_text
from headrace.queries.records.decoding import decode_json

_LOG = logging.getLogger("headrace.queries")


class ResultKind(enum.StrEnum):
    """The state of a window when its result was written.

    Attributes:
        EARLY: the window is open, and another result will follow.
        FINAL: the window has ended.
        EMPTY: the window has ended, and no event matched.
        LOST: the window has ended, and no event has matched for as many windows as the query's
            ``LOSS OF SIGNAL`` says.
    """

    EARLY = "early"
    FINAL = "final"
    EMPTY = "empty"
    LOST = "lost"


class QueryResult(msgspec.Struct, frozen=True):
    """The aggregates of one group in one window.

    Results with the same ``query``, ``registered``, ``revision`` and ``begin`` are of one window.
    The results of its greatest ``emission`` replace the earlier ones. If several results of an
    emission have the same ``facets`` and ``is_other``, the first counts. A result of the kind
    ``lost`` reports a loss of signal, and replaces no other result.

    Attributes:
        query: the query id.
        registered: when the query was first registered, ISO 8601 in UTC.
        revision: revision of the query.
        begin: start of the window, ISO 8601 in UTC.
        end: end of the window, ISO 8601 in UTC.
        emission: 1 for the window's first results, and one more for each later emission; 0 if no
            event matched. If the query's windows end by the clock, another emission can follow,
            with events that were matched later.
        kind: state of the window.
        facets: values of the facets by name; times are ISO 8601.
        is_other: whether this is the sum of all groups beyond the query's limit.
        values: values of the columns, by name.
        events: number of matching events in the whole window.
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
_MAX_DEPTH = 20  # of a value; what shows results calls itself for each level


def decode_result(value: bytes) -> QueryResult:
    """Returns the result that a record's value holds.

    Raises:
        ValueError: if the value is no result. The message names the member that is wrong.
    """
    result = decode_json(_RESULT, value)
    for name in ("facets", "values"):
        if not _is_shallow(getattr(result, name), _MAX_DEPTH):
            raise ValueError(f"{name} are nested deeper than {_MAX_DEPTH} levels")
    return with_times_in_utc(result)


def with_times_in_utc(result: QueryResult) -> QueryResult:
    """Returns a result with its times as headrace writes them; another program may differ.

    Raises:
        ValueError: if a time can't be read. The message names the member that is wrong.
    """
    changed = {}
    for name in ("registered", "begin", "end"):
        time = getattr(result, name)
        try:
            if (text := utc_time_text(time)) != time:
                changed[name] = text
        except ValueError as error:
            raise ValueError(f"{name} is {error}") from None
    return msgspec.structs.replace(result, **changed) if changed else result


def _is_shallow(value: object, levels: int) -> bool:
    if isinstance(value, Mapping):
        return levels > 0 and all(_is_shallow(member, levels - 1) for member in value.values())
    if isinstance(value, list):
        return levels > 0 and all(_is_shallow(element, levels - 1) for element in value)
    return True


def result_of(query_id: str, key: bytes | None, value: bytes | None) -> QueryResult | None:
    """Returns the result in a record of the results topic, or ``None`` if it has none of the query.

    If the key is the query's and the value is no result, a warning is logged.

    Args:
        query_id: the query id.
        key: key of the record.
        value: value of the record.
    """
    if key != query_id.encode() or value is None:
        return None
    try:
        return decode_result(value)
    except ValueError as error:
        _LOG.warning("A record of query %s is no result: %s", query_id, error)
        return None
