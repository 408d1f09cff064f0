"""``Join``: how two topics are declared to be read together."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from headrace.metrics import Metric
from headrace.model import Metadata, Source, Topic
from headrace.sinks.api import Sink

JOIN_METADATA = (Metadata.TOPIC, Metadata.PARTITION, Metadata.OFFSET)
"""Columns of the later record that joined rows can have: those of records that waited, too."""


class Match(enum.StrEnum):
    """Which earlier event goes with a later one.

    ID: the one that has the id. The key names at most one event.
    LAST: of those with the key, the one with the newest event time that is not after the later
    event's own; of equal times the one that was read last.
    """

    ID = "id"
    LAST = "last"


@dataclass(frozen=True)
class Join:
    """Two topics read together: each later event comes with the earlier one that it names.

    A row is the later event's, with the earlier event in a column of its own::

        joined = Pipeline(
            "clicks-to-lake",
            source=Join(
                clicks, impressions, on=("impression_id", "event_id"), column="impression"
            ),
            sink=Lake("clicks"),
        )

    ================== ========================================================================
    order              rows of a partition come in the order of their later events, but for those
                       that waited: they come when they are matched, or their wait ends
    delivery           each later event gives one row, as exactly as its sink takes it
    a match            :attr:`Match.ID`: the earlier event was read before, or in the same batch, or
                       while the later one waits; its event time lies at most ``within`` before that
                       of the later one, and at most ``wait`` after it. :attr:`Match.LAST`: the
                       earlier event's time is at most ``within`` before that of the later one, and
                       not after it. It is chosen when the earlier topic's clock has passed the
                       later event's time and ``wait``, so that none which is newer comes
    unmatched          once, when the earlier topic's clock has passed the later event's time and
                       ``wait``: a row whose column is null, or a row of the sink ``unmatched``
                       without the column. The clock is that of late data
                       (:mod:`headrace.pipelines.late_data`), and advances with the wall clock
                       while the partition is idle
    an id twice        the first earlier event that was read counts. The same bytes again are
                       counted; other bytes are a dead letter with reason ``conflicting-key``. With
                       :attr:`Match.LAST` a key has many events
    too late           an earlier event that is read after the wait of a later one is kept for
                       others; a later event that is older than all that is kept is unmatched
    a crash            repeats what its sink repeats: nothing in one that is exactly once, rows of
                       the last batch in one that is at least once. The state is in the checkpoint
                       (``headrace/join``); each machine has an index of it in its temporary
                       folder, which is recreated where it is missing
    ================== ========================================================================

    The same key must be in the same partition of both topics: they have the same number of
    partitions and the same partitioning, such as by the user's id.

    Neither topic is read ahead of the other by more than ``within`` and ``wait``, so the state is
    small also where one of them has a backlog.

    The design is Google's Photon (Ananthanarayanan et al., SIGMOD 2013): earlier events are kept
    for ``within``, later ones only while they wait.

    Attributes:
        later: the topic whose events refer to earlier ones, such as clicks.
        earlier: the topic whose events are referred to, such as impressions.
        on: field of the later event, and field of the earlier one with the same value. Both are
            texts or both are integers, and never null.
        column: of the rows, for the earlier event: a struct, null where there is none.
        within: how long before the later event the earlier one may be, in event time.
        wait: how long a later event waits for an earlier one that was not read yet.
        match: which earlier event goes with a later one.
        unmatched: sink of later events that found none; None: they go where the others go.
    """

    later: Topic | Source
    earlier: Topic | Source
    on: tuple[str, str]
    column: str
    within: timedelta = timedelta(hours=1)
    wait: timedelta = timedelta(minutes=10)
    match: Match = Match.ID
    unmatched: Sink | None = None

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "join_matched_rows",
            "rows",
            "later events of a `Join` that came out with their earlier one",
            "standing still with rows_in rising: the earlier topic is behind, or the keys differ",
            is_counter=True,
        ),
        Metric(
            "join_unmatched_rows",
            "rows",
            "later events of a `Join` that found no earlier one within its times",
            "rising: the earlier topic lacks events, or they come later than `wait`",
            is_counter=True,
        ),
        Metric(
            "join_repeated_events",
            "events",
            "earlier events of a `Join` that were there before with the same bytes",
            "rising: a producer sends them again",
            is_counter=True,
        ),
        Metric(
            "join_conflicting_events",
            "events",
            "earlier events of a `Join` whose id was there before with other bytes; dead letters",
            "not 0: a producer gives an id to two events; the first one counts",
            is_counter=True,
        ),
        Metric(
            "join_waiting_events",
            "events",
            "later events of a `Join` that wait for their earlier one",
            "rising: the earlier topic is behind, or `wait` is long",
        ),
        Metric(
            "join_state_bytes",
            "bytes",
            "durable files of the earlier events that a `Join` keeps, in its checkpoint",
            "rising without end: event time does not advance. A shorter `within` keeps less, in a"
            " checkpoint that starts over",
        ),
        Metric(
            "join_rebuilt_files",
            "files",
            "files from which a machine has rebuilt its index of a `Join`",
            "rising without a restart: tasks move between machines, and each makes its own index",
            is_counter=True,
        ),
        Metric(
            "join_rebuild_ms",
            "ms",
            "time that the machines took for that",
            "long: see `join_state_bytes`",
            is_counter=True,
        ),
    )

    @property
    def sources(self) -> tuple[Source, Source]:
        """Returns the sources of both sides, the later one first."""
        later, earlier = (
            side if isinstance(side, Source) else Source(side)
            for side in (self.later, self.earlier)
        )
        return later, earlier
