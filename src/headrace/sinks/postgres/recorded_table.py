"""What a database records of a table: by which names, and what its rows mean."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import TableMismatchError
from headrace.sinks.postgres.connection import quoted
from headrace.sinks.postgres.identifiers import table_identifier

if TYPE_CHECKING:
    from headrace.sinks.postgres.connection import Connection

_CREATE_TABLES = """
CREATE TABLE headrace.tables (
    target text PRIMARY KEY,
    target_oid oid,
    tables_oid oid,
    files text,
    declaration jsonb NOT NULL,
    columns jsonb NOT NULL
)
"""
# A role that may write positions may write here, whichever of them makes the table.
_WRITERS = """
SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
FROM pg_catalog.pg_class, aclexplode(coalesce(relacl, acldefault('r', relowner)))
WHERE pg_class.oid = 'headrace.positions'::regclass AND privilege_type = 'INSERT'
"""
_GRANT = "GRANT SELECT, INSERT, UPDATE ON headrace.tables TO {}"
_IS_THERE = "SELECT to_regclass('headrace.tables') IS NOT NULL"
# Who compares rows may have been granted the positions alone, by which a table is known, too.
_READABLE = """
SELECT has_table_privilege(to_regclass('headrace.tables'), 'SELECT') IS TRUE,
    to_regclass('headrace.positions') IS NOT NULL
"""
# A restore of the whole database gives all tables new oids: those that it recorded say nothing.
_IN_TABLES = """
SELECT target, oid, relname, true
FROM headrace.tables
LEFT JOIN pg_catalog.pg_class ON oid = target_oid AND tables_oid = 'headrace.tables'::regclass
"""
_IN_POSITIONS = """
SELECT DISTINCT target, oid, relname, false
FROM headrace.positions
LEFT JOIN pg_catalog.pg_class
    ON oid = target_oid AND positions_oid = 'headrace.positions'::regclass
"""
# to_regclass() raises an error for a schema that the role may not use.
_OIDS = """
SELECT CASE WHEN schema = '' OR has_schema_privilege(pg_namespace.oid, 'USAGE')
    THEN to_regclass(name)::oid END
FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS given (name, schema, place)
LEFT JOIN pg_catalog.pg_namespace ON nspname = schema
ORDER BY place
"""
_SCHEMA = """
SELECT nspname FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = %s
"""
_SEARCH_PATH = "SELECT current_schemas(false)"
_DECLARED = """
SELECT declaration, coalesce(columns -> %s, '[]') FROM headrace.tables
WHERE target = %s
  AND (tables_oid = 'headrace.tables'::regclass AND target_oid <> to_regclass(%s)) IS NOT TRUE
"""
# TRUNCATE gives a table, and each of its partitions, a new file.
_FILES = """
    SELECT string_agg(pg_relation_filenode(relid)::text, ' ' ORDER BY relid) FROM (
        SELECT to_regclass(%(quoted)s)::oid
        UNION SELECT relid::oid FROM pg_partition_tree(to_regclass(%(quoted)s))
    ) AS relations (relid)
"""
_NEW_FILES = f"""
UPDATE headrace.tables AS known SET files = new.files FROM ({_FILES}) AS new (files)
WHERE target = %(target)s AND known.files <> new.files
RETURNING true
"""  # noqa: S608  constants
_DECLARE = f"""
INSERT INTO headrace.tables AS known (target, target_oid, tables_oid, declaration, columns, files)
VALUES (%(target)s, to_regclass(%(quoted)s), 'headrace.tables'::regclass, %(declaration)s,
    %(columns)s, ({_FILES}))
ON CONFLICT (target) DO UPDATE SET target_oid = excluded.target_oid,
    tables_oid = excluded.tables_oid, declaration = excluded.declaration,
    columns = CASE
        WHEN known.tables_oid = excluded.tables_oid AND known.target_oid <> excluded.target_oid
        THEN excluded.columns ELSE known.columns || excluded.columns
    END
