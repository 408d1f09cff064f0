"""The target of links that write in transactions, sites in errors of links, and ids of topics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    LinkRecordError,
    LinkSameClusterError,
)
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.brokers import cluster_id
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.read.resume import SourceChangedError
from headrace.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Rejection:
    """A record that the target refuses for its content.

    Attributes:
        offset: of the record at the source.
        reason: why, as a sentence.
        setting: of the target's topic, by which brokers refuse it; empty: none does.
    """

    offset: int
    reason: str
    setting: str = ""


@dataclass(frozen=True)
class LinkTarget:
    """The topics that a link writes, and the group whose members share the work.

    Attributes:
        name: of the link.
        group: its consumer group.
        config: librdkafka's settings of the cluster, secrets revealed.
        topics: that are written, and whose partitions the members share.
        record_error: makes the error of a record that can't be written as it is, of the partition
            it was read from, and why it is refused.
        site: of the cluster; named where an ACL is missing. Empty: the project has one site.
        commit_seconds: interval of transactions.
        shared: topics whose partitions the members share, where these are not those written.
    """

    name: str
    group: str
    config: ClientConfig = field(repr=False)
    topics: tuple[str, ...]
    record_error: Callable[[TopicPartition, Rejection], LinkRecordError]
    site: str = ""
    commit_seconds: float = 0.2
    shared: tuple[str, ...] = ()

    @property
    def shared_topics(self) -> tuple[str, ...]:
        """Returns the topics whose partitions the members share."""
        return self.shared or self.topics

    def written_elsewhere(self) -> set[TopicPartition]:
        """Returns the partitions that are written, where these are not the shared ones.

        Raises BrokerUnreachableError if the brokers do not answer.
        """
        live = describe(self.config, self.topics) if self.shared else {}
        return {place for topic in live.values() for place in topic.all_partitions}


@contextlib.contextmanager
def naming_site(site: str) -> Iterator[None]:
    """Names the site in errors: an operator of two clusters has to know which.

    Args:
        site: its name; empty: the project has one site, and errors stay as they are.

    Raises:
        AuthorizationError, BrokerUnreachableError: if the block inside raises one.
    """
    try:
        yield
    except BrokerUnreachableError as error:
        if not site:
            raise
        reason = f"of site {site}: {error.reason}"
        raise BrokerUnreachableError(error.bootstrap_servers, reason) from error
    except AuthorizationError as error:
        if not site:
            raise
        resource = f"{error.resource} at site {site}"
        raise AuthorizationError(error.operation, resource, error.principal) from error


def check_clusters(
    kind: str,
    link: str,
    copies: Mapping[str, str],
    own: tuple[str, ClientConfig],
    other: tuple[str, ClientConfig],
) -> None:
    """Checks that no topic is copied to itself, as two sites are one cluster.

    Origins could not show that a record comes back. Brokers are asked only where names are equal.

    Args:
        kind: of the link.
        link: its name.
        copies: the topics that are written, by those that are read.
        own: the project's own site, with its cluster.
        other: the other site, which may be the same one.

    Raises:
        LinkSameClusterError: if one is, since brokers of one cluster answer for both.
        BrokerUnreachableError: if the brokers of a site do not answer.
    """
    if own[0] == other[0] or all(source != copy for source, copy in copies.items()):
        return
    ids = []
    for site, config in (own, other):
        with naming_site(site):
            ids.append(cluster_id(config))
    if ids[0] and ids[0] == ids[1]:
        raise LinkSameClusterError(kind, link, other[0], own[0], ids[0])


def check_topic_ids(config: ClientConfig, site: str, ids: Collection[tuple[str, str]]) -> None:
    """Checks with one request that topics, by their names, have the ids they had.

    Clients may not notice that a topic was deleted and recreated.

    Raises:
        SourceChangedError: if one was deleted or recreated.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    with naming_site(site):
        topics = describe(config, {name for name, _ in ids})
    for name, topic_id in ids:
        topic = topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            raise SourceChangedError(f"topic {name} was deleted or recreated")
