"""A topic of events, the standing queries that are matched with it, and where its matches go."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from headrace.errors import MatchedEventsFormatError, TopicMissingError
from headrace.kafka.client import ClientConfig, LiveTopic, describe
from headrace.model import EventSchema, Json, Topic, TopicPartition
from headrace.queries.declaration import StandingQueries
from headrace.queries.hashing import text_hash


@dataclass(frozen=True)
class MatchedTopic:
    """A topic of events, and the standing queries that are matched with it.

    Attributes:
        queries: that are matched.
        topic: of the events, with an event class and an event time.
        config: librdkafka's settings of the cluster, secrets revealed.
        site: of the cluster.
    """

    queries: StandingQueries
    topic: Topic
    config: ClientConfig = field(repr=False)
    site: str

    @property
    def name(self) -> str:
        """What locks, status and errors call it."""
        return f"{self.queries.name}.{self.topic.name}"

    @property
    def schema(self) -> EventSchema:
        """The schema of the events."""
        if self.topic.schema is None:
            raise ValueError(f"topic {self.topic.name!r} has no event class")
        return self.topic.schema

    @cached_property
    def schema_hash(self) -> str:
        """Hash of how an event is read, 16 hex digits; the same in all processes."""
        return text_hash(repr((self.schema.fields, self.topic.event_time)))

    @property
    def group(self) -> str:
        """The consumer group with the positions."""
        return f"headrace.{self.queries.matched_events_topic}.{self.topic.name}"

    @property
    def mark(self) -> TopicPartition:
        """The partition whose position says that there was a start."""
        return TopicPartition(self.queries.matched_events_topic, 0)

    def target(self, source: TopicPartition) -> TopicPartition:
        """Returns the partition that matched events of a partition are sent to."""
        number = source.partition % self.queries.partitions
        return TopicPartition(self.queries.matched_events_topic, number)

    def live(self) -> LiveTopic:
        """Returns the topic of events as it is now.

        Raises:
            TopicMissingError: if it does not exist.
            AuthorizationError: if an ACL is missing.
            BrokerUnreachableError: if the brokers do not answer.
        """
        [topic] = self._described(self.topic.name)
        return topic

    def live_with_target(self) -> tuple[LiveTopic, str]:
        """Returns the topic of events, and the id of that of matched events, as they are now.

        Raises as :meth:`live`.
        """
        topic, target = self._described(self.topic.name, self.queries.matched_events_topic)
        return topic, target.topic_id

    def _described(self, *names: str) -> list[LiveTopic]:
        live = describe(self.config, names)
        for name in names:
            if name not in live:
                raise TopicMissingError(name)
        return [live[name] for name in names]


def check_format(topic: Topic) -> None:
    """Checks that events of a topic can be sent on.

    Raises:
        MatchedEventsFormatError: if its records are not JSON, one event each.
    """
    if topic.envelope is not None:
        raise MatchedEventsFormatError(topic.name, "its records are envelopes of events")
    if not isinstance(topic.record_format, Json):
        raise MatchedEventsFormatError(topic.name, f"its format is {topic.record_format}")
