"""Profiles in Cassandra: a partition of each user, with a row of each version.

A row is never changed: its version is in its key, so that any order and repetition of writes makes
the same set of rows, and no rule of Cassandra for equal timestamps is asked. Readers choose.
"""

from __future__ import annotations

import hashlib
import logging
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headrace.errors import SinkError, SinkUnavailableError
from headrace.events.times import time_of
from headrace.runtime.extras import require_extra
from headrace.settings import Secret
from headrace.sinks.profiles.cassandra_address import CassandraAddress
from headrace.sinks.profiles.cassandra_connection import CassandraConnection, translated_errors
from headrace.sinks.profiles.store import (
    MAX_ENTRIES_AT_ONCE,
    Profile,
    ProfileChange,
    ProfileEntry,
    ProfileField,
    ProfileStore,
    Version,
)

if TYPE_CHECKING:
    from cassandra.cluster import ResponseFuture
    from cassandra.query import BoundStatement

# A batch is one mutation, of which Cassandra takes half a segment of its commit log: 16 MiB.
MAX_BATCH_BYTES = 8 * 2**20
# What is sent before answers are read: enough to hide the network, little to hold in memory.
_MAX_IN_FLIGHT, _MAX_IN_FLIGHT_BYTES = 64, 8 * 2**20
# A trim reads the list: after each entry it would cost more than it deletes.
_MIN_ENTRIES_BETWEEN_TRIMS = 100
_FIELD, _ENTRY, _FORGOTTEN = "field", "entry", "forgotten"
_DIGEST_BYTES = 16
_SECOND = 1_000_000
# A task needs the time twice: to read rows, and to write them. Rows stay a little longer anyway.
MAX_CLOCK_AGE_US = 10 * _SECOND
# Deletions with a timestamp below zero can't be stored.
_MIN_TIMESTAMP = 1
# Rows stay a little longer, for clocks of nodes that differ. Readers leave them out.
_GRACE_SECONDS = 60
# Cassandra refuses to expire rows later than in 20 years, and than on 2038-01-19 while its
# storage_compatibility_mode is that of version 4, as by default.
_MAX_TTL_SECONDS, _MAX_EXPIRY_SECONDS = 630_720_000, 2**31 - 86_400

_INSERT = """
INSERT INTO {table} (store, user, kind, name, at_us, digest, event_id, json, max_entries)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?
"""
_DELETE_OLDER = """
DELETE FROM {table} USING TIMESTAMP ?
WHERE store = ? AND user = ? AND kind = ? AND name = ? AND at_us < ?
"""
_DELETE_ENTRY = """
DELETE FROM {table} USING TIMESTAMP ?
WHERE store = ? AND user = ? AND kind = 'entry' AND name = ? AND at_us = ? AND digest = ?
"""
_DELETE_USER = "DELETE FROM {table} USING TIMESTAMP ? WHERE store = ? AND user = ?"
_SELECT_USER = """
SELECT kind, name, at_us, event_id, json, max_entries, currentTimestamp() AS clock FROM {table}
WHERE store = ? AND user = ?
"""
_SELECT_ENTRIES = """
SELECT at_us, digest, event_id, max_entries FROM {table}
WHERE store = ? AND user = ? AND kind = 'entry' AND name = ?
"""
# now() is a time UUID: after a clock that ran ahead is right again, it waits for that time.
_SELECT_CLOCK = "SELECT currentTimestamp() AS clock FROM system.local"

_log = logging.getLogger(__name__)


