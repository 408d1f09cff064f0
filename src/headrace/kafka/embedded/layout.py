"""The fixed parts of an embedded cluster: its id, its ports, the settings of its brokers."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import ServerStartError
from headrace.runtime.servers.ports import LOOPBACK, free_ports
from headrace.settings.model import EmbeddedKafka

LAYOUT_FILE = "cluster.json"
MAX_BROKERS = 3  # the quorum survives the loss of one; more would prove nothing else

# Longer than a busy machine may stall: else the controller would take all brokers for dead, and
# librdkafka forgets its brokers when metadata name none (its issue 5301). But a broker that was
# killed registers again only after its session.
_LONE_SESSION_MS = "15000"
_SESSION_MS = "9000"  # Kafka's own: the time until another broker takes over


@dataclass(frozen=True)
class Broker:
    """The addresses of one broker."""

    node: int
    port: int
    controller_port: int


@dataclass(frozen=True)
class Layout:
    """The fixed parts of a folder's cluster, for as long as the folder exists."""

    cluster_id: str
    brokers: tuple[Broker, ...]

    @property
    def bootstrap_servers(self) -> str:
        """Addresses for clients."""
        return ",".join(f"{LOOPBACK}:{broker.port}" for broker in self.brokers)

    @property
    def voters(self) -> str:
        """The controllers, as KRaft wants them."""
        return ",".join(f"{b.node}@{LOOPBACK}:{b.controller_port}" for b in self.brokers)

    def with_ports(self, ports: Sequence[int]) -> Layout:
        """Returns the cluster with other ports for its clients, one per broker."""
        pairs = zip(self.brokers, ports, strict=True)
        return replace(self, brokers=tuple(replace(old, port=port) for old, port in pairs))


def read_layout(folder: Path) -> Layout | None:
    """Returns the layout that ``cluster.json`` holds; ``None`` when there is no such file.

    Raises:
        ServerStartError: if the file holds something else. Nothing takes its place: brokers refuse
            data of a cluster with another id.
    """
    path = folder / LAYOUT_FILE
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        brokers = tuple(Broker(**broker) for broker in stored["brokers"])
        return Layout(stored["cluster_id"], brokers)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        reason = (
            f"{path} is damaged ({error!r}); restore it from a backup (the id of the cluster is in "
            f"node-1/data/meta.properties, the ports are in node-1/server.properties), or remove "
            f"{folder} with all its records"
        )
        raise _refusal(folder, reason) from error


def settled_layout(folder: Path, settings: EmbeddedKafka) -> Layout:
    """The folder's layout, made when there is none, with the ports that are configured.

    Raises:
        ServerStartError: if the settings can't be had, or not with what is in the folder.
    """
    brokers, ports = settings.brokers, settings.ports
    if not 1 <= brokers <= MAX_BROKERS:
        raise _refusal(folder, f"it can have 1 to {MAX_BROKERS} brokers, not {brokers}")
    if ports and len(ports) != brokers:
        raise _refusal(folder, f"{len(ports)} port(s) are set for {brokers} broker(s)")
    known = read_layout(folder) or _new_layout(brokers)
    if (made_with := len(known.brokers)) != brokers:
        reason = (
            f"this cluster was made with {made_with} broker(s), and the number can't become "
            f"{brokers}; set brokers = {made_with}, or remove {folder} with all its records"
        )
        raise _refusal(folder, reason)
    return known.with_ports(ports) if ports else known


def _new_layout(brokers: int) -> Layout:
    ports = iter(free_ports(2 * brokers))
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # With a hyphen in front, Kafka's tools would take it for an option.
    cluster_id = "h" + cluster_id[1:]
    nodes = range(1, brokers + 1)
    return Layout(cluster_id, tuple(Broker(node, next(ports), next(ports)) for node in nodes))


def _refusal(folder: Path, reason: str) -> ServerStartError:
    return ServerStartError("Kafka", reason, str(folder))


def broker_config(broker: Broker, layout: Layout, data: Path) -> dict[str, str]:
    """Returns a broker's ``server.properties``: loopback only, no automatic topics."""
    copies = min(MAX_BROKERS, len(layout.brokers))
    in_sync = 2 if copies == MAX_BROKERS else 1
    return {
        "process.roles": "broker,controller",
        "node.id": str(broker.node),
        "controller.quorum.voters": layout.voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": (
            f"PLAINTEXT://{LOOPBACK}:{broker.port},CONTROLLER://{LOOPBACK}:{broker.controller_port}"
        ),
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{broker.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "broker.heartbeat.interval.ms": "1000",
        "broker.session.timeout.ms": _SESSION_MS if copies > 1 else _LONE_SESSION_MS,
        # By default a controller without work writes a record every half second, for ever, which
        # is a third of the CPU of an idle broker.
        "metadata.max.idle.interval.ms": "30000",
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(copies),
        "offsets.topic.num.partitions": "16",
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.state.log.num.partitions": "16",
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "share.coordinator.state.topic.num.partitions": "16",
    }


def properties(config: Mapping[str, str]) -> str:
    """Returns the text of a properties file, in ASCII, as java.util.Properties reads it."""
    return "".join(f"{name}={json.dumps(value)[1:-1]}\n" for name, value in config.items())
