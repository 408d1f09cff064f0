"""Checks whether a batch was matched with the queries that were registered at the time."""

from __future__ import annotations

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import Topic
from headrace.model.durations import milliseconds
from headrace.queries.declaration import StandingQueries
from headrace.queries.match.held import RegistryPoint, RegistryReader
from headrace.queries.records.matched import Tick
from headrace.runtime.clock import now_in_ms


class BatchQueriesCheck:
    """Compares the hashes of the queries that batches had with the registry.

    Args:
        config: librdkafka's settings of the cluster.
        queries: the declared standing queries.
        topic: the topic of the events.
    """

    def __init__(self, config: ClientConfig, queries: StandingQueries, topic: Topic) -> None:
        self._cluster, self._queries, self._topic = KafkaCluster(config), queries, topic

    def had_registered(self, pipeline: str, tick: Tick) -> bool | None:
        """Returns whether a batch had the registered queries; ``None`` if unknown.

        Kafka deletes earlier records of the registry. The answer is ``False`` only if no query has
        changed since the batch, and ``None`` once records of queries of that time may be deleted.

        Args:
            pipeline: name of the pipeline that matched the batch.
            tick: the tick of the batch.

        Raises:
            BrokerUnreachableError: if the brokers do not answer.
        """
        topic, schema = self._topic.name, self._topic.schema
        if schema is None:
            return None
        registry = self._queries.queries_topic
        reader = RegistryReader(pipeline, registry, topic, schema, self._cluster)
        end = reader.end()
        is_other_topic = tick.registry_offset > end.offset
        # Kafka deletes records of queries by their ttl: an old batch may have had more of them.
        ttl = self._queries.max_ttl
        if is_other_topic or (
            ttl is not None and tick.planned_ms + milliseconds(ttl) < now_in_ms()
        ):
            return None
        planned = RegistryPoint(end.topic_id, tick.registry_offset, tick.planned_ms)
        if reader.at(planned).hash == tick.rules:
            return True
        return None if end.offset > tick.registry_offset else False
