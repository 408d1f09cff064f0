"""Starts and stops the project's own servers on this machine: Kafka, HDFS, ingest."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.errors import ServerStartError
from headrace.kafka.embedded.cluster import EmbeddedCluster, cluster_status, stop_cluster
from headrace.project.site_clusters import SiteCluster, own_cluster, site_clusters
from headrace.runtime.extras import require_extra
from headrace.runtime.files.cache import cache_folder
from headrace.runtime.java.installation import find_java
from headrace.runtime.servers.hdfs import EmbeddedHdfs, hdfs_status, stop_hdfs
from headrace.runtime.servers.ports import LOOPBACK, require_free
from headrace.runtime.servers.process import ServerProcess, stopped_on_failure
from headrace.service.reservation import running_service
from headrace.settings import IngestSettings, Settings
from headrace.storage.s3 import is_s3

if TYPE_CHECKING:
    from headrace.runtime.java.jars import Progress

LAKE_ON_HDFS = "/lake"
INGEST_FOLDER = "ingest"
"""Below the project's state: the folder that the workers of its HTTP service share."""

_START = timedelta(seconds=60)
_DRAIN = timedelta(seconds=60)
_ANSWER_SECONDS = 5.0
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - set by the project's file


@dataclass(frozen=True)
class Server:
    """A server of the project on this machine: ``pid`` is ``None`` when it is down."""

    name: str
    address: str
    pid: int | None

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.pid is not None

    def to_json(self) -> Mapping[str, object]:
        """Returns the members, and whether the server runs."""
        return asdict(self) | {"running": self.running}


@dataclass(frozen=True)
class ClusterAddress:
    """The address of a site's Kafka.

    Attributes:
        site: its name.
        bootstrap_servers: empty when it is embedded and was never started.
        embedded: whether it is the project's own.
    """

    site: str
    bootstrap_servers: str
    embedded: bool

    def to_json(self) -> Mapping[str, object]:
        """Returns the members but the name of the site."""
        return {"bootstrap_servers": self.bootstrap_servers, "embedded": self.embedded}


@dataclass(frozen=True)
class Services:
    """The addresses of Kafka and the lake, and the servers of the project behind them.

    Attributes:
        clusters: of all sites, that of ``[kafka]`` first.
        lake: root URI; empty when the embedded HDFS was never started.
        servers: the embedded ones that were ever started, and the HTTP service.
    """

    clusters: tuple[ClusterAddress, ...]
    lake: str
    servers: tuple[Server, ...]

    def to_json(self) -> Mapping[str, object]:
        """Returns the project's own cluster as ``kafka``, the others by their sites."""
        own, *others = self.clusters
        sites = {cluster.site: cluster for cluster in others}
        return {"kafka": own, "sites": sites, "lake": self.lake, "servers": self.servers}


def up(settings: Settings, environ: Mapping[str, str], on_progress: Progress) -> Services:
    """Starts the project's own servers, and returns once they respond. Creates no topics.

    Args:
        settings: the project's deployment.
        environ: environment that says where Java and the cache are.
        on_progress: called while jars are fetched.

    Raises:
        ExtraMissingError: if a server of the project needs an extra that is not installed.
        ProjectError: if an environment variable of ``[ingest]`` is not set.
        JavaUnavailableError, JarError, ServerStartError: if a server does not start; those that
            were started before it keep running.
    """
    # Before anything starts: a package that is missing must not leave half of the servers running.
    if settings.ingest is not None:
        require_extra("ingest")
        settings.require_ingest()
    embedded = [cluster for cluster in site_clusters(settings) if cluster.is_embedded]
    if embedded or settings.embedded_hdfs:
        java = find_java(environ)
        from headrace.runtime.java.jars import fetch

        cache = cache_folder(environ)
        if embedded:
            jars = fetch("kafka", java, cache=cache, on_progress=on_progress)
            for cluster in embedded:
                EmbeddedCluster(cluster.state, cluster.kafka.embedded, java, jars).start()
        if settings.embedded_hdfs:
            jars = fetch("hdfs", java, cache=cache, on_progress=on_progress)
            EmbeddedHdfs(settings.state, java, jars).start()
    if settings.ingest is not None:
        _start_ingest(settings, settings.ingest)
    return status(settings)


def down(settings: Settings) -> Services:
    """Stops the servers that :func:`up` started, and keeps their data; harmless when they are down.

    An HTTP service that was started by hand keeps running, and is returned.
    """
    ingest_process(settings).stop(_DRAIN)  # first: accepted events still go to Kafka
    for cluster in site_clusters(settings):
        stop_cluster(cluster.state)
    stop_hdfs(settings.state)
    return status(settings)


