"""Staging tables: made like the target, filled by tasks, read and dropped by the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import SinkError
from headrace.sinks.postgres.column_types import ColumnKind, ColumnType, column_types, make_exact
from headrace.sinks.postgres.identifiers import (
    ORDER,
    SCHEMA,
    TASK,
    listed_names,
    own_identifier,
    table_identifier,
)
from headrace.sinks.postgres.target import TargetSpec

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from headrace.sinks.postgres.connection import Connection

STAGING = "staging_"
_LEFT_BEHIND = """
SELECT relname FROM pg_catalog.pg_class
WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' AND starts_with(relname, %s)
"""


def create_staging_table(connection: Connection, spec: TargetSpec, staging: str) -> dict[str, str]:
    """Makes a staging table with the columns that the rows have.

    Returns:
        by column of texts, the form that they must have to be read as they are.

    Raises:
        SinkError: if the table that it is for was deleted.
    """
    columns = column_types(connection, spec.table)
    if not columns:
        raise SinkError(f"table {spec.table}", "there is no such table any more")
    unused = [column.name for column in columns if column.name not in spec.columns]
    used = [_staged_type(spec, column) for column in columns if column.name in spec.columns]
    connection.execute(_creation(spec, staging, unused, used))
    make_exact(connection, own_identifier(staging), used, spec.kinds)
    texts = [column for column in used if spec.kinds.get(column.name) is ColumnKind.TEXT]
    return {column.name: form for column in texts if (form := column.text_form) is not None}


def copy_into(spec: TargetSpec, staging: str) -> Composed:
    """Takes CSV with the rows' columns; an unquoted empty value is null."""
    from psycopg import sql

    return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
        own_identifier(staging), listed_names(spec.staged)
    )


def count_rows(staging: str) -> Composed:
    """Counts the rows of a staging table."""
    from psycopg import sql

    return sql.SQL("SELECT count(*) FROM {}").format(own_identifier(staging))


def staged_rows(spec: TargetSpec, staging: Sequence[str]) -> Composed:
    """Selects the rows of all staging tables of a batch, with their task and their order in it."""
    from psycopg import sql

    return sql.SQL(" UNION ALL ").join(
        sql.SQL("SELECT {}, {}, {} AS {} FROM {}").format(
            listed_names(spec.staged),
            sql.Identifier(ORDER),
            task,
            sql.Identifier(TASK),
            own_identifier(name),
        )
        # By name, which ends with the id of the task: ids sort as the tasks have read.
        for task, name in enumerate(sorted(staging))
    )


def delete_staged(staging: str) -> Composed:
    """Deletes rows of a staging table by their order."""
    from psycopg import sql

    statement = (
        "DELETE FROM {0} USING unnest(%s::bigint[]) AS removed (number) WHERE {0}.{1} = number"
    )
    return sql.SQL(statement).format(own_identifier(staging), sql.Identifier(ORDER))


def drop_tables(connection: Connection, names: Sequence[str]) -> None:
    """Drops the staging tables that exist."""
    from psycopg import sql

    for name in names:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(own_identifier(name)))


def drop_left_behind(connection: Connection, prefix: str) -> None:
    """Drops the staging tables whose names start with ``prefix``."""
    left = connection.execute(_LEFT_BEHIND, (SCHEMA, prefix))
    drop_tables(connection, [name for (name,) in left])


def _staged_type(spec: TargetSpec, column: ColumnType) -> ColumnType:
    """Returns a column as it is staged: of rows that delete, no domain, which may refuse null."""
    is_plain = spec.deletes and column.name not in spec.key
    return replace(column, declared=column.plain) if is_plain else column


def _creation(
    spec: TargetSpec, staging: str, unused: Sequence[str], used: Sequence[ColumnType]
) -> Composed:
    """Makes a table like the target, with types, CHECK and NOT NULL, but for ``unused`` columns.

    What a column of it takes, the target takes, and without a change once it has the statements of
    ``make_exact``. It is not logged: a crash of the server empties it, which the commit notices.
    A key with a null in it would be another row's each time: a unique index takes any number of
    them. Rows that delete have nothing but the key, so then the constraints of the table and of the
    domains of its columns are left to it.
    """
    from psycopg import sql

    # The constraints reject a bad row in its task, and not the commit of the whole batch.
    copied = "" if spec.deletes else "INCLUDING CONSTRAINTS"
    nullable = [column for column in used if column.name not in spec.key] if spec.deletes else []
    changes = [
        *(("DROP COLUMN {} CASCADE", name) for name in unused),
        *(("ALTER COLUMN {} DROP NOT NULL", column.name) for column in nullable),
        *(("ALTER COLUMN {} SET NOT NULL", name) for name in spec.key if not spec.takes_null_keys),
        *(("ADD COLUMN {} boolean NOT NULL", name) for name in spec.staged[len(spec.columns) :]),
        ("ADD COLUMN {} bigserial", ORDER),
    ]
    table = own_identifier(staging)
    create = sql.SQL("CREATE UNLOGGED TABLE {} (LIKE {} {})").format(
        table, table_identifier(spec.table), sql.SQL(copied)
    )
    alter = (
        sql.SQL("ALTER TABLE {} " + change).format(table, sql.Identifier(name))
        for change, name in changes
    )
    without_domain = (
        sql.SQL("ALTER TABLE {} ALTER COLUMN {} TYPE {}").format(
            table, sql.Identifier(column.name), sql.SQL(column.plain)
        )
        for column in nullable
    )
    return sql.SQL("; ").join([create, *alter, *without_domain])
