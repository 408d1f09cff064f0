"""A connection to the keyspace of profiles in Cassandra: its address, its table, its errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from headrace.errors import (
    ProfileStoreAccessError,
    ProfileStoreUnavailableError,
    ProfileTableMissingError,
    SinkError,
)
from headrace.settings import Secret

if TYPE_CHECKING:
    from cassandra.cluster import Cluster, Session
    from cassandra.query import PreparedStatement

NAME = "Cassandra"
TABLE = "headrace_profiles"
PORT = 9042
_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 30.0
_URL = re.compile(
    r"cassandra://(?:(?P<user>[^:@/]+):(?P<password>[^@/]*)@)?(?P<hosts>[^@/?#]+)"
    r"(?:/(?P<keyspace>\w{0,48}))?(?:\?(?P<options>[^#]*))?",
    re.ASCII,
)
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:]+)(?::(\d{1,5}))?")
# A profile is read and written at one level: ANY is for writes alone, and with the serial ones a
# statement would need a condition.
_OTHER_LEVELS = {"ANY", "SERIAL", "LOCAL_SERIAL"}
_PERMISSIONS = (
    f"The role needs SELECT and MODIFY on the table `{TABLE}`, and CREATE on its keyspace for as "
    "long as there is no such table."
)
# Rows are never changed: a version is in their key. Levels bound how many files a read opens.
_CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
  store text, user text, kind text, name text, at_us bigint, digest blob,
  event_id text, json text, max_entries int,
  PRIMARY KEY ((store, user), kind, name, at_us, digest)
) WITH CLUSTERING ORDER BY (kind ASC, name ASC, at_us DESC, digest ASC)
AND compaction = {{'class': 'LeveledCompactionStrategy'}}
"""
_SELECT_KEYSPACE = """
SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = %s
"""
_SELECT_TABLE = """
SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s
"""
_SELECT_NOTHING = "SELECT json FROM {table} WHERE store = '' AND user = ''"


@dataclass(frozen=True)
class CassandraAddress:
    """What the URL of a store says.

    Attributes:
        hosts: nodes to ask first, with their ports; those of the cluster follow from them.
        keyspace: that has the table.
        user: role to log in with; empty: without a login.
        password: of the role.
        consistency: level of reads and writes.
        timeout_seconds: how long an answer is waited for.
    """

    hosts: tuple[tuple[str, int], ...]
    keyspace: str
    user: str = ""
    password: Secret = field(default_factory=lambda: Secret(""))
    consistency: str = "LOCAL_QUORUM"
    timeout_seconds: float = _ANSWER_SECONDS

    @classmethod
    def of(cls, url: Secret) -> CassandraAddress:
        """Reads ``cassandra://[user:password@]host[:port][,host...]/keyspace[?option=...]``.

        Raises:
            SinkError: if the URL is none; the message does not show it.
        """
        match = _URL.fullmatch(url.reveal())
        hosts = [_HOST.fullmatch(host) for host in match["hosts"].split(",")] if match else []
        if not match or not all(hosts):
            form = "cassandra://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE"
            raise SinkError(NAME, f"the URL is not valid; its form is {form}")
        if not match["keyspace"]:
            raise SinkError(NAME, "the URL names no keyspace; add one, as in cassandra://host/site")
        return cls(
            tuple((host[1].strip("[]"), int(host[2] or PORT)) for host in hosts if host),
            match["keyspace"],
            unquote(match["user"] or ""),
            Secret(unquote(match["password"] or "")),
            **_options(match["options"] or ""),
        )

    def __str__(self) -> str:
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{NAME} {hosts}/{self.keyspace}"

    @property
    def table(self) -> str:
        """The table's name in CQL."""
        return f'"{self.keyspace}".{TABLE}'


def _options(text: str) -> dict[str, Any]:
    """Returns fields of an address.

    Raises:
        SinkError: if an option is unknown, or its value is not valid.
    """
    from cassandra import ConsistencyLevel

    levels = ConsistencyLevel.name_to_value.keys() - _OTHER_LEVELS
    fields: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name == "consistency" and value in levels:
            fields["consistency"] = value
        elif name == "timeout" and re.fullmatch(r"\d+(\.\d+)?", value) and float(value) > 0:
            fields["timeout_seconds"] = float(value)
        else:
            message = f"option {name!r} of the URL is unknown, or its value is not valid"
            raise SinkError(NAME, f"{message}; consistency=LOCAL_QUORUM and timeout=30 are")
    return fields


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
        factors = [factor for name, factor in self.replication.items() if name != "class"]
        # The part after a slash counts transient replicas.
        return min((int(factor.partition("/")[0]) for factor in factors), default=1)


