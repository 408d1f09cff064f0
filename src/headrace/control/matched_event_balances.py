"""Compares the events of topics with those in the topic of matched events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.control.matched_event_recount import (
    EmittedQuery,
    MatchedEventCounts,
    MatchedEventRecount,
    SentEvents,
)
from headrace.control.project import LoadedProject
from headrace.control.query_registry import QueryState, matched_topics, registered_queries
from headrace.control.query_sample import newest_ranges
from headrace.control.services import broker_config
from headrace.control.site_clusters import own_cluster
from headrace.control.standing_queries import checked_query
from headrace.errors import BrokerUnreachableError, TopicMissingError
from headrace.kafka.client import watermarks
from headrace.kafka.range_reader import read_records
from headrace.model import OffsetRange, Topic, TopicPartition
from headrace.pipelines.ledger.sums import Hop
from headrace.pipelines.ledger.windows import Imbalance, WindowState
from headrace.pipelines.source.decode import decoder_for
from headrace.queries.declaration import StandingQueries
from headrace.queries.match.shape import compile_query
from headrace.queries.matched_events.positions import (
    MatchedTopic,
    committed_positions,
    sent_records,
)
from headrace.queries.matched_events.sent import SentEventRecord

MAX_EVENTS = 1_000_000
"""Of a topic, the newest are looked at."""

# Within it, `query emit` has seen a change of the queries; clocks may differ by as much.
_SETTLE_MS = 60_000
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
    return tuple(balance for declared in queries for balance in _balances(project, declared))


def _balances(project: LoadedProject, declared: StandingQueries) -> list[MatchedEventsBalance]:
    topics = matched_topics(project, declared.name)
    try:
        emitted = _emitted_queries(project, declared, topics)
        return [_balance(project, declared, topics[name], emitted[name]) for name in emitted]
    except (BrokerUnreachableError, TopicMissingError) as error:
        return [_unknown(declared, name, str(error)) for name in sorted(topics)]


def _emitted_queries(
    project: LoadedProject, declared: StandingQueries, topics: Mapping[str, Topic]
) -> dict[str, list[EmittedQuery]]:
    """Returns the live queries by topic, in which each has one at least."""
    emitted: dict[str, list[EmittedQuery]] = {}
    for entry in registered_queries(project, queries=declared.name):
        registered, first = entry.query, entry.first
        if registered is None or first is None or entry.state is not QueryState.LIVE:
            continue
        query, topic = checked_query(project, registered.text).query, topics.get(registered.topic)
        if topic is not None and topic.schema is not None and query.emits_events:
            shape, _ = compile_query(query, topic.schema)
            since_ms = int(first.updated_at.timestamp() * 1000) + _SETTLE_MS
            own = emitted.setdefault(topic.name, [])
            own.append(EmittedQuery(registered.id, since_ms, shape.operands))
    return dict(sorted(emitted.items()))


def _balance(
    project: LoadedProject, declared: StandingQueries, topic: Topic, emitted: Sequence[EmittedQuery]
) -> MatchedEventsBalance:
    settings = project.settings
    matched = MatchedTopic(declared, topic, broker_config(settings), own_cluster(settings).site)
    ranges = _looked_at(matched)
    sent = SentEvents(_sent(matched, ranges))
    decoder = decoder_for(topic.record_format, topic.schema, settings.schema_registry)
    recount = MatchedEventRecount(emitted, sent, decoder, topic.event_time or "")
    counts: dict[TopicPartition, MatchedEventCounts] = {}
    for range_ in _behind_oldest(ranges, sent):
        records = read_records(matched.config, _GROUP, [range_])
        counts[range_.partition] = recount.count(range_.partition.partition, records)
    differences = tuple(_differences(counts))
    balance = MatchedEventsBalance(
        declared.name,
        topic.name,
        WindowState.UNBALANCED if differences else WindowState.BALANCED,
        sum(each.events for each in counts.values()),
        sum(each.matches for each in counts.values()),
        sum(each.in_topic for each in counts.values()),
        differences,
    )
    if balance.events:
        return balance
    return _unknown(
        declared,
        topic.name,
        "`headrace query emit` has looked at no event behind the oldest of its matched events that "
        "came more than a minute after its query",
    )


def _unknown(declared: StandingQueries, topic: str, reason: str) -> MatchedEventsBalance:
    return MatchedEventsBalance(declared.name, topic, WindowState.UNKNOWN, unknown=reason)


def _looked_at(matched: MatchedTopic) -> list[OffsetRange]:
    """Returns the newest events that `query emit` has looked at, by partition."""
    live = matched.live()
    marks = watermarks(matched.config, live.all_partitions)
    positions = committed_positions(matched, live.all_partitions)
    looked_at = {
        source: (marks[source][0], max(at.offset, marks[source][0]))
        for source, at in positions.items()
        if at.topic_id == live.topic_id
    }
    return newest_ranges(looked_at, MAX_EVENTS)


def _sent(matched: MatchedTopic, ranges: Sequence[OffsetRange]) -> Iterator[SentEventRecord]:
    """Yields records of the events of ranges.

    What was sent long before the first of them is of an earlier topic of that name.
    """
    first_ms = {range_.partition: _first_ms(matched, range_) for range_ in ranges}
    targets = {matched.target(range_.partition) for range_ in ranges}
    marks = watermarks(matched.config, targets)
    whole = [OffsetRange(target, first, end) for target, (first, end) in marks.items()]
    for record in sent_records(matched, whole):
        begin_ms = first_ms.get(record.source)
        if begin_ms is not None and record.sent_ms >= begin_ms - _SETTLE_MS:
            yield record


def _first_ms(matched: MatchedTopic, range_: OffsetRange) -> int | None:
    record = next(read_records(matched.config, _GROUP, [range_]), None)
    return None if record is None else record.timestamp()[1]


def _behind_oldest(ranges: Iterable[OffsetRange], sent: SentEvents) -> Iterator[OffsetRange]:
    """Yields what is behind the oldest event that was sent and is there.

    Events before the first start are not sent, and Kafka deletes the oldest records.
    """
    for range_ in ranges:
        oldest = sent.oldest(range_.partition.partition)
        if oldest is not None:
            yield replace(range_, start=min(max(range_.start, oldest + 1), range_.end))


def _differences(counts: Mapping[TopicPartition, MatchedEventCounts]) -> Iterator[Imbalance]:
    for partition, each in counts.items():
        for number in (each.missing, -each.too_many):
            if number:
                path = partition.path
                yield Imbalance(Hop.MATCHED_EVENTS, number, 0, ids_differ=False, partition=path)
