"""The table of statistics, which the first start makes, and what is written beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import TableMismatchError
from headrace.sinks.api import Transaction
from headrace.sinks.postgres.connection import find_table, quoted
from headrace.sinks.postgres.identifiers import table_identifier
from headrace.sinks.postgres.positions import LOCK, POSITIONS_ARE_THERE, SETUP_LOCK
from headrace.sinks.postgres.recorded_table import (
    RecordedTable,
    find_recorded,
    has_new_files,
    has_rows,
)
from headrace.sinks.postgres.snapshot import ONE_MOMENT, recorded_by_all
from headrace.sinks.postgres.stats.grouping import WINDOW_START, StatsGrouping
from headrace.sinks.postgres.stats.measures import Distinct
from headrace.sinks.postgres.target import TargetSpec, sketch_column

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg.sql import Composable, Composed

    from headrace.sinks.postgres.connection import Connection

COMPLETENESS = (
    "SELECT to_regclass('headrace.completeness') IS NOT NULL",
    """
    CREATE TABLE headrace.completeness (
        target text,
        pipeline text,
        complete_until timestamptz NOT NULL,
        PRIMARY KEY (target, pipeline)
    )
    """,
)
_NOT_KNOWN = """
INSERT INTO headrace.completeness VALUES (%s, %s, '-infinity') ON CONFLICT DO NOTHING
"""
_COMPLETE_UNTIL = """
INSERT INTO headrace.completeness AS known
VALUES (%s, %s, %s::timestamptz)
ON CONFLICT (target, pipeline) DO UPDATE
SET complete_until = greatest(known.complete_until, excluded.complete_until)
"""
_COMPLETE_FROM_NEW_START = """
INSERT INTO headrace.completeness VALUES (%s, %s, coalesce(%s::timestamptz, '-infinity'))
ON CONFLICT (target, pipeline) DO UPDATE SET complete_until = excluded.complete_until
"""
# It holds the least time of the table back until the pipeline has counted from another start.
_OF_EMPTIED = " before the table was emptied"
_EMPTIED = """
INSERT INTO headrace.completeness
SELECT target, pipeline || %(emptied)s, '-infinity' FROM headrace.completeness
WHERE target = %(target)s AND right(pipeline, length(%(emptied)s)) <> %(emptied)s
ON CONFLICT (target, pipeline) DO UPDATE SET complete_until = excluded.complete_until
"""
_COUNTED_AGAIN = """
UPDATE headrace.completeness SET complete_until = 'infinity' WHERE (target, pipeline) = (%s, %s)
"""
# The lock of an INSERT: no TRUNCATE comes between this look and the rows of the transaction.
_LOCK_TABLE = "LOCK TABLE {} IN ROW EXCLUSIVE MODE"
_FORGET_COMPLETENESS = "DELETE FROM headrace.completeness WHERE target = ANY(%s)"
_HAS_POSITIONS = "SELECT EXISTS (SELECT FROM headrace.positions WHERE target = ANY(%s))"
# Rows under a name that another table has now may be of that one's pipelines.
_RENAME = """
UPDATE headrace.completeness AS known SET target = %(target)s
WHERE target = ANY(%(targets)s) AND target <> %(target)s
  AND target NOT IN (SELECT target FROM headrace.tables) AND NOT EXISTS (
    SELECT FROM headrace.completeness AS own
    WHERE own.target = %(target)s AND own.pipeline = known.pipeline
)
"""
# PostgreSQL 15 has the column; to_jsonb asks for it in every version.
_TAKES_NULL_KEYS = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_index AS i
    WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indnkeyatts = %s
      AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
      AND (to_jsonb(i) ->> 'indnullsnotdistinct')::boolean
      AND (
          SELECT bool_and(a.attname = ANY(%s))
          FROM pg_catalog.pg_attribute AS a
          WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
      )
)
"""
_NULLS_NOT_DISTINCT = 150_000
_COUNTED = """
SELECT extract(epoch FROM {window})::bigint, sum({count})::bigint FROM {table} GROUP BY 1
"""


def creation(
    connection: Connection, table: str, grouping: StatsGrouping, schema: pa.Schema
) -> Composed:
    """Returns the statement that makes the table for rows with ``schema``."""
    from psycopg import sql

    columns = [(WINDOW_START, "timestamptz NOT NULL")]
    columns += [(name, _sql_type(schema.field(name).type)) for name in grouping.by]
    for name, measure in grouping.measures.items():
        columns.append((name, measure.sql_type(schema)))
        if isinstance(measure, Distinct):
            columns.append((sketch_column(name), "bytea"))
    has_nulls = connection.info.server_version >= _NULLS_NOT_DISTINCT
    unique = "UNIQUE NULLS NOT DISTINCT" if has_nulls else "PRIMARY KEY"
    items: list[Composable] = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns
    ]
    key = sql.SQL(", ").join(map(sql.Identifier, grouping.key))
    items.append(sql.SQL("{} ({})").format(sql.SQL(unique), key))
    return sql.SQL("CREATE TABLE {} ({})").format(
        table_identifier(table), sql.SQL(", ").join(items)
    )


