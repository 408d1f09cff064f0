"""The records of the snapshots topic: the state that an instance restores when it starts.

======== ============================================================================ ============
kind     is                                                                           key
======== ============================================================================ ============
window   an open window, with what the records before ``offset`` have added to it     window id
ended    a publish marker: the written results of a window cover the records before   window id
         ``offset``, and replace snapshots of the window up to there
markers  several publish markers, written again                                       none
position a position of the aggregator: the windows that records before ``offset``     none
         have changed are before this record and after ``base``; an aggregator goes
         on at ``offset``
answered the position of the results of the partition                                 none
silence  when some queries that ask for loss of signal had events; the newest record  none
         of a query counts
======== ============================================================================ ============

A window that is too large for a record is divided into parts with a checksum; it counts if all
parts are there. The parts of a window are in one transaction. Silence is written when it has
changed, and in full after each ``base``.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from headrace.kafka.read.log_cuts import Seen
from headrace.queries.records.counts import ResultCounts, TopicCounts
from headrace.queries.records.decoding import decode_json
from headrace.queries.records.ended import MatchesByPartition, PartitionClocks
from headrace.queries.records.matched import Group, Tick, WindowId

# A query id has at most 100 characters, and a marker or an entry of silence about 300 bytes; this
# many are written in one record.
_MAX_ENTRIES = 1_000


class _OfWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A record of one window."""

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
    """An open window, with what the records before ``offset`` have added.

    The other attributes are those of ``OpenWindow`` and its plan.
    """

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
    """A publish marker: the results of a window, up to ``offset``, are written.

    Attributes:
        offset: the offset before which the results cover the records of the matched topic.
        ended_ms: when the window ended, in milliseconds since 1970.
        topic: name of the topic of the events.
        events: number of events in the results.
        due_us: when the window was due to end, in microseconds since 1970, if it ends by the
            clock; ``None`` if it closes by event time or quiet time.
    """

    offset: int
    ended_ms: int
    topic: str
    events: int
    due_us: int | None = None


class PublishMarkers(msgspec.Struct, tag="markers", tag_field="kind", frozen=True):
    """Publish markers of windows that ended some time ago."""

    markers: list[PublishMarker]


class WindowPart(_OfWindow, tag="window", tag_field="kind", frozen=True, kw_only=True):
    """A part of a window's snapshot; ``text`` is a piece of its JSON."""

    number: int
    parts: int
    crc32: int
    text: str


class SnapshotPosition(msgspec.Struct, tag="position", tag_field="kind", frozen=True):
    """The position of an aggregator in its partition of the matched topic.

    Attributes:
        offset: the offset of the next matched record.
        base: an offset in the snapshots topic; the snapshots of all open windows are after it.
        event_us: the event clock, by topic.
        late: number of late events, by query.
        ticks: the last tick of each topic, since it may be long until the next.
        counts: counts of the matches, by topic.
        topic_id: id of the matched topic; empty if it is not known.
        seen: the offset after the last record, and the epoch of the leader that wrote it.
    """

    offset: int
    base: int
    event_us: Mapping[str, int]
    late: Mapping[str, int]
    ticks: list[Tick] = []
    counts: Mapping[str, TopicCounts] = {}
    topic_id: str = ""
    seen: Seen = Seen(0)


