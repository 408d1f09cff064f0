"""A connection to the keyspace of profiles in Cassandra: its table, its errors."""

from __future__ import annotations

import re
import struct
import time
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from headrace.errors import (
    ProfileStoreAccessError,
    ProfileStoreError,
    ProfileStoreUnavailableError,
    ProfileTableMissingError,
    SinkError,
)
from headrace.sinks.profiles.cassandra_address import TABLE, CassandraAddress

if TYPE_CHECKING:
    from cassandra.cluster import Cluster, ResultSet, Session
    from cassandra.query import PreparedStatement

_CONNECT_SECONDS = 5.0
# After it another node is asked, too.
_HUNG_SECONDS = 2.0
_PERMISSIONS = (
    f"The role needs SELECT and MODIFY on the table `{TABLE}`, and CREATE on its keyspace for as "
    "long as there is no such table."
)
# Seconds between requests for a table that another writer is creating.
_NEW_TABLE_WAITS = (0.1, 0.2, 0.4, 0.8, 1.6)
# The start of a message of a node that can't read `system_auth`: its codes are those of a wrong
# password and of a missing permission.
_UNREADABLE = "Unable to perform auth"
_NO_TABLE = re.compile(rf"table \S*{TABLE} does not exist|unconfigured table \S*{TABLE}")
COLUMNS = {
    "store": "text",
    "user": "text",
    "kind": "text",
    "name": "text",
    "at_us": "bigint",
    "digest": "blob",
    "event_id": "text",
    "json": "text",
    "max_entries": "int",
}
# Rows are never changed: a version is in their key. Levels bound how many files a read opens.
_CREATE_TABLE = f"""
CREATE TABLE IF NOT EXISTS {{table}} (
  {", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())},
  PRIMARY KEY ((store, user), kind, name, at_us, digest)
) WITH CLUSTERING ORDER BY (kind ASC, name ASC, at_us DESC, digest ASC)
AND compaction = {{{{'class': 'LeveledCompactionStrategy'}}}}
"""
_SELECT_KEYSPACE = """
SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = %s
"""
_SELECT_COLUMNS = """
SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s
"""
_SELECT_NOTHING = "SELECT store FROM {table} WHERE store = '' AND user = ''"


@dataclass(frozen=True)
class KeyspaceFacts:
    """How a keyspace keeps its rows.

    Attributes:
        replication: class and factors, as Cassandra has them.
        durable_writes: writes go to the commit log.
        nodes: how many the cluster has.
    """

    replication: Mapping[str, str]
    durable_writes: bool
    nodes: int

    @property
    def min_replicas(self) -> int:
        """Copies of a row in the data centre that has the fewest."""
        # The part after a slash counts transient replicas.
        factors = [
            int(factor.partition("/")[0])
            for name, factor in self.replication.items()
            if name != "class"
        ]
        return min(filter(None, factors), default=1)


class CassandraConnection:
    """A session with an existing keyspace.

    Args:
        address: of the keyspace.

    Raises:
        ProfileStoreError: if there is no such keyspace, or access is refused.
        SinkUnavailableError: if no node answers.
    """

    def __init__(self, address: CassandraAddress) -> None:
        self._address = address
        self._statements: dict[str, PreparedStatement] = {}
        self._cluster = _cluster(address)
        try:
            with translated_errors(address):
                self.session: Session = self._connect()
                self._require_keyspace()
        except BaseException:
            self.close()
            raise

    def prepared(self, statement: str) -> PreparedStatement:
        """Returns a statement with the table's name in place of ``{table}``."""
        if statement not in self._statements:
            prepared = self.session.prepare(statement.format(table=self._address.table))
            # Repeating any of them changes nothing, so that the client may ask another node, too.
            prepared.is_idempotent = True
            self._statements[statement] = prepared
        return self._statements[statement]

    def select(self, query: str, parameters: Sequence[str] = ()) -> ResultSet:
        """Returns the rows of a query that is not prepared; another node may be asked, too."""
        from cassandra.query import SimpleStatement

        return self.session.execute(SimpleStatement(query, is_idempotent=True), parameters or None)

    @cached_property
    def keyspace_facts(self) -> KeyspaceFacts | None:
        """How the keyspace keeps its rows; None: there is no such keyspace."""
        row = self.select(_SELECT_KEYSPACE, (self._address.keyspace,)).one()
        nodes = len(self._cluster.metadata.all_hosts())
        return row and KeyspaceFacts(dict(row.replication), row.durable_writes, nodes)

    def create_table(self) -> None:
        """Creates the table if there is none: a role without the right can use an existing one."""
        from cassandra import InvalidRequest

        # The table itself is asked: system_schema lists it a moment before the node knows it.
        query = _SELECT_NOTHING.format(table=self._address.table)
        try:
            self._select_of_new_table(query)
        except InvalidRequest:
            created = self.session.execute(_CREATE_TABLE.format(table=self._address.table))
            if not created.response_future.is_schema_agreed:
                reason = f"some nodes do not know the new table `{TABLE}` yet"
                raise ProfileStoreUnavailableError(str(self._address), reason) from None
        self._require_columns()
        self._select_of_new_table(query)  # a new table as well needs replicas that are up

    def _select_of_new_table(self, query: str) -> None:
        """Selects; a node that has not opened a table yet answers with an internal error."""
        from cassandra.cluster import NoHostAvailable
        from cassandra.protocol import ServerError

        for seconds in _NEW_TABLE_WAITS:
            try:
                self.select(query)
            except NoHostAvailable as error:
                if not any(isinstance(of_host, ServerError) for of_host in _errors_of_hosts(error)):
                    raise
                time.sleep(seconds)
            else:
                return
        self.select(query)

    def close(self) -> None:
        """Called once, at the end."""
        self._cluster.shutdown()

    def _connect(self) -> Session:
        from cassandra.cluster import NoHostAvailable

        try:
            return self._cluster.connect()
        except NoHostAvailable as error:
            known = {host.datacenter for host in self._cluster.metadata.all_hosts()} - {None}
            if known and self._address.datacenter not in {"", *known}:
                reason = (
                    f"there is no data centre {self._address.datacenter!r}; correct `datacenter` "
                    f"in the URL: the nodes are in {', '.join(sorted(known))}"
                )
                raise ProfileStoreError(str(self._address), reason) from error
            raise

    def _require_keyspace(self) -> None:
        if self.keyspace_facts is None:
            raise ProfileStoreError(
                str(self._address),
                "there is no such keyspace; create it, with your data centres and 1 instead of 3 "
                f'where there is one node only: CREATE KEYSPACE "{self._address.keyspace}" WITH '
                "replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}",
            )

    def _require_columns(self) -> None:
        rows = self.select(_SELECT_COLUMNS, (self._address.keyspace, TABLE))
        columns = {row.column_name: row.type for row in rows}
        for name, kind in COLUMNS.items():
            if columns.get(name) != kind:
                reason = f"`{name}` of the table `{TABLE}` is {columns.get(name)}, and not {kind}"
                raise ProfileStoreError(str(self._address), reason)


