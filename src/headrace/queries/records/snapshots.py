"""The records of the snapshots topic: what an instance that starts begins with.

======== ============================================================================ ============
kind     is                                                                           key
======== ============================================================================ ============
window   an open window, with what the records before ``offset`` have added to it     its id
ended    the results of a window that have been written cover the records before      its id
         ``offset``: snapshots of the window do not count any more
markers  several of these, written once more                                          none
position every window that the records before ``offset`` have changed is before this  none
         record, and behind ``base``; an aggregator goes on at ``offset``
answered how far the results of the partition are                                     none
silence  when some queries that ask for loss of signal had events; the newest counts  none
======== ============================================================================ ============

A window that a record has no room for is divided, and has a checksum: it counts if all parts are
there. All parts of a window are in one transaction. Silence is written where it has changed, and
all of it behind each ``base``.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from headrace.queries.records.counts import ResultCounts, TopicCounts
from headrace.queries.records.decoding import decode_json
from headrace.queries.records.ended import MatchesByPartition, PartitionClocks
from headrace.queries.records.matched import Group, Tick, WindowId

# A part is JSON in JSON, and takes up to twice its size: records have room for a megabyte.
_PART_BYTES = 256 * 2**10
# An id of a query has at most a hundred characters, and a marker or what is known of silence 300
# bytes: so many are in a record.
_MAX_ENTRIES = 1_000


class _OfWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says of its window."""

    query: str
    registered_ms: int
    revision: int
    begin_us: int
    text_hash: str

    @property
    def id(self) -> WindowId:
        """Id of the window."""
        place = self.query, self.registered_ms, self.revision, self.begin_us
        return WindowId(*place, self.text_hash)


class WindowSnapshot(_OfWindow, frozen=True, kw_only=True):
    """An open window. Attributes are those of ``OpenWindow``; ``offset``: what it covers."""

    offset: int
    text: str
    shape: str = ""
    types: str = ""
    changed_ms: int
    emitted_ms: int
    emission: int
    events: int
    groups: list[Group]
    other: list[Any] | None


class PublishMarker(_OfWindow, tag="ended", tag_field="kind", frozen=True, kw_only=True):
    """A marker: the results of a window that cover the records before ``offset`` are written.

    Attributes:
        offset: that the results cover.
        ended_ms: when it ended, in milliseconds since 1970.
        topic: of the events.
        events: in the results.
        due_us: when it was to end, if the clock says so; None: events or quiet time do.
    """

    offset: int
    ended_ms: int
    topic: str
    events: int
    due_us: int | None = None


class PublishMarkers(msgspec.Struct, tag="markers", tag_field="kind", frozen=True):
    """Markers of windows that ended some time ago."""

    markers: list[PublishMarker]


class WindowPart(_OfWindow, tag="window", tag_field="kind", frozen=True, kw_only=True):
    """A part of a snapshot of a window: of its JSON, as text."""

    number: int
    parts: int
    crc32: int
    text: str


class SnapshotPosition(msgspec.Struct, tag="position", tag_field="kind", frozen=True):
    """How far an aggregator is.

    Attributes:
        offset: of the next matched record.
        base: offset in the topic of snapshots; every open window is behind it.
        event_us: the time of events, by topic.
        late: late events, by query.
        ticks: the last one of each topic, of which no other may come for long.
        counts: what has become of the matches, by topic.
        topic_id: of the matched topic; empty: not known.
    """

    offset: int
    base: int
    event_us: Mapping[str, int]
    late: Mapping[str, int]
    ticks: list[Tick] = []
    counts: Mapping[str, TopicCounts] = {}
    topic_id: str = ""


class AnswerPosition(msgspec.Struct, tag="answered", tag_field="kind", frozen=True):
    """How far the results of a partition are.

    Attributes:
        first_offset: of the first record that is not answered yet.
        offset: of the next record: those before it have been taken.
        passed_us: the time up to which windows are answered, by topic; by the clock under an empty
            name.
        clocks: how far each partition of the matched topic is.
        event_us: the time of events that this partition of the matched topic has reached, as all
            partitions of the results have been told.
        began: offset from which on records are taken, by all instances up to now.
        since_ms: when the partition of the matched topic began to count what it sends, in
            milliseconds since 1970.
        sent: matches in the windows that have ended in it since then, by partition of the results
            and topic.
        counts: what has become of the matches in the windows of this partition of the results, by
            topic.
        topic_id: of the topic of ended windows; empty: not known.
    """

    first_offset: int
    offset: int
    passed_us: Mapping[str, int]
    clocks: Mapping[int, PartitionClocks]
    event_us: Mapping[str, int]
    began: int = 0
    since_ms: int = 0
    sent: MatchesByPartition = {}
    counts: Mapping[str, ResultCounts] = {}
    topic_id: str = ""


class QuerySilence(msgspec.Struct, tag="silence", tag_field="kind", frozen=True):
    """What is known of queries that ask for loss of signal.

    Attributes:
        silence: by query, the end of its last window with events, in microseconds since 1970, and
            whether its loss of signal has been a result since.
    """

    silence: Mapping[str, tuple[int, bool]]