"""  # noqa: S608  constants
_ARE_SHARED = """
SELECT EXISTS (
    SELECT FROM headrace.tables CROSS JOIN jsonb_each(columns) AS writers (pipeline, written)
    WHERE target = %(target)s AND pipeline <> %(pipeline)s
      AND NOT (written <@ %(own)s::jsonb AND written @> %(own)s::jsonb)
)
"""
_HAS_ROWS = "SELECT EXISTS (SELECT FROM {})"
# Held by the transactions of batches together, and by one that declares an empty table alone.
_KEEP_DECLARATION = "SELECT pg_advisory_xact_lock_shared(hashtextextended(%s, 0))"
_CHANGE_DECLARATION = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_WAYS_ON_WITHOUT_COLUMN = (
    "Set it by a step, such as to null; or, if the values may stay, delete the table's row of"
    " headrace.tables"
)
_WAYS_ON = (
    "Declare what it was made for, or another table; or empty it, and reset the checkpoints of its"
    " pipelines to the earliest record. If its rows fit the new declaration as they are, stop its"
    " pipelines and delete its row of headrace.tables"
)


@dataclass(frozen=True)
class TableDeclaration:
    """What the rows of a table mean, and which of its existing columns a pipeline writes.

    Attributes:
        meaning: JSON values by the name of a field; one for all pipelines.
        pipeline: its name.
        updated: columns that it changes in existing rows; none where it only adds rows.
    """

    meaning: Mapping[str, object]
    pipeline: str
    updated: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecordedTable:
    """A table, and the names by which a database records it.

    It is one table, however its name is written, in whatever project: by the search path, with its
    schema, or renamed since.

    Attributes:
        name: as it is declared, for statements.
        targets: the names by which it is recorded. Only the first one is written: that of its row
            in ``headrace.tables``. Earlier versions have recorded each spelling separately.
    """

    name: str
    targets: tuple[str, ...]

    @property
    def target(self) -> str:
        """Returns the name to record it by."""
        return self.targets[0]


class _Record(NamedTuple):
    """A recorded name, and the table that it was recorded for, if that exists and is known."""

    target: str
    oid: int | None
    relation: str | None
    is_in_tables: bool

    @property
    def is_of_another_schema(self) -> bool:
        """Whether the name, without a schema, is that of a table which is still called so."""
        return self.relation == self.target


def create_tables(connection: Connection) -> None:
    """Makes ``headrace.tables`` where it is missing, beside ``headrace.positions``."""
    from psycopg import sql

    [(has_tables,)] = connection.execute(_IS_THERE).fetchall()
    if not has_tables:
        connection.execute(_CREATE_TABLES)
        for (role,) in connection.execute(_WRITERS).fetchall():
            connection.execute(sql.SQL(_GRANT).format(sql.SQL(role)))


def find_recorded(connection: Connection, name: str) -> RecordedTable:
    """Returns the names of a table, and changes nothing; the table may be missing."""
    records = list(_records(connection))
    known = [record.target for record in records]
    own, *oids = _oids(connection, [name, *known])
    if own is None:
        possible = _names_of_missing(connection, name)
        named = dict.fromkeys(target for target in known if target in possible)
        return RecordedTable(name, tuple(named) or (name,))
    same = [
        record
        for record, oid in zip(records, oids, strict=True)
        if record.oid == own or (oid == own and not record.is_of_another_schema)
    ]
    # A name without a schema may be that of another table since a restore, whose oids are new.
    same.sort(key=lambda it: (it.oid != own, not it.is_in_tables, "." not in it.target))
    targets = [*dict.fromkeys(record.target for record in same)]
    # Earlier versions have recorded tables of one name in several schemas under that name alone.
    taken = {it.target for it in records if it.is_in_tables and it.oid not in {None, own}}
    if not targets or targets[0] in taken:
        targets.insert(0, _new(connection, name, known, own))
    return RecordedTable(name, tuple(targets))


def check_declaration(
    connection: Connection, table: RecordedTable, declaration: TableDeclaration
) -> None:
    """Compares a declaration with that of the table's rows, if it has any, and changes nothing.

    Raises:
        TableMismatchError: if the table has rows of another declaration.
    """
    [(has_tables,)] = connection.execute(_IS_THERE).fetchall()
    if has_tables and has_rows(connection, table.name):
        _check_recorded_declaration(connection, table, declaration)


def _check_recorded_declaration(
    connection: Connection, table: RecordedTable, declaration: TableDeclaration
) -> None:
    """Compares a declaration with the one that is recorded, if any, and changes nothing.

    Raises:
        TableMismatchError: if they differ.
    """
    names = declaration.pipeline, table.target, quoted(connection, table.name)
    for meaning, updated in connection.execute(_DECLARED, names).fetchall():
        if difference := _difference(meaning, declaration.meaning):
            raise TableMismatchError(table.name, f"{difference}. {_WAYS_ON}")
        if missing := [name for name in updated if name not in declaration.updated]:
            reason = (
                f"the pipeline no longer writes column {missing[0]!r}, which would keep the value"
                " of an earlier row in a row that it replaces or adds to"
            )
            raise TableMismatchError(table.name, f"{reason}. {_WAYS_ON_WITHOUT_COLUMN}")


def keep_declaration(
    connection: Connection, table: RecordedTable, declaration: TableDeclaration
) -> None:
    """Compares a declaration with the one that is recorded, and keeps it until the caller commits.

    Raises:
        TableMismatchError: if they differ.
    """
    connection.execute(_KEEP_DECLARATION, (_lock_name(table),))
    _check_recorded_declaration(connection, table, declaration)


def are_columns_shared(
    connection: Connection, table: RecordedTable, declaration: TableDeclaration
) -> bool:
    """Whether another pipeline has written other columns of a table: a row is of several events."""
    own = json.dumps(declaration.updated)
    parameters = {"target": table.target, "pipeline": declaration.pipeline, "own": own}
    [(are_shared,)] = connection.execute(_ARE_SHARED, parameters).fetchall()
    return bool(are_shared)


def declare(connection: Connection, name: str, declaration: TableDeclaration) -> RecordedTable:
    """Records what a table's rows mean, in the caller's transaction, and returns its names.

    Called under the lock of ``set_up``, which makes ``headrace.tables``.

    Raises:
        TableMismatchError: if the table has rows of another declaration.
    """
    table = find_recorded(connection, name)
    if not has_rows(connection, name):
        # The first batch may be in a transaction whose rows are not visible yet.
        connection.execute(_CHANGE_DECLARATION, (_lock_name(table),))
    check_declaration(connection, table, declaration)
    parameters = {
        "target": table.target,
        "quoted": quoted(connection, name),
        "declaration": json.dumps(declaration.meaning),
        "columns": json.dumps({declaration.pipeline: declaration.updated}),
    }
    connection.execute(_DECLARE, parameters)
    return table


def has_new_files(connection: Connection, table: RecordedTable) -> bool:
    """Whether the table is in other files than at the last look, which this one then is.

    They are new after a TRUNCATE, and after a VACUUM FULL or an ALTER TABLE that keeps the rows.
    """
    parameters = {"target": table.target, "quoted": quoted(connection, table.name)}
    return bool(connection.execute(_NEW_FILES, parameters).fetchall())


def has_rows(connection: Connection, name: str) -> bool:
    """Whether there are rows in a table."""
    from psycopg import sql

    statement = sql.SQL(_HAS_ROWS).format(table_identifier(name))
    [(are_there,)] = connection.execute(statement).fetchall()
    return bool(are_there)


def _records(connection: Connection) -> Iterator[_Record]:
    """Yields all names that are recorded, those of ``headrace.tables`` first."""
    [(has_tables, has_positions)] = connection.execute(_READABLE).fetchall()
    for is_readable, statement in ((has_tables, _IN_TABLES), (has_positions, _IN_POSITIONS)):
        if is_readable:
            yield from map(_Record._make, connection.execute(statement).fetchall())


def _lock_name(table: RecordedTable) -> str:
    return f"headrace.tables {table.target}"


def _oids(connection: Connection, names: list[str]) -> list[int | None]:
    """Returns the table of each name; None where there is none, or the role may not use it."""
    schemas = [name.rpartition(".")[0] for name in names]
    parameters = [quoted(connection, name) for name in names], schemas
    return [oid for (oid,) in connection.execute(_OIDS, parameters).fetchall()]


def _new(connection: Connection, name: str, known: list[str], own: int) -> str:
    """Returns the name of a table that is not recorded yet: with its schema if it is taken."""
    if name not in known:
        return name
    [(schema,)] = connection.execute(_SCHEMA, (own,)).fetchall()
    return f"{schema}.{name.rpartition('.')[2]}"


def _names_of_missing(connection: Connection, name: str) -> set[str]:
    """Returns how a table that is not there may have been written."""
    [(path,)] = connection.execute(_SEARCH_PATH).fetchall()
    schema, _, relation = name.rpartition(".")
    if not schema:
        return {name, *(f"{schema}.{relation}" for schema in path)}
    return {name, relation} if schema in path else {name}


def _difference(recorded: Mapping[str, object], declared: Mapping[str, object]) -> str | None:
    """Returns what two declarations differ in; None: they are one.

    A column ``newest_by`` may be added: every row of the table has been written by it or by none.
    """
    for field in dict.fromkeys((*declared, *recorded)):
        known, new = recorded.get(field), declared.get(field)
        if known != new and not (field == "newest_by" and field in recorded and known is None):
            return f"its rows are of {field} {known!r}, and {new!r} is declared"
    return None
