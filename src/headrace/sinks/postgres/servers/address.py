"""Addresses of servers, which know their names."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.settings import Secret
from headrace.sinks.postgres.servers.names import url_key

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