SnapshotRecord: TypeAlias = (
    WindowPart | PublishMarker | PublishMarkers | SnapshotPosition | AnswerPosition | QuerySilence
)

# Made at import: msgspec crashes where several threads are the first to decode a class.
_RECORD: msgspec.json.Decoder[SnapshotRecord] = msgspec.json.Decoder(SnapshotRecord)
_SNAPSHOT = msgspec.json.Decoder(WindowSnapshot)


def decode_snapshot_record(value: bytes) -> SnapshotRecord:
    """Returns the record with this value.

    Raises:
        ValueError: if it is none.
    """
    return decode_json(_RECORD, value)


def encode_snapshot(snapshot: WindowSnapshot) -> Iterator[bytes]:
    """Yields the values of the records of a snapshot."""
    text = msgspec.json.encode(snapshot).decode()
    parts = [text[at : at + _PART_BYTES] for at in range(0, len(text), _PART_BYTES)]
    crc32 = zlib.crc32(text.encode())
    for number, part in enumerate(parts):
        yield msgspec.json.encode(
            WindowPart(
                **snapshot.id._asdict(),
                number=number,
                parts=len(parts),
                crc32=crc32,
                text=part,
            )
        )


def encode_markers(markers: Sequence[PublishMarker]) -> Iterator[bytes]:
    """Yields the values of records with markers, many in each."""
    for at in range(0, len(markers), _MAX_ENTRIES):
        yield msgspec.json.encode(PublishMarkers(list(markers[at : at + _MAX_ENTRIES])))


def encode_silence(silence: Mapping[str, tuple[int, bool]]) -> Iterator[bytes]:
    """Yields the values of records with what is known of queries, of many in each."""
    entries = list(silence.items())
    for at in range(0, len(entries), _MAX_ENTRIES):
        yield msgspec.json.encode(QuerySilence(dict(entries[at : at + _MAX_ENTRIES])))


@dataclass
class Restored:
    """What the records of a partition of snapshots come to.

    Attributes:
        windows: the newest snapshot of each window that has not ended.
        ended: markers of windows.
        position: the last one; None: there is none.
        answered: the last position of the results; None: there is none.
        silence: the newest of each query, as :class:`QuerySilence` has it.
        damaged: parts of snapshots that do not fit together.
        ended_events: in windows that have ended since the position, by topic.
    """

    windows: dict[WindowId, WindowSnapshot] = field(default_factory=dict)
    ended: dict[WindowId, PublishMarker] = field(default_factory=dict)
    position: SnapshotPosition | None = None
    answered: AnswerPosition | None = None
    silence: dict[str, tuple[int, bool]] = field(default_factory=dict)
    damaged: int = 0
    ended_events: Counter[str] = field(default_factory=Counter)
    _parts: dict[WindowId, list[WindowPart]] = field(default_factory=dict)

    def take(self, values: Iterable[bytes]) -> None:
        """Takes the values of records in their order; the newest of each window counts.

        Raises:
            ValueError: if one is no such record. It has changed nothing.
        """
        for value in values:
            record = decode_snapshot_record(value)
            if isinstance(record, SnapshotPosition):
                self._take_position(record)
            elif isinstance(record, AnswerPosition):
                self.answered = record
            elif isinstance(record, QuerySilence):
                self.silence.update(record.silence)
            elif isinstance(record, PublishMarker):
                self._take_marker(record)
                self.ended_events[record.topic] += record.events
            elif isinstance(record, PublishMarkers):
                for marker in record.markers:
                    self._take_marker(marker)
            else:
                self._take_part(record)

    def _take_marker(self, marker: PublishMarker) -> None:
        snapshot = self.windows.get(marker.id)
        # Another one is of a window that has begun anew.
        if snapshot is not None and snapshot.offset <= marker.offset:
            del self.windows[marker.id]
        # Those that ended first come first.
        self.ended.pop(marker.id, None)
        self.ended[marker.id] = marker

    def _take_position(self, position: SnapshotPosition) -> None:
        """Takes a position: snapshots before it are whole, as each is of one transaction."""
        self.position = position
        self.ended_events.clear()
        self.damaged += len(self._parts)
        self._parts.clear()

    def _take_part(self, part: WindowPart) -> None:
        if part.number == 0:
            self.damaged += self._parts.pop(part.id, None) is not None
            self._parts[part.id] = []
        parts = self._parts.get(part.id)
        if parts is None:
            return  # records are read from the middle of a snapshot on
        parts.append(part)
        if len(parts) < part.parts:
            return
        del self._parts[part.id]
        text = "".join(each.text for each in parts).encode()
        if [each.number for each in parts] != list(range(part.parts)) or (
            zlib.crc32(text) != part.crc32
        ):
            self.damaged += 1
            return
        try:
            snapshot = _SNAPSHOT.decode(text)
        except ValueError:
            self.damaged += 1
            return
        self.windows[snapshot.id] = snapshot
