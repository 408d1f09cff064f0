"""The stores of profiles, by the scheme of their address."""

from __future__ import annotations

from datetime import timedelta

from headrace.errors import ProfileStoreError
from headrace.settings import Secret
from headrace.sinks.profiles.store import ProfileStore

_EXTRAS = {"redis": "redis", "rediss": "redis", "unix": "redis", "cassandra": "cassandra"}


def extra_of(url: Secret) -> str:
    """Returns the extra that the store of a URL needs; empty: there is no such store."""
    return _EXTRAS.get(url.reveal().partition("://")[0], "")


def check_url(url: Secret) -> None:
    """Looks at what can be known of a URL without a connection and without a client.

    Raises:
        ProfileStoreError: if it is not the address of a store; the message does not show it.
    """
    extra = extra_of(url)
    if not extra:
        schemes = ", ".join(f"{scheme}://" for scheme in _EXTRAS)
        raise ProfileStoreError("", f"the URL begins with none of {schemes}")
    if extra == "redis":
        from headrace.sinks.profiles.redis import check_redis_url

        check_redis_url(url)
    else:
        from headrace.sinks.profiles.cassandra_address import CassandraAddress

        CassandraAddress.of(url)


def open_store(url: Secret, store: str, ttl: timedelta) -> ProfileStore:
    """Returns a store, which connects when it is first asked.

    Raises:
        ExtraMissingError: if its client is not installed.
        ProfileStoreError: if there is no store for the URL.
    """
    check_url(url)
    if extra_of(url) == "redis":
        from headrace.sinks.profiles.redis import RedisProfileStore

        return RedisProfileStore(url, store, ttl)
    from headrace.sinks.profiles.cassandra import CassandraProfileStore

    return CassandraProfileStore(url, store, ttl)
