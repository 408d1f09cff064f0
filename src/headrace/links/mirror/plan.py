"""What an instance of a mirror needs to know: two clusters, and the names of the topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import LinkRecordError
from headrace.kafka.client.clients import ClientConfig
from headrace.links.mirror.filter import MirrorFilter
from headrace.links.target import LinkTarget, Rejection
from headrace.model import TopicPartition


@dataclass(frozen=True)
class MirrorPlan:
    """A mirror with the clusters of its sites.

    Attributes:
        name: of the mirror.
        group: consumer group at the target, in which instances share the partitions.
        source_site: where the records come from.
        target_site: where they are copied to.
        source: librdkafka's settings of the source's cluster, secrets revealed.
        target: those of the target's cluster.
        copies: names of the source's topics, to those of their copies.
        commit_seconds: interval of transactions.
        reports_times: whether it reports how far sources are copied, for mergers of the target.
    """

    name: str
    group: str
    source_site: str
    target_site: str
    source: ClientConfig = field(repr=False)
    target: ClientConfig = field(repr=False)
    copies: Mapping[str, str]
    commit_seconds: float = 0.2
    reports_times: bool = False

    def source_of(self, copy: TopicPartition) -> TopicPartition:
        """Returns the partition that one of the target is a copy of."""
        topics = {copied: topic for topic, copied in self.copies.items()}
        return TopicPartition(topics[copy.topic], copy.partition)

    def copy_of(self, source: TopicPartition) -> TopicPartition:
        """Returns the partition of the target that is a copy of one of the source."""
        return TopicPartition(self.copies[source.topic], source.partition)

    @property
    def source_names(self) -> tuple[str, str, str]:
        """Returns the kind of link, its name and its source, for an error."""
        return "mirror", self.name, self.source_site

    @property
    def target_names(self) -> tuple[str, str, str]:
        """Returns the kind of link, its name and its target, for an error."""
        return "mirror", self.name, self.target_site

    @property
    def link_target(self) -> LinkTarget:
        """Returns where instances write, and their group."""
        return LinkTarget(
            self.name,
            self.group,
            self.target,
            tuple(self.copies.values()),
            self.record_error,
            self.target_site,
            self.commit_seconds,
        )

    @property
    def filter(self) -> MirrorFilter:
        """Returns which records are copied."""
        return MirrorFilter(frozenset({self.source_site, self.target_site}))

    def record_error(self, source: TopicPartition, rejection: Rejection) -> LinkRecordError:
        """Returns the error of a record that can't be copied."""
        return LinkRecordError(
            *self.source_names,
            source.path,
            rejection.offset,
            rejection.reason,
            copy=self.copies[source.topic],
            setting=rejection.setting,
        )
