"""Finds and commits the positions from which a topic's events continue, and what was sent.

The position of a partition is committed in a consumer group of the topic of events, with the offset
of the topic of matched events at which the scan for later events begins, and with the queries that
events are matched with. The first start begins at the ends of the partitions. A committed position
of the topic of matched events in the group, the mark, says that a start came before. Then
partitions without a position, which are new, or of a recreated topic, begin with their first event.
If there were no queries before, all partitions continue at their ends.

Events are known by their offsets. Where another leader does not have the log up to the last event
that was sent, the partition continues where the logs part: those events may be others (KIP-320).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.client.headers import headers_of
from headrace.kafka.client.offsets import commit, committed, earliest_offsets, high_watermarks
from headrace.kafka.client.partitions import client_partition, partition_of
from headrace.kafka.origin import origins
from headrace.kafka.read.range_reader import read_records
from headrace.kafka.read.resume import (
    Gap,
    LogState,
    Position,
    Truncated,
    log_states,
    verdict,
    with_cuts,
)
from headrace.model import OffsetRange, TopicPartition
from headrace.queries.emit.emitter_position import CommittedQueries, EmitterPosition
from headrace.queries.emit.plan import EmitterPlan
from headrace.queries.emit.rules import EmittingRules
from headrace.queries.emit.sent import SentEventRecord, SentOfEvent

_ASK_SECONDS = 0.5  # ends of partitions that are too low are asked for again at this interval


@dataclass(frozen=True)
class EmitterStart:
    """The positions at which an emitter continues in the partitions of a topic.

    Attributes:
        positions: the position of each partition.
        sent: the event that a partition continues with, if records of it were sent, by partition.
        losses: sentences about events that can't be matched any more, or may be sent twice.
        records: number of records that were sent since the positions were committed.
        is_first: whether no positions are committed, or the brokers have lost them.
    """

    positions: Mapping[TopicPartition, EmitterPosition]
    sent: Mapping[TopicPartition, SentOfEvent]
    losses: Collection[str] = ()
    records: int = 0
    is_first: bool = False


def find_start(matched: EmitterPlan, failover_seconds: float = 10.0) -> EmitterStart:
    """Returns the positions to continue from.

    Args:
        matched: the topic of events, and that of matched events.
        failover_seconds: how long ends of partitions that are too low are asked for again.

    Raises:
        TopicMissingError: if the topic of events does not exist.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    live, target = matched.live_with_target()
    sources, target_id = live.all_partitions, target.topic_id
    known = committed_positions(matched, [*sources, matched.mark])
    mark = known.pop(matched.mark, None)
    # Kafka deletes the mark with the topic of matched events.
    earlier = [at for at in known.values() if at.topic_id] if mark is None else [mark]
    before = {
        source: at if at.target_id == target_id else replace(at, scan_from=0)
        for source, at in known.items()
        if at.topic_id in {"", live.topic_id} and not at.matches_nothing
    }
    # Before the scan: what is sent from now on is after these offsets.
    floors = high_watermarks(matched.config, set(map(matched.target, sources)))
    last, records = _sent_since(matched, before)
    reached = {
        source: replace(at, offset=last[source].offset + 1 if source in last else at.offset).reached
        for source, at in before.items()
    }
    logs = _logs(matched, live, reached, failover_seconds)
    sent = {p: last[p] for p in last if logs[p].first <= last[p].offset < _whole_to(logs[p])}
    positions: dict[TopicPartition, EmitterPosition] = {}
    for source, log in logs.items():
        scan_from = floors[matched.target(source)]
        end = EmitterPosition(log.end, live.topic_id, scan_from, "", log.epoch, target_id)
        at = known.get(source)
        if source in before:
            looked_at = reached[source].offset
            positions[source] = _continued(before[source], looked_at, sent.get(source), end, log)
        # No query asked for events until now, and new queries begin with new events.
        elif at is not None and at.matches_nothing:
            positions[source] = replace(end, skipped=at.skipped, queries=at.queries)
        elif all(at.matches_nothing for at in earlier):
            positions[source] = end
        # A partition that is new since an earlier start: none of its events was sent.
        else:
            positions[source] = replace(end, offset=log.first)
    losses = [loss for source, at in reached.items() for loss in _losses(source, at, logs[source])]
    return EmitterStart(positions, sent, losses, records, is_first=not earlier)


def _whole_to(log: LogState) -> int:
    """Returns the offset before which the log has the events that were matched."""
    return log.end if log.cut is None else min(log.cut, log.end)


def _losses(source: TopicPartition, at: Position, log: LogState) -> Iterator[str]:
    match verdict(at, log):
        case Truncated() if log.cut is not None:
            cut = f"another leader has a log of its own from offset {log.cut} on"
            yield f"{source}: {cut}; its events are sent, though some may have been"
        case Gap() | Truncated():
            range_ = f"the topic has {log.first} to {log.end}"
            yield f"{source}: events are skipped: the next event was {at.offset}, and {range_}"


