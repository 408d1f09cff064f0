"""The Kafka clusters of a project: its own, and one of each other site."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.errors import BrokerUnreachableError, NotDeclaredError
from headrace.kafka.client.clients import client_config
from headrace.kafka.embedded.cluster import ClusterStatus, cluster_status
from headrace.settings import KafkaSettings, Settings


@dataclass(frozen=True)
class SiteCluster:
    """The cluster of a site.

    Attributes:
        site: its name.
        kafka: which cluster, and how to talk to it.
        state: folder in which the embedded one is.
    """

    site: str
    kafka: KafkaSettings
    state: Path

    @property
    def is_embedded(self) -> bool:
        """Whether the cluster is the project's own, which ``headrace up`` starts."""
        return not self.kafka.bootstrap_servers

    def status(self) -> ClusterStatus:
        """Returns the embedded brokers, none for a cluster of the user. Connects to nothing."""
        return cluster_status(self.state) if self.is_embedded else ClusterStatus("", ())

    def bootstrap_servers(self, *, may_be_down: bool = False) -> str:
        """Returns the addresses of the user's own cluster, or of the embedded one.

        Raises:
            BrokerUnreachableError: if the embedded broker is down, or was never started.
        """
        if not self.is_embedded:
            return self.kafka.bootstrap_servers
        cluster = self.status()
        # Its ports outlive a stop, so that clients of a command that waits for it can be made.
        if not cluster.running and not (may_be_down and cluster.bootstrap_servers):
            reason = f"the embedded broker of site {self.site} is down"
            raise BrokerUnreachableError(cluster.bootstrap_servers, reason)
        return cluster.bootstrap_servers

    def client_config(self, *, may_be_down: bool = False) -> dict[str, str]:
        """Returns the configuration of Kafka clients. Raises as :meth:`bootstrap_servers`."""
        return client_config(self.kafka, self.bootstrap_servers(may_be_down=may_be_down))


def own_cluster(settings: Settings) -> SiteCluster:
    """Returns the cluster of ``[kafka]``."""
    return SiteCluster(settings.site, settings.kafka, settings.state)


def site_clusters(settings: Settings) -> list[SiteCluster]:
    """Returns the clusters of all sites, the project's own first."""
    others = (
        SiteCluster(site, kafka, settings.state_of_site(site))
        for site, kafka in settings.sites.items()
    )
    return [own_cluster(settings), *others]


def cluster_of(settings: Settings, site: str) -> SiteCluster:
    """Returns the cluster of a site.

    Raises:
        NotDeclaredError: if headrace.toml has no such site.
    """
    clusters = {cluster.site: cluster for cluster in site_clusters(settings)}
    if site not in clusters:
        raise NotDeclaredError("site", site, ", ".join(clusters))
    return clusters[site]
