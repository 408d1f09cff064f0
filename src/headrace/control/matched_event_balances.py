"""Compares the events of topics with those in the topic of matched events."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.control.project import LoadedProject
from headrace.control.query_registry import matched_topics
from headrace.control.query_sample import newest_ranges
from headrace.control.services import broker_config
from headrace.control.site_clusters import own_cluster
from headrace.errors import BrokerUnreachableError, TopicMissingError
from headrace.kafka.client import describe, watermarks
from headrace.kafka.cluster import KafkaCluster
from headrace.kafka.range_reader import read_records
from headrace.model import OffsetRange, Topic, TopicPartition
from headrace.pipelines.ledger.sums import Hop
from headrace.pipelines.ledger.windows import Imbalance, WindowState
from headrace.pipelines.references.positions import ReferencePosition, live_positions
from headrace.pipelines.source.decode import decoder_for
from headrace.queries.declaration import StandingQueries
from headrace.queries.match.held import RegistryReader
from headrace.queries.match.rules import RuleSet
from headrace.queries.matched_events.positions import (
    MatchedTopic,
    committed_positions,
    sent_records,
)
from headrace.queries.matched_events.recount import Match, MatchedEventCounts, recount
from headrace.queries.matched_events.rules import MAX_SHAPES
from headrace.queries.matched_events.rules_start import RulesStart, committed_rules_starts
from headrace.queries.matched_events.sent import SentEventRecord

MAX_EVENTS = 1_000_000
"""Of a topic, the newest are looked at."""

_GROUP = "headrace.reconcile"


@dataclass(frozen=True)
class MatchedEventsBalance:
    """The matched events of one topic: an event counts once for every query that it matches.

    Attributes:
        queries: name of the standing queries.
        topic: of the events.
        state: whether each match is in the topic of matched events once.
        events: that were looked at.
        matches: of them, as they are found here.
        in_topic: records of them in the topic of matched events.
        differences: where some are missing or too many, by partition of the topic of events.
        unknown: why it is not known whether they balance, as a sentence; empty: it is known.
    """

    queries: str
    topic: str
    state: WindowState
    events: int = 0
    matches: int = 0
    in_topic: int = 0
    differences: tuple[Imbalance, ...] = ()
    unknown: str = ""


def balance_matched_events(
    project: LoadedProject, queries: Iterable[StandingQueries]
) -> tuple[MatchedEventsBalance, ...]:
    """Returns the balances of topics that have live queries with MATCHED EVENTS EMIT.

    Raises:
        AuthorizationError: if an ACL is missing.
        RecordsUnreadableError: if records are damaged.
    """
    return tuple(
        balance
        for declared in queries
        for _, topic in sorted(matched_topics(project, declared.name).items())
        for balance in _balance(project, declared, topic)
    )


def _balance(
    project: LoadedProject, declared: StandingQueries, topic: Topic
) -> Iterator[MatchedEventsBalance]:
    """Yields the balance of a topic, if a live query has MATCHED EVENTS EMIT."""
    try:
        balance = _Comparison(project, declared, topic).balance()
    except (BrokerUnreachableError, TopicMissingError, UnknownBalanceError) as error:
        state, reason = WindowState.UNKNOWN, str(error)
        balance = MatchedEventsBalance(declared.name, topic.name, state, unknown=reason)
    if balance is not None:
        yield balance


class UnknownBalanceError(Exception):
    """It is not known whether the matched events of a topic balance."""


class _Comparison:
    """The comparison of one topic."""

    def __init__(self, project: LoadedProject, declared: StandingQueries, topic: Topic) -> None:
        settings = project.settings
        self._config = broker_config(settings)
        site = own_cluster(settings).site
        self._matched = MatchedTopic(declared, topic, self._config, site)
        self._decoder = decoder_for(topic.record_format, topic.schema, settings.schema_registry)

    def balance(self) -> MatchedEventsBalance | None:
        """Returns the balance; None: no live query has MATCHED EVENTS EMIT.

        Raises:
            UnknownBalanceError: if it is not known.
        """
        registry, name = self._matched.queries.queries_topic, self._matched.topic.name
        topics = describe(self._config, [registry, name])
        if registry not in topics:
            return None  # no query was ever registered
        live = topics.get(name)
        partitions = [] if live is None else live.all_partitions
        committed = committed_rules_starts(self._matched, partitions)
        starts = {p: at for p, at in committed.items() if live and at.topic_id == live.topic_id}
        rules = self._rules(starts.values())
        emitting = [rule for rule in rules if rule.shape.emits_events]
        if not emitting:
            return None
        if live is None:
            raise TopicMissingError(name)
        if len({rule.shape.key for rule in emitting}) > MAX_SHAPES:
            raise UnknownBalanceError(f"queries of more than {MAX_SHAPES:,} shapes are left out")
        if new := [partition for partition in partitions if partition not in starts]:
            raise UnknownBalanceError(f"`headrace query emit` has not looked at {_paths(new)} yet")
        ids = {rule.query_id for rule in emitting}
        sent = self._sent(self._looked_at(starts), starts, ids)
        counts = {each.events.partition: self._recount(each, rules) for each in sent}
        return self._balance_of(counts)

    def _rules(self, starts: Collection[RulesStart]) -> RuleSet:
        """The queries that were matched last, without those that have expired."""
        topic, registry = self._matched.topic, self._matched.queries.queries_topic
        cluster = KafkaCluster(self._config)
        position = live_positions(cluster, [registry])[registry]
        if starts:
            [registry_id] = {at.registry_id for at in starts}
            if registry_id != position.topic_id:
                raise UnknownBalanceError(f"topic {registry} was made again")
            offset = max(at.registry_offset for at in starts)
            position = ReferencePosition(registry_id, dict.fromkeys(position.partitions, offset))
        schema = self._matched.schema
        reader = RegistryReader(_GROUP, registry, topic.name, schema, cluster)
        return reader.live(position, time.time_ns() // 1_000_000).rules

    def _looked_at(self, starts: Mapping[TopicPartition, RulesStart]) -> list[OffsetRange]:
        """The newest events that all queries were matched with."""
        marks = watermarks(self._config, starts)
        positions = committed_positions(self._matched, starts)
        begins = {source: max(at.offset, marks[source][0]) for source, at in starts.items()}
        ends = {source: at.offset for source, at in positions.items()}
        known = {p: (begin, max(begin, ends.get(p, begin))) for p, begin in begins.items()}
        return newest_ranges(known, MAX_EVENTS)

    def _sent(
        self,
        ranges: Iterable[OffsetRange],
        starts: Mapping[TopicPartition, RulesStart],
        queries: Collection[str],
    ) -> list[SentEvents]:
        """What is in the topic of matched events of the events of ranges."""
        sent = {range_.partition: SentEvents(range_) for range_ in ranges}
        targets = {source: self._matched.target(source) for source in sent}
        marks = watermarks(self._config, targets.values())
        floors = {
            target: min(starts[source].scan_from for source in sent if targets[source] == target)
            for target in marks
        }
        whole = [OffsetRange(t, max(floors[t], first), end) for t, (first, end) in marks.items()]
        for record in sent_records(self._matched, whole):
            if (events := sent.get(record.source)) is not None:
                events.take(record, is_asked_for=record.query in queries)
        now = watermarks(self._config, targets.values())
        if any(now[range_.partition][0] > range_.start for range_ in whole):
            raise UnknownBalanceError("Kafka has deleted matched events meanwhile: ask again")
        for source, events in sent.items():
            if marks[targets[source]][0] > starts[source].scan_from:
                events.leave_out_oldest()
        return list(sent.values())

    def _recount(self, sent: SentEvents, rules: RuleSet) -> MatchedEventCounts:
        records = read_records(self._config, _GROUP, [sent.events])
        event_time = self._matched.topic.event_time
        if event_time is None:
            raise ValueError(f"topic {self._matched.topic.name!r} has no event time")
        return recount(records, sent.matches, rules, self._decoder, event_time)

    def _balance_of(
        self, counts: Mapping[TopicPartition, MatchedEventCounts]
    ) -> MatchedEventsBalance:
        differences = tuple(_differences(counts))
        events = sum(each.events for each in counts.values())
        unknown = "" if events else "no event was looked at since the queries have changed last"
        state = WindowState.UNKNOWN if unknown else WindowState.BALANCED
        return MatchedEventsBalance(
            self._matched.queries.name,
            self._matched.topic.name,
            WindowState.UNBALANCED if differences else state,
            events,
            sum(each.matches for each in counts.values()),
            sum(each.in_topic for each in counts.values()),
            differences,
            unknown,
        )


class SentEvents:
    """What was sent of some events of a partition.

    Attributes:
        events: the range of these events.
        matches: how many records there are of each.
    """

    def __init__(self, events: OffsetRange) -> None:
        self.events = events
        self.matches: Counter[Match] = Counter()
        self._oldest: int | None = None

    def take(self, record: SentEventRecord, *, is_asked_for: bool) -> None:
        """Takes a record of any event of the partition."""
        offset = record.origin.offset
        self._oldest = offset if self._oldest is None else min(offset, self._oldest)
        if is_asked_for and self.events.start <= offset < self.events.end:
            self.matches[offset, record.query] += 1

    def leave_out_oldest(self) -> None:
        """Leaves out events whose records Kafka may have deleted.

        Raises:
            UnknownBalanceError: if these are all.
        """
        events = self.events
        if self._oldest is None:
            raise UnknownBalanceError(
                f"Kafka has deleted the matched events of {events.partition.path}"
            )
        start = min(max(events.start, self._oldest + 1), events.end)
        self.events = replace(events, start=start)
        kept = {match: n for match, n in self.matches.items() if match[0] >= start}
        self.matches = Counter(kept)


def _differences(counts: Mapping[TopicPartition, MatchedEventCounts]) -> Iterator[Imbalance]:
    for partition, each in counts.items():
        for number in (each.missing, -each.too_many):
            if number:
                path = partition.path
                yield Imbalance(Hop.MATCHED_EVENTS, number, 0, ids_differ=False, partition=path)


def _paths(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(partition.path for partition in partitions)
