"""The SQL of the sink: staging tables, and how their rows get into the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed

SCHEMA = "headrace"
STAGING = "staging_"
ORDER = "headrace_order"
TASK = "headrace_task"

SETUP = """
CREATE SCHEMA IF NOT EXISTS headrace;
CREATE TABLE IF NOT EXISTS headrace.positions (
    target text,
    app_id text,
    version bigint NOT NULL,
    PRIMARY KEY (target, app_id)
);
"""
POSITIONS_THERE = "SELECT to_regclass('headrace.positions') IS NOT NULL"
RECORDED = """
SELECT app_id, version FROM headrace.positions WHERE target = %s AND app_id = ANY(%s)
"""
RECORD = """
INSERT INTO headrace.positions (target, app_id, version)
SELECT %s, * FROM unnest(%s::text[], %s::bigint[])
ON CONFLICT (target, app_id) DO UPDATE SET version = excluded.version
"""
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
LEFT_BEHIND = """
SELECT relname FROM pg_catalog.pg_class
WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' AND starts_with(relname, %s)
"""
EVERY_COLUMN = """
SELECT attname FROM pg_catalog.pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
UNIQUE_KEY = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_index AS i
    WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL
      AND (
          SELECT array_agg(coalesce(a.attname, '')::text ORDER BY a.attname)
          FROM generate_series(0, i.indnkeyatts - 1) AS place
          LEFT JOIN pg_catalog.pg_attribute AS a
              ON a.attrelid = i.indrelid AND a.attnum = i.indkey[place]
      ) = (SELECT array_agg(name ORDER BY name::name) FROM unnest(%s::text[]) AS name)
)
"""


@dataclass(frozen=True)
class TargetSpec:
    """A table to write to; picklable.

    Attributes:
        table: its name.
        columns: of the rows.
        mode: of :class:`~headrace.sinks.postgres.declaration.WriteMode`.
        key: for upsert and add.
        newest_by: for upsert.
    """

    table: str
    columns: tuple[str, ...]
    mode: str
    key: tuple[str, ...]
    newest_by: str | None


def staging_name(staging: str) -> Composable:
    """The full name of a staging table."""
    from psycopg import sql

    return sql.Identifier(SCHEMA, staging)


def create_staging(spec: TargetSpec, staging: str, unused: Sequence[str]) -> Composed:
    """A table like the target, with its types, CHECK and NOT NULL, but for the ``unused`` columns.

    What a column of it takes, the target takes. It is not logged: a crash of the server empties it,
    which the commit notices.
    """
    from psycopg import sql

    name = staging_name(staging)
    statements = [
        sql.SQL("CREATE UNLOGGED TABLE {} (LIKE {} INCLUDING CONSTRAINTS)").format(
            name, sql.Identifier(*spec.table.split(".", 1))
        ),
        *(
            sql.SQL("ALTER TABLE {} DROP COLUMN {} CASCADE").format(name, sql.Identifier(column))
            for column in unused
        ),
        sql.SQL("ALTER TABLE {} ADD COLUMN {} bigserial").format(name, sql.Identifier(ORDER)),
    ]
    return sql.SQL("; ").join(statements)


def copy_into(spec: TargetSpec, staging: str) -> Composed:
    """Takes CSV with the rows' columns; an unquoted empty value is null."""
    from psycopg import sql

    return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
        staging_name(staging), _names(spec.columns)
    )


def insert_from(spec: TargetSpec, staging: Sequence[str]) -> Composed:
    """Moves the rows of all staging tables of a batch into the table."""
    from psycopg import sql

    table, columns = sql.Identifier(*spec.table.split(".", 1)), _names(spec.columns)
    source = sql.SQL(" UNION ALL ").join(
        sql.SQL("SELECT {}, {}, {} AS {} FROM {}").format(
            columns, sql.Identifier(ORDER), task, sql.Identifier(TASK), staging_name(name)
        )
        for task, name in enumerate(sorted(staging))
    )
    rows = {"append": _appended, "upsert": _newest, "add": _summed}[spec.mode](spec, source)
    insert = sql.SQL("INSERT INTO {} AS target ({}) {}").format(table, columns, rows)
    return insert + _on_conflict(spec)


def count_rows(staging: str) -> Composed:
    """Counts the rows of a staging table."""
    from psycopg import sql

    return sql.SQL("SELECT count(*) FROM {}").format(staging_name(staging))


def _appended(spec: TargetSpec, source: Composed) -> Composed:
    from psycopg import sql

    order = _names((TASK, ORDER))
    return sql.SQL("SELECT {} FROM ({}) AS rows ORDER BY {}").format(
        _names(spec.columns), source, order
    )


def _newest(spec: TargetSpec, source: Composed) -> Composed:
    from psycopg import sql

    by = [spec.newest_by] if spec.newest_by else []
    newest = [sql.SQL("{} DESC NULLS LAST").format(sql.Identifier(n)) for n in (*by, TASK, ORDER)]
    key = _names(spec.key)
    return sql.SQL("SELECT DISTINCT ON ({}) {} FROM ({}) AS rows ORDER BY {}").format(
        key, _names(spec.columns), source, sql.SQL(", ").join([key, *newest])
    )


def _summed(spec: TargetSpec, source: Composed) -> Composed:
    from psycopg import sql

    items = [
        sql.Identifier(name)
        if name in spec.key
        else sql.SQL("sum({})").format(sql.Identifier(name))
        for name in spec.columns
    ]
    return sql.SQL("SELECT {} FROM ({}) AS rows GROUP BY {}").format(
        sql.SQL(", ").join(items), source, _names(spec.key)
    )


def _on_conflict(spec: TargetSpec) -> Composable:
    from psycopg import sql

    if not spec.key:
        return sql.SQL("")
    template = "{0} = excluded.{0}" if spec.mode == "upsert" else "{0} = target.{0} + excluded.{0}"
    changes = [
        sql.SQL(template).format(sql.Identifier(name))
        for name in spec.columns
        if name not in spec.key
    ]
    if not changes:
        return sql.SQL(" ON CONFLICT ({}) DO NOTHING").format(_names(spec.key))
    update = sql.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(
        _names(spec.key), sql.SQL(", ").join(changes)
    )
    if spec.newest_by is None:
        return update
    newer = " WHERE target.{0} IS NULL OR excluded.{0} >= target.{0}"
    return update + sql.SQL(newer).format(sql.Identifier(spec.newest_by))


def _names(names: Sequence[str]) -> Composed:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, names))
