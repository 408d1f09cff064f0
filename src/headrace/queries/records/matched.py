"""The records of the matched topic: what batches add to windows, and how far events are.

===== ===================================== ======================================================
kind  key                                   partition
===== ===================================== ======================================================
add   query id, ``/``, begin of the window  that of the key: the windows of a query are spread, so
                                            that a query with most of the events makes no
                                            partition hot
tick  none                                  every one, behind the records of its batch
===== ===================================== ======================================================

Values are JSON. Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self, TypeAlias

import msgspec

from headrace.queries.hashing import text_hash
from headrace.queries.records.decoding import decode_json

Group: TypeAlias = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Values of the facets, and a partial of each column of the result."""


class WindowPartial(msgspec.Struct, tag="add", tag_field="kind", frozen=True):
    """What a task's part of a batch adds to one window of one query.

    Attributes:
        query: its id.
        registered_ms: when the query was registered first, in milliseconds since 1970: an id may
            be used again.
        revision: of the query.
        text: of the query.
        begin_us: begin of the window.
        events: how many match, in the groups of this record.
        groups: what it adds, by group.
        other: partials of groups beyond the query's limit, together; None: there are none.
        shape: key of the shape of the text; empty: readers parse the text.
        topic: of the events.
        types: hash of the types of the values that facets and partials are made of; empty: not
            known.
    """

    query: str
    registered_ms: int
    revision: int
    text: str
    topic: str
    begin_us: int
    events: int
    groups: list[Group]
    other: list[Any] | None = None
    shape: str = ""
    types: str = ""


class WindowId(NamedTuple):
    """A window of a query, as it was registered and updated.

    The hash is that of the text: two clients that update a query at the same moment give their
    texts the same revision.
    """

    query: str
    registered_ms: int
    revision: int
    begin_us: int
    text_hash: str

    @classmethod
    def of(cls, partial: WindowPartial) -> Self:
        """Returns the window that a partial is added to."""
        place = partial.query, partial.registered_ms, partial.revision, partial.begin_us
        return cls(*place, text_hash(partial.text))


class Tick(msgspec.Struct, tag="tick", tag_field="kind", frozen=True):
    """A batch has come to its end: all that it adds is before this record.

    Attributes:
        topic: whose events were matched.
        pipeline: that matched them.
        event_us: how far the time of the topic's events is; None: not known.
        planned_ms: when the batch was planned, in milliseconds since 1970.
        positions: the next offset of each partition of the topic.
        registry_offset: the batch has the queries of this offset of the topic of queries.
        topic_id: that Kafka gave the topic when it was created; empty: not known.
        events: how many the batch has added in this partition, each counted for every query and
            window that it is in.
        rules: hash of the queries that the batch had, several where its tasks had different ones;
            empty: it had no events.
    """

    topic: str
    pipeline: str
    event_us: int | None
    planned_ms: int
    positions: Mapping[int, int]
    registry_offset: int
    topic_id: str = ""
    events: int = 0
    rules: str = ""


MatchedRecord: TypeAlias = WindowPartial | Tick

# Made at import: msgspec crashes where several threads are the first to decode a class.
_RECORD: msgspec.json.Decoder[MatchedRecord] = msgspec.json.Decoder(MatchedRecord)


def decode_matched(value: bytes) -> MatchedRecord:
    """Returns the record with this value.

    Raises:
        ValueError: if it is none.
    """
    return decode_json(_RECORD, value)


def window_key(query: str, begin_us: int) -> bytes:
    """Returns the key of what is added to a window."""
    return f"{query}/{begin_us}".encode()
