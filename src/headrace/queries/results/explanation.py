"""Explains the results of a standing query. It only reads topics, and needs no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from headrace.events.times import time_of
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.read.range_reader import read_backwards
from headrace.model import TopicPartition
from headrace.pipelines.declaration import Pipeline
from headrace.project.loaded import LoadedProject
from headrace.project.services import broker_config
from headrace.queries.book import last_positions
from headrace.queries.declaration import StandingQueries
from headrace.queries.records.matched import Tick, decode_matched
from headrace.queries.registry.registrations import (
    QueryEntry,
    QueryRegistry,
    QueryState,
    declared_queries,
)
from headrace.queries.registry.statements import checked_query
from headrace.queries.results.batch_queries import BatchQueriesCheck
from headrace.queries.rules import queries_matched_by
from headrace.queries.sample import QuerySample, newest_events, sample_query
from headrace.queries.windows.instance.owners import InstanceSlot, instance_slots
from headrace.runtime.clock import now_in_ms

DEFAULT_EVENTS = 10_000
_MAX_LOOK_OFFSETS = 100_000


@dataclass(frozen=True)
class MatchingPipeline:
    """A pipeline that matches the events of a query's topic, as of its last batch.

    Attributes:
        pipeline: name of the pipeline.
        has_query: whether the last batch had the query with its current text; ``None`` if unknown.
        planned_at: time when that batch was planned; ``None`` if its tick is not among the newest
            records.
        rules: hash of the queries that the last batch with events had; empty if unknown.
        has_registered_rules: whether the batch had the queries that were registered when it was
            planned; ``None`` if unknown, for example because queries have changed since.
        event_time: event clock of the topic; ``None`` if unknown.
        lag: offsets from the batch's positions to the ends of the topic; ``None`` if unknown.
    """

    pipeline: str
    has_query: bool | None = None
    planned_at: datetime | None = None
    rules: str = ""
    has_registered_rules: bool | None = None
    event_time: datetime | None = None
    lag: int | None = None


@dataclass(frozen=True)
class QueryExplanation:
    """What is known of a query, from its registration to its results.

    Attributes:
        entry: the query's entry in the registry, with state and lifetime.
        sample: figures of the query on the newest events; ``None`` if it can't be evaluated.
        pipelines: pipelines that match the events of the query's topic.
        instances: slots of the instances that add up windows and write results.
        late_events: events that came after their window had ended, as of the last snapshots, each
            counted for every window that it was late for; ``None`` if there are no snapshots.
        unknown: what is not known, as sentences.
    """

    entry: QueryEntry
    sample: QuerySample | None
    pipelines: tuple[MatchingPipeline, ...]
    instances: tuple[InstanceSlot, ...]
    late_events: int | None
    unknown: tuple[str, ...]


def explain_query(
    project: LoadedProject,
    query_id: str,
    *,
    max_events: int = DEFAULT_EVENTS,
    queries: str | None = None,
) -> QueryExplanation:
    """Returns an explanation of a query's results.

    Args:
        project: the project that declares the query's topic and the pipelines that match its
            events.
        query_id: id of a registered query.
        max_events: the greatest number of newest events to evaluate.
        queries: name of the standing queries; ``None`` if the project declares only one.

    Raises:
        QueryMissingError: if the id is unknown.
        NotDeclaredError: if there are no such standing queries.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
        RecordsUnreadableError: if records are damaged.
    """
    declared = declared_queries(project, queries)
    entry = QueryRegistry(project, queries).entry(query_id)
    config = broker_config(project.settings)
    instances = instance_slots(config, declared, now_in_ms())
    sample = event_sample(project, config, entry, max_events)
    pipelines = matching_pipelines(project, config, declared, entry)
    unknown = tuple(_unknown(entry, sample, pipelines, max_events))
    late_events = late_event_count(config, declared, query_id)
    return QueryExplanation(entry, sample, pipelines, tuple(instances), late_events, unknown)


@dataclass(frozen=True)
class LastTicks:
    """The last ticks of a pipeline in a partition of the matched topic.

    Attributes:
        last: the last tick.
        with_rules: the last tick of a batch with events, which has the hash of the batch's
            queries; ``None`` if it is not among the newest records.
    """

    last: Tick
    with_rules: Tick | None


def last_ticks(
    config: ClientConfig, partition: TopicPartition, topic: str, pipelines: Iterable[str]
) -> dict[str, LastTicks]:
    """Returns the last ticks of each pipeline, read from the end of a partition backwards.

    Pipelines without a tick among the newest 100,000 offsets are left out.

    Args:
        config: librdkafka's settings of the cluster.
        partition: a partition of the matched topic; every partition has all ticks.
        topic: name of the topic whose events were matched.
        pipelines: names of the pipelines to look for.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    remaining, ticks = set(pipelines), dict[str, LastTicks]()
    if not remaining:
        return ticks
    for record in read_backwards(config, "headrace.explain", partition, _MAX_LOOK_OFFSETS):
        tick = _tick(record.value())
        if tick is None or tick.topic != topic or tick.pipeline not in remaining:
            continue
        last = ticks[tick.pipeline].last if tick.pipeline in ticks else tick
        ticks[tick.pipeline] = LastTicks(last, tick if tick.rules else None)
        if tick.rules:
            remaining.remove(tick.pipeline)
        if not remaining:
            break
    return ticks


