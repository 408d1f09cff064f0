"""Compares the events of topics with those in the topic of matched events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.errors import (
    BrokerUnreachableError,
    MatchedEventsFormatError,
    RecordsDeletedError,
    RecordsUnreadableError,
    TopicMissingError,
)
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.offsets import earliest_offsets, watermarks
from headrace.kafka.read.range_reader import read_records
from headrace.kafka.table.topic_table import TableRecreatedError
from headrace.ledger.balance import Book, BookLine, NotCountedError
from headrace.ledger.sums import Hop
from headrace.ledger.windows import Imbalance, WindowState
from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.source.decode import Decoder, decoder_for
from headrace.queries.emit.emitter_position import CommittedQueries, EmitterPosition
from headrace.queries.emit.emitting_queries import EmittingQueries
from headrace.queries.emit.plan import EmitterPlan, check_format
from headrace.queries.emit.positions import (
    committed_positions,
    sent_behind,
)
from headrace.queries.emit.recount import MatchedEventCounts, recount
from headrace.queries.emit.sent import RecordedMatches
from headrace.queries.match.rules import RuleSet
from headrace.queries.sample import newest_ranges
from headrace.settings import SchemaRegistrySettings

MAX_EVENTS = 1_000_000
"""The greatest number of newest events of a topic that are compared, and of their matches."""

_GROUP = "headrace.reconcile"


@dataclass(frozen=True)
class MatchedEventsBook(Book):
    """The matched events of one topic: an event counts once for every query that it matches.

    Attributes:
        queries: name of the standing queries.
        topic: name of the topic of the events.
        state: whether each match is in the topic of matched events exactly once.
        events: number of events that were compared.
        matches: number of their matches, as they are found here.
        in_topic: number of their records in the topic of matched events.
        lag: offsets after the positions that `query emit` has committed; they are not compared.
        skipped: offsets that Kafka had deleted before `query emit` read them, since its first
            start.
        differences: missing and surplus records, by partition of the topic of events.
        unknown: what is not known, as sentences; empty if everything is known.
    """

    section: ClassVar = "matched_events"
    heading: ClassVar = "matched events of {0.queries}"

    queries: str
    topic: str
    state: WindowState
    events: int = 0
    matches: int = 0
    in_topic: int = 0
    lag: int = 0
    skipped: int = 0
    differences: tuple[Imbalance, ...] = ()
    unknown: str = ""

    def columns(self) -> tuple[str, ...]:
        """Returns the titles of figures."""
        return ("events", "matches", "in topic", "lag", "skipped")

    def lines(self) -> Iterator[BookLine]:
        """Yields the line of the topic."""
        figures = (self.events, self.matches, self.in_topic, self.lag, self.skipped)
        yield BookLine(self.topic, self.state, figures, self.differences, self.unknown)


def matched_events_book(
    matched: EmitterPlan, registry: SchemaRegistrySettings | None
) -> MatchedEventsBook | None:
    """Returns the book of a topic if it has queries with MATCHED EVENTS EMIT.

    Args:
        matched: the topic and the standing queries.
        registry: of the schemas of topics; ``None``: the project has none.

    Raises:
        AuthorizationError: if an ACL is missing.
    """
    try:
        return _Comparison(matched, registry).book()
    except (
        BrokerUnreachableError,
        MatchedEventsFormatError,
        RecordsDeletedError,
        RecordsUnreadableError,
        TableRecreatedError,
        TopicMissingError,
        NotCountedError,
    ) as error:
        state, reason = WindowState.UNKNOWN, str(error)
        return MatchedEventsBook(matched.queries.name, matched.topic.name, state, unknown=reason)


class _Comparison:
    """The comparison of one topic. Used once.

    Partitions of which it is unknown are left out, so differences of other partitions are shown.
    """

    def __init__(self, matched: EmitterPlan, registry: SchemaRegistrySettings | None) -> None:
        self._matched, self._registry, self._config = matched, registry, matched.config
        self._queries = EmittingQueries(self._matched)
        self._unknown: list[str] = []

    def book(self) -> MatchedEventsBook | None:
        """Returns the book; ``None`` if no query sends matched events on.

        Raises:
            NotCountedError: if the balance is unknown for all partitions.
        """
        # Positions are read before queries, so the queries of a position are registered by then.
        positions = self._positions()
        queries = {source: at.queries for source, at in positions.items() if at.queries}
        if not queries:
            self._check_without_positions()
            return None
        rules = self._queries.rules(queries.values())
        if rules is None:
            return None
        if self._matched.topic.is_compacted:
            raise NotCountedError(
                f"{self._matched.topic.name} is compacted: events that were sent are deleted"
            )
        if new := ", ".join(source.path for source in positions if source not in queries):
            self._unknown.append(f"`headrace query emit` has not looked at {new} yet")
        marks = watermarks(self._config, positions)
        ranges = newest_ranges(self._ranges(queries, positions, marks), MAX_EVENTS)
        counts = self._compared(ranges, queries, rules).items()
        events = sum(counted.events for _, counted in counts)
        if not events and not self._unknown:
            self._unknown.append(
                "no event was looked at since the queries, the event class or a topic have changed"
            )
        differences = tuple(
            Imbalance(Hop.MATCHED_EVENTS, number, partition=source.path)
            for source, counted in counts
            for number in (counted.missing, -counted.too_many)
            if number
        )
        unknown = "; ".join(self._unknown)
        return MatchedEventsBook(
            self._matched.queries.name,
            self._matched.topic.name,
            WindowState.of(differences, unknown),
            events,
            sum(counted.matches for _, counted in counts),
            sum(counted.in_topic for _, counted in counts),
            sum(max(end - max(positions[p].offset, first), 0) for p, (first, end) in marks.items()),
            sum(at.skipped for at in positions.values()),
            differences,
            unknown,
        )

    def _ranges(
        self,
        queries: Mapping[TopicPartition, CommittedQueries],
        positions: Mapping[TopicPartition, EmitterPosition],
        marks: Mapping[TopicPartition, tuple[int, int]],
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Returns the events of each partition that were matched with its queries."""
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for source, of_source in queries.items():
            first, offset = marks[source][0], positions[source].offset
            start = max(of_source.since, first)
            ranges[source] = start, max(start, offset)
            if first > offset:
                self._unknown.append(
                    f"Kafka has deleted {first - offset:,} offsets of {source.path} after the "
                    "committed position: the next start of `headrace query emit` counts those that "
                    "it has not looked at"
                )
        return ranges

    def _positions(self) -> dict[TopicPartition, EmitterPosition]:
        """Returns all partitions' positions, without queries where `query emit` has none yet."""
        name, target = self._matched.topic.name, self._matched.queries.matched_events_topic
        live = describe(self._config, [name, target])
        if name not in live:
            return {}
        positions = {source: EmitterPosition(0) for source in live[name].all_partitions}
        for source, at in committed_positions(self._matched, positions).items():
            if at.topic_id != live[name].topic_id:
                continue
            if target not in live or at.target_id != live[target].topic_id:
                raise NotCountedError(f"topic {target} was recreated")
            positions[source] = at
        return positions

    def _check_without_positions(self) -> None:
        """Checks that no query asks for matched events.

        Raises:
            NotCountedError, MatchedEventsFormatError, TopicMissingError: if a query does.
        """
        if not self._queries.asks_now():
            return
        check_format(self._matched.topic)
        self._matched.live()
        raise NotCountedError("`headrace query emit` has not looked at it yet")

    def _compared(
        self,
        ranges: Sequence[OffsetRange],
        queries: Mapping[TopicPartition, CommittedQueries],
        rules: RuleSet,
    ) -> dict[TopicPartition, MatchedEventCounts]:
        """Returns counts for ranges of events, by partition; unknown partitions are left out."""
        recorded = {
            range_.partition: RecordedMatches(range_, MAX_EVENTS // len(ranges))
            for range_ in ranges
        }
        scan_from = {source: queries[source].scan_from for source in recorded}
        targets = set(map(self._matched.target, recorded))
        firsts = earliest_offsets(self._config, targets)
        ids = {rule.query_id for rule in rules if rule.shape.emits_events}
        for record in sent_behind(self._matched, scan_from):
            recorded[record.source].take(record, is_asked_for=record.query in ids)
        counts: dict[TopicPartition, MatchedEventCounts] = {}
        for source, matches in recorded.items():
            first = firsts[self._matched.target(source)]
            is_cut = first > scan_from[source]
            # The first event may have had records before the cut.
            if is_cut:
                matches.leave_out_first()
            counted = self._recount(matches, rules)
            has_some = matches.has_records or not counted.matches
            if is_cut and not (has_some and matches.events.span):
                self._unknown.append(f"Kafka has deleted the matched events of {source.path}")
            # Kafka may have deleted some between the two reads: that is no imbalance.
            elif not counted.is_balanced and self._is_deleted(
                matches.events, max(first, scan_from[source])
            ):
                self._unknown.append(
                    f"Kafka has deleted events or matched events of {source.path} while they were "
                    "compared: ask again"
                )
            else:
                counts[source] = counted
        return counts

    def _recount(self, recorded: RecordedMatches, rules: RuleSet) -> MatchedEventCounts:
        event_time = self._matched.topic.event_time
        if event_time is None:
            raise ValueError(f"topic {self._matched.topic.name!r} has no event time")
        records = read_records(self._config, _GROUP, [recorded.events])
        return recount(records, recorded.matches, rules, self._decoder, event_time)

    @cached_property
    def _decoder(self) -> Decoder:
        topic = self._matched.topic
        return decoder_for(topic.record_format, topic.schema, self._registry)

    def _is_deleted(self, events: OffsetRange, scan_from: int) -> bool:
        """Returns whether Kafka has deleted some of the events or of their records since."""
        source, target = events.partition, self._matched.target(events.partition)
        firsts = earliest_offsets(self._config, [source, target])
        return firsts[source] > events.start or firsts[target] > scan_from