def check_not_lost(connection: Connection, table: RecordedTable) -> None:
    """Looks whether a table that is not there was there before.

    Raises:
        TableMismatchError: if pipelines have written to it; a new one would lack their rows.
    """
    [(are_there,)] = connection.execute(POSITIONS_ARE_THERE).fetchall()
    if are_there and connection.execute(_HAS_POSITIONS, (list(table.targets),)).fetchall() == [
        (True,)
    ]:
        reason = (
            "it was deleted, and pipelines have written to it. Restore it; or, to count again from"
            " the topics, `DELETE` its rows of headrace.positions and reset the checkpoints"
        )
        raise TableMismatchError(table.name, reason)


def make_table(
    connection: Connection, name: str, grouping: StatsGrouping, schema: pa.Schema
) -> None:
    """Makes the table where there is none, inside the caller's transaction; of several, one does.

    Raises:
        TableMismatchError: if pipelines have written to a table that was deleted.
    """
    connection.execute(LOCK, (SETUP_LOCK,))
    if find_table(connection, name) is None:
        deleted = find_recorded(connection, name)
        check_not_lost(connection, deleted)
        connection.execute(creation(connection, name, grouping, schema))
        connection.execute(_FORGET_COMPLETENESS, (list(deleted.targets),))


def spec_of(
    connection: Connection, table: str, grouping: StatsGrouping, schema: pa.Schema
) -> TargetSpec:
    """Returns how sums of rows with ``schema`` are written to an existing table."""
    key = list(grouping.key)
    question = (quoted(connection, table), len(key), key)
    [(takes_null_keys,)] = connection.execute(_TAKES_NULL_KEYS, question).fetchall()
    distinct = [name for name, kind in grouping.measures.items() if isinstance(kind, Distinct)]
    return TargetSpec(
        table,
        grouping.columns,
        "add",
        grouping.key,
        None,
        tuple(distinct),
        takes_null_keys,
        grouping.kinds(schema),
    )


def begin_completeness(connection: Connection, table: RecordedTable, pipeline: str) -> None:
    """Notes that a pipeline writes to a table: until its first commit, no window is complete."""
    connection.execute(_RENAME, {"target": table.target, "targets": list(table.targets)})
    connection.execute(_NOT_KNOWN, (table.target, pipeline))


def record_completeness(
    pipeline: str, connection: Connection, table: RecordedTable, transaction: Transaction
) -> None:
    """Writes until when the pipeline's part of the table is complete, in a batch's transaction.

    Called before the rows of the batch are in the table.
    """
    from psycopg import sql

    connection.execute(sql.SQL(_LOCK_TABLE).format(table_identifier(table.name)))
    notice_emptied(connection, table)
    complete_until = transaction.metadata.get("complete_until")
    if transaction.begins_elsewhere:
        values = (table.target, pipeline, complete_until)
        connection.execute(_COMPLETE_FROM_NEW_START, values)
        connection.execute(_COUNTED_AGAIN, (table.target, f"{pipeline}{_OF_EMPTIED}"))
    elif complete_until is not None:
        connection.execute(_COMPLETE_UNTIL, (table.target, pipeline, complete_until))


def notice_emptied(connection: Connection, table: RecordedTable) -> None:
    """Takes back until when a table is complete, if TRUNCATE has emptied it since the last look."""
    if has_new_files(connection, table) and not has_rows(connection, table.name):
        emptied = {"target": table.target, "emptied": _OF_EMPTIED}
        connection.execute(_EMPTIED, emptied)


def counted(
    connection: Connection, table: str, count: str
) -> tuple[dict[int, int], dict[str, int]]:
    """Returns the sums of a counting column by window, and the positions of the same moment.

    A window is named by its start, in seconds since 1970. Where there is no table yet, both are
    empty.
    """
    from psycopg import sql

    with connection.transaction():
        connection.execute(ONE_MOMENT)
        [(has_positions,)] = connection.execute(POSITIONS_ARE_THERE).fetchall()
        if not has_positions or find_table(connection, table) is None:
            return {}, {}
        statement = sql.SQL(_COUNTED).format(
            count=sql.Identifier(count),
            window=sql.Identifier(WINDOW_START),
            table=table_identifier(table),
        )
        events: dict[int, int] = dict(connection.execute(statement).fetchall())
        return events, recorded_by_all(connection, table)


def _sql_type(kind: pa.DataType) -> str:
    from pyarrow import types

    if types.is_integer(kind):
        return "numeric" if types.is_uint64(kind) else "bigint"
    if types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    names = {"bool": "boolean", "date32[day]": "date"}
    return names.get(str(kind), "text")