class CassandraProfileStore(ProfileStore):
    """See :class:`ProfileStore`; :mod:`headrace.sinks.profiles` says which rows there are.

    It connects when it is first asked.

    Args:
        url: ``cassandra://[user:password@]host[:port][,host...]/keyspace``, with the options of
            :mod:`headrace.sinks.profiles.cassandra_address`.
        store: name of the store.
        ttl: how long rows live.

    Raises:
        ExtraMissingError: if the client of Cassandra is not installed.
        ProfileStoreError: if the URL is none.
    """

    def __init__(self, url: Secret, store: str, ttl: timedelta) -> None:
        require_extra("cassandra")
        self._address = CassandraAddress.of(url)
        self._store, self._ttl_us = store, ttl // timedelta(microseconds=1)
        self._open: CassandraConnection | None = None
        self._clock: _Clock | None = None

    def now_us(self) -> int:
        if self._clock is None or self._clock.age_us > MAX_CLOCK_AGE_US:
            with translated_errors(self._address):
                clock = self._connection.select(_SELECT_CLOCK).one().clock
            self._clock = _Clock(_clock_us(clock), _monotonic_us())
        return self._clock.store_us + self._clock.age_us

    def prepare(self) -> str:
        with translated_errors(self._address):
            self._connection.create_table()
            facts = self._connection.keyspace_facts
        keyspace = f"keyspace {self._address.keyspace!r}"
        if facts is not None and not facts.durable_writes:
            return (
                f"{keyspace} has `durable_writes = false`: a node that stops loses what it has in "
                "memory; set it to true"
            )
        if facts is not None and facts.min_replicas == 1 and facts.nodes > 1:
            return (
                f"{keyspace} has one replica on {facts.nodes} nodes: the profiles of a node that "
                "is lost are lost; raise its replication factor to 3"
            )
        return ""

    def merge(self, changes: Iterable[ProfileChange]) -> None:
        now_us = self.now_us()
        lists: set[tuple[str, str]] = set()
        with translated_errors(self._address):
            sender = BatchSender(self._connection)
            for change in changes:
                key_bytes = len(f"{self._store}{change.user}".encode())
                for batch in _batches(self._statements(change, now_us), key_bytes):
                    sender.send(batch)
                lists.update(_lists_to_trim(change))
            sender.finish()
        try:
            with translated_errors(self._address):
                for user, name in lists:
                    self.trim(user, name)
        except SinkUnavailableError as error:
            # All changes are in the store, and entries that come later trim their lists.
            _log.warning(
                "Of %d lists of store %s, some are untrimmed: %s", len(lists), self._store, error
            )

    def read(self, user: str) -> Profile | None:
        with translated_errors(self._address):
            select = self._connection.prepared(_SELECT_USER).bind((self._store, user))
            select.fetch_size = None  # in pages, it would be read at several moments
            rows = list(self._connection.session.execute(select))
        try:
            return _profile(self._store, user, self._ttl_us, rows) if rows else None
        except (ValueError, TypeError, OverflowError, IndexError) as error:
            reason = f"rows of the user {user!r} were not written by headrace: {error}"
            raise SinkError(str(self._address), reason) from error

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    @property
    def _connection(self) -> CassandraConnection:
        if self._open is None:
            self._open = CassandraConnection(self._address)
        return self._open

    def _statements(self, change: ProfileChange, now_us: int) -> Iterator[_Statement]:
        """Yields what adds the rows of a change that are live."""
        user, forgotten = change.user, change.forgotten_us
        floor = now_us - self._ttl_us
        if forgotten is not None and forgotten > floor:
            # Where it has no timestamp of its own, readers alone leave out what the marker forgets.
            if forgotten >= _MIN_TIMESTAMP:
                yield _Statement(_DELETE_USER, (forgotten, self._store, user))
            yield self._insert(user, _Row(_FORGOTTEN, "", Version(forgotten, "")), now_us)
            floor = forgotten
        for name, version in change.fields.items():
            if version.at_us > floor:
                yield self._insert(user, _Row(_FIELD, name, version), now_us)
                yield self._delete_older(user, _FIELD, name, version.at_us)
        for name, part in change.lists.items():
            for event_id, version in part.entries.items():
                if version.at_us > floor:
                    row = _Row(_ENTRY, name, version, event_id, part.max_entries)
                    yield self._insert(user, row, now_us)

    def _insert(self, user: str, row: _Row, now_us: int) -> _Statement:
        timestamp = max(row.version.at_us, _MIN_TIMESTAMP)
        if row.kind == _FORGOTTEN:
            timestamp += 1  # the deletion of its batch takes what has its own timestamp
        seconds = (row.version.at_us + self._ttl_us - now_us) // _SECOND + 1 + _GRACE_SECONDS
        if seconds > _MAX_TTL_SECONDS or now_us // _SECOND + seconds > _MAX_EXPIRY_SECONDS:
            seconds = 0  # it does not expire
        values = (self._store, user, *row.values, timestamp, seconds)
        return _Statement(_INSERT, values, is_entry=row.kind == _ENTRY)

    def _delete_older(self, user: str, kind: str, name: str, at_us: int) -> _Statement:
        """Returns what deletes older rows of a name, whenever they come."""
        timestamp = max(at_us - 1, _MIN_TIMESTAMP)
        return _Statement(_DELETE_OLDER, (timestamp, self._store, user, kind, name, at_us))

    def trim(self, user: str, name: str) -> None:
        """Deletes entries that are no longer among the latest, and never will be again.

        They are those behind the latest, and older versions of an event id. How many are kept is
        what the newest entry says, as for readers.
        """
        connection = self._connection
        select = connection.prepared(_SELECT_ENTRIES).bind((self._store, user, name))
        select.fetch_size = MAX_ENTRIES_AT_ONCE
        sender = BatchSender(connection)
        newest: dict[str, int] = {}
        max_entries = first_us = last_us = 0
        for row in connection.session.execute(select):
            if row.event_id is None:
                continue
            if not newest:
                first_us = row.at_us
            if row.at_us == first_us:
                max_entries = max(max_entries, row.max_entries)
            # One statement for all that is older; entries of the same microsecond stay.
            if len(newest) >= max_entries and row.at_us < last_us:
                sender.send([self._delete_older(user, _ENTRY, name, last_us)])
                break
            if row.event_id not in newest:
                newest[row.event_id] = last_us = row.at_us
            elif row.at_us < newest[row.event_id]:
                timestamp = max(row.at_us, _MIN_TIMESTAMP)
                values = (timestamp, self._store, user, name, row.at_us, row.digest)
                sender.send([_Statement(_DELETE_ENTRY, values)])
        sender.finish()


