from __future__ import annotations

import socket

import pytest

from headrace.errors import ServerStartError
from headrace.runtime.servers.ports import free_ports, is_free, is_open, require_free


@pytest.fixture
def taken_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_free_ports_differ_and_are_below_the_ephemeral_ones():
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(is_free(port) and port < 30_000 for port in ports)


def test_a_listened_port_is_open_and_not_free(taken_port):
    assert is_open(taken_port)
    assert not is_free(taken_port)


def test_a_taken_port_is_named_before_anything_starts(taken_port):
    with pytest.raises(ServerStartError, match=f"port {taken_port} of 127.0.0.1 is taken"):
        require_free("Kafka broker 1", [free_ports(1)[0], taken_port])
