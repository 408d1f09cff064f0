"""Ports on loopback that stay the project's across restarts."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

from headrace.errors import ServerStartError

LOOPBACK = "127.0.0.1"
# Below the ephemeral ports of Linux and macOS: while a server is down, an outgoing connection
# can't be given its port, nor can a client that retries connect to itself on it.
_RANGE = range(20_000, 30_000)


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether this port of this machine's address is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def is_open(port: int) -> bool:
    """Whether a connection to this port of loopback is accepted."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def free_ports(count: int) -> list[int]:
    """Returns different free ports, chosen at random so that two projects rarely meet."""
    shuffled = random.sample(_RANGE, len(_RANGE))
    return [port for _, port in zip(range(count), filter(is_free, shuffled), strict=False)]


def require_free(server: str, ports: Iterable[int], host: str = LOOPBACK) -> None:
    """Refuses to start a server whose port is in use.

    Raises:
        ServerStartError: names the port and the remedy.
    """
    for port in ports:
        if not is_free(port, host):
            reason = f"port {port} of {host} is taken; stop that process or set another port"
            raise ServerStartError(server, reason, "")
