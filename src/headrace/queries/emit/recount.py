"""Finds the matches of a partition's events again, and compares them with the records sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from headrace.kafka.read.range_reader import Record
from headrace.pipelines.source.decode import Decoder
from headrace.queries.emit.sent import Match
from headrace.queries.match.rules import RuleSet


@dataclass(frozen=True)
class MatchedEventCounts:
    """Counts of events of a partition, and of their matches.

    Attributes:
        events: number of events that were matched again.
        matches: number of pairs of an event and a query that match.
        in_topic: number of records of these events in the topic of matched events.
        missing: number of matches without a record.
    """

    events: int
    matches: int
    in_topic: int
    missing: int

    @property
    def too_many(self) -> int:
        """Number of records that are duplicates, or whose event does not match the query."""
        return self.in_topic - (self.matches - self.missing)

    @property
    def is_balanced(self) -> bool:
        """Whether each match has one record, and there are no other records."""
        return not (self.missing or self.too_many)


def recount(
    records: Iterable[Record],
    sent: Counter[Match],
    rules: RuleSet,
    decoder: Decoder,
    event_time: str,
    chunk_records: int = 10_000,
) -> MatchedEventCounts:
    """Counts the matches of events, and compares them with the records sent.

    Args:
        records: the events of a partition.
        sent: number of records in the topic of matched events, for each match of these events with
            queries that have a rule.
        rules: rules of the queries; rules whose matched events are not sent on are left out.
        decoder: decoder of the events.
        event_time: name of the column with the event time; events without one match nothing.
        chunk_records: number of records that are decoded and matched at once.
    """
    events = matches = missing = 0
    remaining = iter(records)
    while chunk := list(islice(remaining, chunk_records)):
        events += len(chunk)
        for match in _matches(chunk, rules, decoder, event_time):
            matches += 1
            missing += match not in sent
    return MatchedEventCounts(events, matches, sent.total(), missing)


def _matches(
    records: Sequence[Record], rules: RuleSet, decoder: Decoder, event_time: str
) -> Iterator[Match]:
    decoded = decoder.decode([record.value() for record in records])
    accepted = [at for at in range(len(records)) if at not in decoded.rejected]
    has_time = np.asarray(decoded.rows.column(event_time).is_valid(), np.bool_)
    offsets = [records[at].offset() for at in np.array(accepted, np.int64)[has_time]]
    for matches in rules.matches(decoded.rows.filter(has_time)):
        if matches.shape.emits_events:
            for row, slot in zip(matches.rows, matches.slots, strict=True):
                yield offsets[row], rules.rule(slot).query_id