def _logs(
    matched: EmitterPlan,
    live: LiveTopic,
    reached: Mapping[TopicPartition, Position],
    failover_seconds: float,
) -> dict[TopicPartition, LogState]:
    """Returns the logs of all partitions, compared with the positions.

    After a failover, the new leader may for a moment report a lower end than the old leader did. An
    end before the events that were matched is asked for again for a while. Partitions without a
    leader are asked for, too: the start fails without them.
    """
    topics = {live.name: replace(live, leaderless=frozenset())}
    deadline = time.monotonic() + failover_seconds
    while True:
        logs = log_states(matched.config, topics, live.all_partitions)
        is_cut = any(logs[source].end < at.offset for source, at in reached.items())
        if not is_cut or time.monotonic() > deadline:
            return with_cuts(matched.config, logs, reached)
        time.sleep(_ASK_SECONDS)


def _continued(
    at: EmitterPosition,
    looked_at: int,
    sent: SentOfEvent | None,
    end: EmitterPosition,
    log: LogState,
) -> EmitterPosition:
    """Returns the position at which a partition continues.

    Args:
        at: the committed position.
        looked_at: the offset before which all events were matched.
        sent: the last event before ``looked_at`` with records that were sent. The partition
            continues with this event, because records of it may be missing.
        end: the position at the ends of both topics.
        log: the log of the partition.
    """
    whole_to, scan_from = _whole_to(log), end.scan_from
    offset = max(log.first, min(looked_at, whole_to))
    if sent is not None:
        offset, scan_from = sent.offset, sent.target_offset
    queries = at.queries
    # The log of events was truncated, or the topic of matched events was recreated.
    if queries is not None and (looked_at > whole_to or at.target_id != end.target_id):
        queries = replace(queries, since=min(looked_at, whole_to), scan_from=scan_from)
    skipped = at.skipped + max(log.first - looked_at, 0)
    return replace(end, offset=offset, scan_from=scan_from, skipped=skipped, queries=queries)


def with_queries(
    start: EmitterStart, rules: EmittingRules, schema_hash: str
) -> dict[TopicPartition, EmitterPosition]:
    """Returns the positions of a start, with the queries that later events are matched with.

    Args:
        start: the positions to continue at.
        rules: rules of the queries.
        schema_hash: hash of the events' fields and event time.
    """
    rules_hash = rules.identities_hash
    positions: dict[TopicPartition, EmitterPosition] = {}
    for source, at in start.positions.items():
        before = at.queries
        is_known = before is not None and (before.hash == rules_hash or not rules.has_new)
        if before is not None and is_known and before.schema == schema_hash:
            since, scan_from = before.since, before.scan_from
        else:
            # Records of the first event that were sent before may be for other queries.
            begins = (begin.get(source.partition, 0) for begin in rules.begins.values())
            since, scan_from = max(at.offset + (source in start.sent), *begins, 0), at.scan_from
        queries = CommittedQueries(since, scan_from, rules_hash, rules.registry, schema_hash)
        positions[source] = replace(at, queries=queries)
    return positions


def committed_positions(
    matched: EmitterPlan, sources: Collection[TopicPartition]
) -> dict[TopicPartition, EmitterPosition]:
    """Returns the committed positions of partitions; partitions without one are left out."""
    offsets = committed(matched.config, matched.group, sources)
    return {partition_of(offset): EmitterPosition.of(offset) for offset in offsets}


def commit_positions(
    matched: EmitterPlan, positions: Mapping[TopicPartition, EmitterPosition]
) -> None:
    """Commits positions, which all have the same queries, and the mark of a start."""
    queries = next((at.queries for at in positions.values()), None)
    marked = {**positions, matched.mark: EmitterPosition(0, queries=queries)}
    offsets = [client_partition(source, at.offset, at.metadata) for source, at in marked.items()]
    commit(matched.config, matched.group, offsets)


def _sent_since(
    matched: EmitterPlan, positions: Mapping[TopicPartition, EmitterPosition]
) -> tuple[dict[TopicPartition, SentOfEvent], int]:
    """Returns the last sent event of each partition, and the number of records sent.

    Events before the positions do not count. Partitions without sent events are left out.
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
    matched: EmitterPlan, scan_from: Mapping[TopicPartition, int]
) -> Iterator[SentEventRecord]:
    """Yields the records in the topic of matched events whose events are of these partitions.

    Args:
        matched: the topic of events, and the topic of matched events.
        scan_from: the offset in the topic of matched events to begin at, by partition of events.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        RecordsUnreadableError: if records are damaged.
    """
    floors: dict[TopicPartition, int] = {}
    for source, offset in scan_from.items():
        target = matched.target(source)
        floors[target] = min(offset, floors.get(target, offset))
    firsts = earliest_offsets(matched.config, floors)
    # Records are sent without transactions; other programs may have open ones before them.
    ends = high_watermarks(matched.config, floors)
    ranges = (
        OffsetRange(target, max(floors[target], firsts[target]), end)
        for target, end in ends.items()
    )
    for record in read_records(matched.config, matched.group, ranges, with_uncommitted=True):
        known = origins(headers_of(record) or ())
        is_ours = known and (known[-1].site, known[-1].topic) == (matched.site, matched.topic.name)
        if not is_ours:
            continue
        query = (record.key() or b"").decode(errors="backslashreplace")
        sent = SentEventRecord(known[-1], query, record.offset())
        # Several partitions of events share one target.
        if sent.source in scan_from and sent.offset >= scan_from[sent.source]:
            yield sent