def status(settings: Settings) -> Services:
    """Returns which servers run, and where. Connects to nothing."""
    own, *others = site_clusters(settings)
    hdfs = hdfs_status(settings.state)
    brokers = list(_brokers(own, "kafka"))
    for other in others:
        brokers += _brokers(other, f"{other.site} kafka")
    # Both nodes have one address to show: clients know the namenode, which knows the datanode.
    nodes = [
        Server("hdfs namenode", hdfs.uri, hdfs.namenode_pid),
        Server("hdfs datanode", hdfs.uri, hdfs.datanode_pid),
    ]
    return Services(
        clusters=tuple(_address(cluster) for cluster in (own, *others)),
        lake=_lake(settings),
        servers=(*brokers, *(nodes if hdfs.uri else ()), *_ingest_servers(settings)),
    )


def bootstrap_servers(settings: Settings, *, may_be_down: bool = False) -> str:
    """Returns the addresses of the user's own cluster, or of the embedded one.

    Raises:
        BrokerUnreachableError: if the embedded broker is down, or was never started.
    """
    return own_cluster(settings).bootstrap_servers(may_be_down=may_be_down)


def broker_config(settings: Settings, *, may_be_down: bool = False) -> dict[str, str]:
    """Returns the configuration of Kafka clients for the project's cluster.

    Raises:
        BrokerUnreachableError: if the embedded broker is down, or was never started.
    """
    return own_cluster(settings).client_config(may_be_down=may_be_down)


def lake_uri(settings: Settings) -> str:
    """Returns the root of the lake.

    Raises:
        ExtraMissingError: if it is on S3, and the extra for that is not installed.
        ServerStartError: if it is on the embedded HDFS, which is down.
    """
    if is_s3(settings.lake):
        require_extra("s3")
    if settings.embedded_hdfs and not hdfs_status(settings.state).running:
        raise ServerStartError("HDFS", "the embedded one is down: `headrace up`", "")
    return _lake(settings)


def ingest_process(settings: Settings) -> ServerProcess:
    """Returns the process of the HTTP service that ``up`` starts."""
    return ServerProcess("ingest", settings.state / INGEST_FOLDER)


def _start_ingest(settings: Settings, ingest: IngestSettings) -> None:
    process = ingest_process(settings)
    if process.alive():
        return
    require_free("ingest", [ingest.port])
    command = [sys.executable, "-m", "headrace.cli", "ingest", "--project", str(settings.root)]
    # A service that never answers would keep the port, and the next `up` would take it for started.
    with stopped_on_failure([process]):
        process.start(command)
        process.wait_until(functools.partial(_is_ready, ingest), _START)


def _is_ready(ingest: IngestSettings) -> bool:
    """Returns whether the service has its tokens and reaches Kafka; topics may be missing yet."""
    import http.client

    # A service may listen at all addresses, but none of those is one to connect to.
    host = LOOPBACK if ingest.host in _ANY_ADDRESS else ingest.host
    connection = http.client.HTTPConnection(host, ingest.port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/readyz")
        readiness = json.load(connection.getresponse())
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()
    return (readiness.get("tokens"), readiness.get("kafka")) == ("known", "answers")


def ingest_address(ingest: IngestSettings) -> str:
    """Returns where the HTTP service answers, as a URL."""
    return f"http://{ingest.host}:{ingest.port}"


def _ingest_servers(settings: Settings) -> Iterator[Server]:
    """Returns the HTTP service, however it was started; none if it neither runs nor is declared.

    A service that was started by hand may have another address than the settings say.
    """
    running = running_service(settings.state / INGEST_FOLDER)
    if running is not None:
        pid, address = running
        yield Server("ingest", address, pid)
    elif settings.ingest is not None:
        # A process that `up` has just started is there before it has the lock.
        yield Server("ingest", ingest_address(settings.ingest), ingest_process(settings).pid)


def _address(cluster: SiteCluster) -> ClusterAddress:
    embedded = cluster.is_embedded
    servers = cluster.status().bootstrap_servers if embedded else cluster.kafka.bootstrap_servers
    return ClusterAddress(cluster.site, servers, embedded)


def _brokers(cluster: SiteCluster, name: str) -> Iterator[Server]:
    # Also of a cluster that no longer belongs to the project: `down` stops it.
    for broker in cluster_status(cluster.state).brokers:
        yield Server(f"{name} broker {broker.node}", f"127.0.0.1:{broker.port}", broker.pid)


def _lake(settings: Settings) -> str:
    if not settings.embedded_hdfs:
        return settings.lake
    uri = hdfs_status(settings.state).uri
    return uri + LAKE_ON_HDFS if uri else ""
