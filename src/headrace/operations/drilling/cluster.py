"""The three brokers of a drill: who leads, who is in sync, and which is the active controller."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.kafka.client.admin_requests import admin_request
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.embedded.cluster import EmbeddedCluster
from headrace.kafka.embedded.layout import Broker
from headrace.operations.drilling.client_link import ClientLink
from headrace.runtime.java.installation import Java
from headrace.runtime.servers.ports import LOOPBACK, free_ports
from headrace.settings import EmbeddedKafka

NODES = (1, 2, 3)
_HEAP_MB = 320
_METADATA_SECONDS = 5.0


@dataclass(frozen=True)
class StartedBrokers:
    """The brokers of a drill, and the way of clients to them.

    Attributes:
        cluster: its brokers.
        folder: that of a project's state.
        link: by which all clients reach them.
        bootstrap: addresses for clients.
    """

    cluster: EmbeddedCluster
    folder: Path
    link: ClientLink
    bootstrap: str


def start_brokers(
    folder: Path, java: Java, jars: Sequence[Path], stack: ExitStack
) -> StartedBrokers:
    """Starts brokers, which are killed when ``stack`` is left: nothing of them is kept.

    Clients reach them by other ports than they reach each other.

    Raises:
        ServerStartError: if one does not start.
    """
    ports = free_ports(2 * len(NODES))
    advertised = dict(zip(NODES, ports[: len(NODES)], strict=True))
    listened = dict(zip(NODES, ports[len(NODES) :], strict=True))
    link = ClientLink({advertised[node]: listened[node] for node in NODES})
    stack.callback(link.stop)
    link.start()

    def config_of(broker: Broker) -> dict[str, str]:
        own = {
            "PLAINTEXT": broker.port,
            "CONTROLLER": broker.controller_port,
            "CLIENTS": listened[broker.node],
        }
        shown = {"PLAINTEXT": broker.port, "CLIENTS": advertised[broker.node]}
        return {
            "listeners": _listeners(own),
            "advertised.listeners": _listeners(shown),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in own),
            "inter.broker.listener.name": "PLAINTEXT",
        }

    settings = EmbeddedKafka(brokers=len(NODES), heap_mb=_HEAP_MB)
    cluster = EmbeddedCluster(folder, settings, java, jars, config_of=config_of)
    for node in NODES:
        stack.callback(cluster.kill, node)
    cluster.start()
    bootstrap = ",".join(f"{LOOPBACK}:{port}" for port in advertised.values())
    return StartedBrokers(cluster, folder, link, bootstrap)


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())


class DrilledCluster:
    """A cluster whose brokers are killed and restarted one by one.

    Args:
        started: they run on this machine.
        config: of its clients.
        topics: whose partitions are looked at.
    """

    def __init__(
        self,
        started: StartedBrokers,
        config: ClientConfig,
        topics: Collection[str],
    ) -> None:
        self.brokers, self.link = started.cluster, started.link
        self._folder, self._config, self._topics = started.folder, config, frozenset(topics)

    def leaders(self) -> set[int]:
        """Returns the brokers that lead a partition; -1 is among them where none leads one."""
        return {int(partition.leader) for partition in self._partitions()}

    def is_in_sync(self) -> bool:
        """Returns whether every broker has an up-to-date copy of each partition."""
        return all(set(partition.isrs) == set(NODES) for partition in self._partitions())

    def active_controller(self) -> int:
        """Returns the leader of the newest epoch that a broker's own file names."""
        states = [
            json.loads(file.read_text(encoding="utf-8"))
            for file in self._folder.glob("kafka/node-*/data/__cluster_metadata-0/quorum-state")
        ]
        return int(max((state["leaderEpoch"], state["leaderId"]) for state in states)[1])

    def _partitions(self) -> list[Any]:
        listed = admin_request(
            self._config, lambda client: client.list_topics(timeout=_METADATA_SECONDS)
        )
        return [
            partition
            for name, topic in listed.topics.items()
            if name in self._topics
            for partition in topic.partitions.values()
        ]
