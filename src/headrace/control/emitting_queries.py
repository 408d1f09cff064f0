"""The queries whose matched events are sent on: those of a moment, and those of now."""

from __future__ import annotations

import time
from collections.abc import Collection

from headrace.errors import TopicMissingError
from headrace.kafka.cluster import KafkaCluster
from headrace.pipelines.references.positions import ReferencePosition, live_positions
from headrace.queries.match.held import LiveQueries, RegistryReader
from headrace.queries.match.rules import RuleSet
from headrace.queries.matched_events.matched_position import MatchedQueries, RegistryPoint
from headrace.queries.matched_events.positions import MatchedTopic
from headrace.queries.matched_events.rules import MAX_SHAPES, hash_of


class UnknownBalanceError(Exception):
    """It is not known whether matched events balance; its text says why."""


class EmittingQueries:
    """Reads the queries of a topic of events.

    Args:
        matched: the topic, and the standing queries.
    """

    def __init__(self, matched: MatchedTopic) -> None:
        self._matched = matched

    def rules(self, committed: Collection[MatchedQueries]) -> RuleSet | None:
        """Returns the queries that events were matched with; None: none of them sends events on.

        Args:
            committed: with the positions of partitions.

        Raises:
            UnknownBalanceError: if they can't be told.
            ReferenceRecreatedError: if the topic of queries is made again meanwhile.
            BrokerUnreachableError: if the brokers do not answer.
        """
        if len({(each.hash, each.registry) for each in committed}) > 1:
            raise UnknownBalanceError("partitions are matched with different queries: ask again")
        last = next(iter(committed))
        if last.hash == hash_of(()):
            if self.asks_now():
                raise UnknownBalanceError("no event was matched with the queries of now yet")
            return None
        now = self._registry_end()
        if now is None or now.topic_id != last.registry.topic_id:
            raise UnknownBalanceError(f"topic {self._matched.queries.queries_topic} was made again")
        # Kafka deletes records of queries that were renewed since.
        for point in (last.registry, now):
            queries = self._live(point)
            if hash_of(queries.emitting_identities()) == last.hash:
                return queries.rules
        shapes = {rule.shape.key for rule in queries.rules if rule.shape.emits_events}
        if len(shapes) > MAX_SHAPES:
            raise UnknownBalanceError(f"queries of more than {MAX_SHAPES:,} shapes are left out")
        raise UnknownBalanceError(
            "queries have come, changed or ended since `headrace query emit` looked at them, and "
            "Kafka has deleted those of then"
        )

    def asks_now(self) -> bool:
        """Whether a live query asks for matched events. Raises as :meth:`rules`."""
        now = self._registry_end()
        return now is not None and bool(self._live(now).emitting_identities())

    def _registry_end(self) -> RegistryPoint | None:
        """The end of the topic of queries; None: it is missing."""
        registry = self._matched.queries.queries_topic
        try:
            position = live_positions(KafkaCluster(self._matched.config), [registry])[registry]
        except TopicMissingError:
            return None
        at_ms = time.time_ns() // 1_000_000
        return RegistryPoint(position.topic_id, sum(position.partitions.values()), at_ms)

    def _live(self, point: RegistryPoint) -> LiveQueries:
        matched, cluster = self._matched, KafkaCluster(self._matched.config)
        registry, topic = matched.queries.queries_topic, matched.topic.name
        reader = RegistryReader("headrace.reconcile", registry, topic, matched.schema, cluster)
        position = ReferencePosition(point.topic_id, {0: point.offset})
        return reader.live(position, point.at_ms)