def _tick(value: bytes | None) -> Tick | None:
    try:
        record = decode_matched(value or b"")
    except ValueError:
        return None  # written by another program; instances leave it out, too
    return record if isinstance(record, Tick) else None


def event_sample(
    project: LoadedProject, config: ClientConfig, entry: QueryEntry, max_events: int
) -> QuerySample | None:
    """Returns what the query finds in the newest events; ``None`` if they can't be evaluated."""
    if entry.query is None or entry.state is QueryState.FAULTY:
        return None
    topic = project.topics[entry.query.topic]
    if topic.event_time is None:
        return None
    query = checked_query(project, entry.query.text).query
    rows, rejected = newest_events(config, topic, max_events, project.settings.schema_registry)
    return sample_query(rows, query, topic, rejected)


def matching_pipelines(
    project: LoadedProject, config: ClientConfig, declared: StandingQueries, entry: QueryEntry
) -> tuple[MatchingPipeline, ...]:
    """Returns the pipelines that match the events of the query's topic."""
    if entry.query is None:
        return ()
    topic = entry.query.topic
    names = [
        pipeline.name
        for pipeline in project.declared(Pipeline).values()
        if any(queries.name == declared.name for queries in queries_matched_by(pipeline))
        and any(source.topic.name == topic for source in pipeline.sources)
    ]
    live = describe(config, [topic, declared.matched_topic])
    if not live.keys() >= {topic, declared.matched_topic}:
        return tuple(map(MatchingPipeline, names))
    ticks = last_ticks(config, TopicPartition(declared.matched_topic, 0), topic, names)
    ends = watermarks(config, live[topic].all_partitions)
    latest = {partition.partition: end for partition, (_, end) in ends.items()}
    check = BatchQueriesCheck(config, declared, project.topics[topic])
    return tuple(_pipeline(name, ticks.get(name), latest, entry, check) for name in names)


def late_event_count(config: ClientConfig, declared: StandingQueries, query_id: str) -> int | None:
    """Returns the number of late events of a query; ``None`` if no instance has reported it."""
    live = describe(config, [declared.snapshots_topic]).get(declared.snapshots_topic)
    partitions = [] if live is None else live.all_partitions
    reported = [
        last for partition in partitions if (last := last_positions(config, partition)) is not None
    ]
    if not reported:
        return None
    return sum(position.late.get(query_id, 0) for (position, _), _ in reported)


def _pipeline(
    name: str,
    ticks: LastTicks | None,
    latest: Mapping[int, int],
    entry: QueryEntry,
    check: BatchQueriesCheck,
) -> MatchingPipeline:
    if ticks is None:
        return MatchingPipeline(name)
    tick, with_rules = ticks.last, ticks.with_rules
    event_us = tick.event_us
    return MatchingPipeline(
        name,
        has_query=_has_query(entry, tick.registry_offset),
        planned_at=time_of(tick.planned_ms * 1000),
        rules="" if with_rules is None else with_rules.rules,
        has_registered_rules=None if with_rules is None else check.had_registered(name, with_rules),
        event_time=None if event_us is None else time_of(event_us),
        lag=sum(max(end - tick.positions.get(number, 0), 0) for number, end in latest.items()),
    )


def _has_query(entry: QueryEntry, registry_offset: int) -> bool | None:
    """Returns whether a batch had the query's text; ``None`` if Kafka may have deleted the record.

    Args:
        entry: the query's entry in the registry.
        registry_offset: offset of the first registry record that the batch had not read.
    """
    if entry.first is None:
        return None
    if entry.first.offset < registry_offset:
        return True
    return False if entry.first.is_certain else None


def _unknown(
    entry: QueryEntry,
    sample: QuerySample | None,
    pipelines: tuple[MatchingPipeline, ...],
    max_events: int,
) -> Iterable[str]:
    if sample is None:
        yield "which events match: the query can't be evaluated"
    elif not sample.events:
        yield "which events match: the topic has no events now"
    elif sample.events + sample.rejected >= max_events:
        yield f"what older events come to: the newest {max_events:,} were looked at"
    if entry.query is not None and not pipelines:
        yield "how far its events are matched: no declared pipeline matches them"
    for pipeline in pipelines:
        if pipeline.planned_at is None:
            yield (
                f"which queries pipeline {pipeline.pipeline!r} has: no batch is among the newest "
                f"{_MAX_LOOK_OFFSETS:,} offsets of the matched topic"
            )
        elif pipeline.has_query is None:
            yield (
                f"whether pipeline {pipeline.pipeline!r} has the query: its last batch is older "
                "than the first record of the query that Kafka has kept"
            )