class CassandraConnection:
    """A session with a keyspace that is there.

    Args:
        address: of the keyspace.

    Raises:
        SinkError: if there is no such keyspace, or access is refused.
        SinkUnavailableError: if no node answers.
    """

    def __init__(self, address: CassandraAddress) -> None:
        self._address = address
        self._statements: dict[str, PreparedStatement] = {}
        self._cluster = _cluster(address)
        try:
            with translated_errors(address):
                self.session: Session = self._cluster.connect()
                self._require_keyspace()
        except BaseException:
            self.close()
            raise

    def prepared(self, statement: str) -> PreparedStatement:
        """Returns a statement on the table, which stands in it as ``{table}``.

        Raises:
            ProfileTableMissingError: if there is no such table.
            InvalidRequest: if the table has other columns.
        """
        from cassandra import InvalidRequest

        if statement not in self._statements:
            try:
                prepared = self.session.prepare(statement.format(table=self._address.table))
            except InvalidRequest as error:
                if not self._has_table():
                    raise ProfileTableMissingError(str(self._address), str(error)) from error
                raise
            # Repeating any of them changes nothing, so that the client may try another node.
            prepared.is_idempotent = True
            self._statements[statement] = prepared
        return self._statements[statement]

    @cached_property
    def keyspace_facts(self) -> KeyspaceFacts | None:
        """How the keyspace keeps its rows; None: there is no such keyspace."""
        row = self.session.execute(_SELECT_KEYSPACE, (self._address.keyspace,)).one()
        nodes = len(self._cluster.metadata.all_hosts())
        return row and KeyspaceFacts(dict(row.replication), row.durable_writes, nodes)

    def create_table(self) -> None:
        """Creates the table if there is none: a role that may not can use one that is there."""
        from cassandra import InvalidRequest

        # The table itself is asked: in system_schema it stands a moment before the node knows it.
        try:
            self.session.execute(_SELECT_NOTHING.format(table=self._address.table))
        except InvalidRequest:
            created = self.session.execute(_CREATE_TABLE.format(table=self._address.table))
            if not created.response_future.is_schema_agreed:
                reason = f"some nodes do not know the new table `{TABLE}` yet"
                raise ProfileStoreUnavailableError(str(self._address), reason) from None

    def close(self) -> None:
        """Called once, at the end."""
        self._cluster.shutdown()

    def _has_table(self) -> bool:
        names = (self._address.keyspace, TABLE)
        return self.session.execute(_SELECT_TABLE, names).one() is not None

    def _require_keyspace(self) -> None:
        if self.keyspace_facts is None:
            raise SinkError(
                str(self._address),
                f"there is no such keyspace; create it, with your data centres: CREATE KEYSPACE "
                f'"{self._address.keyspace}" WITH replication = '
                "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}",
            )


def _cluster(address: CassandraAddress) -> Cluster:
    from cassandra import ConsistencyLevel
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy

    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy()),
        consistency_level=ConsistencyLevel.name_to_value[address.consistency],
        request_timeout=address.timeout_seconds,
    )
    login = PlainTextAuthProvider(address.user, address.password.reveal())
    return Cluster(
        list(address.hosts),
        auth_provider=login if address.user else None,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=_CONNECT_SECONDS,
        control_connection_timeout=address.timeout_seconds,
        prepare_on_all_hosts=False,
    )


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
    except cassandra.Unauthorized as error:
        raise ProfileStoreAccessError(str(address), str(error), _PERMISSIONS) from error
    except (*passing, ConnectionException, OSError) as error:
        reason = str(error) or type(error).__name__
        raise ProfileStoreUnavailableError(str(address), reason) from error
    except cassandra.DriverException as error:
        raise SinkError(str(address), str(error)) from error


def _of_hosts(error: Any, address: CassandraAddress) -> SinkError:
    """Returns our error for one that has an error of each host."""
    from cassandra import AuthenticationFailed, RequestValidationException, Unauthorized

    errors = error.errors.values() if isinstance(error.errors, dict) else error.errors
    for of_host in errors:
        if isinstance(of_host, AuthenticationFailed | Unauthorized):
            return ProfileStoreAccessError(str(address), str(of_host), _PERMISSIONS)
        if isinstance(of_host, RequestValidationException):
            return SinkError(str(address), str(of_host))
    reasons = "; ".join(str(of_host) or type(of_host).__name__ for of_host in errors)
    return ProfileStoreUnavailableError(str(address), reasons or str(error))
