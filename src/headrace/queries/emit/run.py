"""Runs a process that sends matched events; it needs Spark."""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import NotDeclaredError, QueriesUnmatchedError, QueryUnmatchedError
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import Topic
from headrace.project.loaded import LoadedProject
from headrace.project.site_clusters import own_cluster
from headrace.queries.declaration import StandingQueries
from headrace.queries.emit.emitter import EventEmitter
from headrace.queries.emit.plan import EmitterPlan, check_format
from headrace.queries.emit.status import EmitterStatus
from headrace.queries.match.held import RegistryReader
from headrace.queries.registry.registrations import event_topics
from headrace.queries.sample import newest_events
from headrace.service.run import RunOptions, ServiceRun
from headrace.service.status import StatusFolder
from headrace.settings import Settings, environment
from headrace.spark.kafka_session import kafka_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(\[.*\])?")
_NEWEST_EVENTS = 2_000


def matched_events_run(
    project: LoadedProject,
    queries: StandingQueries,
    topic: str | None,
    options: RunOptions,
) -> ServiceRun[EmitterStatus]:
    """Returns a process that sends the matched events of a topic.

    Args:
        project: the project that declares the topic and the standing queries.
        queries: the standing queries.
        topic: name of the topic of events; ``None`` for the only topic that is matched with the
            queries.
        options: options of the run.

    Raises:
        QueriesUnmatchedError: if no pipeline matches events with the queries.
        QueryUnmatchedError: if no pipeline matches the topic's events with the queries.
        NotDeclaredError: if there is no such topic, or several topics and no name is given.
        MatchedEventsFormatError: if the topic's records are not JSON with one event each.
        BrokerUnreachableError: if the embedded broker was never started.
    """
    settings = project.settings
    declared = _matched(project, queries, topic)
    check_format(declared)
    own = own_cluster(settings.of("standing_queries", queries.name))
    config = own.client_config(may_be_down=True)
    matched = EmitterPlan(queries, declared, config, own.site)
    registry = RegistryReader(
        f"matched-events.{matched.name}",
        queries.queries_topic,
        declared.name,
        matched.schema,
        KafkaCluster(config),
    )

    def newest() -> pa.Table:
        events, _ = newest_events(config, declared, _NEWEST_EVENTS, settings.schema_registry)
        return events

    session = partial(_session, settings, declared)
    emitter = EventEmitter(matched, registry, newest, session, settings.restart, settings.state)
    return ServiceRun(emitter, StatusFolder(settings.state, EmitterStatus), options)


def _matched(project: LoadedProject, queries: StandingQueries, topic: str | None) -> Topic:
    known = project.topics.get(topic or "")
    if known is not None:
        check_format(known)
    topics = event_topics(project, queries.name)
    if topic is None and len(topics) == 1:
        return next(iter(topics.values()))
    if not topics:
        raise QueriesUnmatchedError(queries.name)
    matched = ", ".join(sorted(topics))
    if topic is None or known is None:
        raise NotDeclaredError("topic", topic or "(none is named by --topic)", matched)
    if topic not in topics:
        raise QueryUnmatchedError(topic, queries.name, matched)
    return topics[topic]


def _session(settings: Settings, topic: Topic) -> AbstractContextManager[SparkSession]:
    """Returns a Spark session; if local, with at least two cores per partition for real time."""
    master = settings.spark.master
    if _LOCAL.fullmatch(master):
        master = f"local[{max(os.cpu_count() or 1, 2 * topic.partitions)}]"
    return kafka_session(settings, f"matched events of {topic.name}", environment(), master)
