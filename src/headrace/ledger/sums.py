"""Sums of events by the hop where they are counted, and by what became of them there."""

from __future__ import annotations

import enum
from dataclasses import dataclass

HASH_MODULUS = 2**64


class Hop(enum.StrEnum):
    """A place where events come in and go out, or are counted again.

    :mod:`headrace.pipelines.ledger` has the table of most. DEAD_LETTERS: the dead-letter topics,
    whose letters ``reconcile`` counts. TARGET: the topic that a link writes, see
    :mod:`headrace.links.ledger`. MATCHED_RECORDS, QUERY_WINDOWS: between a batch and its records,
    and between these and windows, see :mod:`headrace.queries.windows.aggregate.counts`.
    ENDED_WINDOWS, QUERY_RESULTS: between a window that has ended and its records, and between these
    and results, see :mod:`headrace.queries.windows.answer.counts`. MATCHED_EVENTS: between events
    and the topic of matched events, see :mod:`headrace.queries.emit.book`.
    """

    OFFSETS = "offsets"
    READ = "read"
    JOIN = "join"
    STEPS = "steps"
    SINK = "sink"
    TABLE = "table"
    SIDE_TABLE = "side table"
    DEAD_LETTERS = "dead letters"
    TARGET = "target"
    MATCHED_RECORDS = "matched records"
    QUERY_WINDOWS = "query windows"
    ENDED_WINDOWS = "ended windows"
    QUERY_RESULTS = "query results"
    MATCHED_EVENTS = "matched events"


class Fate(enum.StrEnum):
    """What became of an event at a hop, in the order in which ``reconcile`` shows them.

    IN is not a fate, but what the others add up to at READ and at SINK. No other hop counts it.
    OUT was passed to the next hop. FILTERED and DEDUPLICATED were dropped, by a step or by a
    unique table. LATE went where the declaration sends late events. BEHIND was taken out before a
    step with state, since it was behind Spark's watermark: a dead letter. DROPPED was late or
    behind, and the declaration drops both. DEAD is a dead letter of another reason. TOMBSTONE: a
    record without a value, of a topic whose tombstones are left out.
    COPIED: rows that a step made of it beyond the first, as a negative number: they were not read.
    UNKNOWN: it went into a step that does not count what it drops, or makes other rows of it.
    KEPT, EXPIRED, UNMATCHED and WAITING are those of :mod:`headrace.pipelines.join.tally`. LEFT_OUT
    is of links alone; :mod:`headrace.links.ledger` has what fates mean there.
    """

    IN = "in"
    OUT = "out"
    KEPT = "kept"
    UNMATCHED = "unmatched"
    WAITING = "waiting"
    FILTERED = "filtered"
    DEDUPLICATED = "deduplicated"
    DROPPED = "dropped"
    EXPIRED = "expired"
    LATE = "late"
    BEHIND = "behind watermark"
    DEAD = "dead"
    TOMBSTONE = "tombstone"
    COPIED = "copied"
    UNKNOWN = "unknown"
    LEFT_OUT = "left out"


FATES = tuple(fate for fate in Fate if fate is not Fate.IN)


@dataclass(frozen=True, slots=True)
class Sums:
    """How many events, the bytes of their values, the sum of the hashes of their ids.

    Attributes:
        number: how many events; files of the ledger have the field by this name.
        bytes: of record values.
        hash: sum of the ids' hashes, modulo 2^64.
    """

    number: int = 0
    bytes: int = 0
    hash: int = 0

    def __add__(self, other: Sums) -> Sums:
        """Returns the sums of both."""
        return Sums(
            self.number + other.number,
            self.bytes + other.bytes,
            (self.hash + other.hash) % HASH_MODULUS,
        )

    def __sub__(self, other: Sums) -> Sums:
        """Returns what these sums have beyond the others."""
        return Sums(
            self.number - other.number,
            self.bytes - other.bytes,
            (self.hash - other.hash) % HASH_MODULUS,
        )