class _Clock(NamedTuple):
    """The store's clock when it was asked, and this machine's monotonic one just after."""

    store_us: int
    local_us: int

    @property
    def age_us(self) -> int:
        """How long ago the store was asked."""
        return _monotonic_us() - self.local_us


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1_000


@dataclass(frozen=True)
class _Row:
    """A row of the table, without its user."""

    kind: str
    name: str
    version: Version
    event_id: str = ""
    max_entries: int = 0

    @property
    def values(self) -> tuple[str, str, int, bytes, str, str, int]:
        """Columns in the order of the statement. Rows with other values have another digest."""
        content = f"{self.max_entries} {len(self.event_id)} {self.event_id}{self.version.json}"
        digest = hashlib.blake2b(content.encode(), digest_size=_DIGEST_BYTES).digest()
        at_us, json = self.version
        return self.kind, self.name, at_us, digest, self.event_id, json, self.max_entries


@dataclass(frozen=True)
class _Statement:
    """A statement on the rows of one user."""

    statement: str
    values: tuple[str | int | bytes, ...]
    is_entry: bool = False

    @cached_property
    def size(self) -> int:
        """Bytes of its values."""
        sizes = (len(value.encode()) for value in self.values if isinstance(value, str))
        return sum(sizes) + 8 * len(self.values)

    def bound(self, connection: CassandraConnection) -> BoundStatement:
        """Returns what the client executes."""
        return connection.prepared(self.statement).bind(self.values)


class BatchSender:
    """Sends batches, some of them before the answers to others have come.

    Args:
        connection: to send them on.
    """

    def __init__(self, connection: CassandraConnection) -> None:
        self._connection = connection
        self._in_flight: deque[tuple[ResponseFuture, int]] = deque()
        self._bytes = 0

    def send(self, statements: Sequence[_Statement]) -> None:
        """Sends statements on one user, which take effect at one moment."""
        from cassandra.query import BatchStatement, BatchType

        # One partition, one mutation: it is atomic without the log of batches.
        batch = BatchStatement(BatchType.UNLOGGED)
        batch.is_idempotent = True
        for statement in statements:
            batch.add(statement.bound(self._connection))
        size = sum(statement.size for statement in statements)
        while self._in_flight and (
            len(self._in_flight) >= _MAX_IN_FLIGHT or self._bytes + size > _MAX_IN_FLIGHT_BYTES
        ):
            self._await_first()
        self._in_flight.append((self._connection.session.execute_async(batch), size))
        self._bytes += size

    def finish(self) -> None:
        """Returns when all are in the store."""
        while self._in_flight:
            self._await_first()

    def _await_first(self) -> None:
        future, size = self._in_flight.popleft()
        self._bytes -= size
        future.result()


