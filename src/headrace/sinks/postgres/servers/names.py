"""The servers that ``[sinks.postgres]`` names, and what can't be declared of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.model.fault import Fault

if TYPE_CHECKING:
    from headrace.settings import Secret

URL = "url"
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def url_key(server: str | None) -> str:
    """Returns the setting that has the address of a server; None: the one without a name."""
    return URL if server is None else f"{server}.{URL}"


def server_names(settings: Mapping[str, Secret]) -> tuple[str, ...]:
    """Returns the names of the servers that have one."""
    end = url_key("")
    return tuple(sorted(key.removesuffix(end) for key in settings if key.endswith(end)))


def same_server(settings: Mapping[str, Secret], server: str | None) -> str | None:
    """Returns by which name of its address a server is compared: None, or the first one.

    Without its address in the settings, that is its own name.
    """
    own = settings.get(url_key(server))
    if own is None:
        return server
    names = (None, *server_names(settings))
    addresses = {name: settings[key] for name in names if (key := url_key(name)) in settings}
    return next(name for name, url in addresses.items() if url.reveal() == own.reveal())


def same_servers(settings: Mapping[str, Secret], servers: Iterable[str | None]) -> str | None:
    """Returns by which names some servers are compared; None: the one without a name alone."""
    names = {same_server(settings, server) or "" for server in servers}
    return ", ".join(sorted(names)) or None


def target_at(server: str | None, target: str) -> str:
    """Returns a table with the name of its server, where it has one."""
    return target if server is None else f"{target} at {server}"


def name_faults(attribute: str, server: object) -> Iterator[Fault]:
    """Yields a fault unless a server is None or a name."""
    if server is not None and not (isinstance(server, str) and _NAME.fullmatch(server)):
        yield Fault(f"{attribute} is {server!r}", '"eu", which is [sinks.postgres.eu]')


def server_faults(
    attribute: str, servers: Iterable[str | None], settings: Mapping[str, Secret]
) -> Iterator[Fault]:
    """Yields what is wrong with the tables of servers, also where a named one is not there.

    Args:
        attribute: that names the server, for messages.
        servers: as they are declared; None: the one without a name.
        settings: of ``[sinks.postgres]``.
    """
    for key in sorted(settings):
        table, _, name = key.rpartition(".")
        if table and name != URL:
            yield Fault(f"sinks.postgres.{key} is no setting", f"sinks.postgres.{url_key(table)}")
    names = server_names(settings)
    known = f"one of {', '.join(names)}" if names else "none is named"
    first_of: dict[str | None, str | None] = {}
    for server in servers:
        first = first_of.setdefault(same_server(settings, server), server)
        if first != server:
            message = f"{attribute} names {first!r} and {server!r}, which have one address"
            yield Fault(message, "a database of its own for each, or one name for both")
        if server is not None and server not in names:
            message = f"{attribute} is {server!r}, and there is no [sinks.postgres.{server}]"
            yield Fault(message, f'{known}; or [sinks.postgres.{server}] {URL} = "..."')
