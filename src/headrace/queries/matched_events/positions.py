"""Where the events of a topic go on, and what of them was sent before.

The position of a partition is committed in a consumer group of the topic, with the offset of the
topic of matched events from which on later events are looked for. The first start begins with the
events that come from then on. Kafka forgets the positions of a topic that is deleted, so that a
mark in the group, of the topic of matched events, says that this is not the first one: then
partitions without a position begin with their first event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import confluent_kafka

from headrace.errors import TopicMissingError
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
from headrace.model import EventSchema, OffsetRange, Topic, TopicPartition
from headrace.queries.declaration import StandingQueries
from headrace.queries.matched_events.sent import SentEventRecord, SentOfEvent
from headrace.transfer.committed_position import CommittedPosition
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
        topic = describe(self.config, [self.topic.name]).get(self.topic.name)
        if topic is None:
            raise TopicMissingError(self.topic.name)
        return topic


@dataclass(frozen=True)
class MatchStart:
    """The places where the partitions of a topic go on.

    Attributes:
        positions: of each partition.
        sent: what was sent of the event that a partition goes on with.
        skipped: events that are gone before they were looked at, as sentences, by partition.
        records: that were sent since the positions were committed.
    """

    positions: Mapping[TopicPartition, CommittedPosition]
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
    live = matched.live()
    sources = live.all_partitions
    known = committed_positions(matched, [*sources, matched.mark])
    has_begun = matched.mark in known
    marks = watermarks(matched.config, sources)
    at_ends = _at_ends(matched, live, marks)
    positions: dict[TopicPartition, CommittedPosition] = {}
    skipped: dict[TopicPartition, str] = {}
    for source in sources:
        first, end = marks[source]
        new, at = at_ends[source], known.get(source)
        if at is None or at.topic_id != live.topic_id:
            positions[source] = replace(new, offset=first) if has_begun else new
        elif not first <= at.offset <= end:
            there = f"the topic has {first} to {end}"
            skipped[source] = f"{source}: the next event was {at.offset}, and {there}"
            positions[source] = replace(new, offset=max(first, min(at.offset, end)))
        else:
            positions[source] = at
    sent, records = _sent_since(matched, positions)
    for source, event in sent.items():
        positions[source] = replace(
            positions[source], offset=event.offset, scan_from=event.target_offset
        )
    return MatchStart(positions, sent, skipped, records)


def positions_at_ends(matched: MatchedTopic) -> dict[TopicPartition, CommittedPosition]:
    """Returns the positions behind all events that there are. Raises as :func:`find_start`."""
    live = matched.live()
    return _at_ends(matched, live, watermarks(matched.config, live.all_partitions))


def _at_ends(
    matched: MatchedTopic, live: LiveTopic, marks: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, CommittedPosition]:
    targets = {matched.target(source) for source in marks}
    floors = high_watermarks(matched.config, targets)
    return {
        source: CommittedPosition(end, live.topic_id, floors[matched.target(source)])
        for source, (_, end) in marks.items()
    }


def committed_positions(
    matched: MatchedTopic, sources: Collection[TopicPartition]
) -> dict[TopicPartition, CommittedPosition]:
    """Returns what is committed for partitions of the topic; those without are left out."""
    offsets = committed(matched.config, matched.group, sources)
    return {TopicPartition(o.topic, o.partition): CommittedPosition.of(o) for o in offsets}


def commit_positions(
    matched: MatchedTopic, positions: Mapping[TopicPartition, CommittedPosition]
) -> None:
    """Commits positions, and that there are any."""
    offsets = [
        confluent_kafka.TopicPartition(source.topic, source.partition, at.offset, at.metadata)
        for source, at in positions.items()
    ]
    mark = confluent_kafka.TopicPartition(matched.mark.topic, matched.mark.partition, 0)
    commit(matched.config, matched.group, [*offsets, mark])


def _sent_since(
    matched: MatchedTopic, positions: Mapping[TopicPartition, CommittedPosition]
) -> tuple[dict[TopicPartition, SentOfEvent], int]:
    """Returns the last event from the positions on that was sent, and how many records were.

    Partitions of which none was sent are left out.
    """
    last: dict[TopicPartition, SentOfEvent] = {}
    records = 0
    for sent in _sent_behind(matched, positions):
        source, offset = sent.source, sent.origin.offset
        if source not in positions or offset < positions[source].offset:
            continue
        records += 1
        before = last.get(source)
        if before is None or offset > before.offset:
            last[source] = SentOfEvent(offset, {sent.query}, sent.offset)
        elif offset == before.offset:
            last[source] = replace(before, queries={*before.queries, sent.query})
    return last, records


def _sent_behind(
    matched: MatchedTopic, positions: Mapping[TopicPartition, CommittedPosition]
) -> Iterator[SentEventRecord]:
    """Yields what was sent since the positions, and more."""
    floors: dict[TopicPartition, int] = {}
    for source, at in positions.items():
        target = matched.target(source)
        floors[target] = min(at.scan_from, floors.get(target, at.scan_from))
    marks = watermarks(matched.config, floors)
    ranges = (
        OffsetRange(target, max(floors[target], first), end)
        for target, (first, end) in marks.items()
    )
    return sent_records(matched, ranges)


def sent_records(matched: MatchedTopic, ranges: Iterable[OffsetRange]) -> Iterator[SentEventRecord]:
    """Yields the records of events of the topic, from ranges of the topic of matched events.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        RecordsUnreadableError: if records are damaged.
    """
    for record in read_records(matched.config, matched.group, ranges):
        origin = _origin(matched, record)
        if origin is not None:
            query = (record.key() or b"").decode(errors="backslashreplace")
            yield SentEventRecord(origin, query, record.offset())


def _origin(matched: MatchedTopic, record: Record) -> Origin | None:
    known = origins(headers_of(record) or ())
    is_ours = known and (known[-1].site, known[-1].topic) == (matched.site, matched.topic.name)
    return known[-1] if is_ours else None
