"""Finds the matches of a partition of events once more, and compares them with what was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from headrace.kafka.range_reader import Record
from headrace.pipelines.source.decode import Decoder
from headrace.queries.match.rules import RuleSet
from headrace.queries.matched_events.sent import Match

_CHUNK_RECORDS = 10_000


@dataclass(frozen=True)
class MatchedEventCounts:
    """Events of a partition, and their matches.

    Attributes:
        events: that were looked at.
        matches: of events and queries, as they are found here.
        in_topic: records of them in the topic of matched events.
        missing: matches without a record.
        too_many: further records of a match, and records of events that do not match.
    """

    events: int
    matches: int
    in_topic: int
    missing: int

    @property
    def too_many(self) -> int:
        """Returns how many records are duplicates, or unexpected."""
        return self.in_topic - (self.matches - self.missing)

    @property
    def is_balanced(self) -> bool:
        """Whether each match is there once, and nothing else."""
        return not (self.missing or self.too_many)


def recount(
    records: Iterable[Record],
    sent: Counter[Match],
    rules: RuleSet,
    decoder: Decoder,
    event_time: str,
) -> MatchedEventCounts:
    """Counts the matches of events.

    Args:
        records: the events of a partition.
        sent: how many records of each match are in the topic of matched events, of these events and
            of queries that have a rule.
        rules: of the queries; those whose matched events are not sent on are left out.
        decoder: of the events.
        event_time: column of the events; those without one match nothing.
    """
    events = matches = missing = 0
    remaining = iter(records)
    while chunk := list(islice(remaining, _CHUNK_RECORDS)):
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
