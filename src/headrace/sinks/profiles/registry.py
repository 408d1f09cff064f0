"""The stores of profiles, by the scheme of their address."""

from __future__ import annotations

from datetime import timedelta

from headrace.errors import SinkError
from headrace.settings import Secret
from headrace.sinks.profiles.store import ProfileStore

_REDIS = ("redis", "rediss", "unix")


def open_store(url: Secret, store: str, ttl: timedelta) -> ProfileStore:
    """Returns a store, which connects when it is first asked.

    Raises:
        ExtraMissingError: if its client is not installed.
        SinkError: if there is no store for the URL.
    """
    if url.reveal().partition("://")[0] not in _REDIS:
        schemes = ", ".join(f"{scheme}://" for scheme in _REDIS)
        raise SinkError(f"profiles {store}", f"its URL begins with none of {schemes}")
    from headrace.sinks.profiles.redis import RedisProfileStore

    return RedisProfileStore(url, store, ttl)
