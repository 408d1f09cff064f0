"""Which rows of a batch have the key of another row, and are not taken for that.

**Unique rows.** The table has a unique index on the columns of ``by``. The INSERT of a batch leaves
out rows whose key exists; where it has left out any, the transaction is rolled back, and these
rows are looked for: those with equal values are duplicates, the others dead letters. Of equal keys
in a batch the row that was read first is inserted.

**Ties of an upsert.** A row that is as new as the row of its key by ``newest_by``, and has another
value where that has one, is a dead letter; so is one that differs from a row of its batch that is
as new, and written. The INSERT does not take them, nor rows that are older; where it has taken
fewer rows than came, ties are looked for within its transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import SinkError
from headrace.model import CONFLICTING_KEY
from headrace.sinks.api import RejectedValues
from headrace.sinks.postgres.connection import find_table
from headrace.sinks.postgres.identifiers import ORDER, TASK, listed, listed_names, table_identifier
from headrace.sinks.postgres.metrics import CONFLICTS, DUPLICATES
from headrace.sinks.postgres.rows import taken_out
from headrace.sinks.postgres.rows.insert import fits, is_key, newest_rows
from headrace.sinks.postgres.rows.staging import delete_staged, staged_rows
from headrace.sinks.postgres.snapshot import ReadableColumns
from headrace.sinks.postgres.target import TargetSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg.sql import Composable, Composed

    from headrace.sinks.postgres.connection import Connection

_ROWS_AT_ONCE = 50_000
# A table of the user's may have any other name than those of its common table expressions.
_KNOWN = """
WITH headrace_rows AS MATERIALIZED (
    SELECT *, row_number() OVER (ORDER BY {task}, {order}) AS _headrace_number
    FROM ({staged}) AS staged
), headrace_first AS (
    SELECT DISTINCT ON ({key}) * FROM headrace_rows ORDER BY {key}, _headrace_number
), headrace_known AS (
    SELECT rows.*,
        CASE WHEN {is_in_table} THEN {equals_target} ELSE {equals_first} END AS _headrace_is_same
    FROM headrace_rows AS rows JOIN headrace_first AS first ON {is_key_of_first}
        LEFT JOIN {table} AS target ON {is_key_of_target}
    WHERE {is_in_table} OR first._headrace_number < rows._headrace_number
)
SELECT {task}, {order}, _headrace_is_same, CASE WHEN NOT _headrace_is_same THEN (
    SELECT row_to_json(shown)::text FROM (SELECT {columns}) AS shown
) END, {readable}
FROM headrace_known ORDER BY _headrace_number
"""
# What this transaction has written is looked at in the batch: a trigger may have changed it.
_TIED = """
WITH headrace_rows AS MATERIALIZED ({staged}), headrace_newest AS ({newest})
SELECT {task}, {order}, (SELECT row_to_json(shown)::text FROM (SELECT {columns}) AS shown)
FROM headrace_rows AS rows JOIN headrace_newest AS newest ON {is_key_of_newest}
    LEFT JOIN {table} AS target ON {is_key_of_target}
WHERE CASE
    WHEN target.xmin::text::bigint <> txid_current() % (1::bigint << 32)
    THEN target.{newest_by} = rows.{newest_by} AND NOT ({fits_target})
    ELSE newest.{newest_by} = rows.{newest_by} AND NOT ({equals_newest})
