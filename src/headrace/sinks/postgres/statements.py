"""The SQL of the sink: staging tables, and how their rows get into the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headrace.sinks.postgres.connection import table_identifier
from headrace.sinks.postgres.target import TargetSpec

if TYPE_CHECKING:
    from psycopg.sql import Composable, Composed, Identifier

    from headrace.sinks.postgres.connection import Connection

SCHEMA = "headrace"
STAGING = "staging_"
ORDER = "headrace_order"
TASK = "headrace_task"
NUMBER = "headrace_number"

LEFT_BEHIND = """
SELECT relname FROM pg_catalog.pg_class
WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' AND starts_with(relname, %s)
"""
EVERY_COLUMN = """
SELECT attname FROM pg_catalog.pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
# OTHERS does not catch a cancelled statement, so a timeout of the server ends the loop. Variables
# begin with headrace_: one with the name of a column would be ambiguous.
_CREATE_INSERTION = """
CREATE FUNCTION {function}({parameters}) RETURNS TABLE (
    headrace_index int,
    headrace_state text,
    headrace_message text,
    headrace_column text,
    headrace_detail text
) LANGUAGE plpgsql AS {body}
"""
_INSERT_EACH = """
DECLARE
    headrace_row {staging}%ROWTYPE;
BEGIN
    FOR headrace_place IN 1..cardinality({first}) LOOP
        BEGIN
            {assignments}
            INSERT INTO {staging} ({columns}) VALUES ({values});
        EXCEPTION WHEN OTHERS THEN
            headrace_index := headrace_place - 1;
            GET STACKED DIAGNOSTICS
                headrace_state = RETURNED_SQLSTATE,
                headrace_message = MESSAGE_TEXT,
                headrace_column = COLUMN_NAME,
                headrace_detail = PG_EXCEPTION_DETAIL;
            RETURN NEXT;
        END;
    END LOOP;
END
"""


def staging_name(staging: str) -> Composable:
    """The full name of a staging table."""
    from psycopg import sql

    return sql.Identifier(SCHEMA, staging)


def create_staging(spec: TargetSpec, staging: str, unused: Sequence[str]) -> Composed:
    """A table like the target, with its types, CHECK and NOT NULL, but for the ``unused`` columns.

    What a column of it takes, the target takes. It is not logged: a crash of the server empties it,
    which the commit notices. A key with a null in it would be another row's each time: a unique
    index takes any number of them.
    """
    from psycopg import sql

    name = staging_name(staging)
    statements = [
        sql.SQL("CREATE UNLOGGED TABLE {} (LIKE {} INCLUDING CONSTRAINTS)").format(
            name, table_identifier(spec.table)
        ),
        *(
            sql.SQL("ALTER TABLE {} DROP COLUMN {} CASCADE").format(name, sql.Identifier(column))
            for column in unused
        ),
        *(
            sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET NOT NULL").format(
                name, sql.Identifier(column)
            )
            for column in (() if spec.takes_null_keys else spec.key)
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


def create_insertion(spec: TargetSpec, staging: str, function: str) -> Composed:
    """Makes a function that inserts rows one by one, and returns the errors of those that fail.

    It takes an array for each column: texts in UTF-8, as bytes. As text, one character that the
    database lacks would fail the whole call. The assignments to fields of a row convert texts as
    COPY does, by the input function and the length of the column's type; a cast would cut a text
    that is too long.
    """
    from psycopg import sql

    parameters = [sql.SQL("{} bytea[]").format(name) for name in _values(spec)]
    fields = [sql.SQL("headrace_row.{}").format(sql.Identifier(name)) for name in spec.columns]
    assignments = [
        sql.SQL("{} := convert_from({}[headrace_place], 'UTF8');").format(field, value)
        for field, value in zip(fields, _values(spec), strict=True)
    ]
    body = sql.SQL(_INSERT_EACH).format(
        staging=staging_name(staging),
        first=_values(spec)[0],
        assignments=sql.SQL(" ").join(assignments),
        columns=_names(spec.columns),
        values=sql.SQL(", ").join(fields),
    )
    return sql.SQL(_CREATE_INSERTION).format(
        function=staging_name(function),
        parameters=sql.SQL(", ").join(parameters),
        body=sql.Literal(body.as_string()),
    )


def call_insertion(spec: TargetSpec, function: str) -> Composed:
    """Inserts rows, an array of values for each column; selects the errors by index from 0."""
    from psycopg import sql

    arrays = sql.SQL(", ").join([sql.SQL("%s::bytea[]")] * len(spec.columns))
    return sql.SQL("SELECT * FROM {}({})").format(staging_name(function), arrays)


def drop_insertion(function: str) -> Composed:
    """Drops the function of :func:`create_insertion`."""
    from psycopg import sql

    return sql.SQL("DROP FUNCTION {}").format(staging_name(function))


def drop_tables(connection: Connection, names: Sequence[str]) -> None:
    """Drops staging tables, those that are there."""
    from psycopg import sql

    for name in names:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(staging_name(name)))


