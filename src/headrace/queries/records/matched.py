"""The records of the matched topic: what batches add to windows, and the event clocks.

===== ===================================== ======================================================
kind  key                                   partition
===== ===================================== ======================================================
add   query id, ``/``, begin of the window  chosen by the key: the windows of a query are spread,
                                            so that a query with most of the events makes no
                                            partition hot
tick  none                                  all partitions, after the records of the batch
===== ===================================== ======================================================

Values are JSON. Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self, TypeAlias

import msgspec

from headrace.events.times import TimeMs, TimeUs
from headrace.queries.hashing import text_hash
from headrace.queries.records.decoding import decode_json

Group: TypeAlias = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Values of the facets, and a partial of each column of the result."""


class WindowPartial(msgspec.Struct, tag="add", tag_field="kind", frozen=True):
    """The partial aggregates that one task of a batch adds to one window of one query.

    Attributes:
        query: the query id.
        registered_ms: when the query was first registered, in milliseconds since 1970. Ids may be
            used again.
        revision: revision of the query.
        text: text of the query.
        begin_us: start of the window.
        events: number of matching events. If the partial aggregates are divided among several
            records, the last has the number, and the others have 0.
        groups: facets and partials of each group.
        other: sums of the partials of all groups beyond the query's limit; ``None`` if there are
            no such groups.
        shape: key of the text's shape; empty if readers must parse the text.
        topic: name of the topic of the events.
        types: hash of the types of the values that facets and partials are made of; empty if it is
            not known.
    """

    query: str
    registered_ms: TimeMs
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
    """The identity of a window: its query as registered and updated, and the window's start.

    The hash of the text is needed because two clients that update a query at the same moment give
    their texts the same revision.
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
    """The end of a batch: all its other records in the partition are before this record.

    Attributes:
        topic: name of the topic whose events were matched.
        pipeline: name of the pipeline that matched the events.
        event_us: the event clock of the topic; ``None`` if it is not known.
        planned_ms: when the batch was planned, in milliseconds since 1970.
        positions: the next offset of each partition of the topic.
        registry_offset: the offset of the topic of queries before which the batch has the queries.
        topic_id: the id that Kafka gave the topic when it was created; empty if it is not known.
        events: matches that the batch adds to windows in this partition: an event counts once for
            every query and window that it is in.
        rules: hash of the queries that the batch was matched with, or several hashes if its tasks
            had different queries; empty if the batch had no events.
    """

    topic: str
    pipeline: str
    event_us: TimeUs | None
    planned_ms: TimeMs
    positions: Mapping[int, int]
    registry_offset: int
    topic_id: str = ""
    events: int = 0
    rules: str = ""


MatchedRecord: TypeAlias = WindowPartial | Tick

# Made at import: msgspec crashes where several threads are the first to decode a class.
_RECORD: msgspec.json.Decoder[MatchedRecord] = msgspec.json.Decoder(MatchedRecord)


def decode_matched(value: bytes) -> MatchedRecord:
    """Returns the record of the matched topic that has this value.

    Raises:
        ValueError: if the value is not valid for such a record.
    """
    return decode_json(_RECORD, value)


def window_key(query: str, begin_us: int) -> bytes:
    """Returns the key of the records that add to a window."""
    return f"{query}/{begin_us}".encode()
