"""Profiles in Redis: a hash of each user, and a sorted set and a hash of each list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from headrace.errors import (
    ProfileStoreAccessError,
    ProfileStoreError,
    ProfileStoreFullError,
    ProfileStoreUnavailableError,
    SinkError,
)
from headrace.events.times import time_of
from headrace.runtime.extras import require_extra
from headrace.settings import Secret
from headrace.settings.ingest import is_redis_server
from headrace.sinks.profiles.store import (
    MAX_ENTRIES_AT_ONCE,
    ListChange,
    Profile,
    ProfileChange,
    ProfileEntry,
    ProfileField,
    ProfileStore,
    Version,
)

if TYPE_CHECKING:
    import redis

NAME = "Redis"
_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 30.0
# What is sent before answers are read: enough to hide the network, little to hold in memory.
_MAX_PIPELINED, _MAX_PIPELINED_BYTES = 500, 4 * 2**20
_MAX_LOADS = 3
# Redis 6 puts the error of a command in a script into a sentence: the client knows no class for it.
_IN_SCRIPT = re.compile(r": -(OOM|READONLY|MISCONF|NOREPLICAS)\b|^(BUSY|MISCONF|NOREPLICAS)\b")
_PERMISSIONS = (
    "The user needs the commands SELECT, EVAL, EVALSHA, SCRIPT LOAD, TIME and INFO, and those of "
    "hashes and sorted sets, PTTL and PEXPIREAT on the keys `headrace:*`."
)
_SOCKET = re.compile(r"unix://(?:[^\s:@/?#]*(?::[^\s@/?#]*)?@)?/[^\s?#]+")
_OPTIONS = re.compile(r"[^\s#]*")
_Call: TypeAlias = tuple[str, bytes]
"""The key and the argument of merge.lua."""


class RedisProfileStore(ProfileStore):
    """See :class:`ProfileStore`; :mod:`headrace.sinks.profiles` says which keys there are.

    Nothing is tried again here: what fails is the caller's to repeat.

    Args:
        url: of Redis. Its options win over the time-outs: 5 s to connect, 30 s for an answer.
        store: name of the store.
        ttl: how long rows live.

    Raises:
        ExtraMissingError: if the client of Redis is not installed.
        ProfileStoreError: if the URL is none.
    """

    def __init__(self, url: Secret, store: str, ttl: timedelta) -> None:
        self._store, self._ttl_us = store, ttl // timedelta(microseconds=1)
        self._client = _client(url)
        self._sha = ""

    def now_us(self) -> int:
        with translated_errors():
            seconds, microseconds = self._client.time()
        return int(seconds) * 1_000_000 + int(microseconds)

    def prepare(self) -> str:
        import redis

        with translated_errors():
            try:
                policy = self._client.info("memory").get("maxmemory_policy", "noeviction")
            except redis.exceptions.NoPermissionError:  # INFO is not for every user
                return ""
        if policy == "noeviction":
            return ""
        return (
            f"with `maxmemory-policy {policy}`, Redis removes profiles where its memory is full; "
            "set it to `noeviction`"
        )

    def merge(self, changes: Iterable[ProfileChange]) -> None:
        calls = (self._call(part) for change in changes for part in _parts(change))
        with translated_errors():
            for sent in _batches(calls):
                self._send(sent)

    def read(self, user: str) -> Profile | None:
        script = _script("read.lua")
        with translated_errors():
            now, flat, lists = self._client.eval(script, 1, self._key(user))
        texts = [content.decode() for content in flat]
        stored = _Stored(int(now), dict(zip(texts[::2], texts[1::2], strict=True)), lists)
        return _profile(self._store, user, self._ttl_us, stored)

    def close(self) -> None:
        self._client.close()

    def _key(self, user: str) -> str:
        # The braces keep all keys of a user in one slot of a Redis cluster.
        return f"headrace:{{{self._store}:{user}}}"

    def _call(self, change: ProfileChange) -> _Call:
        """Returns the key and the argument of merge.lua."""
        forgotten = "" if change.forgotten_us is None else str(change.forgotten_us)
        values: list[str | int] = [self._ttl_us, forgotten, len(change.fields)]
        for name, (at_us, json) in change.fields.items():
            values += (name, str(at_us), json)
        values.append(len(change.lists))
        for name, entries in change.lists.items():
            values += (name, entries.max_entries, len(entries.entries))
            for event_id, (at_us, json) in entries.entries.items():
                values += (event_id, str(at_us), json)
        return self._key(change.user), msgspec.msgpack.encode(values)

    def _send(self, calls: Sequence[_Call]) -> None:
        """Runs the script for each call; loads it where the server lacks it, as after a restart."""
        import redis

        for _ in range(_MAX_LOADS):
            if not self._sha:
                self._sha = self._client.script_load(_script("merge.lua"))
            with self._client.pipeline(transaction=False) as pipeline:
                for call in calls:
                    pipeline.evalsha(self._sha, 1, *call)
                answers = pipeline.execute(raise_on_error=False)
            failures = [answer for answer in answers if isinstance(answer, Exception)]
            if not failures:
                return
            lacking = redis.exceptions.NoScriptError
            if other := [failure for failure in failures if not isinstance(failure, lacking)]:
                raise other[0]
            # A call that went through does no harm when it is repeated.
            self._sha = ""
        raise ProfileStoreUnavailableError(
            NAME, "it forgets the script of profiles again and again"
        )


def check_redis_url(url: Secret) -> None:
    """Looks whether a URL names a server: the client itself checks no more than the scheme.

    Raises:
        ProfileStoreError: if it does not; the message does not show it.
    """
    address, _, options = url.reveal().partition("?")
    is_address = is_redis_server(address) or _SOCKET.fullmatch(address)
    if not is_address or not _OPTIONS.fullmatch(options):
        form = "redis://USER:PASSWORD@HOST:PORT/0, user and password percent-encoded"
        raise ProfileStoreError(NAME, f"the URL is not valid; its form is {form}")


def _client(url: Secret) -> redis.Redis:
    require_extra("redis")
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        client = redis.Redis.from_url(
            url.reveal(),
            socket_connect_timeout=_CONNECT_SECONDS,
            socket_timeout=_ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        # An option that there is not fails where a connection is made.
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError):  # its message may quote the URL
        raise ProfileStoreError(NAME, "an option of the URL is not valid") from None
    return client


@contextmanager
def translated_errors() -> Iterator[None]:
    """Errors of the client as ours: unavailable where trying again may help."""
    import redis

    try:
        yield
    except (redis.exceptions.AuthenticationError, redis.exceptions.NoPermissionError) as error:
        raise ProfileStoreAccessError(NAME, str(error), _PERMISSIONS) from error
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError) as error:
        raise ProfileStoreUnavailableError(NAME, str(error) or type(error).__name__) from error
    except redis.exceptions.RedisError as error:
        raise _translated(error) from error


def _translated(error: redis.exceptions.RedisError) -> SinkError:
    import redis

    text = str(error)
    code = next(filter(None, match.groups())) if (match := _IN_SCRIPT.search(text)) else ""
    if code == "OOM" or isinstance(error, redis.exceptions.OutOfMemoryError):
        return ProfileStoreFullError(NAME, text)
    if "can't run this command" in text:  # of a command in a script, a sentence without a code
        return ProfileStoreAccessError(NAME, text, _PERMISSIONS)
    passing = (
        redis.exceptions.ClusterDownError,  # also of a replica that has lost its primary
        redis.exceptions.ReadOnlyError,
        redis.exceptions.TryAgainError,
    )
    is_passing = bool(code) or isinstance(error, passing)
    return (ProfileStoreUnavailableError if is_passing else SinkError)(NAME, text)


def _script(name: str) -> str:
    return files("headrace.sinks.profiles").joinpath(name).read_text("utf-8")


def _parts(change: ProfileChange) -> Iterator[ProfileChange]:
    """Yields the change in parts that Redis is done with in milliseconds."""
    if sum(len(list_.entries) for list_ in change.lists.values()) <= MAX_ENTRIES_AT_ONCE:
        yield change
        return
    yield ProfileChange(change.user, change.forgotten_us, change.fields)
    for name, entries in change.lists.items():
        rest = iter(entries.entries.items())
        while part := dict(islice(rest, MAX_ENTRIES_AT_ONCE)):
            lists = {name: ListChange(entries.max_entries, part)}
            yield ProfileChange(change.user, change.forgotten_us, lists=lists)


def _batches(calls: Iterable[_Call]) -> Iterator[list[_Call]]:
    batch: list[_Call] = []
    size = 0
    for call in calls:
        batch.append(call)
        size += len(call[1])
        if len(batch) >= _MAX_PIPELINED or size >= _MAX_PIPELINED_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Stored(msgspec.Struct, frozen=True):
    """What read.lua returns."""

    now_us: int
    hash: Mapping[str, str]
    lists: Sequence[tuple[bytes, Sequence[bytes], Sequence[bytes | None]]]


def _profile(store: str, user: str, ttl_us: int, stored: _Stored) -> Profile | None:
    expired = stored.now_us - ttl_us
    newest, forgotten = (int(stored.hash.get(name, expired)) for name in ("@newest", "@forgotten"))
    if newest <= expired:
        return None
    # Redis deletes whole keys only: readers leave out what has expired or was forgotten in them.
    floor = max(expired, forgotten)
    versions = {
        name: Version(int(at), json)
        for name, value in stored.hash.items()
        if not name.startswith("@")
        for at, _, json in (value.partition(" "),)
    }
    fields = {
        name: ProfileField.of(version)
        for name, version in versions.items()
        if version.at_us > floor
    }
    lists = {name.decode(): _entries(ids, texts, floor) for name, ids, texts in stored.lists}
    return Profile(
        store,
        user,
        fields=dict(sorted(fields.items())),
        lists={name: entries for name, entries in lists.items() if entries},
        forgotten=time_of(forgotten) if forgotten > expired else None,
        expires=time_of(newest + ttl_us),
    )


def _entries(
    ranked: Sequence[bytes], texts: Sequence[bytes | None], floor: int
) -> tuple[ProfileEntry, ...]:
    entries = zip(ranked[::2], ranked[1::2], texts, strict=True)
    return tuple(
        ProfileEntry(time_of(at_us), event_id.decode(), msgspec.json.decode(text))
        for event_id, score, text in entries
        # Some servers write a score with an exponent.
        if text is not None and (at_us := int(float(score))) > floor
    )
