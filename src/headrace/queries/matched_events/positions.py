"""Where the events of a topic go on, and what of them was sent before.

The position of a partition is committed in a consumer group of the topic, with the offset of the
topic of matched events from which on later events are looked for, and with the queries that events
are matched with. The first start begins with the events that come from then on. Kafka forgets the
positions of a topic that is deleted, so that a mark in the group, of the topic of matched events,
says that this is not the first one: then partitions without a position begin with their first
event. Where no query was matched, they go on at their ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import confluent_kafka

from headrace.errors import MatchedEventsFormatError, TopicMissingError
from headrace.kafka.client import (
    ClientConfig,
    LiveTopic,
    commit,
    committed,
    describe,
    high_watermarks,
    watermarks,
)
from headrace.kafka.headers import headers_of
from headrace.kafka.range_reader import Record, read_records
from headrace.model import EventSchema, Json, OffsetRange, Topic, TopicPartition
from headrace.queries.declaration import StandingQueries
from headrace.queries.matched_events.matched_position import MatchedPosition, MatchedQueries
from headrace.queries.matched_events.rules import NO_QUERIES, EmittingRules
from headrace.queries.matched_events.sent import SentEventRecord, SentOfEvent
from headrace.transfer.origin import Origin, origins


@dataclass(frozen=True)
class MatchedTopic:
    """A topic of events, and the standing queries that are matched with it.

    Attributes:
        queries: that are matched.
        topic: of the events, with an event class and an event time.
        config: librdkafka's settings of the cluster, secrets revealed.
        site: of the cluster.
    """

    queries: StandingQueries
    topic: Topic
    config: ClientConfig = field(repr=False)
    site: str

    @property
    def name(self) -> str:
        """What locks, status and errors call it."""
        return f"{self.queries.name}.{self.topic.name}"

    @property
    def schema(self) -> EventSchema:
        """The schema of the events."""
        if self.topic.schema is None:
            raise ValueError(f"topic {self.topic.name!r} has no event class")
        return self.topic.schema

    @property
    def group(self) -> str:
        """The consumer group with the positions."""
        return f"headrace.{self.queries.matched_events_topic}.{self.topic.name}"

    @property
    def mark(self) -> TopicPartition:
        """The partition whose position says that there was a start."""
        return TopicPartition(self.queries.matched_events_topic, 0)

    def target(self, source: TopicPartition) -> TopicPartition:
        """Returns the partition that matched events of a partition are sent to."""
        number = source.partition % self.queries.partitions
        return TopicPartition(self.queries.matched_events_topic, number)

    def live(self) -> LiveTopic:
        """Returns the topic of events as it is now.

        Raises:
            TopicMissingError: if it does not exist.
            AuthorizationError: if an ACL is missing.
            BrokerUnreachableError: if the brokers do not answer.
        """
        [topic] = self._described(self.topic.name)
        return topic

    def live_with_target(self) -> tuple[LiveTopic, str]:
        """Returns the topic of events, and the id of that of matched events, as they are now.

        Raises as :meth:`live`.
        """
        topic, target = self._described(self.topic.name, self.queries.matched_events_topic)
        return topic, target.topic_id

    def _described(self, *names: str) -> list[LiveTopic]:
        live = describe(self.config, names)
        for name in names:
            if name not in live:
                raise TopicMissingError(name)
        return [live[name] for name in names]


def check_format(topic: Topic) -> None:
    """Checks that events of a topic can be sent on.

    Raises:
        MatchedEventsFormatError: if its records are not JSON, one event each.
    """
    if topic.envelope is not None:
        raise MatchedEventsFormatError(topic.name, "its records are envelopes of events")
    if not isinstance(topic.record_format, Json):
        raise MatchedEventsFormatError(topic.name, f"its format is {topic.record_format}")


@dataclass(frozen=True)
class MatchStart:
    """The places where the partitions of a topic go on.

    Attributes:
        positions: of each partition.
        sent: what was sent of the event that a partition goes on with.
        skipped: events that are gone before they were looked at, as sentences, by partition.
        records: that were sent since the positions were committed.
    """

    positions: Mapping[TopicPartition, MatchedPosition]
    sent: Mapping[TopicPartition, SentOfEvent]
    skipped: Mapping[TopicPartition, str]
    records: int


def find_start(matched: MatchedTopic) -> MatchStart:
    """Returns where to go on.

    Raises:
        TopicMissingError: if the topic of events does not exist.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    live, target_id = matched.live_with_target()
    sources = live.all_partitions
    known = committed_positions(matched, [*sources, matched.mark])
    has_begun = matched.mark in known
    marks = watermarks(matched.config, sources)
    floors = high_watermarks(matched.config, set(map(matched.target, sources)))
    positions: dict[TopicPartition, MatchedPosition] = {}
    skipped: dict[TopicPartition, str] = {}
    for source in sources:
        first, end = marks[source]
        new = MatchedPosition(end, live.topic_id, target_id, floors[matched.target(source)])
        at = known.get(source)
        if at is None or at.topic_id not in {"", live.topic_id}:
            positions[source] = replace(new, offset=first) if has_begun else new
            continue
        if at.queries is not None and at.queries.hash == NO_QUERIES:  # nothing is matched
            positions[source] = replace(new, skipped=at.skipped, queries=at.queries)
            continue
        if not first <= at.offset <= end:
            there = f"the topic has {first} to {end}"
            skipped[source] = f"{source}: the next event was {at.offset}, and {there}"
        positions[source] = _within(at, new, first, end)
    sent, records = _sent_since(matched, positions)
    for source, event in sent.items():
        positions[source] = replace(
            positions[source], offset=event.offset, scan_from=event.target_offset
        )
    return MatchStart(positions, sent, skipped, records)


