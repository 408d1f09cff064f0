"""Addresses of servers, which know their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from headrace.errors import SinkError, TableMismatchError
from headrace.settings import Secret
from headrace.sinks.postgres.servers.names import target_at, url_key

PRODUCT = "PostgreSQL"


class ServerUrl(Secret):
    """The address of a server, with its name for messages."""

    __slots__ = ("server",)

    def __init__(self, value: str, server: str) -> None:
        super().__init__(value)
        self.server = server


def url_of(settings: Mapping[str, Secret], server: str | None) -> Secret:
    """Returns the address of a server; None: the one without a name."""
    url = settings[url_key(server)]
    return url if server is None else ServerUrl(url.reveal(), server)


def product_at(url: Secret) -> str:
    """Returns ``PostgreSQL``, with the name of the server if it has one."""
    return f"{PRODUCT} {url.server}" if isinstance(url, ServerUrl) else PRODUCT


@contextmanager
def at_server(server: str | None) -> Iterator[None]:
    """Names the server in what is raised; None: it has no name."""
    try:
        yield
    except TableMismatchError as error:
        if server is None:
            raise
        raise TableMismatchError(target_at(server, error.table), error.reason) from error
    except SinkError as error:
        if server is None or error.sink == f"{PRODUCT} {server}":
            raise
        raise type(error)(target_at(server, error.sink), error.reason) from error
