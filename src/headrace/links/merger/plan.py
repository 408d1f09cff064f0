"""What an instance of a merger needs to know."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import LinkRecordError
from headrace.kafka.client.clients import ClientConfig
from headrace.links.target import LinkTarget, Rejection
from headrace.model import TopicPartition


class ClockSource(enum.Enum):
    """What moves the time of a source that sends no records.

    MIRROR: the mirror that copies it says how far its site is. WALL: the clock, since its topic is
    of this site. RECORDS: nothing does, since another tool copies it.
    """

    MIRROR = "mirror"
    WALL = "wall"
    RECORDS = "records"


@dataclass(frozen=True)
class MergerPlan:
    """A merger with its cluster.

    Attributes:
        name: of the merger.
        group: consumer group in which instances share the partitions of the target.
        config: librdkafka's settings of the cluster, secrets revealed.
        sources: names of the topics in the order of ties, each with what moves its time.
        target: name of the topic that is written.
        late: name of the topic for records that can't be put in order.
        allowed_lateness_ms: how far a record may be behind.
        idle_seconds: after which silence a source is not waited for.
        commit_seconds: interval of transactions.
    """

    name: str
    group: str
    config: ClientConfig = field(repr=False)
    sources: Mapping[str, ClockSource]
    target: str
    late: str
    allowed_lateness_ms: int
    idle_seconds: float
    commit_seconds: float = 0.2

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the sources, in the order of ties."""
        return tuple(self.sources)

    @property
    def link_target(self) -> LinkTarget:
        """Returns where instances write, and their group."""
        return LinkTarget(
            self.name,
            self.group,
            self.config,
            (self.target,),
            self.record_error,
            commit_seconds=self.commit_seconds,
        )

    def inputs_of(self, output: TopicPartition) -> list[TopicPartition]:
        """Returns the partitions that are merged into one of the target, in the order of ties."""
        return [TopicPartition(topic, output.partition) for topic in self.sources]

    def record_error(
        self, source: TopicPartition, rejection: Rejection, topic: str = ""
    ) -> LinkRecordError:
        """Returns the error of a record that a topic, by default the target, does not take."""
        return LinkRecordError(
            *self.named(source),
            rejection.offset,
            rejection.reason,
            copy=topic or self.target,
            setting=rejection.setting,
        )

    @property
    def names(self) -> tuple[str, str, str]:
        """Returns the kind of link, its name and no site, for an error."""
        return "merger", self.name, ""

    def named(self, partition: TopicPartition) -> tuple[str, str, str, str]:
        """Returns :attr:`names` and a partition, for an error."""
        return (*self.names, partition.path)
