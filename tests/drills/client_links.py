"""A cluster whose clients can be cut off: they reach its brokers through forwarders of TCP.

Brokers have a listener of their own for such clients, whose advertised ports are those of the
forwarders. While a link is cut its forwarder is frozen: connections stay open, and nothing comes
through, as where a router loses all packets. Brokers among each other, and who uses the cluster's
own address, notice nothing.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.forwarder import Link
from tests.waiting import wait_for

from headrace.kafka.embedded import cluster
from headrace.kafka.embedded.layout import Broker, Layout, broker_config
from headrace.runtime.servers.ports import LOOPBACK, free_ports, is_open

ROOT = Path(__file__).parents[2]
LISTENER = "LINK"


class ClientLinks:
    """The links to the brokers of a cluster that starts while they are open."""

    def __init__(self, brokers: int) -> None:
        ports = free_ports(2 * brokers)
        self._listened, self._advertised = ports[:brokers], ports[brokers:]
        self._links: list[Link] = []

    @property
    def bootstrap_servers(self) -> str:
        """Of clients that can be cut off."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self._advertised)

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Brokers that start inside have the listener, and there is a way to it."""
        with contextlib.ExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(cluster, "broker_config", self._config)
            for way in zip(self._advertised, self._listened, strict=True):
                command = [sys.executable, "-m", "bench.forwarder", *map(str, way)]
                forwarder = subprocess.Popen(command, cwd=ROOT)
                stack.callback(forwarder.wait)
                stack.callback(forwarder.kill)
                self._links.append(Link(forwarder))
            wait_for(lambda: all(map(is_open, self._advertised)), "the forwarders")
            yield

    def cut(self) -> None:
        """Nothing comes through any more."""
        for link in self._links:
            link.cut()

    def mend(self) -> None:
        """What was under way comes through, and the rest."""
        for link in self._links:
            link.mend()

    def _config(self, broker: Broker, layout: Layout, data: Path) -> dict[str, str]:
        own = broker_config(broker, layout, data)
        listened = self._listened[broker.node - 1]
        advertised = self._advertised[broker.node - 1]
        more = {
            "listeners": f"{LISTENER}://{LOOPBACK}:{listened}",
            "advertised.listeners": f"{LISTENER}://{LOOPBACK}:{advertised}",
            "listener.security.protocol.map": f"{LISTENER}:PLAINTEXT",
        }
        return own | {name: f"{own[name]},{value}" for name, value in more.items()}