def _within(at: MatchedPosition, new: MatchedPosition, first: int, end: int) -> MatchedPosition:
    """Returns a position that the topics have, as near as possible to the committed one."""
    offset, queries = max(first, min(at.offset, end)), at.queries
    scan_from = at.scan_from if offset == at.offset else new.scan_from
    if at.target_id != new.target_id:  # what was sent before is gone
        scan_from = 0
    if queries is not None and (at.target_id != new.target_id or offset < at.offset):
        queries = replace(queries, since=offset, scan_from=scan_from)
    skipped = at.skipped + max(offset - at.offset, 0)
    return replace(new, offset=offset, scan_from=scan_from, skipped=skipped, queries=queries)


def with_queries(start: MatchStart, rules: EmittingRules) -> dict[TopicPartition, MatchedPosition]:
    """Returns the positions of a start from which on events are matched with these queries."""
    rules_hash = rules.identities_hash
    positions: dict[TopicPartition, MatchedPosition] = {}
    for source, at in start.positions.items():
        before = at.queries
        if before is not None and (before.hash == rules_hash or not rules.has_new):
            since, scan_from = before.since, before.scan_from
        else:
            # Of the event that it goes on with, something was sent: perhaps for other queries.
            begins = (each.get(source.partition, 0) for each in rules.begins.values())
            since, scan_from = max(at.offset + (source in start.sent), *begins, 0), at.scan_from
        queries = MatchedQueries(since, scan_from, rules_hash, rules.registry)
        positions[source] = replace(at, queries=queries)
    return positions


def committed_positions(
    matched: MatchedTopic, sources: Collection[TopicPartition]
) -> dict[TopicPartition, MatchedPosition]:
    """Returns what is committed for partitions of the topic; those without are left out."""
    offsets = committed(matched.config, matched.group, sources)
    return {TopicPartition(o.topic, o.partition): MatchedPosition.of(o) for o in offsets}


def commit_positions(
    matched: MatchedTopic, positions: Mapping[TopicPartition, MatchedPosition]
) -> None:
    """Commits positions, and that there are any."""
    offsets = [
        confluent_kafka.TopicPartition(source.topic, source.partition, at.offset, at.metadata)
        for source, at in positions.items()
    ]
    mark = confluent_kafka.TopicPartition(matched.mark.topic, matched.mark.partition, 0)
    commit(matched.config, matched.group, [*offsets, mark])


def _sent_since(
    matched: MatchedTopic, positions: Mapping[TopicPartition, MatchedPosition]
) -> tuple[dict[TopicPartition, SentOfEvent], int]:
    """Returns the last event from the positions on that was sent, and how many records were.

    Partitions of which none was sent are left out.
    """
    last: dict[TopicPartition, SentOfEvent] = {}
    records = 0
    for sent in sent_behind(matched, {source: at.scan_from for source, at in positions.items()}):
        source, offset = sent.source, sent.origin.offset
        if offset < positions[source].offset:
            continue
        records += 1
        before = last.get(source)
        if before is None or offset > before.offset:
            last[source] = SentOfEvent(offset, {sent.query}, sent.offset)
        elif offset == before.offset:
            last[source] = replace(before, queries={*before.queries, sent.query})
    return last, records


def sent_behind(
    matched: MatchedTopic, scan_from: Mapping[TopicPartition, int]
) -> Iterator[SentEventRecord]:
    """Yields the records of events of some partitions in the topic of matched events.

    Args:
        matched: whose events, and where they were sent.
        scan_from: offset in the topic of matched events to begin at, by partition of the events.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        RecordsUnreadableError: if records are damaged.
    """
    floors: dict[TopicPartition, int] = {}
    for source, offset in scan_from.items():
        target = matched.target(source)
        floors[target] = min(offset, floors.get(target, offset))
    marks = watermarks(matched.config, floors)
    ranges = (
        OffsetRange(target, max(floors[target], first), end)
        for target, (first, end) in marks.items()
    )
    for record in read_records(matched.config, matched.group, ranges):
        origin = _origin(matched, record)
        if origin is None:
            continue
        query = (record.key() or b"").decode(errors="backslashreplace")
        sent = SentEventRecord(origin, query, record.offset())
        # Several partitions are sent to one.
        if sent.source in scan_from and sent.offset >= scan_from[sent.source]:
            yield sent


def _origin(matched: MatchedTopic, record: Record) -> Origin | None:
    known = origins(headers_of(record) or ())
    is_ours = known and (known[-1].site, known[-1].topic) == (matched.site, matched.topic.name)
    return known[-1] if is_ours else None
