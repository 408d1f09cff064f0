"""What an instance needs to know: two clusters, the names of the topics, which records to copy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias

from headrace.errors import LinkOffsetError, LinkRecordError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.origin import Origin
from headrace.links.copy_ends import Copies
from headrace.links.copying.declaration import CopyLink
from headrace.links.copying.status import CopyStatus
from headrace.links.target import LinkTarget, Rejection
from headrace.model import TopicPartition
from headrace.project.site_clusters import cluster_of, own_cluster
from headrace.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import Column


Placing: TypeAlias = Callable[[Any], tuple[TopicPartition, Any]]
"""Of a record: the partition that it is copied to, and the record as it is written there."""
Skipping: TypeAlias = Callable[[TopicPartition, int, Collection[tuple[str, bytes | None]]], None]
"""Is called with a record that is not copied: its partition, offset and headers."""
LastCopies: TypeAlias = Callable[[Copies], Mapping[TopicPartition, Origin]]
"""As :func:`headrace.links.copy_ends.last_origins`."""


class CopyFilter(Protocol):
    """Which records a link copies.

    Instances decide record by record, and ``headrace reconcile`` in columns of Spark, where no
    Python runs. Where the two differ, ``reconcile`` reports records as missing.
    """

    def counter_of(self, headers: Collection[tuple[str, bytes | None]]) -> str:
        """Returns what a record counts as, by its headers: ``records`` are copied, others not.

        It is called for each record. The names are those of counters of the status.
        """

    def is_copied_column(self, headers: Column) -> Column:
        """Returns whether records are copied, by their headers, none of them null."""


@dataclass(frozen=True)
class CopyPlan(ABC):
    """A link with the clusters of its topics. Each kind has a subclass.

    Attributes:
        name: of the link.
        group: consumer group at the target, in which instances share the partitions.
        source_site: the site of the topics that are read.
        target_site: the site of their copies; it may be the same one.
        source: librdkafka's settings of the source's cluster, secrets revealed.
        target: those of the target's cluster.
        copies: names of the source's topics, to those of their copies.
        commit_seconds: interval of transactions.
        reports_times: whether it reports how far sources are copied, for mergers of the target.
        status: what its instances report, which names the kind.
        offset_error: says that a partition can't continue at an offset.
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

    status: ClassVar[type[CopyStatus]]
    offset_error: ClassVar[type[LinkOffsetError]] = LinkOffsetError

    @classmethod
    def of(cls, settings: Settings, link: CopyLink, source_site: str, **own: Any) -> Self:
        """Returns a link with its clusters.

        Args:
            settings: the project's deployment.
            link: which one.
            source_site: the site of the topics that are read.
            **own: values of the fields of the subclass.

        Raises:
            NotDeclaredError: if headrace.toml has no such site.
            BrokerUnreachableError: if an embedded broker was never started.
        """
        source, target = cluster_of(settings, source_site), own_cluster(settings)
        return cls(
            link.name,
            link.consumer_group,
            source.site,
            target.site,
            source.client_config(may_be_down=True),
            target.client_config(may_be_down=True),
            {name: topic.name for name, topic in link.topics.items()},
            link.commit_every.total_seconds(),
            **own,
        )

    @property
    def origin_site(self) -> str:
        """Returns the site that origins of copies name: the one where their records are."""
        return self.source_site

    @property
    @abstractmethod
    def filter(self) -> CopyFilter:
        """Returns which records are copied."""

    def skipping(self) -> Skipping:
        """Returns what looks at the records that one carrier does not copy."""
        return lambda *_: None

    def source_of(self, copy: TopicPartition) -> TopicPartition:
        """Returns the partition that one of the target is a copy of."""
        topics = {copied: topic for topic, copied in self.copies.items()}
        return TopicPartition(topics[copy.topic], copy.partition)

    def copy_of(self, source: TopicPartition) -> TopicPartition:
        """Returns the partition of the target that is a copy of one of the source."""
        return TopicPartition(self.copies[source.topic], source.partition)

    @property
    def placed(self) -> Placing | None:
        """Returns what places records that do not keep their partition; None: all keep it."""
        return None

    @property
    def last_copies(self) -> LastCopies | None:
        """Returns what finds how far partitions are copied whose position is not committed.

        None: the end of the partition with the same number says so.
        """
        return None

    @property
    def source_names(self) -> tuple[str, str, str]:
        """Returns the kind of link, its name and its source, for an error."""
        return self.status.kind, self.name, self.source_site

    @property
    def target_names(self) -> tuple[str, str, str]:
        """Returns the kind of link, its name and its target, for an error."""
        return self.status.kind, self.name, self.target_site

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