def insert_from(spec: TargetSpec, staging: Sequence[str]) -> Composed:
    """Moves the rows of all staging tables of a batch into the table.

    With distinct counts it returns the place of each row in the table, the number of its group in
    :func:`select_sketches`, and its sketches, which it leaves as they are.
    """
    from psycopg import sql

    insert = _insert(spec, _staged_rows(spec, staging))
    if not spec.distinct:
        return insert
    returning = sql.SQL(" RETURNING target.tableoid, target.ctid, {}, {}")
    place, *_ = spec.distinct
    return insert + returning.format(_target(place), _listed(map(_target, spec.sketches)))


def select_sketches(spec: TargetSpec, staging: Sequence[str]) -> Composed:
    """Selects the number of each group of a batch, and arrays of its sketches."""
    from psycopg import sql

    sketches = (sql.SQL("array_agg({})").format(sql.Identifier(name)) for name in spec.sketches)
    return sql.SQL("SELECT {}, {} FROM ({}) AS rows GROUP BY {}").format(
        _group_number(spec), _listed(sketches), _staged_rows(spec, staging), _names(spec.key)
    )


def update_sketches(spec: TargetSpec) -> Composed:
    """Writes estimates and sketches to rows, by their place: arrays of each."""
    from psycopg import sql

    changed = [*spec.distinct, *spec.sketches]
    values = [sql.Identifier(f"headrace_value_{place}") for place in range(len(changed))]
    changes = (
        sql.SQL("{} = {}").format(sql.Identifier(name), value)
        for name, value in zip(changed, values, strict=True)
    )
    arrays = ["%s::bigint[]"] * len(spec.distinct) + ["%s::bytea[]"] * len(spec.distinct)
    return sql.SQL(
        "UPDATE {} AS target SET {} FROM unnest(%s::oid[], %s::tid[], {})"
        " AS merged (headrace_table, headrace_place, {})"
        " WHERE target.tableoid = headrace_table AND target.ctid = headrace_place"
    ).format(
        table_identifier(spec.table),
        _listed(changes),
        sql.SQL(", ".join(arrays)),
        _listed(values),
    )


def number_rows(spec: TargetSpec, staging: Sequence[str], numbered: str) -> Composed:
    """Copies the rows of all staging tables into a table, numbered in their order.

    The number is its key: rows are looked for by it twenty times and more for each that is wrong.
    """
    from psycopg import sql

    return sql.SQL(
        "CREATE UNLOGGED TABLE {table} AS"
        " SELECT *, row_number() OVER (ORDER BY {order}) AS {number} FROM ({rows}) AS rows;"
        " ALTER TABLE {table} ADD PRIMARY KEY ({number})"
    ).format(
        table=staging_name(numbered),
        order=_names((TASK, ORDER)),
        number=sql.Identifier(NUMBER),
        rows=_staged_rows(spec, staging),
    )


