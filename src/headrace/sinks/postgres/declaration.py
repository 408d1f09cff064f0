"""The declaration of a PostgreSQL table that a pipeline writes to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.model import FieldType, Guarantee
from headrace.model.fault import Fault, is_a, with_or_without
from headrace.sinks.api import (
    DELETED,
    DeclaredRows,
    OnNull,
    PositionStore,
    Recountable,
    Reprocessable,
    Sink,
    SinkContext,
    SinkDriver,
    Snapshot,
    Transaction,
    on_null_faults,
)
from headrace.sinks.postgres.metrics import UNIQUE_METRICS
from headrace.sinks.postgres.servers.by_server import ByServer
from headrace.sinks.postgres.servers.names import (
    URL,
    name_faults,
    same_servers,
    server_faults,
    target_at,
)
from headrace.sinks.unique.declaration import Unique
from headrace.sinks.write_mode import WriteMode

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.metrics import Metric
    from headrace.settings import Secret
    from headrace.sinks.postgres.connection import Connection
    from headrace.sinks.postgres.recorded_table import RecordedTable, TableDeclaration
    from headrace.sinks.postgres.servers.driver import BatchRecord
    from headrace.sinks.postgres.target import TargetSpec

DEFAULT_SCHEMA = "public"
_NUMBERS = frozenset({FieldType.LONG, FieldType.DOUBLE, FieldType.DECIMAL})


@dataclass(frozen=True)
class Postgres(Sink, Recountable, Reprocessable):
    """Sink: a table of PostgreSQL. Exactly once; :mod:`headrace.sinks.postgres` has the contract.

    Attributes:
        table: its name, ``schema.table`` or as the search path finds it.
        mode: what a row does to the table.
        key: columns of a unique index of the table, for UPSERT and ADD.
        newest_by: for UPSERT: a column that shows which of two rows of a key is newer.
        unique: for APPEND: which rows are one, by the columns of a unique index of the table;
            without ``within``. None: a row whose key exists is a dead letter.
        on_null: what a record without a value does. DELETE is for UPSERT without ``newest_by``: it
            deletes the row whose ``key`` is the record's.
        server: name of the server that has the table, of a table such as ``[sinks.postgres.eu]`` in
            headrace.toml; or which of several has a row. None: the one of ``[sinks.postgres]``.
    """

    table: str
    mode: WriteMode = WriteMode.APPEND
    key: tuple[str, ...] = ()
    newest_by: str | None = None
    unique: Unique | None = None
    on_null: OnNull = OnNull.LEAVE_OUT
    server: str | ByServer | None = None

    kind: ClassVar[str] = "postgres"
    extra: ClassVar[str] = "postgres"
    required_settings: ClassVar[tuple[str, ...]] = (URL,)
    guarantee: ClassVar[Guarantee] = Guarantee.EXACTLY_ONCE
    metrics: ClassVar[tuple[Metric, ...]] = UNIQUE_METRICS

    @property
    def target(self) -> str:
        """Name of the table."""
        return self.table

    @property
    def label(self) -> str:
        """Kind and target, and the server where it is named: ``postgres clicks at eu``."""
        return target_at(self._server_name, f"{self.kind} {self.target}")

    @property
    def needed_settings(self) -> tuple[str, ...]:
        """The address of the server that has no name, unless another one is named."""
        return self.required_settings if self.server is None else ()

    def settings_faults(self, settings: Mapping[str, Secret]) -> Iterator[Fault]:
        """Yields a fault where the server is not in headrace.toml, or one there has other keys."""
        yield from server_faults("Postgres.server", self._servers, settings)

    def resolved_target(self, settings: Mapping[str, Secret]) -> str:
        """Returns the name of the table with its schema: by default ``public``, as in PostgreSQL.

        A search path of the URL, the role or the database may say otherwise; that is not known
        without a connection. Two names of one address are one server.
        """
        table = self.table if "." in self.table else f"{DEFAULT_SCHEMA}.{self.table}"
        return target_at(same_servers(settings, self._servers), table)

    @property
    def _servers(self) -> tuple[str | None, ...]:
        """Names of all servers; None: the one without a name."""
        return self.server.names if isinstance(self.server, ByServer) else (self.server,)

    @property
    def _server_name(self) -> str | None:
        return ", ".join(self.server.names) if isinstance(self.server, ByServer) else self.server

    @property
    def keeps_last_read(self) -> bool:
        """Whether the mode is UPSERT, without ``newest_by``."""
        return self.mode is WriteMode.UPSERT and self.newest_by is None

    @property
    def null_key(self) -> str | None:
        """The column of the key, where ``on_null`` is DELETE."""
        return self.key[0] if self.on_null is OnNull.DELETE else None

    def faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        """Yields everything wrong with the declaration."""
        if not is_a(self.table, str) or not self.table.strip("."):
            yield Fault(f"Postgres.table is {self.table!r}", "a table, or schema.table")
        if not isinstance(self.server, ByServer):
            yield from name_faults("Postgres.server", self.server)
        if not is_a(self.mode, WriteMode):
            yield Fault(f"Postgres.mode is {self.mode!r}", "WriteMode.APPEND, .UPSERT or .ADD")
        elif not is_a(self.key, tuple | list) or not all(is_a(name, str) for name in self.key):
            yield Fault(f"Postgres.key is {self.key!r}", 'key=("id",)')
        elif not is_a(self.newest_by, str | None):
            yield Fault(f"Postgres.newest_by is {self.newest_by!r}", 'newest_by="updated_at"')
        else:
            if self.mode is WriteMode.APPEND and self.key:
                yield Fault("Postgres.key is for UPSERT and ADD", "mode=WriteMode.UPSERT")
            if self.mode is not WriteMode.APPEND and not self.key:
                yield Fault(f"Postgres.mode {self.mode.value} needs a key", 'key=("id",)')
            if self.mode is not WriteMode.UPSERT and self.newest_by is not None:
                yield Fault("Postgres.newest_by is for UPSERT", "mode=WriteMode.UPSERT")
            yield from self._unique_faults(rows.columns) if self.unique is not None else ()
            yield from self._order_faults(rows.ordered_by)
            yield from self._on_null_faults(rows)
            yield from self._sharding_faults(rows.columns)
            yield from self._column_faults(rows.columns) if rows.columns is not None else ()

    def _unique_faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        if not isinstance(self.unique, Unique):
            yield Fault(f"Postgres.unique is {self.unique!r}", 'Unique(by=["id"])')
            return
        yield from self.unique.faults("Postgres", columns)
        if self.mode is not WriteMode.APPEND:
            yield Fault("Postgres.unique is for APPEND", "mode=WriteMode.APPEND")
        if self.unique.within is not None:
            message = "Postgres.unique has no within: the unique index knows every row"
            yield Fault(message, "Unique(by=...), with the event time in `by` if ids recur")

    def _order_faults(self, ordered_by: str | None) -> Iterator[Fault]:
        """Yields a fault where the last row of a key is not that of its last event."""
        is_ordered = ordered_by is not None and ordered_by in self.key
        if self.mode is WriteMode.UPSERT and self.key and not is_ordered and not self.newest_by:
            message = (
                f"Postgres.mode upsert by {', '.join(self.key)} needs newest_by: rows of a key come"
                " in the order of their events only from one topic that is partitioned by the key,"
                " without steps"
            )
            yield Fault(message, 'newest_by="updated_at", a column that says which row is newer')

    def _on_null_faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        if self.on_null is OnNull.DELETE and (not self.keeps_last_read or len(self.key) != 1):
            message = "Postgres.on_null is DELETE, which is for UPSERT by one column"
            yield Fault(message, 'mode=WriteMode.UPSERT, key=("id",), without newest_by')
            return
        yield from on_null_faults("Postgres", self.on_null, "".join(self.key[:1]), rows)

    def _sharding_faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields what is wrong with several servers; the rows of a key must be at one of them."""
        if not isinstance(self.server, ByServer):
            return
        yield from self.server.faults(columns)
        key = self.key if self.unique is None else tuple(self.unique.by)
        if key and self.server.field not in key:
            message = f"Postgres.server divides by {self.server.field!r}, which is not in the key"
            yield Fault(message, f"the column in the key, here and in the unique index: {key!r}")

    def _column_faults(self, columns: Mapping[str, FieldType]) -> Iterator[Fault]:
        """Yields a fault for each column that is missing, or can't be added."""
        named = self.key if self.newest_by is None else (*self.key, self.newest_by)
        for name in named:
            if name not in columns:
                known = f"columns: {', '.join(columns)}"
                yield Fault(f"Postgres: {name!r} is no column of the rows", known)
        added = [name for name in columns if name not in self.key]
        for name in added if self.mode is WriteMode.ADD else ():
            if columns[name] not in _NUMBERS:
                detail = f"key={(*self.key, name)!r}, or a step that drops it"
                yield Fault(f"Postgres.mode add: {name!r} is no number", detail)

    def changes(self, context: SinkContext, schema: pa.Schema) -> Sequence[str]:
        """Returns nothing: only its owner changes the table.

        Raises:
            TableMismatchError: if there is no such table, it lacks a column of the rows or needs
                another one, it has no unique index on the key, or it has rows of another
                declaration.
            SinkUnavailableError: if the server does not answer.
        """
        from headrace.sinks.postgres.connection import connect, translated_errors
        from headrace.sinks.postgres.recorded_table import check_declaration, find_recorded
        from headrace.sinks.postgres.servers.address import at_server, url_of
        from headrace.sinks.postgres.target import check_table

        for server in self._servers:
            url = url_of(context.settings, server)
            with at_server(server), translated_errors(), connect(url) as connection:
                check_table(connection, self._spec(context, schema))
                table = find_recorded(connection, self.table)
                check_declaration(connection, table, self._declaration(context.pipeline, schema))
        return ()

    def _declaration(self, pipeline: str, schema: pa.Schema) -> TableDeclaration:
        """Returns what the start records of the table."""
        from headrace.sinks.postgres.recorded_table import TableDeclaration

        meaning = {"mode": self.mode.value, "key": sorted(self.key), "newest_by": self.newest_by}
        updated = () if self.mode is WriteMode.APPEND else _columns(schema)
        return TableDeclaration(meaning, pipeline, updated)

    def _spec(self, context: SinkContext, schema: pa.Schema) -> TargetSpec:
        from headrace.sinks.any_values import fields_with_any
        from headrace.sinks.postgres.column_types import kinds_of
        from headrace.sinks.postgres.target import TargetSpec
        from headrace.sinks.unique.compared_rows import compared_columns

        key, own = self.key, (*self.key, self.newest_by or "")
        if self.unique is not None:
            key, own = tuple(self.unique.by), (*self.unique.by, *self.unique.ignore)
        return TargetSpec(
            self.table,
            _columns(schema),
            self.mode.value,
            key,
            self.newest_by,
            kinds=kinds_of(schema),
            any_fields=fields_with_any(context.fields, schema),
            compared=compared_columns(schema, own),
            refuses_ties=self.newest_by is not None,
            deletes=self.on_null is OnNull.DELETE,
        )

    def faults_beside(self, other: Sink) -> Iterator[Fault]:
        """Yields a fault unless both write to the table in one way."""
        if not isinstance(other, Postgres):
            writer = type(other).__name__
            yield Fault(f"table {self.table!r} is written by Postgres here and by {writer}")
            return
        if (self.mode, self.key) != (other.mode, other.key):
            modes = f"{self.mode} here and by {other.mode}"
            yield Fault(f"table {self.table!r} is written by {modes}")
        elif self.server != other.server and ByServer in (type(self.server), type(other.server)):
            yield self._differs("server", self.server, other.server)
        elif self.newest_by != other.newest_by:
            yield self._differs("newest_by", self.newest_by, other.newest_by)
        elif self.unique != other.unique:
            yield self._differs("unique", self.unique, other.unique)

    def _differs(self, attribute: str, own: object, others: object) -> Fault:
        here, beside = (with_or_without(attribute, value) for value in (own, others))
        return Fault(f"table {self.table!r} is declared {here} here and {beside}")

    def position_store(self, context: SinkContext) -> PositionStore:
        """Returns the table ``headrace.positions`` of the database, or of all of them."""
        from headrace.sinks.postgres.positions import PostgresPositions
        from headrace.sinks.postgres.servers.address import url_of
        from headrace.sinks.postgres.servers.positions import ServersPositions
        from headrace.sinks.postgres.servers.records import ServerRecords

        if isinstance(self.server, ByServer):
            records = ServerRecords(context.settings, self.table, context.pipeline)
            return ServersPositions(records, self.server.names)
        return PostgresPositions(url_of(context.settings, self.server), self.table)

    def snapshot(self, context: SinkContext) -> Snapshot | None:
        """Returns the table's rows of APPEND, each of which is one that was written.

        Returns None for UPSERT and ADD, whose rows are what several have made of them, and for
        several servers, whose rows are not of one moment.

        Raises:
            ExtraMissingError: if psycopg is not installed.
            SinkUnavailableError: if the server does not answer.
            TableMismatchError: if the table was recreated since a pipeline wrote to it.
        """
        if isinstance(self.server, ByServer) or not self.tells_rows_apart:
            return None
        from headrace.sinks.postgres.servers.address import url_of
        from headrace.sinks.postgres.snapshot import postgres_snapshot

        return postgres_snapshot(url_of(context.settings, self.server), self.table)

    @property
    def tells_rows_apart(self) -> bool:
        """Returns whether the mode is APPEND, at one server."""
        return self.mode is WriteMode.APPEND and not isinstance(self.server, ByServer)

    def reprocessing_fault(
        self,
        columns: Collection[str] | None,  # noqa: ARG002
        event_id: str | None,  # noqa: ARG002
    ) -> Fault | None:
        """Returns None for an upsert by ``newest_by``; any other write changes existing rows."""
        if isinstance(self.server, ByServer):
            remedy = "a pipeline for each server, with a step that keeps the rows of that server"
            return Fault("Postgres with several servers takes no rows of a range again", remedy)
        match self.mode:
            case WriteMode.APPEND:
                remedy = "mode=WriteMode.UPSERT with key and newest_by, on a table that has a key"
                return Fault("Postgres.mode append would insert its rows again", remedy)
            case WriteMode.ADD:
                remedy = "reset the pipeline to the earliest record, with an empty table"
                return Fault("Postgres.mode add would count its rows twice", remedy)
        if self.newest_by is None:
            message = "Postgres.mode upsert would put rows of the range in the place of newer ones"
            return Fault(message, 'newest_by="updated_at", so that the newest row stays')
        return None

    def open_to_reprocess(
        self,
        context: SinkContext,
        schema: pa.Schema,
        event_id: str | None,  # noqa: ARG002
    ) -> SinkDriver:
        """Opens the table under a name of its own: staging tables of the pipeline stay."""
        # Rows of newer code take the place of those that older code has made of the same events.
        spec = replace(self._spec(context, schema), refuses_ties=False)
        return self._opened(f"{context.pipeline} reprocess", context, schema, spec)

    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """Looks at the table, and drops staging tables that earlier starts left.

        Raises:
            TableMismatchError: if there is no such table, it does not take the rows, or has rows of
                another declaration.
            SinkError: if the role lacks a right.
            SinkUnavailableError: if the server does not answer.
        """
        return self._opened(context.pipeline, context, schema, self._spec(context, schema))

    def _opened(
        self, owner: str, context: SinkContext, schema: pa.Schema, spec: TargetSpec
    ) -> SinkDriver:
        from headrace.sinks.postgres.driver import PostgresDriver
        from headrace.sinks.postgres.positions import record
        from headrace.sinks.postgres.servers.address import url_of
        from headrace.sinks.postgres.servers.driver import BatchRecord, leave_servers, open_servers
        from headrace.sinks.postgres.servers.records import ServerRecords, refuse_other_sharding

        declaration = self._declaration(context.pipeline, schema)
        records = ServerRecords(context.settings, self.table, context.pipeline)
        sharding = self.server.number if isinstance(self.server, ByServer) else 0

        def open_at(server: str | None, batch: BatchRecord) -> SinkDriver:
            def beside(connection: Connection, table: RecordedTable, _: Transaction) -> None:
                refuse_other_sharding(connection, table, context.pipeline, sharding)
                record(connection, table, batch.versions)

            url = url_of(context.settings, server)
            return PostgresDriver(url, owner, spec, declaration, beside)

        if isinstance(self.server, ByServer):
            return open_servers(self.server, records, schema, open_at)
        driver = open_at(self.server, BatchRecord())
        leave_servers(self.server, records)
        return driver


def _columns(schema: pa.Schema) -> tuple[str, ...]:
    """Returns the columns that the table has."""
    return tuple(name for name in schema.names if name != DELETED)
