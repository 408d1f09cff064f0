"""Creates the topic of the registry, and writes and reads its records."""

from __future__ import annotations

import contextlib
from datetime import timedelta

from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError, TopicChangeError
from headrace.kafka.admin.propagation import until_known
from headrace.kafka.admin.topics import TopicState, ensure_topics, topic_states
from headrace.kafka.client.broker_errors import Meaning, meaning
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.read.range_reader import read_records
from headrace.kafka.table.changelog import possible_replication, write_changelog
from headrace.model import OffsetRange, Topic, TopicPartition
from headrace.model.durations import milliseconds
from headrace.queries.declaration import StandingQueries
from headrace.queries.registry.record import RegisteredQuery, decode_query

# Compaction leaves out the open segment: with segments of a week, the default, it does nothing.
_COMPACTED_SEGMENT = timedelta(hours=1)
# A repeated batch must read the records that it had before, after an outage of up to a day.
_COMPACTION_LAG = timedelta(days=1)


def registry_topic(queries: StandingQueries, replication: int) -> Topic:
    """Returns the topic that the registered queries need.

    With a max_ttl, records are deleted after twice that time; a live query has a newer record.
    Retention does not delete the open segment, so a segment is as long as the retention. With
    Kafka's default of a week, an instance would read a week of queries when it starts.
    """
    if queries.max_ttl is None:
        config = {
            "segment.ms": str(milliseconds(_COMPACTED_SEGMENT)),
            "min.compaction.lag.ms": str(milliseconds(_COMPACTION_LAG)),
        }
        name = queries.queries_topic
        return Topic(name, replication=replication, compaction=True, config=config)
    retention = 2 * queries.max_ttl
    segment = {"segment.ms": str(milliseconds(retention))}
    return Topic(
        queries.queries_topic, replication=replication, retention=retention, config=segment
    )


def ensure_registry_topic(config: ClientConfig, queries: StandingQueries) -> None:
    """Creates the topic if it is missing, with one partition, and three replicas if possible.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicChangeError: if Kafka refuses the topic, or it exists with other partitions or with
            settings that could delete live queries, such as those of another max_ttl.
    """
    topic = registry_topic(queries, possible_replication(config))
    ensure_topics(config, [topic])
    state = until_known(lambda: topic_states(config, [topic.name]), [topic.name])[topic.name]
    fault = registry_topic_fault(queries, topic, state)
    if fault:
        raise TopicChangeError(topic.name, fault)


def registry_topic_fault(queries: StandingQueries, topic: Topic, state: TopicState) -> str:
    """Returns why an existing topic can't be the registry, and the remedy; empty if it can.

    Args:
        queries: the standing queries of the registry.
        topic: the topic that the queries need.
        state: the existing topic.
    """
    if state.live.partitions != 1:
        return f"it has {state.live.partitions} partitions, and a registry of queries has one"
    declared = topic.kafka_config
    if all(state.config.get(name) == value for name, value in declared.items()):
        return ""
    actual = ", ".join(f"{name}={state.config.get(name)}" for name in declared)
    needed = ",".join(f"{name}={value}" for name, value in declared.items())
    return (
        f"it has {actual}, which is not what max_ttl of {queries.name!r} needs. Correct max_ttl, "
        "or run kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
        f"--entity-name {topic.name} --add-config {needed}"
    )


def write_registry(config: ClientConfig, name: str, key: bytes, value: bytes | None) -> int:
    """Writes a record, with the value ``None`` to cancel a query, and returns its offset.

    Returns once all in-sync replicas have the record.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer within 30 s; the record may be written.
        KafkaException: if the brokers refuse the record.
    """
    try:
        [offset] = write_changelog(config, name, {key: value})
    except KafkaException as error:
        if meaning(error.args[0]) is not Meaning.UNREACHABLE:
            raise
        reason = f"a record of {name} was not acknowledged; look whether it is there"
        raise BrokerUnreachableError(config.get("bootstrap.servers", ""), reason) from error
    return offset


def query_records(
    config: ClientConfig, name: str, query_id: str, offsets: range
) -> list[RegisteredQuery | None]:
    """Returns the records of a query id in a range of offsets, in order; ``None`` is a tombstone.

    Faulty records are left out, because they have neither text nor revision.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    partition, key = TopicPartition(name, 0), query_id.encode()
    queries: list[RegisteredQuery | None] = []
    for record in read_records(
        config, "headrace.queries", [OffsetRange(partition, offsets.start, offsets.stop)]
    ):
        value = record.value()
        if record.key() == key:
            with contextlib.suppress(ValueError):
                queries.append(None if value is None else decode_query(key, value))
    return queries