END
ORDER BY {task}, {order} LIMIT {limit}
"""


@dataclass(frozen=True)
class LeftOutRows:
    """Rows that are not inserted.

    Attributes:
        rejected: those with other values than the row of their key.
        repeats: the others, with the columns that can be read back as they were sent; None: of an
            upsert there are none.
        counts: how many each staging table had.
        figures: how many they are, by the name of a figure.
    """

    rejected: Sequence[RejectedValues]
    repeats: pa.Table | None
    counts: Mapping[str, int]
    figures: Mapping[str, int]


def remove_known(connection: Connection, spec: TargetSpec, staging: Sequence[str]) -> LeftOutRows:
    """Removes rows from staging tables whose key the table has, or an earlier row of the batch.

    Raises:
        SinkError: if more than :data:`~.taken_out.MAX_DEAD_LETTERS` of them have other values.
    """
    import pyarrow as pa

    tables = sorted(staging)
    target = find_table(connection, spec.table)
    kinds = {name: target.columns[name] for name in spec.columns} if target is not None else {}
    # One at least: the order of rows in their task.
    readable = ReadableColumns.among({**kinds, ORDER: "bigint"})
    statement = _selection(spec, tables, readable)
    orders: dict[str, list[int]] = defaultdict(list)
    rejected: list[RejectedValues] = []
    repeats = [readable.batch([])]
    detail = f"a row with this {', '.join(spec.key)} is there, with other values"
    with connection.transaction():
        with connection.cursor("headrace_known") as cursor:
            cursor.execute(statement)
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                for task, order, *_ in rows:
                    orders[tables[task]].append(order)
                texts = [text for _, _, is_same, text, *_ in rows if not is_same]
                rejected += [RejectedValues(text, CONFLICTING_KEY, detail) for text in texts]
                _check_limit(spec, len(rejected))
                repeats.append(readable.batch([row[4:] for row in rows if row[2]]))
        for table, numbers in orders.items():
            connection.execute(delete_staged(table), (numbers,))
    duplicates = pa.Table.from_batches(repeats)
    figures = {DUPLICATES: duplicates.num_rows, CONFLICTS: len(rejected)}
    counts = {table: len(numbers) for table, numbers in orders.items()}
    return LeftOutRows(rejected, duplicates, counts, figures)


def try_comparison(connection: Connection, spec: TargetSpec, staging: str) -> None:
    """Looks for the rows of a staging table that has none: PostgreSQL says whether it can.

    Raises:
        psycopg.Error: if a type has no equality.
    """
    if spec.is_unique:
        remove_known(connection, spec, [staging])
    elif spec.refuses_ties:
        tied_rows(connection, spec, [staging])


def tied_rows(
    connection: Connection, spec: TargetSpec, staging: Sequence[str]
) -> list[tuple[str, int, str]]:
    """Returns the rows of a batch that the table has otherwise, and equally new, after its INSERT.

    Returns:
        the staging table of each, its order in it, and the row as JSON.

    Raises:
        SinkError: if there are more than :data:`~.taken_out.MAX_DEAD_LETTERS`.
    """
    from psycopg import sql

    tables = sorted(staging)
    statement = sql.SQL(_TIED).format(
        task=sql.Identifier(TASK),
        order=sql.Identifier(ORDER),
        columns=listed(sql.Identifier("rows", name) for name in spec.columns),
        staged=staged_rows(spec, tables),
        newest=newest_rows(spec, sql.SQL("SELECT * FROM headrace_rows")),
        is_key_of_newest=is_key(spec, "rows", "newest"),
        is_key_of_target=is_key(spec, "rows", "target"),
        table=table_identifier(spec.table),
        newest_by=sql.Identifier(spec.newest_by or ""),
        fits_target=fits(spec, "rows"),
        equals_newest=_are_equal(spec, "rows", "newest"),
        limit=taken_out.MAX_DEAD_LETTERS + 1,
    )
    rows = connection.execute(statement).fetchall()
    _check_limit(spec, len(rows))
    return [(tables[task], order, text) for task, order, text in rows]


def remove_tied(
    connection: Connection, spec: TargetSpec, rows: Sequence[tuple[str, int, str]]
) -> LeftOutRows:
    """Removes the rows of :func:`tied_rows` from their staging tables."""
    orders: dict[str, list[int]] = defaultdict(list)
    for table, order, _ in rows:
        orders[table].append(order)
    with connection.transaction():
        for table, numbers in orders.items():
            connection.execute(delete_staged(table), (numbers,))
    detail = f"a row with this {', '.join(spec.key)} is there, as new by {spec.newest_by}"
    rejected = [
        RejectedValues(text, CONFLICTING_KEY, f"{detail}, with other values") for *_, text in rows
    ]
    counts = {table: len(numbers) for table, numbers in orders.items()}
    return LeftOutRows(rejected, None, counts, {CONFLICTS: len(rejected)})


def _check_limit(spec: TargetSpec, conflicts: int) -> None:
    if conflicts > taken_out.MAX_DEAD_LETTERS:
        advice = (
            "name columns that differ in each duplicate in Unique.ignore"
            if spec.is_unique
            else f"choose a column for newest_by that differs, unlike {spec.newest_by}"
        )
        reason = (
            f"more than {taken_out.MAX_DEAD_LETTERS} rows of a batch have a key"
            f" ({', '.join(spec.key)}) that is there with other values; {advice}"
        )
        raise SinkError(f"table {spec.table}", reason)


def _selection(spec: TargetSpec, tables: Sequence[str], readable: ReadableColumns) -> Composed:
    """Selects task, order, whether the values are equal, the row as JSON, what can be read back."""
    from psycopg import sql

    return sql.SQL(_KNOWN).format(
        task=sql.Identifier(TASK),
        order=sql.Identifier(ORDER),
        staged=staged_rows(spec, tables),
        key=listed_names(spec.key),
        is_in_table=sql.SQL("target.{} IS NOT NULL").format(sql.Identifier(spec.key[0])),
        equals_target=_are_equal(spec, "rows", "target"),
        equals_first=_are_equal(spec, "rows", "first"),
        is_key_of_first=is_key(spec, "rows", "first"),
        is_key_of_target=is_key(spec, "rows", "target"),
        table=table_identifier(spec.table),
        columns=listed_names(spec.columns),
        readable=readable.selected(),
    )


def _are_equal(spec: TargetSpec, own: str, its: str) -> Composable:
    from psycopg import sql

    pairs = (column.is_same(own, its) for column in spec.compared_types)
    return sql.SQL(" AND ").join([sql.SQL("true"), *pairs])
