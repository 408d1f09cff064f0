"""What an emitter sends: the matched events of one topic of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from headrace.errors import MatchedEventsFormatError, TopicMissingError
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.clients import ClientConfig
from headrace.model import EventSchema, Json, Topic, TopicPartition
from headrace.queries.declaration import StandingQueries
from headrace.queries.hashing import text_hash


@dataclass(frozen=True)
class EmitterPlan:
    """A topic of events, and the standing queries whose matched events are sent on.

    Attributes:
        queries: the standing queries.
        topic: the topic of the events, with an event class and an event time.
        config: librdkafka's settings of the cluster, secrets revealed.
        site: name of the cluster's site.
    """

    queries: StandingQueries
    topic: Topic
    config: ClientConfig = field(repr=False)
    site: str

    @property
    def name(self) -> str:
        """Name in locks, status and errors."""
        return f"{self.queries.name}.{self.topic.name}"

    @property
    def schema(self) -> EventSchema:
        """The schema of the events."""
        if self.topic.schema is None:
            raise ValueError(f"topic {self.topic.name!r} has no event class")
        return self.topic.schema

    @cached_property
    def schema_hash(self) -> str:
        """Hash of the events' fields and event time, 16 hex digits; the same in all processes."""
        return text_hash(repr((self.schema.fields, self.topic.event_time)))

    @property
    def group(self) -> str:
        """Name of the consumer group with the positions."""
        return f"headrace.{self.queries.matched_events_topic}.{self.topic.name}"

    @property
    def mark(self) -> TopicPartition:
        """The partition whose committed position marks that a start came before."""
        return TopicPartition(self.queries.matched_events_topic, 0)

    def target(self, source: TopicPartition) -> TopicPartition:
        """Returns the partition to which matched events of a partition of events are sent."""
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

    def live_with_target(self) -> list[LiveTopic]:
        """Returns the topics of events and of matched events as they are now.

        Raises as :meth:`live`.
        """
        return self._described(self.topic.name, self.queries.matched_events_topic)

    def _described(self, *names: str) -> list[LiveTopic]:
        live = describe(self.config, names)
        for name in names:
            if name not in live:
                raise TopicMissingError(name)
        return [live[name] for name in names]


def check_format(topic: Topic) -> None:
    """Checks that events of a topic can be sent on.

    Raises:
        MatchedEventsFormatError: if records of the topic are not JSON with one event each.
    """
    if topic.envelope is not None:
        raise MatchedEventsFormatError(topic.name, "its records are envelopes of events")
    if not isinstance(topic.record_format, Json):
        raise MatchedEventsFormatError(topic.name, f"its format is {topic.record_format}")
