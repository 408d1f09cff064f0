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

With ``Match.ID`` the first event read of a key counts. Another one with the same bytes is a repeat;
one with other bytes is *conflicting*, and rejected. Which one is first is told by offsets, so it
is the same in every repetition of a batch.

Every batch looks at events by what its positions say, never by what an index happens to hold:
events of the earlier topic from its end on, and slices of time before its horizon, are passed over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents
from headrace.pipelines.join.facts import FactIndex
from headrace.pipelines.join.matching import JoinWindow, KnownFacts, matching
from headrace.pipelines.join.position import JoinPosition
from headrace.pipelines.join.slices import slice_of
from headrace.pipelines.join.sorted_files import sorted_files
from headrace.pipelines.join.state import (
    FactsFile,
    JoinState,
    StateFolder,
    facts_name,
)
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
        self, folder: StateFolder, index: FactIndex, window: JoinWindow, match: Match
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
            JoinStateError: the state that the batch begins with is gone.
        """
        before = self._folder.read(start)
        self._folder.clear(start, before)
        first = slice_of(start.horizon_us, self._slice_us)
        since_us = first * self._slice_us
        began = time.monotonic()
        rebuilt = self._folder.bring(self._index, before, since_us)
        rebuild_ms = int((time.monotonic() - began) * 1000) if rebuilt else 0
        slices = sorted({n for file in before.facts.values() for n in file.slices if n >= first})
        known = KnownFacts(self._index, slices, start.earlier)
        read = matching(self._match, self._window, known, earlier)
        divided = read.divide(before.waiting, later, end.clock_us)
        first_after = slice_of(end.horizon_us, self._slice_us)
        lasts = read.kept.times_us >= first_after * self._slice_us
        kept = read.kept.where(lasts)
        facts = dict(before.facts) | self._added(kept, start, end)
        needed = {name: file for name, file in facts.items() if file.slices[-1] >= first_after}
        packed = self._folder.packed(needed, self._index, first_after)
        after = JoinState(packed, tuple(divided.waiting))
        self._folder.write(end, after)
        self._index.expire(since_us, before.facts.keys() | after.facts.keys())
        counts = JoinCounts(
            matched=len(divided.matched),
            unmatched=len(divided.unmatched),
            conflicting=len(read.conflicting),
            repeated=len(read.repeated),
            waiting=len(divided.waiting),
            oldest_waiting_us=min((event.time_us for event in divided.waiting), default=None),
            state_bytes=sum(file.size for file in after.facts.values()),
            rebuilt_files=rebuilt,
            rebuild_ms=rebuild_ms,
        )
        return JoinedBatch(
            matched=divided.matched,
            unmatched=divided.unmatched,
            kept=kept,
            expired=read.kept.where(~lasts),
            repeated=read.repeated,
            conflicting=read.conflicting,
            waited=before.waiting,
            waiting=after.waiting,
            counts=counts,
        )

    def _added(
        self, facts: KeyedEvents, start: JoinPosition, end: JoinPosition
    ) -> dict[str, FactsFile]:
        """Makes the facts durable, gives them to the index, and returns their file."""
        if not len(facts):
            return {}
        files = sorted_files(facts, self._slice_us, self._match)
        slices = tuple(file.slice for file in files)
        name = facts_name(start.earlier, end.earlier, slices)
        size = self._folder.write_facts(name, files)
        self._index.apply(name, files)
        return {name: FactsFile(slices, size)}
