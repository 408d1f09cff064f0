"""A real Kafka cluster on this machine: one to three brokers, each also a KRaft controller.

Everything is under ``<folder>/kafka``: ``cluster.json`` (cluster id and ports, chosen once),
``node-N/data`` (the log), ``node-N/server.log``. The processes outlive the command that started
them, and any later command finds, stops or repairs them from that folder.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.errors import ServerStartError
from headrace.kafka.client.clients import ALWAYS_THERE
from headrace.kafka.embedded.layout import (
    LAYOUT_FILE,
    Broker,
    Layout,
    broker_config,
    properties,
    read_layout,
    settled_layout,
)
from headrace.runtime.files.file_locks import exclusive
from headrace.runtime.files.json_files import write_json
from headrace.runtime.java.installation import Java
from headrace.runtime.java.jvm import Jvm, run_tools
from headrace.runtime.servers.ports import LOOPBACK, is_open, require_free
from headrace.runtime.servers.process import ServerProcess, stopped_on_failure
from headrace.settings.model import EmbeddedKafka

START_TIMEOUT = timedelta(seconds=120)
STOP_TIMEOUT = timedelta(seconds=30)


@dataclass(frozen=True)
class BrokerStatus:
    """One broker: ``pid`` is ``None`` when it is down."""

    node: int
    port: int
    pid: int | None


@dataclass(frozen=True)
class ClusterStatus:
    """The cluster of a folder: no brokers when there never was one."""

    bootstrap_servers: str
    brokers: tuple[BrokerStatus, ...]

    @property
    def running(self) -> bool:
        """Whether all brokers run."""
        return bool(self.brokers) and all(broker.pid is not None for broker in self.brokers)


class EmbeddedCluster:
    """The cluster of one folder. Starting it again brings back what is down, with its data.

    Args:
        folder: the project's state folder; the cluster lives in ``folder/kafka``.
        settings: number of brokers, ports, heap. A folder's number of brokers never changes.
        java: runs the brokers.
        jars: group ``kafka`` of :func:`headrace.runtime.java.jars.fetch`.
        config: further broker settings by Kafka's names; they win over headrace's own.
        config_of: those of one broker, which win over all.
    """

    def __init__(
        self,
        folder: Path,
        settings: EmbeddedKafka,
        java: Java,
        jars: Sequence[Path],
        *,
        config: Mapping[str, str] | None = None,
        config_of: Callable[[Broker], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self._folder = folder / "kafka"
        self._settings = settings
        self._java = java
        self._jars = tuple(jars)
        self._config, self._config_of = dict(config or {}), config_of

    def start(self) -> str:
        """Starts what is down and returns the bootstrap servers once every broker answers.

        Raises:
            ServerStartError: if a port is taken, a broker ended or was not ready in time.
        """
        with exclusive(self._folder / "start.lock"):
            layout = self._layout()
            self._bring_up(layout.brokers, layout)
        return layout.bootstrap_servers

    def start_broker(self, node: int) -> None:
        """Starts one broker that is down, and waits until it has rejoined the cluster."""
        with exclusive(self._folder / "start.lock"):
            layout = self._layout()
            self._bring_up(layout.brokers[node - 1 : node], layout)

    def stop_broker(self, node: int) -> None:
        """Stops one broker, which hands its partitions to others first; the others run on."""
        self._process(node).stop(STOP_TIMEOUT)

    def stop(self) -> None:
        """Stops every broker, data kept; no-op when they are down."""
        stop_cluster(self._folder.parent)

    def status(self) -> ClusterStatus:
        """Returns the brokers, and which of them run."""
        return cluster_status(self._folder.parent)

    def kill(self, node: int) -> None:
        """Kills a broker with SIGKILL, as a crash would."""
        self._process(node).kill()

    def pause(self, node: int) -> None:
        """Stops a broker with SIGSTOP: connections stay open, and it does not answer."""
        self._process(node).pause()

    def resume(self, node: int) -> None:
        """The end of :meth:`pause`."""
        self._process(node).resume()

    def _bring_up(self, brokers: Sequence[Broker], layout: Layout) -> None:
        down = [broker for broker in brokers if not self._process(broker.node).alive()]
        for broker in down:
            process = self._process(broker.node)
            require_free(process.name, (broker.port, broker.controller_port))
            process.folder.mkdir(parents=True, exist_ok=True)
            declared = broker_config(broker, layout, process.folder / "data") | self._config
            text = properties(declared | dict(self._config_of(broker)))
            (process.folder / "server.properties").write_text(text, encoding="ascii")
        self._format(down, layout)
        with stopped_on_failure([self._process(broker.node) for broker in down]):
            for broker in down:
                process = self._process(broker.node)
                jvm, config = self._jvm(process.folder), str(process.folder / "server.properties")
                process.start(jvm.server("kafka.Kafka", config, heap_mb=self._settings.heap_mb))
            for broker in brokers:
                process = self._process(broker.node)
                process.wait_until(functools.partial(is_open, broker.port), START_TIMEOUT)
                process.wait_until(functools.partial(_has_joined, broker, layout), START_TIMEOUT)

    def _process(self, node: int) -> ServerProcess:
        return _process(self._folder, node)

    def _layout(self) -> Layout:
        layout, running = settled_layout(self._folder, self._settings), self.status()
        if running.running and running.bootstrap_servers != layout.bootstrap_servers:
            reason = f"it runs at {running.bootstrap_servers}; stop it before you change its ports"
            raise ServerStartError("Kafka", reason, str(self._folder))
        write_json(self._folder / LAYOUT_FILE, asdict(layout))
        return layout

    def _format(self, brokers: Sequence[Broker], layout: Layout) -> None:
        homes = [self._process(broker.node).folder for broker in brokers]
        fresh = [home for home in homes if not (home / "formatted").exists()]
        for home in fresh:
            # A format that was cut short may look complete; nothing was ever written to this one.
            shutil.rmtree(home / "data", ignore_errors=True)
        commands = [
            self._jvm(home).quick(
                "kafka.tools.StorageTool",
                "format",
                *("-t", layout.cluster_id, "-c", str(home / "server.properties")),
            )
            for home in fresh
        ]
        run_tools("Kafka", commands)
        for home in fresh:
            (home / "formatted").touch()

    def _jvm(self, home: Path) -> Jvm:
        return Jvm(self._java, home, self._jars)


def cluster_status(folder: Path) -> ClusterStatus:
    """The cluster of a state folder; needs neither Java nor jars."""
    layout = read_layout(folder / "kafka")
    if layout is None:
        return ClusterStatus("", ())
    brokers = (
        BrokerStatus(broker.node, broker.port, _process(folder / "kafka", broker.node).pid)
        for broker in layout.brokers
    )
    return ClusterStatus(layout.bootstrap_servers, tuple(brokers))


def stop_cluster(folder: Path) -> None:
    """Stops the cluster of a state folder, its data kept; needs neither Java nor jars."""
    layout = read_layout(folder / "kafka")
    nodes = [broker.node for broker in layout.brokers] if layout else []
    processes = [_process(folder / "kafka", node) for node in nodes]
    # All at once: one after the other, the last would wait for a quorum that no longer exists.
    for process in processes:
        process.ask_to_end()
    for process in processes:
        process.stop(STOP_TIMEOUT)


def _has_joined(broker: Broker, layout: Layout) -> bool:
    address = f"{LOOPBACK}:{broker.port}"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        brokers = admin.list_topics(ALWAYS_THERE, timeout=5).brokers
    except KafkaException:
        return False
    return {broker.node for broker in layout.brokers} == set(brokers)


def _process(folder: Path, node: int) -> ServerProcess:
    return ServerProcess(f"Kafka broker {node}", folder / f"node-{node}")
