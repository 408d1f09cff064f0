"""A record of the topic of matched events: its headers, and what they are read as."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headrace.kafka.tail import TailedRecord
from headrace.queries.records.decoding import decode_json
from headrace.transfer.origin import Origin, origins

REVISION = "headrace-query-revision"
"""The name of the header with the revision of the query, a decimal number."""

REGISTRY_OFFSET = "headrace-registry-offset"
"""The name of the header with the offset of the topic of queries before which the queries are."""

_LOG = logging.getLogger("headrace.queries")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVENT = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True)
class MatchedEvent:
    """An event, and a query that it matches.

    Two with the same ``query`` and ``origin`` are one that was sent twice.

    Attributes:
        query: id of the query.
        revision: of the query.
        registry_offset: the query is one of those before this offset of the topic of queries.
        event: members of the event's JSON by name, as they are in its topic.
        origin: where the event is in its topic.
        sent_at: when it was sent on, in UTC.
    """

    query: str
    revision: int
    registry_offset: int
    event: dict[str, Any]
    origin: Origin
    sent_at: datetime


def matched_event_of(record: TailedRecord) -> MatchedEvent | None:
    """Returns the matched event that a record has; None: it has none, which is logged."""
    try:
        return _decoded(record)
    except (ValueError, OverflowError) as error:
        place = f"{record.topic}/{record.partition}:{record.offset}"
        _LOG.warning("%s is left out: it is no matched event: %s", place, error)
        return None


def _decoded(record: TailedRecord) -> MatchedEvent:
    """Returns the matched event of a record.

    Raises:
        ValueError: if it has none. The message names the part that is wrong.
        OverflowError: if its time is beyond the year 9999.
    """
    # Events of other sites have headers of these names, too: those that were added here are last.
    headers = {header.name: header.value for header in record.headers or ()}
    places = origins((header.name, header.value) for header in record.headers or ())
    if not places:
        raise ValueError("no header says where the event is")
    if record.key is None:
        raise ValueError("it has no key")
    return MatchedEvent(
        record.key.decode(),
        _number(headers, REVISION),
        _number(headers, REGISTRY_OFFSET),
        decode_json(_EVENT, record.value or b""),
        places[-1],
        _EPOCH + timedelta(milliseconds=record.timestamp_ms),
    )


def _number(headers: Mapping[str, bytes | None], name: str) -> int:
    text = headers.get(name) or b""
    if not text.isdigit():
        raise ValueError(f"the header {name} is {text!r:.100}, expected a number")
    return int(text)
