"""Finds the matches of a partition of events once more, and compares them with what was sent."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from headrace.kafka.range_reader import Record
from headrace.pipelines.source.decode import Decoder
from headrace.queries.evaluation.expression import CompiledExpression
from headrace.queries.evaluation.kernels import is_true
from headrace.queries.matched_events.sent import SentEventRecord

_CHUNK_RECORDS = 10_000
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EmittedQuery:
    """A query whose matched events are sent on.

    Attributes:
        id: of the query.
        since_ms: time of a record from which on it is known to have been matched.
        operands: of the condition; an event matches where all are true.
    """

    id: str
    since_ms: int
    operands: tuple[CompiledExpression, ...]


class SentEvents:
    """Which events are in the topic of matched events.

    Args:
        records: that are there.
    """

    def __init__(self, records: Iterable[SentEventRecord]) -> None:
        offsets: dict[tuple[str, int], array[int]] = {}
        for record in records:
            origin = record.origin
            offsets.setdefault((record.query, origin.partition), array("q")).append(origin.offset)
        self._offsets = {key: np.sort(np.array(each)) for key, each in offsets.items()}

    def oldest(self, partition: int) -> int | None:
        """Returns the first offset of a partition whose event is there; None: none is."""
        first = (int(each[0]) for (_, p), each in self._offsets.items() if p == partition)
        return min(first, default=None)

    def between(self, query: str, partition: int, start: int, end: int) -> _Numbers:
        """Returns the offsets of events of a query from a first one to a last one, ascending.

        An event that was sent twice is there twice.
        """
        offsets = self._offsets.get((query, partition), np.empty(0, np.int64))
        first, last = np.searchsorted(offsets, [start, end + 1])
        return offsets[first:last]


@dataclass
class MatchedEventCounts:
    """Events of a partition, and their matches.

    Attributes:
        events: that were looked at.
        matches: of events and queries, as they are found here.
        in_topic: records of them in the topic of matched events.
        missing: matches without a record.
        too_many: records beyond the first of a match, or of no match.
    """

    events: int = 0
    matches: int = 0
    in_topic: int = 0
    missing: int = 0
    too_many: int = 0


class MatchedEventRecount:
    """Counts the matches of one topic.

    Args:
        queries: whose matches are counted.
        sent: what was sent.
        decoder: of the events.
        event_time: column of the events; those without one match nothing.
    """

    def __init__(
        self, queries: Sequence[EmittedQuery], sent: SentEvents, decoder: Decoder, event_time: str
    ) -> None:
        self._queries, self._sent = queries, sent
        self._decoder, self._event_time = decoder, event_time

    def count(self, partition: int, records: Iterable[Record]) -> MatchedEventCounts:
        """Counts the matches of some events of a partition.

        Args:
            partition: number of the partition.
            records: of the events, in order of offset.
        """
        counts, remaining = MatchedEventCounts(), iter(records)
        while chunk := list(islice(remaining, _CHUNK_RECORDS)):
            self._add(counts, partition, chunk)
        return counts

    def _add(self, counts: MatchedEventCounts, partition: int, chunk: Sequence[Record]) -> None:
        offsets = np.array([record.offset() for record in chunk], np.int64)
        times = np.array([record.timestamp()[1] for record in chunk], np.int64)
        decoded = self._decoder.decode([record.value() for record in chunk])
        is_event = np.ones(len(chunk), np.bool_)
        is_event[list(decoded.rejected)] = False
        has_time = np.asarray(decoded.rows.column(self._event_time).is_valid(), np.bool_)
        rows, places = decoded.rows.filter(has_time), np.flatnonzero(is_event)[has_time]
        counts.events += int((times >= min(query.since_ms for query in self._queries)).sum())
        for query in self._queries:
            met = times[places] >= query.since_ms
            for operand in query.operands:
                met &= is_true(operand.evaluate(rows))
            matches = offsets[places[met]]
            sent = self._sent.between(query.id, partition, int(offsets[0]), int(offsets[-1]))
            sent = sent[np.isin(sent, offsets[times >= query.since_ms])]
            once = np.intersect1d(matches, sent)
            counts.matches += len(matches)
            counts.in_topic += len(sent)
            counts.missing += len(matches) - len(once)
            counts.too_many += len(sent) - len(once)
