"""What an instance of a mirror needs to know: two clusters, and the names of the topics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headrace.errors import AuthorizationError
from headrace.kafka.client import ClientConfig
from headrace.model import TopicPartition


@dataclass(frozen=True)
class Link:
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
    """

    name: str
    group: str
    source_site: str
    target_site: str
    source: ClientConfig = field(repr=False)
    target: ClientConfig = field(repr=False)
    copies: Mapping[str, str]
    commit_seconds: float = 0.2

    def source_of(self, copy: TopicPartition) -> TopicPartition:
        """Returns the partition that one of the target is a copy of."""
        topics = {copied: topic for topic, copied in self.copies.items()}
        return TopicPartition(topics[copy.topic], copy.partition)

    def copy_of(self, source: TopicPartition) -> TopicPartition:
        """Returns the partition of the target that is a copy of one of the source."""
        return TopicPartition(self.copies[source.topic], source.partition)


@contextlib.contextmanager
def naming_site(site: str) -> Iterator[None]:
    """Names the site in the error of a missing ACL: an operator of two clusters has to know which.

    Raises:
        AuthorizationError: if the block inside raises one.
    """
    try:
        yield
    except AuthorizationError as error:
        resource = f"{error.resource} at site {site}"
        raise AuthorizationError(error.operation, resource, error.principal) from error