def insert_numbered(spec: TargetSpec, numbered: str) -> Composed:
    """Inserts the rows of :func:`number_rows` from ``first`` to ``last``, ``among`` these if any.

    ``among`` is null for all rows between the two.
    """
    from psycopg import sql

    rows = sql.SQL(
        "SELECT * FROM {table} WHERE {number} BETWEEN %(first)s AND %(last)s"
        " AND (%(among)s::bigint[] IS NULL OR {number} = ANY(%(among)s::bigint[]))"
    ).format(table=staging_name(numbered), number=sql.Identifier(NUMBER))
    return _insert(spec, rows)


def show_numbered(spec: TargetSpec, numbered: str) -> Composed:
    """Selects task, order and JSON of one row of :func:`number_rows`."""
    from psycopg import sql

    return sql.SQL(
        "SELECT {}, (SELECT row_to_json(shown)::text FROM (SELECT {}) AS shown)"
        " FROM {} WHERE {} = %s"
    ).format(
        _names((TASK, ORDER)),
        _names(spec.columns),
        staging_name(numbered),
        sql.Identifier(NUMBER),
    )


def delete_staged(staging: str) -> Composed:
    """Deletes rows of a staging table by their order."""
    from psycopg import sql

    return sql.SQL("DELETE FROM {} WHERE {} = ANY(%s)").format(
        staging_name(staging), sql.Identifier(ORDER)
    )


def _staged_rows(spec: TargetSpec, staging: Sequence[str]) -> Composed:
    from psycopg import sql

    return sql.SQL(" UNION ALL ").join(
        sql.SQL("SELECT {}, {}, {} AS {} FROM {}").format(
            _names(spec.columns),
            sql.Identifier(ORDER),
            task,
            sql.Identifier(TASK),
            staging_name(name),
        )
        # By name, which ends with the id of the task: ids sort as the tasks have read.
        for task, name in enumerate(sorted(staging))
    )


def _insert(spec: TargetSpec, source: Composed) -> Composed:
    from psycopg import sql

    rows = {"append": _appended, "upsert": _newest, "add": _summed}[spec.mode](spec, source)
    insert = sql.SQL("INSERT INTO {} AS target ({}) {}").format(
        table_identifier(spec.table), _names(spec.written), rows
    )
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
    # DISTINCT ON takes the first row of each key, in the order below.
    key = _names(spec.key)
    return sql.SQL("SELECT DISTINCT ON ({}) {} FROM ({}) AS rows ORDER BY {}").format(
        key, _names(spec.columns), source, sql.SQL(", ").join([key, *newest])
    )


def _summed(spec: TargetSpec, source: Composed) -> Composed:
    """The sums of each key, in the order of the keys: so no two writers wait for each other.

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

    items = [*map(item, spec.columns), *(_group_number(spec) for _ in spec.distinct)]
    key = _names(spec.key)
    return sql.SQL("SELECT {} FROM ({}) AS rows GROUP BY {} ORDER BY {}").format(
        _listed(items), source, key, key
    )


def _group_number(spec: TargetSpec) -> Composed:
    from psycopg import sql

    return sql.SQL("row_number() OVER (ORDER BY {})").format(_names(spec.key))


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
    if not changes:
        return sql.SQL(" ON CONFLICT ({}) DO NOTHING").format(_names(spec.key))
    update = sql.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(
        _names(spec.key), sql.SQL(", ").join(changes)
    )
    if spec.newest_by is None:
        return update
    # Equal is newer: a row that comes again with the same time has the latest offset.
    newer = " WHERE target.{0} IS NULL OR excluded.{0} >= target.{0}"
    return update + sql.SQL(newer).format(sql.Identifier(spec.newest_by))


def _values(spec: TargetSpec) -> list[Identifier]:
    from psycopg import sql

    return [sql.Identifier(f"headrace_value_{place}") for place in range(len(spec.columns))]


def _target(name: str) -> Composed:
    from psycopg import sql

    return sql.SQL("target.{}").format(sql.Identifier(name))


def _names(names: Sequence[str]) -> Composed:
    from psycopg import sql

    return _listed(map(sql.Identifier, names))


def _listed(items: Iterable[Composable]) -> Composed:
    from psycopg import sql

    return sql.SQL(", ").join(items)
