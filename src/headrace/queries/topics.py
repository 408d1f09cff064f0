"""The topics behind standing queries, created by the process that needs them first."""

from __future__ import annotations

from datetime import timedelta

from headrace.errors import TopicChangeError
from headrace.kafka.changelog import ensure_changelog, possible_replication
from headrace.kafka.client import MAX_MESSAGE_BYTES, ClientConfig, describe
from headrace.kafka.topics import ensure_topics
from headrace.model import Topic
from headrace.queries.declaration import StandingQueries
from headrace.queries.registry.topic import ensure_registry_topic

# Of what is read within seconds: so long may the stage behind it be away.
_STAGE_RETENTION = timedelta(days=1)
# Retention spares the open segment.
_SHORT_SEGMENTS = {"segment.ms": "3600000"}
# A position names the queries with late events, ten thousand at most.
_LARGE_POSITIONS = {"max.message.bytes": str(8 * 2**20)}


def ensure_query_topics(config: ClientConfig, queries: StandingQueries) -> None:
    """Creates the topics that are missing.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicChangeError: if Kafka refuses a topic, or one of them has another number of partitions.
    """
    replication = possible_replication(config)
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
        # Longer: without them, all that is matched would be answered once more.
        retention=2 * _STAGE_RETENTION,
        config=_SHORT_SEGMENTS | _LARGE_POSITIONS,
    )
    results = Topic(queries.results_topic, partitions=queries.partitions, replication=replication)
    matched_events = Topic(
        queries.matched_events_topic,
        partitions=queries.partitions,
        replication=replication,
        # An event as large as its topic allows has headers, too, when it is sent on.
        config={"max.message.bytes": str(MAX_MESSAGE_BYTES)},
    )
    # By the brokers' clock, which all instances read: their own may differ.
    leases = Topic(
        queries.leases_topic,
        replication=replication,
        compaction=True,
        config={"message.timestamp.type": "LogAppendTime", "segment.ms": "600000"},
    )
    ensure_registry_topic(config, queries)
    ensure_changelog(config, queries.positions_topic)
    topics = [*between, snapshots, results, matched_events, leases]
    ensure_topics(config, topics)
    live = describe(config, [topic.name for topic in topics])
    for topic in topics:
        partitions = len(live[topic.name].all_partitions)
        if partitions != topic.partitions:
            reason = f"it has {partitions} partitions, and {queries.name!r} declares others"
            raise TopicChangeError(topic.name, reason)
