"""Reads the queries whose matched events are sent on, as of a committed position or of now."""

from __future__ import annotations

from collections.abc import Collection

from headrace.errors import TopicMissingError
from headrace.kafka.read.cluster import KafkaCluster
from headrace.ledger.balance import NotCountedError
from headrace.queries.emit.emitter_position import CommittedQueries
from headrace.queries.emit.plan import EmitterPlan
from headrace.queries.emit.rules import MAX_SHAPES, NO_QUERIES, hash_of
from headrace.queries.match.held import RegistryPoint, RegistryReader
from headrace.queries.match.rules import RuleSet

_EMIT = "`headrace query emit`"


class EmittingQueries:
    """Reads the queries of a topic of events.

    Args:
        matched: the topic of events and the standing queries.
    """

    def __init__(self, matched: EmitterPlan) -> None:
        registry, topic = matched.queries.queries_topic, matched.topic.name
        cluster = KafkaCluster(matched.config)
        self._schema_hash = matched.schema_hash
        self._reader = RegistryReader(
            "headrace.reconcile", registry, topic, matched.schema, cluster
        )

    def rules(self, committed: Collection[CommittedQueries]) -> RuleSet | None:
        """Returns the queries that events were matched with; ``None`` if no query sends events on.

        Args:
            committed: the queries that were committed with the positions of partitions.

        Raises:
            NotCountedError: if the queries can't be determined.
            TableRecreatedError: if the topic of queries is recreated meanwhile.
            RecordsDeletedError: if Kafka deletes records of queries meanwhile.
            BrokerUnreachableError: if the brokers do not answer.
        """
        if len({(rules.hash, rules.schema, rules.registry) for rules in committed}) > 1:
            raise NotCountedError("partitions are matched with different queries: ask again")
        last = next(iter(committed))
        if last.hash == NO_QUERIES:
            if self.asks_now():
                raise NotCountedError(f"{_EMIT} has not seen the queries of now yet")
            return None
        if last.schema != self._schema_hash:
            raise NotCountedError(
                f"the event class has changed since {_EMIT} was started: start it again"
            )
        now = self._end()
        if now is None or now.topic_id != last.registry.topic_id:
            raise NotCountedError(f"topic {self._reader.registry} was recreated")
        # Kafka may have deleted records of queries that were renewed since: then the queries of now
        # may be the same.
        for point in (last.registry, now):
            queries = self._reader.at(point)
            if hash_of(queries.emitting_identities()) == last.hash:
                return queries.rules
        shapes = {rule.shape.key for rule in queries.rules if rule.shape.emits_events}
        if len(shapes) > MAX_SHAPES:
            raise NotCountedError(f"queries of more than {MAX_SHAPES:,} shapes are left out")
        raise NotCountedError(
            f"queries have come, changed or ended since {_EMIT} looked at them, and Kafka has "
            "deleted those of then"
        )

    def asks_now(self) -> bool:
        """Returns whether a live query asks for matched events. Raises as :meth:`rules`."""
        now = self._end()
        return now is not None and bool(self._reader.at(now).emitting_identities())

    def _end(self) -> RegistryPoint | None:
        """Returns the end of the topic of queries; ``None`` if the topic does not exist."""
        try:
            return self._reader.end()
        except TopicMissingError:
            return None
