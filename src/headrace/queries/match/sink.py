"""The declaration of a match stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.errors import SinkError
from headrace.model import Guarantee, Metadata
from headrace.model.fault import Fault, is_a
from headrace.queries.declaration import StandingQueries
from headrace.sinks.api import (
    DeclaredRows,
    PositionStore,
    Sink,
    SinkContext,
    SinkDriver,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class MatchQueries(Sink):
    """Sink: the windows of standing queries. Exactly once; :mod:`headrace.queries.match`.

    Events of the pipeline's topic are matched as they are read, so the pipeline has no steps.

    Attributes:
        queries: the standing queries to match.
    """

    queries: StandingQueries

    kind: ClassVar[str] = "queries"
    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    metadata: ClassVar[tuple[Metadata, ...]] = (Metadata.PARTITION, Metadata.OFFSET)
    extra: ClassVar[str] = "queries"

    @property
    def target(self) -> str:
        """Name of the standing queries."""
        return str(getattr(self.queries, "name", self.queries))

    @property
    def followed_topics(self) -> tuple[str, ...]:
        """The topic of queries."""
        return (self.queries.queries_topic,)

    def faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        """Yields everything wrong with the declaration."""
        if not is_a(self.queries, StandingQueries):
            yield Fault(f"MatchQueries.queries is {self.queries!r}", "declared StandingQueries")
            return
        if rows.columns is None:
            yield Fault(
                "MatchQueries: the pipeline has steps", "events are matched as they are read"
            )
        if rows.event_time is None:
            remedy = "declare event_time of the topic"
            yield Fault("MatchQueries: the events have no time, and are in no window", remedy)

    def position_store(self, context: SinkContext) -> PositionStore:
        """Returns the store of positions in their topic."""
        from headrace.sinks.topic_positions import TopicPositions

        return TopicPositions(context.client, self.queries.positions_topic)

    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """Creates missing topics, and fences an earlier run of the pipeline.

        Raises:
            SinkError: if the rows are not the events of the topic.
            SinkUnavailableError, BrokerUnreachableError: if the brokers do not answer.
            TopicChangeError: if Kafka refuses a topic.
        """
        from headrace.kafka.read.cluster import KafkaCluster
        from headrace.queries.match.driver import MatchDriver
        from headrace.queries.match.held import RegistryReader
        from headrace.queries.match.writer import MatchWriters
        from headrace.queries.topics import ensure_query_topics

        topic = context.topic
        if topic is None or topic.schema is None or topic.event_time is None:
            raise SinkError(self.label, "the topic has no event class, or no event time")
        missing = [name for name in topic.schema.names if name not in schema.names]
        if missing:
            raise SinkError(self.label, f"the rows have no column {missing[0]!r} of the topic")
        ensure_query_topics(context.client, self.queries)
        registry = self.queries.queries_topic
        cluster = KafkaCluster(context.client)
        reader = RegistryReader(context.pipeline, registry, topic.name, topic.schema, cluster)
        writers = MatchWriters(reader, topic.event_time, self.queries.partitions)
        return MatchDriver(context.pipeline, context.client, self.queries, writers)