def _batches(statements: Iterable[_Statement], key_bytes: int) -> Iterator[list[_Statement]]:
    """Yields statements on one user in as few batches as Cassandra takes.

    Args:
        statements: to part.
        key_bytes: of store and user, which a mutation has once.
    """
    batch: list[_Statement] = []
    entries = size = 0
    for statement in statements:
        own_bytes = statement.size - key_bytes
        is_full = entries + statement.is_entry > MAX_ENTRIES_AT_ONCE
        if batch and (is_full or size + own_bytes > MAX_BATCH_BYTES):
            yield batch
            batch, entries, size = [], 0, 0
        batch.append(statement)
        entries += statement.is_entry
        size += own_bytes
    if batch:
        yield batch


def _lists_to_trim(change: ProfileChange) -> Iterator[tuple[str, str]]:
    """Yields lists to trim: once for about as many entries as they keep.

    Ids and times of events choose when, so that a change that is repeated, such as after a kill,
    trims as well, and so do events of few ids.
    """
    for name, part in change.lists.items():
        period = max(part.max_entries, _MIN_ENTRIES_BETWEEN_TRIMS)
        events = (f"{version.at_us} {event_id}" for event_id, version in part.entries.items())
        if any(zlib.crc32(event.encode()) % period == 0 for event in events):
            yield change.user, name


def _clock_us(clock: datetime) -> int:
    return (clock.replace(tzinfo=UTC) - time_of(0)) // timedelta(microseconds=1)


def _profile(store: str, user: str, ttl_us: int, rows: Sequence[Any]) -> Profile | None:
    expired = _clock_us(rows[0].clock) - ttl_us
    # Rewritten with a longer `ttl`, an expired row can come back without its values.
    live = [row for row in rows if row.at_us > expired and row.json is not None]
    markers = [row.at_us for row in live if row.kind == _FORGOTTEN]
    forgotten = max(markers, default=None)
    if forgotten is not None:
        live = [row for row in live if row.kind != _FORGOTTEN and row.at_us > forgotten]
    newest = max((*(row.at_us for row in live), *markers), default=None)
    if newest is None:
        return None
    fields, lists = _by_name(live, _FIELD), _by_name(live, _ENTRY)
    return Profile(
        store,
        user,
        fields={
            name: ProfileField.of(Version(newest.at_us, newest.json))
            for name, (newest, *_) in fields.items()
        },
        lists={name: _entries(versions) for name, versions in lists.items()},
        forgotten=None if forgotten is None else time_of(forgotten),
        expires=time_of(newest + ttl_us),
    )


def _by_name(rows: Sequence[Any], kind: str) -> dict[str, list[Any]]:
    """Returns rows of a kind by name, the greatest version first."""
    chosen = [row for row in rows if row.kind == kind]
    chosen.sort(key=lambda row: (row.at_us, row.json, row.max_entries), reverse=True)
    names: dict[str, list[Any]] = {}
    for row in chosen:
        names.setdefault(row.name, []).append(row)
    return dict(sorted(names.items()))


def _entries(versions: Sequence[Any]) -> tuple[ProfileEntry, ...]:
    # The greatest version of an event id comes first, and stays.
    events: dict[str, Any] = {}
    for version in versions:
        events.setdefault(version.event_id, version)
    latest = sorted(events.values(), key=lambda row: (row.at_us, row.event_id), reverse=True)
    # How many a list keeps is what its newest entry says.
    return tuple(
        ProfileEntry(time_of(row.at_us), row.event_id, msgspec.json.decode(row.json))
        for row in latest[: latest[0].max_entries]
    )
