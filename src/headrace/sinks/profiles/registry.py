"""The stores of profiles, by the scheme of their address."""

from __future__ import annotations

from datetime import timedelta

from headrace.errors import SinkError
from headrace.settings import Secret
from headrace.sinks.profiles.store import ProfileStore

_EXTRAS = {"redis": "redis", "rediss": "redis", "unix": "redis", "cassandra": "cassandra"}


def extra_of(url: Secret) -> str:
    """Returns the extra that the store of a URL needs; empty: there is no such store."""
    return _EXTRAS.get(url.reveal().partition("://")[0], "")


def open_store(url: Secret, store: str, ttl: timedelta) -> ProfileStore:
    """Returns a store, which connects when it is first asked.

    Raises:
        ExtraMissingError: if its client is not installed.
        SinkError: if there is no store for the URL.
    """
    extra = extra_of(url)
    if extra == "redis":
        from headrace.sinks.profiles.redis import RedisProfileStore

        return RedisProfileStore(url, store, ttl)
    if extra == "cassandra":
        from headrace.sinks.profiles.cassandra import CassandraProfileStore

        return CassandraProfileStore(url, store, ttl)
    schemes = ", ".join(f"{scheme}://" for scheme in _EXTRAS)
    raise SinkError(f"profiles {store}", f"its URL begins with none of {schemes}")
