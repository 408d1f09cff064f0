"""One batch of one partition of a join: which later events find their earlier one.

========================== ===================================================================
a later event              comes out
========================== ===================================================================
``Match.ID``, its key was  matched, in the batch in which both are there, if the earlier event's
read                       time lies at most ``within`` before its own, or at most ``wait`` after
                           it; otherwise unmatched
``Match.ID``, its key was  unmatched, once, in the batch in which the earlier topic's clock has
not read                   passed its time and ``wait``; until then it waits
``Match.LAST``             in the batch in which the earlier topic's clock has passed its time and
                           ``wait``; until then it waits
========================== ===================================================================

With ``Match.ID`` the first event read of a key counts. A second one with equal bytes is a
duplicate; one with other bytes is *conflicting*, and rejected. Offsets decide which one is first,
so it is the same in every repeat of a batch.

Every batch looks at events by what its positions say, never by what an index happens to hold:
events of the earlier topic from its start on that an index has, and slices of time before its
horizon, are passed over; an index with events that its state does not name is recreated.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents
from headrace.pipelines.join.index.earlier_index import EarlierIndex
from headrace.pipelines.join.index.slices import slice_of
from headrace.pipelines.join.index.sorted_files import sorted_files
from headrace.pipelines.join.index.state import JoinState, SegmentFile, StateFolder, facts_of
from headrace.pipelines.join.matching import EarlierSnapshot, JoinWindow, matcher_for
from headrace.pipelines.join.offsets import JoinPosition
from headrace.pipelines.source.report import JoinCounts


@dataclass(frozen=True)
class JoinedBatch:
    """What a batch of a partition gives.

    Attributes:
        matched: pairs of a later event and its earlier one, in order of the later offsets.
        unmatched: later events that found none, in order of offset.
        kept: earlier events of the batch that batches after it may need.
        expired: those that are older than all of these.
        repeated: those whose key was there with the same bytes.
        conflicting: those whose key was there with other bytes.
        waited: later events that waited when it began.
        waiting: those that wait when it ends.
        counts: of these, and of the state.
    """

    matched: Sequence[tuple[KeyedEvent, KeyedEvent]]
    unmatched: Sequence[KeyedEvent]
    kept: KeyedEvents
    expired: KeyedEvents
    repeated: KeyedEvents
    conflicting: KeyedEvents
    waited: Sequence[KeyedEvent]
    waiting: Sequence[KeyedEvent]
    counts: JoinCounts


class JoinPartition:
    """Joins batches of one partition, one at a time.

    A crash at any point repeats the batch; its end is written before it gives anything.
    """

    def __init__(
        self, folder: StateFolder, index: EarlierIndex, window: JoinWindow, match: Match
    ) -> None:
        self._folder = folder
        self._index = index
        self._window = window
        self._match = match
        self._slice_us = index.slice_us

    def join(
        self,
        start: JoinPosition,
        end: JoinPosition,
        earlier: KeyedEvents,
        later: Sequence[KeyedEvent],
    ) -> JoinedBatch:
        """Joins the events between two positions, in order of their offsets.

        Raises:
            JoinStateError: if the state that the batch begins with is missing.
        """
        before = self._folder.read(start)
        self._folder.delete_obsolete(start, before)
        since_us = slice_of(start.horizon_us, self._slice_us) * self._slice_us
        began = time.monotonic()
        rebuilt = self._folder.load(self._index, before, start)
        rebuild_ms = int((time.monotonic() - began) * 1000) if rebuilt else 0
        # Before it takes events, which may stand in for some that an older checkpoint still needs.
        self._index.expire(since_us)
        known = EarlierSnapshot(self._index, since_us, start.earlier)
        matcher = matcher_for(self._match, self._window, known, earlier, later)
        result = matcher.match(before.waiting, end.clock_us)
        first_after = slice_of(end.horizon_us, self._slice_us)
        lasts = matcher.accepted.times_us >= first_after * self._slice_us
        kept = matcher.accepted.where(lasts)
        segments = dict(before.segments) | self._added(kept, start, end)
        after = self._written(before, segments, result.waiting, end)
        counts = JoinCounts(
            matched=len(result.matched),
            unmatched=len(result.unmatched),
            conflicting=len(matcher.conflicting),
            repeated=len(matcher.repeated),
            waiting=len(result.waiting),
            oldest_waiting_us=min((event.time_us for event in result.waiting), default=None),
            state_bytes=sum(file.size for file in after.segments.values()),
            rebuilt_files=rebuilt,
            rebuild_ms=rebuild_ms,
        )
        return JoinedBatch(
            matched=result.matched,
            unmatched=result.unmatched,
            kept=kept,
            expired=matcher.accepted.where(~lasts),
            repeated=matcher.repeated,
            conflicting=matcher.conflicting,
            waited=before.waiting,
            waiting=after.waiting,
            counts=counts,
        )

    def _written(
        self,
        before: JoinState,
        segments: Mapping[str, SegmentFile],
        waiting: Sequence[KeyedEvent],
        end: JoinPosition,
    ) -> JoinState:
        """Writes the state that a batch ends with, without files that no later batch needs."""
        first_after = slice_of(end.horizon_us, self._slice_us)
        needed = {name: file for name, file in segments.items() if file.newest >= first_after}
        compacted = self._folder.compacted(needed, self._index, first_after)
        after = replace(before, segments=compacted, waiting=tuple(waiting))
        self._folder.write(end, after)
        return after

    def _added(
        self, events: KeyedEvents, start: JoinPosition, end: JoinPosition
    ) -> dict[str, SegmentFile]:
        """Makes the events durable, gives them to the index, and returns their file."""
        if not len(events):
            return {}
        files = sorted_files(events, self._slice_us, self._match)
        name, segment = self._folder.write_segment(
            start.earlier, end.earlier, files, facts_of(events)
        )
        self._index.ingest({name: files})
        return {name: segment}
