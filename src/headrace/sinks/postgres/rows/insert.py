"""How the rows of staging tables get into the table: one INSERT, by the mode of the sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.sinks.api import DELETED
from headrace.sinks.postgres.identifiers import ORDER, TASK, listed, listed_names, table_identifier
from headrace.sinks.postgres.rows.staging import staged_rows
from headrace.sinks.postgres.target import TargetSpec

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed

# delete first: an inserted row may take over a value of another unique index from a deleted one.
_DELETE_AND_INSERT = """
WITH headrace_newest AS MATERIALIZED ({rows}), headrace_deleted AS (
    DELETE FROM {table} AS target USING headrace_newest AS newest
    WHERE newest.{deleted} AND {is_key} RETURNING true
)
INSERT INTO {table} AS target ({columns})
SELECT {columns} FROM headrace_newest
WHERE NOT {deleted} AND (SELECT count(*) FROM headrace_deleted) >= 0
"""


def insert_from(spec: TargetSpec, staging: Sequence[str]) -> Composed:
    """Moves the rows of all staging tables of a batch into the table.

    With distinct counts it returns the place of each row in the table, the number of its group in
    :mod:`headrace.sinks.postgres.sketches`, and its sketches, which it leaves as they are.
    """
    from psycopg import sql

    insert = insert_selected(spec, staged_rows(spec, staging))
    if not spec.distinct:
        return insert
    returning = sql.SQL(" RETURNING target.tableoid, target.ctid, {}, {}")
    place, *_ = spec.distinct
    return insert + returning.format(_target(place), listed(map(_target, spec.sketches)))


def insert_selected(spec: TargetSpec, source: Composed) -> Composed:
    """Inserts what ``source`` selects: rows of staging tables, with their task and order."""
    from psycopg import sql

    rows = {"append": _appended, "upsert": newest_rows, "add": _summed}[spec.mode](spec, source)
    statement = sql.SQL("INSERT INTO {table} AS target ({columns}) {rows}")
    if spec.deletes:
        statement = sql.SQL(_DELETE_AND_INSERT)
    insert = statement.format(
        table=table_identifier(spec.table),
        columns=listed_names(spec.written),
        rows=rows,
        deleted=sql.Identifier(DELETED),
        is_key=is_key(spec, "newest", "target"),
    )
    return insert + _on_conflict(spec)


def is_key(spec: TargetSpec, own: str, its: str) -> Composable:
    """Returns the condition that two rows have one key."""
    from psycopg import sql

    pair = f"{own}.{{0}} = {its}.{{0}}"
    return sql.SQL(" AND ").join(sql.SQL(pair).format(sql.Identifier(name)) for name in spec.key)


def group_number(spec: TargetSpec) -> Composed:
    """Numbers the groups of a batch by their key, alike in every statement of it."""
    from psycopg import sql

    return sql.SQL("row_number() OVER (ORDER BY {})").format(listed_names(spec.key))


def _appended(spec: TargetSpec, source: Composed) -> Composed:
    from psycopg import sql

    order = listed_names((TASK, ORDER))
    return sql.SQL("SELECT {} FROM ({}) AS rows ORDER BY {}").format(
        listed_names(spec.columns), source, order
    )


def newest_rows(spec: TargetSpec, source: Composable) -> Composed:
    """Selects the newest row of each key; of those that are equally new the first one.

    Where ties are not refused, or no order of them is known, it is the last one.
    """
    from psycopg import sql

    # DISTINCT ON takes the first row of each key, in the order below.
    key = listed_names(spec.key)
    return sql.SQL("SELECT DISTINCT ON ({0}) {1} FROM ({2}) AS rows ORDER BY {0}, {3}").format(
        key, listed_names(spec.staged), source, newest_first(spec)
    )


def newest_first(spec: TargetSpec) -> Composed:
    """Returns the order of the rows of a key, of which the first one is written."""
    from psycopg import sql

    order = []
    if spec.newest_by is not None:
        order.append(sql.SQL("{} DESC NULLS LAST").format(sql.Identifier(spec.newest_by)))
    # Of equally new rows the first one. Rows without a time are all equal here: the last one stays.
    if spec.refuses_ties:
        first = "CASE WHEN {} IS NOT NULL THEN {} END"
        order += [
            sql.SQL(first).format(sql.Identifier(spec.newest_by or ""), sql.Identifier(name))
            for name in (TASK, ORDER)
        ]
    order += [sql.SQL("{} DESC").format(sql.Identifier(name)) for name in (TASK, ORDER)]
    return sql.SQL(", ").join(order)


def fits(spec: TargetSpec, own: str) -> Composable:
    """Returns the condition that a row equals the table's row of its key where that is not null."""
    from psycopg import sql

    pairs = (
        sql.SQL("({} IS NULL OR {})").format(_target(column.name), column.is_same(own, "target"))
        for column in spec.compared_types
    )
    return sql.SQL(" AND ").join([sql.SQL("true"), *pairs])


def _summed(spec: TargetSpec, source: Composed) -> Composed:
    """Selects the sums of each key, in the order of the keys: no two writers wait for each other.

    The estimates of distinct counts are numbers of groups until they are merged, in the same
    transaction. The empty sketch is only for rows that are new.
    """
    from psycopg import sql

    def item(name: str) -> Composable:
        if name in spec.key:
            return sql.Identifier(name)
        if name in spec.sketches:
            return sql.SQL("''::bytea")
        return sql.SQL("sum({})").format(sql.Identifier(name))

    values = [*map(item, spec.columns), *(group_number(spec) for _ in spec.distinct)]
    # Without a name of its own, a sum would have that of the function, which a key may have, too.
    items = [
        sql.SQL("{} AS {}").format(value, sql.Identifier(name))
        for value, name in zip(values, spec.written, strict=True)
    ]
    key = listed_names(spec.key)
    return sql.SQL("SELECT {} FROM ({}) AS rows GROUP BY {} ORDER BY {}").format(
        listed(items), source, key, key
    )


def _on_conflict(spec: TargetSpec) -> Composable:
    from psycopg import sql

    if not spec.key:
        return sql.SQL("")
    replace = "{0} = excluded.{0}"
    # Null adds nothing, as in sum().
    add = "{0} = coalesce(target.{0} + excluded.{0}, target.{0}, excluded.{0})"
    is_added = spec.mode == "add"
    changes = [
        sql.SQL(add if is_added and name in spec.columns else replace).format(sql.Identifier(name))
        for name in spec.written
        if name not in (*spec.key, *spec.sketches)
    ]
    if spec.is_unique or not changes:
        return sql.SQL(" ON CONFLICT ({}) DO NOTHING").format(listed_names(spec.key))
    update = sql.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(
        listed_names(spec.key), sql.SQL(", ").join(changes)
    )
    if spec.newest_by is None:
        return update
    tied = fits(spec, "excluded") if spec.refuses_ties else sql.SQL("true")
    newer = (
        " WHERE target.{0} IS NULL OR excluded.{0} > target.{0}"
        " OR excluded.{0} = target.{0} AND {1}"
    )
    return update + sql.SQL(newer).format(sql.Identifier(spec.newest_by), tied)


def _target(name: str) -> Composed:
    from psycopg import sql

    return sql.SQL("target.{}").format(sql.Identifier(name))
