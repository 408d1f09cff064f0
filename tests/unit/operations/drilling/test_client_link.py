"""The way of clients to brokers: what comes through, and what does not while it is cut."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest
from tests.waiting import LIMIT_SECONDS

from headrace.operations.drilling.client_link import ClientLink
from headrace.runtime.servers.ports import LOOPBACK, free_ports


def echo(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        while content := connection.recv(1024):
            connection.sendall(content)


@pytest.fixture
def way():
    with socket.create_server((LOOPBACK, 0)) as listener:
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        [port] = free_ports(1)
        link = ClientLink({port: listener.getsockname()[1]})
        link.start()
        yield link, port
        link.stop()
        listener.shutdown(socket.SHUT_RDWR)


def connected(port: int) -> socket.socket:
    return socket.create_connection((LOOPBACK, port), timeout=LIMIT_SECONDS)


def echoed(connection: socket.socket, content: bytes) -> bytes:
    connection.sendall(content)
    return connection.recv(1024)


def test_what_is_sent_comes_through_both_ways(way):
    _, port = way
    with connected(port) as first, connected(port) as second:
        assert echoed(first, b"one") == b"one"
        assert echoed(second, b"two") == b"two"


def test_a_cut_resets_connections_and_new_ones_until_it_is_restored(way):
    link, port = way
    with connected(port) as connection:
        assert echoed(connection, b"one") == b"one"
        assert link.cut(resets=True) == 1
        with pytest.raises(ConnectionResetError):
            connection.recv(1024)
    with pytest.raises(ConnectionResetError), connected(port) as connection:
        connection.recv(1024)
    link.restore()
    with connected(port) as connection:
        assert echoed(connection, b"two") == b"two"


def test_a_silent_cut_keeps_connections_and_what_was_sent_comes_through_afterwards(way):
    link, port = way
    with connected(port) as connection:
        assert echoed(connection, b"one") == b"one"
        assert link.cut(resets=False) == 1
        connection.sendall(b"two")
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1024)
        connection.settimeout(LIMIT_SECONDS)
        link.restore()
        assert connection.recv(1024) == b"two"


def test_a_broker_that_is_down_resets_its_clients():
    port, down = free_ports(2)
    other = ClientLink({port: down})
    other.start()
    try:
        with pytest.raises(ConnectionResetError), connected(port) as connection:
            connection.recv(1024)
    finally:
        other.stop()