class AnswerPosition(msgspec.Struct, tag="answered", tag_field="kind", frozen=True):
    """The position of the results of a partition in the topic of ended windows.

    Attributes:
        first_offset: the offset of the first record whose results are not written yet.
        offset: the offset of the next record; all earlier records have been taken.
        passed_us: the time up to which the results of windows are written, by topic; for windows
            that close by the clock, under an empty name.
        clocks: the last clocks of each partition of the matched topic.
        event_us: the event clock of this partition of the matched topic, by topic of the events,
            as it was sent to all partitions of the results.
        began: the offset at which the first instance began to take records.
        since_ms: when the count of ``sent`` began, in milliseconds since 1970.
        sent: matches in the windows that this partition of the matched topic has closed since then,
            by partition of the results and topic of the events.
        counts: counts of the matches in the windows of this partition of the results, by topic.
        topic_id: id of the topic of ended windows; empty if it is not known.
        seen: the offset after the last record, and the epoch of the leader that wrote it.
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
    seen: Seen = Seen(0)


class QuerySilence(msgspec.Struct, tag="silence", tag_field="kind", frozen=True):
    """When queries that ask for loss of signal last had events.

    Attributes:
        silence: the end of the last window with events, in microseconds since 1970, and whether a
            result has reported the loss of signal since, by query.
    """

    silence: Mapping[str, tuple[int, bool]]


SnapshotRecord: TypeAlias = (
    WindowPart | PublishMarker | PublishMarkers | SnapshotPosition | AnswerPosition | QuerySilence
)

# Made at import: msgspec crashes where several threads are the first to decode a class.
_RECORD: msgspec.json.Decoder[SnapshotRecord] = msgspec.json.Decoder(SnapshotRecord)
_SNAPSHOT = msgspec.json.Decoder(WindowSnapshot)


def decode_snapshot_record(value: bytes) -> SnapshotRecord:
    """Returns the record of the snapshots topic that has this value.

    Raises:
        ValueError: if the value is not valid for such a record.
    """
    return decode_json(_RECORD, value)


def encode_snapshot(snapshot: WindowSnapshot, part_bytes: int = 256 * 2**10) -> Iterator[bytes]:
    """Yields the values of the records that a snapshot is divided into.

    Args:
        snapshot: the snapshot of a window.
        part_bytes: the size of a part. It is JSON text within JSON, which can double its size, and
            a record may have a megabyte.
    """
    text = msgspec.json.encode(snapshot).decode()
    parts = [text[at : at + part_bytes] for at in range(0, len(text), part_bytes)]
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
    """Yields the values of records with many publish markers each."""
    for at in range(0, len(markers), _MAX_ENTRIES):
        yield msgspec.json.encode(PublishMarkers(list(markers[at : at + _MAX_ENTRIES])))


def encode_silence(silence: Mapping[str, tuple[int, bool]]) -> Iterator[bytes]:
    """Yields the values of records with the silence of many queries each."""
    entries = list(silence.items())
    for at in range(0, len(entries), _MAX_ENTRIES):
        yield msgspec.json.encode(QuerySilence(dict(entries[at : at + _MAX_ENTRIES])))


@dataclass
class Restored:
    """The state that the records of a snapshots partition give.

    Attributes:
        windows: the newest snapshot of each open window.
        ended: publish markers of windows, in the order in which they closed.
        position: the last position of the aggregator; ``None`` if there is none.
        answered: the last position of the results; ``None`` if there is none.
        silence: the newest entry of each query, as in :class:`QuerySilence`.
        damaged: number of snapshots whose parts do not fit together.
        ended_events: number of events in windows ended since the position, by topic.
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
        """Takes the values of records in their order; the newest snapshot of each window counts.

        Raises:
            ValueError: if a value is no record of the snapshots topic. That value changes nothing.
        """
        for value in values:
            record = decode_snapshot_record(value)
            if isinstance(record, SnapshotPosition):
                self.position = record
                self.ended_events.clear()
                # A snapshot is one transaction, so parts left before its position are damaged.
                self.damaged += len(self._parts)
                self._parts.clear()
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
        # A snapshot beyond the marker's offset is of a window that was opened again.
        if snapshot is not None and snapshot.offset <= marker.offset:
            del self.windows[marker.id]
        # A marker moves to the end: the order is that in which windows ended.
        self.ended.pop(marker.id, None)
        self.ended[marker.id] = marker

    def _take_part(self, part: WindowPart) -> None:
        if part.number == 0:
            self.damaged += self._parts.pop(part.id, None) is not None
            self._parts[part.id] = []
        parts = self._parts.get(part.id)
        if parts is None:
            return  # reading began in the middle of a snapshot
        parts.append(part)
        if len(parts) < part.parts:
            return
        del self._parts[part.id]
        text = "".join(piece.text for piece in parts).encode()
        if [piece.number for piece in parts] != list(range(part.parts)) or (
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
