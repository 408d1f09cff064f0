"""The records of the topic of matched events: names of headers, and decoding."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headrace.kafka.origin import Origin, origins
from headrace.kafka.read.tail import TailedRecord
from headrace.queries.records.decoding import decode_json

REVISION = "headrace-query-revision"
"""The name of the header with the revision of the query, a decimal number."""

REGISTRY_OFFSET = "headrace-registry-offset"
"""The name of the header with the offset of the topic of queries before which queries were read."""

_LOG = logging.getLogger("headrace.queries")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVENT = msgspec.json.Decoder(dict[str, Any])


@dataclass(frozen=True)
class MatchedEvent:
    """An event, and a query that it matches.

    Two matched events with the same ``query`` and ``origin`` are duplicates.

    Attributes:
        query: the query id.
        revision: revision of the query.
        registry_offset: the offset of the topic of queries before which queries were read.
        event: members of the event's JSON by name, as they are in its topic.
        origin: site, topic, partition and offset of the event.
        sent_at: when the event was sent on, in UTC.
    """

    query: str
    revision: int
    registry_offset: int
    event: dict[str, Any]
    origin: Origin
    sent_at: datetime


def matched_event_of(record: TailedRecord) -> MatchedEvent | None:
    """Returns the matched event of a record; logs a warning and returns ``None`` if it has none."""
    try:
        return _decoded(record)
    except (ValueError, OverflowError) as error:
        place = f"{record.topic}/{record.partition}:{record.offset}"
        _LOG.warning("%s is left out: it is no matched event: %s", place, error)
        return None


def _decoded(record: TailedRecord) -> MatchedEvent:
    """Returns the matched event of a record.

    Raises:
        ValueError: if the record has none. The message names the part that is wrong.
        OverflowError: if the record's time is beyond the year 9999.
    """
    # Events of other sites may have headers of these names, too; the headers added here are last.
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
