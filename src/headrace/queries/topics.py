"""The topics of standing queries, created by the first process that needs them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from headrace.errors import TopicChangeError
from headrace.kafka.admin.propagation import until_known
from headrace.kafka.admin.record_limits import MAX_MESSAGE_BYTES
from headrace.kafka.admin.topics import Action, TopicChange, TopicState, ensure_topics, plan_topics
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.changelog import changelog_topic, possible_replication
from headrace.model import Topic
from headrace.queries.declaration import StandingQueries
from headrace.queries.registry.topic import (
    ensure_registry_topic,
    registry_topic,
    registry_topic_fault,
)

# Records are read within seconds; the stage that reads them may be down for this long.
_STAGE_RETENTION = timedelta(days=1)
# Retention does not delete the open segment, so segments are short.
_SHORT_SEGMENTS = {"segment.ms": "3600000"}
# A position names the queries with late events, ten thousand at most.
_LARGE_POSITIONS = {"max.message.bytes": str(8 * 2**20)}


def query_topics(queries: StandingQueries, replication: int) -> list[Topic]:
    """Returns the topics that standing queries need, the registry first.

    Args:
        queries: the standing queries.
        replication: the number of replicas of each topic.
    """
    between = [
        Topic(
            name,
            partitions=queries.partitions,
            replication=replication,
            retention=_STAGE_RETENTION,
            config=_SHORT_SEGMENTS,
        )
        for name in (queries.matched_topic, queries.ended_topic)
    ]
    snapshots = Topic(
        queries.snapshots_topic,
        partitions=queries.partitions,
        replication=replication,
        # Longer than the matched topic: without snapshots, everything in it would be added up
        # again.
        retention=2 * _STAGE_RETENTION,
        config=_SHORT_SEGMENTS | _LARGE_POSITIONS,
    )
    results = Topic(queries.results_topic, partitions=queries.partitions, replication=replication)
    matched_events = Topic(
        queries.matched_events_topic,
        partitions=queries.partitions,
        replication=replication,
        # An event may be as large as its topic allows, and gets further headers when it is sent on.
        config={"max.message.bytes": str(MAX_MESSAGE_BYTES)},
    )
    # Times are those of the brokers' clock, because clocks of instances may differ.
    leases = Topic(
        queries.leases_topic,
        replication=replication,
        compaction=True,
        config={"message.timestamp.type": "LogAppendTime", "segment.ms": "600000"},
    )
    return [
        registry_topic(queries, replication),
        changelog_topic(queries.positions_topic, replication),
        *between,
        snapshots,
        results,
        matched_events,
        leases,
    ]


def query_topic_changes(
    queries: StandingQueries, replication: int, live: Mapping[str, TopicState]
) -> list[TopicChange]:
    """Returns the topics that must be created, and those that are refused, with the reason.

    Args:
        queries: the standing queries.
        replication: the number of replicas of a new topic.
        live: the existing topics, by name.
    """
    registry, *topics = query_topics(queries, replication)
    missing = [topic for topic in (registry, *topics) if topic.name not in live]
    changes = plan_topics(missing, {})
    faults = {
        topic.name: _partitions_fault(queries, topic, live[topic.name].live)
        for topic in topics
        if topic.name in live
    }
    if registry.name in live:
        faults[registry.name] = registry_topic_fault(queries, registry, live[registry.name])
    refused = [TopicChange(name, Action.REFUSED, fault) for name, fault in faults.items() if fault]
    return changes + refused


def ensure_query_topics(config: ClientConfig, queries: StandingQueries) -> None:
    """Creates the missing topics of standing queries.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicChangeError: if Kafka refuses a topic, or an existing topic has another number of
            partitions, or the registry has other settings.
    """
    ensure_registry_topic(config, queries)
    _, *topics = query_topics(queries, possible_replication(config))
    ensure_topics(config, topics)
    names = [topic.name for topic in topics]
    live = until_known(lambda: describe(config, names), names)
    for topic in topics:
        fault = _partitions_fault(queries, topic, live[topic.name])
        if fault:
            raise TopicChangeError(topic.name, fault)


def _partitions_fault(queries: StandingQueries, topic: Topic, live: LiveTopic) -> str:
    if live.partitions == topic.partitions:
        return ""
    return (
        f"it has {live.partitions} partitions, and {queries.name!r} declares {topic.partitions}, "
        f"which can't be changed: declare partitions={live.partitions}, or queries with a new name"
    )