def _cluster(address: CassandraAddress) -> Cluster:
    from cassandra import ConsistencyLevel
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import (
        ConstantSpeculativeExecutionPolicy,
        DCAwareRoundRobinPolicy,
        TokenAwarePolicy,
    )

    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(address.datacenter)),
        consistency_level=ConsistencyLevel.name_to_value[address.consistency],
        request_timeout=address.timeout_seconds,
        row_factory=_named_rows,
        speculative_execution_policy=ConstantSpeculativeExecutionPolicy(_HUNG_SECONDS, 2),
    )
    login = PlainTextAuthProvider(address.user, address.password.reveal())
    return Cluster(
        list(address.hosts),
        auth_provider=login if address.user else None,
        ssl_context=address.ssl_context(),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=_CONNECT_SECONDS,
        control_connection_timeout=address.timeout_seconds,
        prepare_on_all_hosts=False,
    )


def _named_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Returns rows whose values have the names of their columns."""
    return list(map(_row_class(tuple(columns))._make, rows))


@cache
def _row_class(columns: tuple[str, ...]) -> Any:
    # The client's own factory makes a class for each answer, which takes longer than its rows.
    return namedtuple("Row", columns)  # noqa: PYI024 - the columns are those of a query


@contextmanager
def translated_errors(address: CassandraAddress) -> Iterator[None]:
    """Errors of the client as ours: unavailable where trying again may help."""
    import cassandra
    from cassandra.cluster import NoHostAvailable
    from cassandra.connection import ConnectionException

    passing = (
        cassandra.RequestExecutionException,
        cassandra.OperationTimedOut,
        cassandra.UnresolvableContactPoints,
    )
    try:
        yield
    except NoHostAvailable as error:
        raise _of_hosts(error, address) from error
    except (*passing, ConnectionException, OSError) as error:
        raise ProfileStoreUnavailableError(str(address), _passing(error, address)) from error
    except cassandra.DriverException as error:
        raise _refusal(error, address) from error
    except (UnicodeError, struct.error) as error:
        raise SinkError(str(address), f"a host or a value is no text for it: {error}") from error


def _refusal(error: Any, address: CassandraAddress) -> SinkError:
    """Returns our error for what a node has answered."""
    from cassandra import AuthenticationFailed, Unauthorized

    text = str(error)
    if isinstance(error, AuthenticationFailed | Unauthorized):
        if _UNREADABLE in text:
            return ProfileStoreUnavailableError(str(address), text)
        return ProfileStoreAccessError(str(address), text, _PERMISSIONS)
    is_missing = _NO_TABLE.search(text) is not None
    return (ProfileTableMissingError if is_missing else SinkError)(str(address), text)


def _of_hosts(error: Any, address: CassandraAddress) -> SinkError:
    """Returns our error for one that has an error of each host."""
    from cassandra import AuthenticationFailed, RequestValidationException

    errors = _errors_of_hosts(error)
    refusals = [
        _refusal(of_host, address)
        for of_host in errors
        if isinstance(of_host, AuthenticationFailed | RequestValidationException)
    ]
    if refusals:
        return refusals[0]
    reasons = "; ".join(_passing(of_host, address) for of_host in errors)
    return ProfileStoreUnavailableError(str(address), reasons or "no node has an address")


def _errors_of_hosts(error: Any) -> list[Any]:
    """Returns the error of each host: an empty list where no host could be asked."""
    return list(error.errors.values() if isinstance(error.errors, dict) else error.errors)


def _passing(error: Any, address: CassandraAddress) -> str:
    """Returns the reason of an error that may pass."""
    from cassandra import Unavailable

    if isinstance(error, Unavailable):
        return (
            f"too few replicas are up for {address.consistency}: it needs "
            f"{error.required_replicas}, and there are {error.alive_replicas}; a keyspace can't "
            "have more replicas than nodes"
        )
    return str(error) or type(error).__name__
