"""Rows one by one into a staging table, in the server: for the rows around one that is rejected.

``COPY`` takes all rows or none, so it would be called twice and more for each row that is wrong.
Here the rows travel once, and a function in PL/pgSQL converts and inserts each under its own
savepoint: what that costs depends on how many rows there are, not on how many are wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.sinks.api import RejectedRow
from headrace.sinks.postgres.identifiers import listed_names, own_identifier
from headrace.sinks.postgres.rows.copying import copyable
from headrace.sinks.postgres.sqlstates import Cause, ServerError
from headrace.sinks.postgres.target import TargetSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg.sql import Composed, Identifier

    from headrace.sinks.postgres.connection import Connection

_FUNCTION = """
CREATE FUNCTION {function}({parameters}) RETURNS TABLE (
    _headrace_index int,
    _headrace_state text,
    _headrace_message text,
    _headrace_column text,
    _headrace_detail text,
    _headrace_constraint text
) LANGUAGE plpgsql AS {body}
"""
# OTHERS does not catch a cancelled statement, so a timeout of the server ends the loop. Variables
# start with _headrace_: one with the name of a column would be ambiguous.
_FUNCTION_BODY = """
DECLARE
    _headrace_row {staging}%ROWTYPE;
BEGIN
    FOR _headrace_place IN 1..cardinality({first}) LOOP
        BEGIN
            {assignments}
            INSERT INTO {staging} ({columns}) VALUES ({values});
        EXCEPTION WHEN OTHERS THEN
            _headrace_index := _headrace_place - 1;
            GET STACKED DIAGNOSTICS
                _headrace_state = RETURNED_SQLSTATE,
                _headrace_message = MESSAGE_TEXT,
                _headrace_column = COLUMN_NAME,
                _headrace_detail = PG_EXCEPTION_DETAIL,
                _headrace_constraint = CONSTRAINT_NAME;
            RETURN NEXT;
        END;
    END LOOP;
END
"""


def insert_each(
    connection: Connection, spec: TargetSpec, staging: str, rows: pa.Table
) -> list[RejectedRow] | None:
    """Inserts those of a few hundred rows that the staging table takes, and returns the others.

    Returns:
        None, and nothing is inserted, where that can't be known: the error of a row may be the
        statement's, or the role may not use PL/pgSQL.

    Raises:
        psycopg.OperationalError: if the connection is lost.
    """
    import psycopg

    try:
        with connection.transaction():
            return _inserted(connection, spec, staging, rows)
    except (psycopg.ProgrammingError, _NotOfRowError):
        return None


class _NotOfRowError(Exception):
    """An error that is not certain to be a row's."""


def _inserted(
    connection: Connection, spec: TargetSpec, staging: str, rows: pa.Table
) -> list[RejectedRow]:
    import pyarrow as pa
    from psycopg import sql

    columns = copyable(rows, spec.any_fields).columns
    texts = (column.cast(pa.string()).to_pylist() for column in columns)
    values = [[None if text is None else text.encode() for text in column] for column in texts]
    function = f"insert_{uuid4().hex}"
    connection.execute(_create_function(spec, staging, function))
    errors = connection.execute(_call_function(spec, function), values).fetchall()
    # In this transaction, so nothing is left of it where the server or the task dies.
    connection.execute(sql.SQL("DROP FUNCTION {}").format(own_identifier(function)))
    failures = {index: ServerError(*facts) for index, *facts in errors}
    if any(error.cause is not Cause.ROW for error in failures.values()):
        raise _NotOfRowError
    return [RejectedRow(index, error.reason, error.message) for index, error in failures.items()]


def _create_function(spec: TargetSpec, staging: str, function: str) -> Composed:
    """Makes a function that inserts rows one by one, and returns the errors of those that fail.

    It takes an array for each column: texts in UTF-8, as bytes. As text, one character that the
    database lacks would fail the whole call. The assignments to fields of a row convert texts as
    COPY does, by the input function and the length of the column's type; a cast would cut a text
    that is too long.
    """
    from psycopg import sql

    parameters = [sql.SQL("{} bytea[]").format(name) for name in _values(spec)]
    fields = [sql.SQL("_headrace_row.{}").format(sql.Identifier(name)) for name in spec.staged]
    assignments = [
        sql.SQL("{} := convert_from({}[_headrace_place], 'UTF8');").format(field, value)
        for field, value in zip(fields, _values(spec), strict=True)
    ]
    body = sql.SQL(_FUNCTION_BODY).format(
        staging=own_identifier(staging),
        first=_values(spec)[0],
        assignments=sql.SQL(" ").join(assignments),
        columns=listed_names(spec.staged),
        values=sql.SQL(", ").join(fields),
    )
    return sql.SQL(_FUNCTION).format(
        function=own_identifier(function),
        parameters=sql.SQL(", ").join(parameters),
        body=sql.Literal(body.as_string()),
    )


def _call_function(spec: TargetSpec, function: str) -> Composed:
    """Inserts rows, an array of values for each column; selects the errors by index from 0."""
    from psycopg import sql

    arrays = sql.SQL(", ").join([sql.SQL("%s::bytea[]")] * len(spec.staged))
    return sql.SQL("SELECT * FROM {}({})").format(own_identifier(function), arrays)


def _values(spec: TargetSpec) -> list[Identifier]:
    from psycopg import sql

    return [sql.Identifier(f"_headrace_value_{place}") for place in range(len(spec.staged))]
